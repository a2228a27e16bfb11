"""Whatever the bytes and however they are cut, a text log gives the same records and never fails."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.events import EVENT_KINDS
from features.notices import Notice, Notices
from features.parsers.loglines import LineSplitter
from features.parsers.textlog import BAD_UTF8, NULS, TextLog
from features.records import Log, Phase, Record, RunInfo, Step

FRAGMENTS = [
    "[0]<stdout>:", "[1,0]<stderr>:", "[1,1]<stderr>:", "[rank3]: ", " 3: ", "12: ", "(W pid=7, ip=10.0.0.9) ",
    "2031-04-05T06:07:08.125+00:00 ", "[2031-04-05 06:07:08. 89665: W a.cc:1] ", "I0405 06:07:08.125 77 a.py:1] ",
    "[ 1843.308145] ", "INFO ", "[rank=1 host=beta] ", "step=1 loss=nan step_time=0.5 batch=4", "step 5 loss: 0.25",
    "start world_size=4 model=x batch=2", "epoch=0 val_acc=0.5 eval_time=0.25", "done steps=3", "Epoch 2/9",
    "10\timages/sec: 320.0 +/- 1.0 (jitter = 2.0)\t7.5", "3/4 [==>.] - 8s 2s/step - loss: 1.5",
    "{'loss': 1.5, 'epoch': 1}",
    " 16%|#5 | 40/250 [00:10<01:00,  2.50s/it]", "WARNING: ", '{"step": 3, "loss": 1}',
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in y', "    raise z", "ValueError: bad", "Killed", "Terminated",
    "One or more tensors were submitted to be reduced for more than 60 seconds. ", "Missing ranks:", "Stalled ops:",
    "3!: [a, b ...]", "a [ready ranks: 1, 2]", "a [missing ranks: 0]",
    "is stalled for longer than 9 seconds. Will shutdown.",
    "Process 2 exit with status code 137.", "Process name: 2", "Exit code: 1", "alpha:1:2 [0] NCCL WARN trouble",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=7", "CUDA out of memory.", "\x1b[31m", "\r", "\0", "\xff", "é", " ", ": ", "[",
    "]",
]  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=5).map("".join), max_size=12)
FILES = LINES.map("\n".join).map(lambda text: text.encode("latin-1", errors="replace"))


def parse(*chunks: bytes) -> tuple[list[Record], list[Notice], int]:
    """All that a parser says of these chunks."""
    notices = Notices()
    parser = TextLog("run.log", notices)
    records = [record for chunk in chunks for record in parser.feed(chunk)]
    return records + parser.finish(), notices.items(), parser.unknown_lines


@given(FILES, st.lists(st.integers(0, 400), max_size=8))
def test_chunks_make_no_difference(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    # `repr`, since NaN is a value here and differs from itself
    assert repr(parse(*(data[a:b] for a, b in pairwise(edges)))) == repr(parse(data))


@given(FILES | st.binary(max_size=300))
def test_records_are_well_formed(data: bytes) -> None:
    records, _, unknown = parse(data)
    assert unknown >= 0
    for record in records:
        assert isinstance(record, Log | Phase | RunInfo | Step)
        assert record.source.startswith("run.log:")
        assert 1 <= int(record.source.removeprefix("run.log:")) <= data.count(b"\n") + 1
        if isinstance(record, Log):
            assert record.event in EVENT_KINDS
            assert record.ranks == tuple(sorted(set(record.ranks)))
        if isinstance(record, Step):
            assert record.step >= 0
            assert record.rank >= 0


@given(st.text(max_size=200))
def test_any_text_is_survived(text: str) -> None:
    parse(text.encode())


WHOLE = (
    b"[0]<stdout>:2031-04-05T06:07:08.125+00:00 INFO [rank=0 host=beta] start world_size=2 model=x batch=4\r\n"
    b"[0]<stdout>:2031-04-05T06:07:09.125+00:00 INFO [rank=0 host=beta] step=0 loss=0.5 step_time=0.25 batch=4\r\n"
    b"[1]<stderr>:Traceback (most recent call last):\r\n[1]<stderr>:ValueError: bad\r\n"
    b"[0]<stderr>:[2031-04-05 06:07:10. 89665: W a.cc:1] One or more tensors were submitted to be reduced\r\n"
    b"[0]<stderr>:Missing ranks:\r\n[0]<stderr>:1: [a, b ...]\r\nProcess 1 exit with status code 1.\r\n"
)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64])
def test_small_chunks_of_a_whole_log(step: int) -> None:
    assert parse(*(WHOLE[i : i + step] for i in range(0, len(WHOLE), step))) == parse(WHOLE)


def test_cut_at_any_byte_keeps_what_came_before() -> None:
    """A file that is still growing, or that a dying process left behind."""
    complete = parse(WHOLE)[0]
    for end in range(len(WHOLE)):
        whole_lines = WHOLE[:end].count(b"\n")
        kept = [r for r in complete if int(r.source.removeprefix("run.log:")) <= whole_lines and not _open(r, end)]
        found = parse(WHOLE[:end])[0]
        assert [record for record in kept if record not in found] == []


def _open(record: Record, end: int) -> bool:
    """Whether a message of several lines may lack some of them when only `end` bytes are there."""
    return isinstance(record, Log) and WHOLE[:end].count(b"\n") < {"stall": 7, "exception": 4}.get(record.event, 0)


def test_line_ends_make_no_difference() -> None:
    assert parse(WHOLE.replace(b"\r\n", b"\n")) == parse(WHOLE) == parse(WHOLE.rstrip(b"\r\n"))


def test_empty_file_gives_nothing() -> None:
    assert parse(b"") == ([], [], 0)


def test_nul_bytes_and_wrong_encodings_are_told_and_left_out() -> None:
    records, notices, _ = parse(b"Kil\0led\n\xff\xfe\nKilled\n")
    assert [record.source for record in records] == ["run.log:1", "run.log:3"]
    assert {(n.text, n.source) for n in notices} == {(NULS, "run.log:line 1"), (BAD_UTF8, "run.log:line 2")}


def test_long_lines_are_cut_and_told() -> None:
    notices = Notices()
    splitter = LineSplitter("run.log", notices, cap=8)
    lines = [line for chunk in (b"0123", b"456789\nab", b"c\r\n", b"x" * 20) for line in splitter.feed(chunk)]
    assert lines + list(splitter.finish()) == [b"01234567", b"abc", b"x" * 8]
    assert [(n.source, n.count) for n in notices.items()] == [("run.log:line 1", 2)]
