"""The timeline parser on small timelines written by hand: both generations, and every way in which files go wrong."""

from __future__ import annotations

import json

import pytest

from features.notices import Notices
from features.parsers.timeline import TIMELINE, TimelineParser
from features.records import Collective, Cycles, Ready, Record

EPOCH_US = 1_650_000_000_250_000
HEADER = (
    f'[\n{{"name": "process_name", "ph": "M", "pid": 0, "args": {{"start_time_since_epoch_in_micros":{EPOCH_US}}}}},\n'
    '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
)


def named(pid: int, name: str) -> str:
    return (
        f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "{name}"}}}},\n'
        f'{{"name": "process_sort_index", "ph": "M", "pid": {pid}, "args": {{"sort_index": {pid}}}}}'
    )


def begin(pid: int, name: str, ts: int) -> str:
    return f'{{"ph": "B", "name": "{name}", "ts": {ts}, "pid": {pid}}}'


def end(pid: int, ts: int, shape: str | None = None, dtype: str = "float32") -> str:
    args = "" if shape is None else f', "args": {{"dtype": "{dtype}", "shape": "{shape}"}}'
    return f'{{"ph": "E", "ts": {ts}, "pid": {pid}{args}}}'


def tick(pid: int, rank: int | str, ts: int) -> str:
    return f'{{"ph": "X", "name": "{rank}", "ts": {ts}, "pid": {pid}, "dur": 0}}'


def cycle(ts: int) -> str:
    return f'{{"ph": "i", "name": "CYCLE_START", "ts": {ts}, "s": "g"}}'


def new(*events: str) -> bytes:
    """A file of the new generation: closed, many records a line."""
    return (HEADER + ",".join(events) + "]").encode()


def old(*events: str) -> bytes:
    """A file of the old generation: one record a line, never closed, no epoch."""
    return ("[\n" + "".join(event + ",\n" for event in events)).encode()


def simple(pid: int, at: int, op: str = "ALLREDUCE", inner: str = "GLOO_ALLREDUCE") -> list[str]:
    """One collective of 1000 us negotiation, 100 us operation and 60 us transfer."""
    return [
        begin(pid, f"NEGOTIATE_{op}", at),
        end(pid, at + 1000),
        begin(pid, op, at + 1010),
        begin(pid, inner, at + 1030),
        end(pid, at + 1090),
        end(pid, at + 1110, "[10, 4]"),
    ]


def parse(data: bytes) -> tuple[list[Record], dict[str, int]]:
    notices = Notices()
    parser = TimelineParser("timeline.json", notices)
    records = parser.feed(data)
    records += parser.finish()
    return records, {notice.text: notice.count for notice in notices.items()}


def collectives(data: bytes) -> list[Collective]:
    return [record for record in parse(data)[0] if isinstance(record, Collective)]


def place(data: bytes, text: str) -> str:
    notices = Notices()
    parser = TimelineParser("timeline.json", notices)
    parser.feed(data)
    parser.finish()
    return next(notice.source for notice in notices.items() if text in notice.text)


FUSED = [
    named(1, "grad.a"),
    begin(1, "NEGOTIATE_ALLREDUCE", 1_000_000),
    tick(1, 2, 1_000_000),
    named(2, "grad.b"),
    begin(2, "NEGOTIATE_ALLREDUCE", 1_000_500),
    tick(2, 2, 1_000_500),
    cycle(1_001_000),
    tick(1, 0, 1_005_000),
    tick(2, 0, 1_005_001),
    cycle(1_006_000),
    tick(1, 1, 1_011_000),
    end(1, 1_011_000),
    tick(2, 1, 1_011_002),
    end(2, 1_011_003),
    begin(1, "ALLREDUCE", 1_011_100),
    begin(2, "ALLREDUCE", 1_011_101),
    begin(1, "MEMCPY_IN_FUSION_BUFFER", 1_011_110),
    begin(2, "MEMCPY_IN_FUSION_BUFFER", 1_011_111),
    end(1, 1_011_120),
    end(2, 1_011_121),
    begin(1, "NCCL_ALLREDUCE", 1_011_130),
    begin(2, "NCCL_ALLREDUCE", 1_011_131),
    end(1, 1_011_430),
    end(2, 1_011_432),
    end(1, 1_011_500, "[16, 3]"),
    end(2, 1_011_505, "[5]", "float64"),
]


def test_fused_tensors_of_the_new_generation_are_one_collective() -> None:
    [record] = collectives(new(*FUSED))
    assert record == Collective(
        ts=1_650_000_001.25,
        tensor="grad.a",
        op="allreduce",
        negotiate_s=0.011,  # the longest of the two: 11000 and 10503 us
        execute_s=0.000405,  # first start to last end
        transfer_s=0.000301,
        end=1_650_000_001.261505,
        bytes=16 * 3 * 4 + 5 * 8,
        transport="nccl",
        fused=2,
        ready=(Ready(0, 0.005001), Ready(1, 0.011002), Ready(2, 0.0005)),
        source="timeline.json:pid 1",
    )


def test_new_generation_is_absolute_and_says_nothing_of_it() -> None:
    parser = TimelineParser("t", Notices())
    parser.feed(new(*FUSED))
    assert parser.absolute
    assert parse(new(*FUSED))[1] == {}


def test_old_generation_counts_from_an_unknown_moment_and_says_so() -> None:
    data = old(cycle(500_000_000_000), named(1, "v0/w"), *simple(1, 500_000_100_000, inner="MPI_ALLREDUCE"))
    notices = Notices()
    parser = TimelineParser("t", notices)
    records = parser.feed(data) + parser.finish()
    assert not parser.absolute
    assert records == [
        Collective(
            ts=500_000.1,
            tensor="v0/w",
            op="allreduce",
            negotiate_s=0.001,
            execute_s=0.0001,
            transfer_s=0.00006,
            end=500_000.10111,
            bytes=160,
            transport="mpi",
            source="t:pid 1",
        ),
        Cycles(ts=500_000.0, count=1, source="t"),
    ]
    [relative, cached] = notices.items()
    assert (relative.level, relative.count) == ("info", 1)
    assert "no absolute time" in relative.text
    assert "1 of 1 negotiations" in cached.text


def test_an_operation_alone_in_its_cycle_is_not_fused_with_the_next() -> None:
    data = new(named(1, "a"), named(2, "b"), *simple(1, 1000), *simple(2, 2500))
    assert [(c.tensor, c.fused) for c in collectives(data)] == [("a", 1), ("b", 1)]


def test_two_operations_started_in_different_cycles_are_not_fused() -> None:
    events = [begin(1, "ALLREDUCE", 10), cycle(20), begin(2, "ALLREDUCE", 30), end(1, 40, "[1]"), end(2, 50, "[1]")]
    assert [c.fused for c in collectives(new(named(1, "a"), named(2, "b"), *events))] == [1, 1]


def test_another_operation_beside_is_not_fused() -> None:
    events = [begin(1, "ALLREDUCE", 10), begin(2, "BROADCAST", 11), end(1, 40, "[1]"), end(2, 50, "[1]")]
    assert [c.op for c in collectives(new(named(1, "a"), named(2, "b"), *events))] == ["allreduce", "broadcast"]


def test_asynchronous_responses_started_in_one_go_come_apart_when_the_first_has_ended() -> None:
    start = [begin(pid, "ALLREDUCE", 10 + pid) for pid in (1, 2, 3)]
    first = [begin(1, "NCCL_ALLREDUCE", 20), begin(2, "NCCL_ALLREDUCE", 20), end(1, 30), end(2, 30)]
    second = [begin(3, "NCCL_ALLREDUCE", 40), end(3, 70), end(3, 71, "[1]")]
    events = [*start, *first, end(1, 31, "[1]"), end(2, 32, "[1]"), *second]
    done = collectives(new(named(1, "a"), named(2, "b"), named(3, "c"), *events))
    assert [(c.tensor, c.fused, c.transfer_s) for c in done] == [("a", 2, 1e-5), ("c", 1, 3e-5)]


def test_activity_of_another_thread_between_the_starts_does_not_part_a_group() -> None:
    running = [begin(3, "ALLREDUCE", 1), begin(3, "NCCL_ALLREDUCE", 2), cycle(5)]
    events = [begin(1, "ALLREDUCE", 10), end(3, 11), begin(2, "ALLREDUCE", 12), end(3, 13, "[1]")]
    rest = [end(1, 40, "[1]"), end(2, 50, "[1]")]
    done = collectives(new(named(1, "a"), named(2, "b"), named(3, "c"), *running, *events, *rest))
    assert [(c.tensor, c.fused) for c in done] == [("c", 1), ("a", 2)]


def test_several_transfers_of_one_operation_add_up() -> None:
    events = [
        begin(1, "ALLREDUCE", 0),
        begin(1, "NCCL_REDUCESCATTER", 10),
        end(1, 20),
        begin(1, "MPI_ALLREDUCE", 30),
        begin(1, "SOMETHING_INSIDE", 31),
        end(1, 33),
        end(1, 50),
        begin(1, "NCCL_ALLGATHER", 60),
        end(1, 65),
        end(1, 70),
    ]
    [record] = collectives(new(named(1, "a"), *events))
    assert record.transfer_s == pytest.approx(35e-6)
    assert record.transport == "nccl"  # the first
    assert record.bytes is None  # no args at the end
    assert record.negotiate_s is None  # it was not seen


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ALLREDUCE", "allreduce"),
        ("ADASUM", "allreduce"),
        ("BROADCAST", "broadcast"),
        ("ALLGATHER", "allgather"),
        ("ALLTOALL", "alltoall"),
        ("REDUCESCATTER", "reducescatter"),
        ("NOVELTY", "novelty"),
    ],
)
def test_operations_have_the_names_of_the_records(name: str, op: str) -> None:
    [record] = collectives(new(named(1, "a"), *simple(1, 0, op=name)))
    assert (record.op, record.execute_s) == (op, 0.0001)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("int64", "[]", 8),
        ("uint8", "[7]", 7),
        ("bfloat16", "[2, 3]", 12),
        ("float32", "[0, 9]", 0),
        ("quaternion", "[2]", None),
        ("float32", "2x3", None),
        ("float32", "[-1]", None),
        ("float64", "[999999999999999999, 999999999999999999]", None),
    ],
)
def test_bytes_come_from_dtype_and_shape(dtype: str, shape: str, size: int | None) -> None:
    [record] = collectives(new(named(1, "a"), begin(1, "ALLGATHER", 0), end(1, 9, shape, dtype)))
    assert record.bytes == size


def test_what_never_ended_comes_out_at_the_end_only() -> None:
    stalled = [begin(1, "NEGOTIATE_ALLREDUCE", 50), tick(1, 3, 60)]
    crashed = [*simple(2, 0)[:3], begin(3, "ALLREDUCE", 1011), begin(2, "GLOO_ALLREDUCE", 1020)]
    data = new(named(1, "a"), named(2, "b"), named(3, "c"), *crashed, *stalled)
    parser = TimelineParser("t", Notices())
    assert parser.feed(data) == []
    [first, second] = parser.finish()
    assert isinstance(first, Collective)
    assert isinstance(second, Collective)
    assert (first.tensor, first.fused, first.negotiate_s, first.execute_s, first.end) == ("b", 2, 0.001, None, None)
    assert (second.tensor, second.negotiate_s, second.end) == ("a", None, None)
    assert second.ready == (Ready(3, 1e-5),)
    assert parser.finish() == []


def test_a_group_of_which_some_ended_before_the_file_stops_is_over() -> None:
    *events, _ = FUSED
    [record] = collectives(new(*events))
    assert (record.fused, record.end, record.bytes) == (2, 1_650_000_001.2615, None)


def test_barrier_is_over_with_its_negotiation() -> None:
    events = [begin(1, "NEGOTIATE_BARRIER", 10), tick(1, 0, 10), tick(1, 1, 90), end(1, 90), end(1, 95)]
    records, notices = parse(new(named(1, "barrier.noname"), *events))
    [record] = records
    assert isinstance(record, Collective)
    assert (record.op, record.negotiate_s, record.execute_s) == ("barrier", 8e-5, None)
    assert record.end == pytest.approx(EPOCH_US / 1e6 + 9e-5, abs=1e-7)
    assert notices == {}


def test_join_has_an_end_only_and_settles_what_joined_ranks_had_opened() -> None:
    phantom = [begin(1, "NEGOTIATE_ALLREDUCE", 10), end(1, 500)]
    records, notices = parse(new(named(1, "a"), *phantom, named(2, "join.noname"), end(2, 600, "[]", "int32")))
    assert [(r.op, r.negotiate_s) for r in records if isinstance(r, Collective)] == [
        ("allreduce", 0.00049),
        ("join", None),
    ]
    assert all(r.end is not None for r in records if isinstance(r, Collective))
    assert not [text for text in notices if "without a beginning" in text]


def test_an_error_response_keeps_the_operation_that_was_asked_for() -> None:
    events = [*simple(1, 0)[:2], begin(1, "ERROR", 1010), end(1, 1020)]
    records, notices = parse(new(named(1, "a"), *events))
    assert [r.op for r in records if isinstance(r, Collective)] == ["allreduce"]
    assert notices["Horovod answered a negotiation with an error"] == 1


# Cycles


def test_cycles_are_summed_up_by_second_of_absolute_time() -> None:
    # the epoch ends in .25, so event time turns to a new second at 750000
    marks = [700_000, 705_000, 712_000, 749_999, 750_000, 755_000, 3_000_000]
    records, _ = parse(new(*map(cycle, marks)))
    first, second, third = records
    base = EPOCH_US / 1e6
    assert first == Cycles(
        ts=(EPOCH_US + 749_999) / 1e6, count=4, median_gap_s=0.007, max_gap_s=0.037999, source="timeline.json"
    )
    assert second == Cycles(ts=base + 0.755, count=2, median_gap_s=0.0025005, max_gap_s=0.005, source="timeline.json")
    assert third == Cycles(ts=base + 3.0, count=1, median_gap_s=2.245, max_gap_s=2.245, source="timeline.json")


def test_a_second_is_told_as_soon_as_a_later_mark_comes() -> None:
    parser = TimelineParser("t", Notices())
    assert parser.feed(new(cycle(0), cycle(5000))[:-1]) == []
    assert [type(r) for r in parser.feed(("," + cycle(900_000) + "]").encode())] == [Cycles]


def test_a_mark_before_the_last_one_is_counted_and_makes_no_gap() -> None:
    records, notices = parse(new(cycle(100_000), cycle(90_000), cycle(95_000)))
    assert notices["time jumps backwards"] == 1
    assert [(r.count, r.max_gap_s) for r in records if isinstance(r, Cycles)] == [(1, None), (2, 0.005)]


def test_other_marks_are_no_cycles() -> None:
    assert parse(new(cycle(5), cycle(6).replace("CYCLE_START", "LUNCH")))[0][0] == Cycles(
        ts=(EPOCH_US + 5) / 1e6, count=1, source="timeline.json"
    )


# Notices


def test_absent_ticks_are_explained_with_counts() -> None:
    ticked = [begin(1, "NEGOTIATE_ALLREDUCE", 0), tick(1, 0, 0), *simple(1, 0)[1:]]
    _, notices = parse(new(named(1, "a"), *ticked, *simple(1, 5000), *simple(1, 9000)))
    [text] = notices
    assert text.startswith("rank ticks are absent in 2 of 3 negotiations")
    assert "HOROVOD_CACHE_CAPACITY=0" in text


def test_ticks_in_most_negotiations_need_no_explanation() -> None:
    assert parse(new(*FUSED))[1] == {}


@pytest.mark.parametrize("data", [b"", b"[", b"[\n", b"[]", b" [ \n ]"])
def test_nothing_recorded_is_said_and_is_no_failure(data: bytes) -> None:
    assert parse(data) == ([], {"empty timeline: no collective was recorded": 1})


def test_a_tensor_without_a_name_goes_by_its_number_until_named() -> None:
    records, notices = parse(new(*simple(7, 0), named(7, "late"), *simple(7, 5000)))
    assert [r.tensor for r in records if isinstance(r, Collective)] == ["tensor 7", "late"]
    assert notices["a tensor has no name: its number is used"] == 1


def test_ends_and_ticks_out_of_place_are_counted() -> None:
    _, notices = parse(new(named(1, "a"), end(1, 5), end(9, 6), tick(1, 0, 7), *simple(1, 10)))
    assert notices["an end without a beginning was ignored"] == 2
    assert notices["a rank tick outside of a negotiation was ignored"] == 1


def test_a_tick_that_names_no_rank_is_left_out() -> None:
    odd = [tick(1, "x", 1), tick(1, "9" * 20, 2), tick(1, 4, 3)]
    [record] = collectives(new(named(1, "a"), begin(1, "NEGOTIATE_ALLREDUCE", 0), *odd, *simple(1, 0)[1:]))
    assert [ready.rank for ready in record.ready] == [4]


def test_a_lost_end_of_an_operation_costs_its_duration_only() -> None:
    records, notices = parse(new(named(1, "a"), *simple(1, 0)[:-1], *simple(1, 5000)))
    first, second = (r for r in records if isinstance(r, Collective))
    assert (first.negotiate_s, first.execute_s, first.transfer_s) == (0.001, None, None)
    assert first.end is not None  # it is over: no evidence of a stall
    assert second.execute_s == 0.0001
    assert notices["a collective begins before the one before it on the same tensor has ended"] == 1


def test_a_lost_end_of_a_negotiation_leaves_the_operation() -> None:
    events = simple(1, 0)
    [record] = collectives(new(named(1, "a"), events[0], *events[2:]))
    assert (record.negotiate_s, record.execute_s, record.transfer_s) == (None, 0.0001, 0.00006)


def test_a_negotiation_begun_twice_counts_once() -> None:
    records, notices = parse(new(named(1, "a"), begin(1, "NEGOTIATE_ALLREDUCE", 0), *simple(1, 100)))
    assert [r.negotiate_s for r in records if isinstance(r, Collective)] == [0.001]
    assert notices["a collective begins before the one before it on the same tensor has ended"] == 1


def test_time_that_jumps_backwards_is_counted_and_makes_no_negative_duration() -> None:
    events = [begin(1, "ALLREDUCE", 9_000_000), end(1, 5_000_000, "[1]")]
    records, notices = parse(new(named(1, "a"), *events))
    assert [r.execute_s for r in records if isinstance(r, Collective)] == [None]
    assert notices["time jumps backwards"] == 1


def test_threads_may_overtake_each_other() -> None:
    events = [begin(1, "ALLREDUCE", 10), begin(2, "ALLREDUCE", 8), end(2, 30), end(1, 29)]
    assert "time jumps backwards" not in parse(new(named(1, "a"), named(2, "b"), *events))[1]


# Two jobs in one file


def test_a_second_header_starts_anew_and_tells_what_the_first_job_left_open() -> None:
    first = new(named(1, "a"), cycle(10), begin(1, "NEGOTIATE_ALLREDUCE", 20))
    second = new(named(1, "b"), cycle(10), *simple(1, 0)).replace(str(EPOCH_US).encode(), b"1660000000000000")
    records, notices = parse(first + second)
    assert notices["another job starts in the same file"] == 1
    assert "time jumps backwards" not in notices
    assert [(type(r).__name__, int(r.ts)) for r in records if isinstance(r, Collective | Cycles)] == [
        ("Cycles", 1_650_000_000),
        ("Collective", 1_650_000_000),
        ("Collective", 1_660_000_000),
        ("Cycles", 1_660_000_000),
    ]
    opened, done = (r for r in records if isinstance(r, Collective))
    assert (opened.tensor, opened.end, done.tensor) == ("a", None, "b")


def test_an_old_file_has_no_header_but_names_its_tensors_again() -> None:
    job = old(named(1, "a"), cycle(9_000_000), *simple(1, 9_000_000))
    records, notices = parse(job + job.replace(b"9000", b"4000"))
    assert notices["another job starts in the same file"] == 1
    assert "time jumps backwards" not in notices
    assert [int(r.ts) for r in records if isinstance(r, Collective)] == [9, 4]


# Layout


LAYOUTS = {
    "closed": "{0},{1}]",
    "closed after each": "{0}],{1}]",
    "closed and not replaced": "{0}]{1}]",
    "no comma": "{0}{1}]",
    "line by line": "{0},\n{1},\n",
    "windows lines": "{0},\r\n{1}\r\n]\r\n",
    "spread out": "  {0} ,\n\n\t {1}  ] \n",
    "stray commas": "{0},,{1},]",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_separators_do_not_matter(layout: str) -> None:
    body = FUSED[0]
    for event in FUSED[1:]:
        body = layout.format(body, event).rstrip("]\n\r\t ") if "," in layout else layout.format(body, event)
    assert parse((HEADER + body).encode()) == parse(new(*FUSED))


def test_pretty_printed_files_are_read_as_well() -> None:
    pretty = json.dumps(json.loads(new(*FUSED)), indent=2, sort_keys=True).encode()
    assert parse(pretty) == parse(new(*FUSED))


def test_a_growing_file_is_read_like_the_finished_one() -> None:
    whole = new(*FUSED, *simple(1, 2_000_000))
    parser, records = TimelineParser("timeline.json", Notices()), []
    seen = 0
    for size in range(1, len(FUSED) + 7):  # the reader polls after each event; every poll finds the array closed
        now = new(*[*FUSED, *simple(1, 2_000_000)][:size])
        records += parser.feed(now[seen:])
        seen = len(now)
    assert records + parser.finish() == parse(whole)[0]


# Damage


def test_a_truncated_last_record_is_located() -> None:
    data = new(named(1, "a"), *simple(1, 0), cycle(9000))
    cut = data[:-20]
    assert parse(cut)[1]["the last record is cut off"] == 1
    assert place(cut, "cut off") == f"timeline.json:byte {data.rindex(b'{')}"
    assert len(collectives(cut)) == 1


def test_a_file_cut_right_after_a_record_is_not_damaged() -> None:
    assert parse(new(*FUSED)[:-1]) == parse(new(*FUSED))


@pytest.mark.parametrize("junk", [b"\x00\xff\xfe\x01", b"}}}", b'{"', b"null", b"{{{{{{{{{{{{{{", b'"ph": "B"', b"{}"])
def test_junk_between_records_costs_nothing_but_a_notice(junk: bytes) -> None:
    before, after = simple(1, 0), simple(1, 5000)
    data = new(named(1, "a"), *before, cycle(4000), *after)
    at = data.index(cycle(4000).encode())
    spoilt = data[:at] + junk + data[at:]
    assert collectives(spoilt) == collectives(data)
    assert parse(spoilt)[1]["damaged bytes were skipped"] == 1
    assert place(spoilt, "damaged").startswith("timeline.json:byte ")


def test_a_record_torn_in_the_middle_of_a_file_is_skipped() -> None:
    data = new(named(1, "a"), *simple(1, 0), cycle(4000), *simple(1, 5000))
    torn = data.replace(b'"CYCLE_START", "ts": 4000, "s": "g"},', b'"CYC')
    assert collectives(torn) == collectives(data)
    assert parse(torn)[1]["damaged bytes were skipped"] == 1
    assert place(torn, "damaged") == f"timeline.json:byte {data.index(cycle(4000).encode())}"


@pytest.mark.parametrize(
    "odd",
    [
        '{"ph": "E", "ts": 1e400, "pid": 1}',
        '{"ph": "E", "ts": ' + "9" * 400 + ', "pid": 1}',
        '{"ph": "E", "ts": 99999999999999999999, "pid": 1}',
        '{"ph": "E", "ts": "12", "pid": 1}',
        '{"ph": "E", "pid": 1}',
        '{"ph": "E", "ts": 5}',
        '{"ts": 5, "pid": 1}',
        '{"ph": "E", "ts": NaN, "pid": 1}',
        '{"ph": "E", "ts": 5, "pid": "Comm.byteps"}',
    ],
)
def test_impossible_values_are_damage(odd: str) -> None:
    events = simple(1, 0)
    data = new(named(1, "a"), *events[:3], odd, *events[3:])
    assert collectives(data) == collectives(new(named(1, "a"), *events))
    assert parse(data)[1]["damaged bytes were skipped"] == 1


def test_records_of_other_kinds_are_counted_as_such() -> None:
    data = new(named(1, "a"), '{"ph": "C", "name": "memory", "ts": 5, "pid": 1, "args": {"mb": 3}}', *simple(1, 10))
    records, notices = parse(data)
    assert len(records) == 1
    assert notices["a record of an unknown kind was skipped"] == 1
    assert "damaged bytes were skipped" not in notices


def test_invalid_utf8_in_a_name_is_replaced() -> None:
    data = new(named(1, "caf?"), *simple(1, 0)).replace(b"caf?", b"caf\xe9")
    assert [c.tensor for c in collectives(data)] == ["caf\ufffd"]
    assert parse(data)[1]["invalid UTF-8 in the name of a tensor was replaced"] == 1


def test_a_huge_epoch_is_no_clock() -> None:
    data = new(*FUSED).replace(str(EPOCH_US).encode(), b"9" * 30)
    parser = TimelineParser("t", Notices())
    parser.feed(data)
    assert not parser.absolute


def test_an_endless_record_is_given_up() -> None:
    data = new(named(1, "a"), *simple(1, 0))[:-1] + b',{"ph": "' + b"x" * 100_000
    records, notices = parse(data + ('"},' + ",".join(simple(1, 5000))).encode())
    assert len(records) == 2
    assert notices["damaged bytes were skipped"] == 1


# Sniffing


@pytest.mark.parametrize(
    "head",
    [b"[\n", b"[]", new(*FUSED), old(cycle(5)), old(begin(1, "NEGOTIATE_ALLGATHER", 4)), HEADER.encode()],
)
def test_sniff_knows_its_own(head: bytes) -> None:
    assert TIMELINE.sniff(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b'[{"kind": "host"}]',
        b'{"traceEvents": [{"ph": "X", "name": "NEGOTIATE_ALLREDUCE"}]}',
        b"2024-01-01 INFO CYCLE_START",
        b'[{"ph": "X", "cat": "kernel", "name": "sgemm", "ts": 1, "dur": 2, "pid": 0, "tid": 7}]',
    ],
)
def test_sniff_leaves_others_alone(head: bytes) -> None:
    assert not TIMELINE.sniff(head)
