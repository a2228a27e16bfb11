"""Messages in their context: stalls in all layouts, tracebacks, exits, who wrote them and what follows from what."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers.textlog import TextLog
from features.records import Log

T0 = 1933135628.125
AT = "2031-04-05 06:07:08.125000"
HEADLINE = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying."
)


def logs(text: str) -> list[Log]:
    """The messages of a whole log."""
    parser = TextLog("run.log", Notices())
    records = parser.feed(text.encode()) + parser.finish()
    return [record for record in records if isinstance(record, Log)]


def warning(tag: str = "", severity: str = "W", rest: str = "") -> str:
    return f"{tag}[{AT}: {severity} horovod/common/stall_inspector.cc:107] {HEADLINE}{rest} \n"


def test_missing_ranks_of_the_present_layout() -> None:
    tag = "[0]<stderr>:"
    (stall,) = logs(warning(tag) + f"{tag}Missing ranks:\n{tag}3: [grad.a, grad.b ...]\n")
    assert (stall.event, stall.ts, stall.rank, stall.ranks, stall.source) == ("stall", T0, 0, (3,), "run.log:1")
    assert stall.fields == {"severity": "W", "seconds": "60", "tensors": "grad.a, grad.b"}
    assert stall.text.startswith("W horovod/common/stall_inspector.cc:107] One or more tensors")


def test_ranks_that_miss_different_tensors_are_told_apart() -> None:
    (stall,) = logs(warning() + "Missing ranks:\n1: [grad.a]\n0: [flag]\n")
    assert stall.ranks == (0, 1)
    assert stall.fields["per_rank"] == "0: flag; 1: grad.a"
    (same,) = logs(warning() + "Missing ranks:\n1: [grad.a]\n0: [grad.a]\n")
    assert "per_rank" not in same.fields


def test_shutdown_names_the_rank_beyond_the_limit() -> None:
    text = (
        warning(severity="E")
        + 'Missing ranks:\n3!: [grad.a]\n2: [grad.a]\nOne or more rank (marked by "!") is stalled for longer than '
        "600 seconds. Will shutdown.\n"
    )
    (stall,) = logs(text)
    assert (stall.event, stall.ranks) == ("stall_shutdown", (2, 3))
    assert (stall.fields["beyond_shutdown"], stall.fields["shutdown_seconds"]) == ("3", "600")


def test_layout_of_2019_with_stalled_ranks_and_blank_lines() -> None:
    (stall,) = logs(warning() + "\nStalled ranks:\n\n4: [horovod_allreduce.0]\n")
    assert stall.ranks == (4,)


def test_layout_with_a_line_for_each_tensor() -> None:
    (stall,) = logs(f"WARNING: {HEADLINE} \nStalled ops:\na/b_0 [missing ranks: 1, 2]\nc/d_0 [missing ranks: 2]\n")
    assert (stall.ranks, stall.ts) == ((1, 2), None)
    assert stall.fields["tensors"] == "a/b_0, c/d_0"


def test_layout_with_times_on_every_tensor() -> None:
    more = f"[{AT}: W horovod/common/operations.cc:588] grad.b [missing ranks: 2]\n"
    (stall,) = logs(warning(rest="Stalled ops:grad.a [missing ranks: 1]") + more)
    assert stall.ranks == (1, 2)


def test_ready_ranks_need_the_world_size() -> None:
    line = f"WARNING: {HEADLINE} Stalled ops: grad.a [ready ranks: 1, 3, 0], grad.b [ready ranks: 1, 3]\n"
    (unknown,) = logs(line)
    assert (unknown.ranks, unknown.fields["ready"]) == ((), "0, 1, 3")
    (known,) = logs("start world_size=4 model=tiny\n" + line)
    assert (known.ranks, known.fields["ready"]) == ((0, 2), "0, 1, 3")
    assert known.fields["per_rank"] == "0: grad.b; 2: grad.a, grad.b"


def test_stall_written_piece_by_piece() -> None:
    tag = "[1,0]<stderr>:"
    pieces = warning(severity="W").replace(": ", f"{tag}: {tag}").rstrip("\n")
    text = f"{AT[:-7]} UTC master.0 -- {tag}{pieces}\n\n{tag}Missing ranks:{tag}\n{tag}5: [grad.a]{tag}\n"
    (stall,) = logs(text)
    assert (stall.rank, stall.ranks, stall.ts) == (0, (5,), T0)


def test_stall_in_a_log_with_labels_of_srun() -> None:
    text = f"0: begin\n 1: begin\n0: WARNING: {HEADLINE}\n0: Missing ranks:\n0: 1: [grad.a]\n"
    (stall,) = logs(text)
    assert (stall.rank, stall.ranks) == (0, (1,))


def test_stall_is_told_once_a_later_time_shows_that_it_is_complete() -> None:
    parser = TextLog("run.log", Notices())
    assert parser.feed((warning("[0]<stderr>:") + "[0]<stderr>:Missing ranks:\n[0]<stderr>:3: [a]\n").encode()) == []
    (stall,) = parser.feed(b"[1]<stdout>:2031-04-05 06:07:10 going on\n")
    assert isinstance(stall, Log)
    assert stall.ranks == (3,)


def test_stall_comes_before_what_follows_from_it() -> None:
    text = warning("[0]<stderr>:") + "[0]<stderr>:3: [a]\n[1]<stderr>:RuntimeError: Horovod has been shut down. x\n"
    assert [log.event for log in logs(text)] == ["stall", "horovod_error"]


TRACEBACK = """\
Traceback (most recent call last):
  File "/x/train.py", line 12, in main
    step(batch)
    ^^^^^^^^^^^
  File "/x/model.py", line 7, in step
    raise ValueError("bad")
"""


def test_traceback_is_one_message() -> None:
    (log,) = logs(f"2031-04-05T06:07:08.125Z begin\n{TRACEBACK}my.errors.ShapeProblem: rows: 3 of 4\n")
    assert (log.event, log.ts, log.source) == ("exception", T0, "run.log:2")
    assert log.fields == {
        "type": "my.errors.ShapeProblem",
        "message": "rows: 3 of 4",
        "cascade": "false",
        "at": "/x/model.py:7 in step",
    }


def test_chain_of_tracebacks_gives_each_exception() -> None:
    text = TRACEBACK + "KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    found = logs(text + TRACEBACK + "KeyboardInterrupt\n")
    assert [(log.fields["type"], log.fields["message"]) for log in found] == [
        ("KeyError", "'x'"),
        ("KeyboardInterrupt", ""),
    ]


def test_group_of_exceptions_gives_each_of_them() -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/x/train.py", line 12, in main\n  | ExceptionGroup: two (2 sub-exceptions)\n'
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
        '    |   File "/x/a.py", line 3, in f\n    | ValueError: bad\n    +------------------------------------\n'
    )
    assert [(log.fields["type"], log.fields["at"]) for log in logs(text)] == [
        ("ExceptionGroup", "/x/train.py:12 in main"),
        ("ValueError", "/x/a.py:3 in f"),
    ]


def test_word_of_another_program_within_a_traceback_is_no_exception() -> None:
    text = TRACEBACK.replace("    step(batch)\n", "Terminated\n")
    assert [log.event for log in logs(text + "ValueError: bad\n")] == ["process_terminated", "exception"]


def test_interleaved_tracebacks_of_two_ranks() -> None:
    one = [f"[1]<stderr>:{line}" for line in (TRACEBACK + "ValueError: one").splitlines()]
    two = [f"[2]<stderr>:{line}" for line in (TRACEBACK + "ValueError: two").splitlines()]
    text = "\n".join(line for pair in zip(one, two, strict=True) for line in pair)
    assert [(log.rank, log.fields["message"]) for log in logs(text)] == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    ("line", "event", "cascade"),
    [
        ("horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.", "horovod_error", "true"),
        ("RuntimeError: Horovod has been shut down.", "horovod_error", "true"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "connection_lost", "true"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", "dataloader_killed", "false"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.", "cuda_oom", "false"),
        ("RuntimeError: NCCL Error 2: unhandled system error", "nccl_error", "false"),
        ("ValueError: bad", "exception", "false"),
    ],
)
@pytest.mark.parametrize("before", ["", TRACEBACK, "2031-04-05T06:07:08Z ERROR [rank=1 host=x] uncaught exception "])
def test_exceptions_are_told_by_what_they_mean(line: str, event: str, cascade: str, before: str) -> None:
    found = logs(before + line + "\n")
    assert [(log.event, log.fields["cascade"]) for log in found] == [(event, cascade)]


def test_first_line_after_a_traceback_that_names_no_exception_ends_it() -> None:
    assert logs(TRACEBACK + "2031-04-05 06:07:08 something else entirely!\nKilled\n")[-1].event == "process_killed"


def test_exits_of_processes_that_the_launcher_ends_follow() -> None:
    text = (
        "[2]<stderr>:Killed\nProcess 2 exit with status code 137.\n"
        "Terminating remaining workers after failure of Process 2.\n[1]<stderr>:Terminated\n"
        "Process 1 exit with status code 143.\nProcess 0 exit with status code 1.\nProcess 3 exit with status code 0.\n"
    )
    found = [(log.event, log.ranks or (log.rank,), log.fields.get("cascade")) for log in logs(text)]
    assert found == [
        ("process_killed", (2,), None),
        ("process_exit", (2,), None),
        ("job_aborted", (2,), None),
        ("process_terminated", (1,), None),
        ("process_terminated", (1,), None),
        ("process_exit", (0,), "true"),
    ]


def test_sigterm_without_an_earlier_failure_is_an_exit_of_its_own() -> None:
    (log,) = logs("Process 2 exit with status code 143.\n")
    assert (log.event, log.fields) == ("process_exit", {"code": "143", "signal": "SIGTERM"})


def test_exit_of_a_rank_that_gave_up_because_of_another_follows() -> None:
    text = "[2]<stderr>:RuntimeError: Horovod has been shut down.\nProcess 2 exit with status code 1.\n"
    assert [log.fields.get("cascade") for log in logs(text)] == ["true", "true"]


@pytest.mark.parametrize(
    ("text", "ranks", "fields"),
    [
        ("Process name: 2\nExit code: 137\n", (2,), {"code": "137", "signal": "SIGKILL"}),
        ("  Process name: [[48283,1],5]\n  Exit code:    1\n", (5,), {"code": "1"}),
        ("=   RANK 3 PID 77 RUNNING AT beta\n=   EXIT STATUS: 2\n", (3,), {"code": "2"}),
        ("=   RANK 3 PID 77 RUNNING AT beta\n=   KILLED BY SIGNAL: 9 (Killed)\n", (3,), {"signal": "SIGKILL"}),
        ("  rank      : 4 (local_rank: 0)\n  exitcode  : -6 (pid: 7)\n", (4,), {"code": "-6", "signal": "SIGABRT"}),
    ],
)
def test_first_failed_process_by_every_launcher(text: str, ranks: tuple[int, ...], fields: dict[str, str]) -> None:
    (log,) = logs(text)
    assert (log.event, log.ranks, log.fields) == ("process_exit", ranks, fields | {"first": "yes"})


def test_message_without_time_takes_the_time_of_the_line_before() -> None:
    first, second = logs("Killed\n2031-04-05T06:07:08.125Z hello\nKilled\n")
    assert (first.ts, second.ts) == (None, T0)


def test_message_between_steps_without_any_time_keeps_its_place() -> None:
    parser = TextLog("run.log", Notices())
    text = "step=1 loss=1 step_time=2\nKilled\nstep=2 loss=1 step_time=2\n"
    records = parser.feed(text.encode()) + parser.finish()
    assert [record.ts for record in records] == [2.0, 2.0, 4.0]


def test_lines_without_tag_inherit_the_one_rank_that_a_program_names() -> None:
    head = "2031-04-05T06:07:08.125Z INFO [rank=3 host=beta] "
    assert [log.rank for log in logs(f"{head}begin\n{head}go on\nKilled\n")] == [3]
    two = head.replace("rank=3", "rank=4")
    assert [log.rank for log in logs(f"{head}begin\n{two}go on\nKilled\n")] == [None]
    assert [log.rank for log in logs(f"a\nb\nc\n{head}begin\nKilled\n")] == [None]  # most lines are not that rank's


def test_file_named_after_a_rank_is_that_ranks() -> None:
    parser = TextLog("logs/rank3.out", Notices())
    assert [record.rank for record in parser.feed(b"Killed\n") if isinstance(record, Log)] == [3]


def test_lines_without_tag_in_a_launchers_log_are_the_launchers() -> None:
    head = "[3]<stdout>:2031-04-05T06:07:08.125Z INFO [rank=3 host=beta] "
    assert [log.rank for log in logs(f"{head}begin\n{head}go on\nKilled\n")] == [None]
    assert [log.rank for log in logs("3: begin\n3: go on\nKilled\n")] == [None]


def test_tag_is_worth_more_than_a_rank_within_a_group() -> None:
    line = "[rank5]:[E405 06:07:08.125 P.cpp:1] [PG 1 Rank 1] last enqueued NCCL work: 7, last completed NCCL work: 6\n"
    (log,) = logs(line)
    assert log.rank == 5


def test_node_of_a_message() -> None:
    assert logs("(W pid=7, ip=10.0.0.9) Killed\n")[0].node == "10.0.0.9"
    assert logs("alpha:7:8 [0] x.cc:1 NCCL WARN trouble\n")[0].node == "alpha"
    assert logs("Apr  5 06:07:08 gamma kernel: [1.000001] Out of memory: Killed process 7 (python)\n")[0].node == "gamma"


def test_long_messages_are_kept_short() -> None:
    (log,) = logs("ValueError: " + "x" * 10_000 + "\n")
    assert len(log.text) == len(log.fields["message"]) == 400


def test_unknown_lines_are_only_counted() -> None:
    parser = TextLog("run.log", Notices())
    assert parser.feed(b"hello\n\nworld\nstep=1 loss=1\nKilled\n") == []
    assert len(parser.finish()) == 2
    assert parser.unknown_lines == 2
