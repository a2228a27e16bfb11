"""`rankwatch align`: what is in a run is in its trace, on one clock, in a form that the viewers accept."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from detector.commands import align
from detector.merged import MAX_EVENTS, write_trace
from detector.wiring import score
from features.records import Collective, Cycles, Host, Log, Phase, Process, Step
from features.rundir import load_run
from models import Bundle

Event = dict[str, Any]
PARTS = ("data", "forward", "backward", "sync", "optimizer")
TENSORS = ("grad.head", "grad.body", "grad.stem")


class Trace:
    """A trace, read and held to the rules of the format."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        self.text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        document = json.loads(self.text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert list(document) == ["displayTimeUnit", "traceEvents", "otherData"]
        self.events: list[Event] = document["traceEvents"]
        self.other: dict[str, Any] = document["otherData"]
        self.processes = {e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"}
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.events if e["name"] == "thread_name"}

    def of(self, cat: str, ph: str = "X") -> list[Event]:
        """Events of a category."""
        return [e for e in self.events if e.get("cat") == cat and e["ph"] == ph]

    def place(self, event: Event) -> tuple[str, str]:
        """Names of the process and the thread of an event."""
        return self.processes[event["pid"]], self.threads[event["pid"], event["tid"]]


def flaws(trace: Trace) -> Iterator[str]:
    """Everything that Perfetto or chrome://tracing would drop, warn of or draw wrongly."""
    seen_tids: dict[int, int] = {}
    announced: set[tuple[int, int]] = set()
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for e in trace.events:
        if not all(isinstance(e.get(key), int) and e[key] > -(key == "ts") for key in ("ts", "pid", "tid")) or not e["name"]:
            yield f"no place, or that of the idle process: {e}"
        if seen_tids.setdefault(e["tid"], e["pid"]) != e["pid"]:
            yield f"a thread in two processes: {e}"
        if e["ph"] == "M":
            announced.add((e["pid"], e["tid"]))
        elif {(e["pid"], e["pid"]), (e["pid"], e["tid"])} - announced:
            yield f"not announced before: {e}"
        elif e["ph"] != "C":
            threads[e["pid"], e["tid"]].append(e)
        if not VALID[e["ph"]](e):
            yield f"not valid: {e}"
    for events in threads.values():
        yield from overlaps(events)


VALID: dict[str, Callable[[Event], bool]] = {
    "M": lambda e: set(e["args"]) <= {"name", "sort_index", "labels"},
    "C": lambda e: all(isinstance(v, int | float) and math.isfinite(v) for v in e["args"].values()) and len(e["args"]) == 1,
    "X": lambda e: isinstance(e["dur"], int) and e["dur"] >= 0,
    "i": lambda e: e["s"] == "t" and "dur" not in e,
}


def overlaps(events: list[Event]) -> Iterator[str]:
    """Spans of one thread that neither nest nor follow each other, and spans that a reader meets out of order."""
    begins = [e["ts"] for e in events if e["ph"] == "X"]
    if begins != sorted(begins):
        yield f"times go back in {events[0]}"
    open_until: list[int] = []
    for e in sorted(events, key=lambda e: e["ts"]):  # stable, as the viewers sort
        end = e["ts"] + e.get("dur", 0)
        while open_until and open_until[-1] <= e["ts"]:
            open_until.pop()
        if open_until and end > open_until[-1]:
            yield f"overlaps: {e}"
        open_until.append(end)


class Timeline:
    """Writes a Horovod timeline of a job: three tensors at the end of each step, with a tick per rank if wished."""

    def __init__(self, *, epoch_us: int | None, ticks: bool = False) -> None:
        header = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": epoch_us}}
        names = [
            {"name": "process_name", "ph": "M", "pid": i + 1, "args": {"name": tensor}} for i, tensor in enumerate(TENSORS)
        ]
        self.lines = [json.dumps(e) for e in ([header] if epoch_us is not None else []) + names]
        self.ticks, self.count = ticks, 0

    def collective(self, tensor: int, at: int, *, waits: int, runs: int, ranks: int, ends: bool = True) -> None:
        """One allreduce from `at`, in the file's microseconds; `ends` is false for one that hangs."""
        pid = tensor + 1
        events: list[dict[str, Any]] = [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at, "pid": pid}]
        if self.ticks:
            turn = self.count // len(TENSORS)  # each rank is the last one in its turn: nobody is late
            waiting = [((i + turn) % ranks, at + waits * i // max(ranks - 1, 1)) for i in range(ranks if ends else ranks - 1)]
            events += [{"ph": "X", "name": str(r), "ts": ts, "pid": pid, "dur": 0} for r, ts in waiting]
        if ends:
            start, args = at + waits + 3, {"dtype": "float32", "shape": "[512, 64]"}
            events += [
                {"ph": "E", "ts": at + waits, "pid": pid},
                {"ph": "B", "name": "ALLREDUCE", "ts": start, "pid": pid},
                {"ph": "B", "name": "GLOO_ALLREDUCE", "ts": start + 2, "pid": pid},
                {"ph": "E", "ts": start + runs - 2, "pid": pid},
                {"ph": "E", "ts": start + runs, "pid": pid, "args": args},
            ]
        self.lines += [json.dumps(e) for e in events]
        self.count += 1

    def write(self, path: Path) -> None:
        """The file, as a writer that was not stopped leaves it."""
        path.write_text("[\n" + ",\n".join(self.lines) + "\n]\n")


def timeline_of(job: Any, path: Path, *, epoch: float | None, ticks: bool = False, hangs: bool = False) -> Timeline:
    """The timeline of a synthetic job; without `epoch` its times count from 1.5 s before the first step, unsaid."""
    zero = epoch if epoch is not None else job.start - 1.5
    timeline = Timeline(epoch_us=None if epoch is None else round(epoch * 1e6), ticks=ticks)
    ends = [s.ts for s in job.steps_of_all() if s.rank == 0]
    for end in ends:
        for tensor in range(len(TENSORS)):
            at = round((end - zero) * 1e6) - 9000 + 2900 * tensor
            timeline.collective(tensor, at, waits=900, runs=1500, ranks=job.ranks)
    if hangs:
        timeline.collective(0, round((ends[-1] - zero) * 1e6) + 5000, waits=0, runs=0, ranks=job.ranks, ends=False)
    timeline.write(path)
    return timeline


def samples_of(job: Any, path: Path) -> int:
    """Counters of the machine and the processes of a job, five times a second."""
    lines = []
    for i in range(round((job.last_step_end - job.start) * 5)):
        busy, ts = 0.1 * i + 0.01 * (i % 3), round(job.start + 0.2 * i, 3)
        times = {"user": busy, "system": 0.0, "idle": 10.0 + 0.1 * i, "iowait": 0.001 * i, "softirq": 0.0, "steal": 0.0}
        host = {
            "cpu_percent": [50.0],
            "cpu_times": times,
            "load1": 2.0,
            "mem_used_mb": 900.0 + i,
            "mem_available_mb": 5000.0,
            "swap_used_mb": 0.0,
            "disk": {"read_bytes": 4096 * i, "write_bytes": 0, "busy_time": i},
            "net": {"eth0": {"tx_bytes": 1000 * i, "rx_bytes": 900 * i, "drop": 0}},
        }
        process = {"status": "running", "cpu_system_s": 0.0, "rss_mb": 400.0 + i, "threads": 4}
        ranks = {str(r): {"pid": 50 + r, "cpu_user_s": 0.15 * i + 0.01 * (i % 2), **process} for r in range(job.ranks)}
        lines.append(json.dumps({"ts": ts, "node": "n0", "host": host, "ranks": ranks}))
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


@pytest.fixture(scope="module")
def sick(job: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of everything: a rank that is slow for a while, a timeline with ticks that ends in a hang, samples."""
    sick = job(ranks=3, steps=240, slow=(1, 100, 180))
    run: Path = sick.write(tmp_path_factory.mktemp("runs") / "sick")
    timeline_of(sick, run / "timeline.json", epoch=sick.start - 0.25, ticks=True, hangs=True)
    samples_of(sick, run / "telemetry.jsonl")
    return run


@pytest.fixture(scope="module")
def drawn(sick: Path, shipped: Bundle) -> Trace:
    out = sick.parent / "sick.json.gz"
    write_trace(sick, out, bundle=shipped)
    return Trace(out)


def test_trace_keeps_the_rules_of_the_format(drawn: Trace) -> None:
    assert list(flaws(drawn)) == []
    assert max(e["ts"] + e.get("dur", 0) for e in drawn.events) == round(drawn.other["length_s"] * 1e6)


def test_every_record_is_drawn_once(sick: Path, drawn: Trace) -> None:
    records = load_run(sick).records
    steps = [e for e in drawn.of("step") if e["name"].startswith("step ")]
    wanted = Counter((r.rank, r.step) for r in records if isinstance(r, Step))
    number = {pid: int(name.split()[1]) for pid, name in drawn.processes.items() if name.startswith("rank")}
    assert Counter((number[e["pid"]], int(e["name"].split()[1])) for e in steps) == wanted
    collectives = [r for r in records if isinstance(r, Collective)]
    spans = Counter(e["name"].split()[0] for e in drawn.of("collective"))
    assert spans["allreduce"] == spans["negotiate"] == len(collectives) == 240 * 3 + 1
    assert spans["execute"] == 240 * 3
    assert len(drawn.of("readiness", "i")) == sum(len(c.ready) for c in collectives) == 240 * 3 * 3 + 2
    assert len(drawn.of("log", "i")) == sum(isinstance(r, Log) for r in records)
    counts = drawn.other["counts"]
    assert counts["samples"] == dict.fromkeys(("found", "drawn"), sum(isinstance(r, Process | Host | Cycles) for r in records))
    assert counts["collectives"] == {"found": len(collectives), "drawn": len(collectives)}


def test_tracks_have_their_places(drawn: Trace) -> None:
    assert set(drawn.processes.values()) == {"incidents", "coordinator", "rank 0 (n0)", "rank 1 (n0)", "rank 2 (n0)", "node n0"}
    assert {drawn.place(e)[1] for e in drawn.of("step")} == {"steps"}
    assert {drawn.place(e) for e in drawn.of("readiness", "i")} == {(f"rank {r} (n0)", "readiness") for r in range(3)}
    assert {drawn.place(e)[0] for e in drawn.of("collective")} == {"coordinator"}
    assert {drawn.place(e) for e in drawn.of("incident")} == {("incidents", "incidents")}
    counters = {(drawn.processes[e["pid"]], e["name"]) for e in drawn.of("sample", "C")}
    assert {("rank 2 (n0)", "CPU"), ("rank 2 (n0)", "RSS"), ("node n0", "CPU"), ("node n0", "iowait")} <= counters
    assert {("node n0", "disk read"), ("node n0", "network sent"), ("node n0", "memory used")} <= counters
    order = {e["pid"]: e["args"]["sort_index"] for e in drawn.events if e["name"] == "process_sort_index"}
    names = [drawn.processes[pid] for pid in sorted(order, key=lambda pid: order[pid])]
    assert names[0] == "incidents"
    assert [n for n in names if n.startswith("rank")] == ["rank 0 (n0)", "rank 1 (n0)", "rank 2 (n0)"]


def test_step_ends_at_its_time_and_holds_its_parts_in_order(sick: Path, drawn: Trace) -> None:
    start = drawn.other["start_epoch_us"] / 1e6
    record = next(r for r in load_run(sick).records if isinstance(r, Step) and (r.rank, r.step) == (1, 120))
    pid = next(pid for pid, name in drawn.processes.items() if name == "rank 1 (n0)")
    own = [e for e in drawn.of("step") if e["pid"] == pid]
    at = next(i for i, e in enumerate(own) if e["name"] == "step 120")
    step, parts = own[at], own[at + 1 : at + 6]
    assert start + (step["ts"] + step["dur"]) / 1e6 == pytest.approx(record.ts, abs=2e-6)
    assert step["dur"] / 1e6 == pytest.approx(record.duration_s, abs=2e-6)
    assert [p["name"] for p in parts] == list(PARTS)
    assert parts[0]["ts"] == step["ts"]
    assert all(a["ts"] + a["dur"] == b["ts"] for a, b in pairwise(parts))
    assert [p["dur"] / 1e6 for p in parts] == pytest.approx([getattr(record, f"{n}_s") for n in PARTS], abs=2e-6)
    assert step["args"]["loss"] == pytest.approx(record.loss)
    assert step["args"]["source"] == record.source


def test_collective_nests_its_negotiation_and_operation(drawn: Trace) -> None:
    events = drawn.of("collective")
    whole, negotiate, execute = events[:3]
    assert (whole["name"], negotiate["name"], execute["name"]) == ("allreduce grad.head", "negotiate", "execute")
    assert {e["tid"] for e in events[:3]} == {whole["tid"]}
    assert (negotiate["ts"], negotiate["dur"]) == (whole["ts"], 900)
    assert execute["dur"] == 1500
    assert execute["ts"] + execute["dur"] == whole["ts"] + whole["dur"]
    told = {"tensor": "grad.head", "op": "allreduce", "bytes": 131072, "transport": "gloo", "transfer_s": 0.001496}
    assert told.items() <= whole["args"].items()


def test_ticks_tell_who_came_last(drawn: Trace) -> None:
    first = [e for e in drawn.of("readiness", "i") if e["name"] == "grad.head"][:3]
    assert [(drawn.place(e)[0], e["args"]["is_last"]) for e in first] == [
        ("rank 0 (n0)", False),
        ("rank 1 (n0)", False),
        ("rank 2 (n0)", True),
    ]
    assert [e["args"]["after_s"] for e in first] == pytest.approx([0, 0.00045, 0.0009])


def test_what_never_ended_lasts_to_the_end_of_the_run(drawn: Trace) -> None:
    (hung,) = [e for e in drawn.of("collective") if "open" in e.get("args", {})]
    assert (hung["ts"] + hung["dur"]) / 1e6 == pytest.approx(drawn.other["length_s"], abs=1e-6)


def test_incidents_are_those_of_score(sick: Path, drawn: Trace) -> None:
    report = score(sick)
    assert report.incidents
    told = {e["args"]["id"]: e["args"] for e in drawn.of("incident")}
    for key in ("ranks", "nodes", "cause", "category", "confidence", "severity"):
        assert {i.id: getattr(i, key) for i in report.incidents} == {id_: args[key] for id_, args in told.items()}
    assert {i.id: [e.text for e in i.evidence] for i in report.incidents} == {id_: a["evidence"] for id_, a in told.items()}
    assert any(i.ranks == [1] for i in report.incidents)


def test_without_a_bundle_there_are_no_incidents(sick: Path, tmp_path: Path) -> None:
    summary = write_trace(sick, tmp_path / "out.json", bundle=None)
    trace = Trace(tmp_path / "out.json")
    assert trace.of("incident") == []
    assert trace.other["model"] is None
    assert summary.counts["incidents"] == {"found": 0, "drawn": 0}
    assert list(flaws(trace)) == []


def test_same_run_same_bytes(sick: Path, drawn: Trace, tmp_path: Path, shipped: Bundle) -> None:
    write_trace(sick, tmp_path / "other-name.json.gz", bundle=shipped)
    assert (tmp_path / "other-name.json.gz").read_bytes() == (sick.parent / "sick.json.gz").read_bytes()
    write_trace(sick, tmp_path / "plain.json", bundle=shipped)
    assert (tmp_path / "plain.json").read_bytes() == drawn.text


def test_relative_timeline_is_laid_on_the_steps(job: Any, tmp_path: Path) -> None:
    """What it says of the clock is what scoring says, although it keeps none of the collectives."""
    one = job(ranks=2, steps=60)
    run = one.write(tmp_path / "run")
    timeline_of(one, run / "timeline.json", epoch=None)
    write_trace(run, tmp_path / "out.json", bundle=None)
    trace = Trace(tmp_path / "out.json")
    loaded = load_run(run)
    (said,) = [n for n in loaded.notices.items() if "clock estimated" in n.text]
    assert trace.other["clock"]["notices"] == [f"info: timeline.json: {said.text}"]
    assert trace.other["clock"]["added_s"]["timeline.json"] == pytest.approx(one.start - 1.5, abs=0.02)
    ends = sorted((e["ts"] + e["dur"]) / 1e6 for e in trace.of("collective") if e["name"].startswith("allreduce"))
    wanted = sorted(c.end for c in loaded.records if isinstance(c, Collective) and c.end is not None)
    assert ends == pytest.approx([end - trace.other["start_epoch_us"] / 1e6 for end in wanted], abs=5e-6)


def test_timeline_alone_without_a_clock_counts_from_its_own_start(job: Any, tmp_path: Path) -> None:
    timeline_of(job(ranks=2, steps=20), tmp_path / "timeline.json", epoch=None, ticks=True)
    write_trace(tmp_path / "timeline.json", tmp_path / "out.json", bundle=None)
    trace = Trace(tmp_path / "out.json")
    assert list(flaws(trace)) == []
    assert (trace.other["start"], trace.other["start_epoch_us"]) == (None, None)
    assert min(e["ts"] for e in trace.of("collective")) == 0
    assert len(trace.of("readiness", "i")) == 20 * 3 * 2


@pytest.mark.parametrize("most", [100, 1500, 4000])
def test_too_much_is_sampled_evenly(sick: Path, tmp_path: Path, most: int) -> None:
    summary = write_trace(sick, tmp_path / "out.json", bundle=None, max_events=most)
    trace = Trace(tmp_path / "out.json")
    assert list(flaws(trace)) == []
    assert sum(e["ph"] != "M" for e in trace.events) <= most
    assert not summary.is_whole
    assert trace.other["sampling"] == {
        "max_events": most,
        "is_whole": False,
        "evenly": ["collectives", "steps", "samples"],
    }
    counts = trace.other["counts"]["collectives"]
    spans = [e for e in trace.of("collective") if e["name"].startswith("allreduce")]
    assert counts == {"found": 721, "drawn": len(spans)}
    assert 0 < len(spans) < 721
    closed = [e["ts"] for e in spans if "open" not in e["args"]]
    if len(closed) > 20:
        gaps = [b - a for a, b in pairwise(closed)]
        assert max(gaps) < 5 * sorted(gaps)[len(gaps) // 2] + 200_000  # no part of the run is left empty
    assert any("open" in e["args"] for e in spans)  # what hangs is never left out


def test_collectives_give_way_before_steps(sick: Path, tmp_path: Path) -> None:
    whole = write_trace(sick, tmp_path / "whole.json", bundle=None)
    summary = write_trace(sick, tmp_path / "out.json", bundle=None, max_events=whole.events - 500)
    assert summary.counts["steps"] == {"found": 720, "drawn": 720}
    assert 500 < summary.counts["collectives"]["drawn"] < 721


def test_recorded_runs_are_drawn_whole(root: Path, tmp_path: Path, shipped: Bundle) -> None:
    """A killed rank, from a timeline that was cut off, with messages of everybody."""
    run = root / "datasets" / "runs" / "kill9_r0"
    write_trace(run, tmp_path / "out.json.gz", bundle=shipped)
    trace = Trace(tmp_path / "out.json.gz")
    assert list(flaws(trace)) == []
    records = load_run(run).records
    spans = [e for e in trace.of("collective") if e["name"] not in ("negotiate", "execute")]
    assert len(spans) == sum(isinstance(r, Collective) for r in records)
    steps = Counter(trace.place(e)[0] for e in trace.of("step") if e["name"].startswith("step "))
    assert steps == Counter(f"rank {r.rank} (localhost)" for r in records if isinstance(r, Step))
    assert len(trace.of("phase")) + len(trace.of("phase", "i")) == sum(isinstance(r, Phase) for r in records)
    logs = trace.of("log", "i")
    assert Counter(e["args"]["text"] for e in logs) == Counter(r.text for r in records if isinstance(r, Log))
    assert all(e["args"]["source"] for e in logs)
    assert {e["args"]["id"] for e in trace.of("incident")} == {i.id for i in score(run).incidents}


def test_command_writes_the_trace_and_says_what_is_in_it(
    sick: Path, drawn: Trace, tmp_path: Path, rankwatch: Callable[..., Any]
) -> None:
    done = rankwatch("align", sick, "--out", tmp_path / "merged.json.gz")
    assert (done.code, done.err) == (0, "")
    assert "721 collectives, 720 steps" in done.out
    assert (tmp_path / "merged.json.gz").read_bytes() == (sick.parent / "sick.json.gz").read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["merged.json.gz"]


def test_command_says_on_stderr_what_it_sampled(sick: Path, tmp_path: Path, rankwatch: Callable[..., Any]) -> None:
    done = rankwatch("align", sick, "--out", tmp_path / "m.json", "--no-score", "--max-events", 9000)
    assert done.code == 0
    assert "sampled to stay within 9000 events" in done.err
    assert "of 721 collectives" in done.err
    assert Trace(tmp_path / "m.json").of("incident") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{run}", "--out", "{run}/merged.json"], 2, "a place outside of the run"),
        (["{run}", "--out", "{tmp}/no/such.json"], 2, "a directory that exists"),
        (["{tmp}/nothing", "--out", "{tmp}/m.json"], 1, "a run directory or a file"),
        (["{tmp}", "--out", "/dev/null"], 1, "timeline"),
        (["{run}"], 2, "--out"),
        (["{run}", "--out", "{tmp}/m.json", "--no-score", "--bundle", "{tmp}"], 2, "exclude each other"),
    ],
)
def test_command_refuses(
    arguments: list[str], code: int, said: str, sick: Path, tmp_path: Path, rankwatch: Callable[..., Any]
) -> None:
    done = rankwatch("align", *(a.format(run=sick, tmp=tmp_path) for a in arguments))
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_help_tells_the_real_default() -> None:
    assert align.MAX_EVENTS == MAX_EVENTS
