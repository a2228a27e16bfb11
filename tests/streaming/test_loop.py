"""The loop's guarantee: a crash may repeat a batch but never loses one, and what is committed was flushed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streaming import ListSink, ListSource, run


def doubled(batch: Sequence[int]) -> list[int]:
    return [2 * n for n in batch]


def test_everything_read_is_handled_written_and_committed() -> None:
    source, sink = ListSource(range(10), batch=4), ListSink[int]()
    run(source, doubled, sink)
    assert sink.items == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert source.committed == 10


def test_a_crash_in_the_handler_commits_nothing_of_its_batch_and_a_restart_loses_nothing() -> None:
    items, sink = list(range(10)), ListSink[int]()

    def crashes_on_five(batch: Sequence[int]) -> list[int]:
        if 5 in batch:
            raise RuntimeError("killed")
        return doubled(batch)

    source = ListSource(items, batch=4)
    with pytest.raises(RuntimeError, match="killed"):
        run(source, crashes_on_five, sink)
    assert source.committed == 4
    run(ListSource(items[source.committed :], batch=4), doubled, sink)
    assert sink.items == doubled(items)


def test_what_was_written_but_not_flushed_is_not_final() -> None:
    sink = ListSink[int]()
    sink.write([1, 2])
    assert sink.items == []
    sink.flush()
    sink.flush()
    assert sink.items == [1, 2]


def test_results_are_flushed_before_their_input_is_committed() -> None:
    order: list[str] = []

    class Watching(ListSource[int]):
        def commit(self) -> None:
            order.append("commit")
            super().commit()

    class Sink(ListSink[int]):
        def flush(self) -> None:
            order.append("flush")
            super().flush()

    run(Watching([1, 2], batch=1), doubled, Sink())
    assert order == ["flush", "commit", "flush", "commit"]
