"""CPU seconds of `rankwatch --help` and of scoring one recorded run, as child processes, next to a bare Python start.

python benchmarks/bench_startup.py --repeat 9
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RANKWATCH = str(Path(sys.executable).with_name("rankwatch"))
BARE = "python -c pass"
FINE_CODES = (0, 3)  # nothing found, anomalies found

# What others have published for one look at a job. Other data, other machines, and mostly wall-clock time.
PUBLISHED = (
    ("Minder: one call over 15 min of a job's metrics", "about 3.6 s", "NSDI 2025"),
    ("Holmes: one localisation", "15.5 to 30.3 s", "NSDI 2025"),
    ("Mycroft: root cause of a fault", "under 20 s in 60 % of cases", "SOSP 2025"),
    ("HolisticTraceAnalysis: loading 8 ranks' traces", "6.24 s (12.4 s before)", "its pull requests"),
)


class Cost(NamedTuple):
    """What one start of a program takes, in seconds."""

    cpu: float  # user and system time of the process and its children
    wall: float


def cost_of(command: list[str]) -> Cost:
    """Run it once, from start to exit."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in FINE_CODES:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, wall)


def medians(commands: dict[str, list[str]], repeat: int) -> dict[str, Cost]:
    """Median costs; in each round all take their turn, so that all meet the same noise. The first round only warms up."""
    rounds = [{name: cost_of(command) for name, command in commands.items()} for _ in range(repeat + 1)][1:]
    return {
        name: Cost(*(statistics.median(costs) for costs in zip(*(r[name] for r in rounds), strict=True))) for name in commands
    }


def described(run: Path) -> str:
    """How much there is to score."""
    said = subprocess.run([RANKWATCH, "score", str(run), "--format", "json"], cwd=ROOT, capture_output=True, check=False).stdout
    report = json.loads(said)
    start, end = (datetime.fromisoformat(report["run"][name]) for name in ("start", "end"))
    megabytes = sum(path.stat().st_size for path in (ROOT / run).rglob("*") if path.is_file()) / 1e6
    return f"{run}: {report['run']['world_size']} ranks, {(end - start).total_seconds():.0f} s, {megabytes:.1f} MB on disk"


def main() -> None:
    """Print medians, ratios and what others have published."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--run", type=Path, default=Path("datasets/runs/slow_data_r1"), help="run to score")
    options.add_argument("--repeat", type=int, default=7)
    args = options.parse_args()
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        "rankwatch --help": [RANKWATCH, "--help"],
        f"rankwatch score {args.run}": [RANKWATCH, "score", str(args.run)],
    }
    found = medians(commands, args.repeat)
    print(f"median of {args.repeat}, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs")
    print(described(args.run))
    for name, cost in found.items():
        ratio = cost.cpu / found[BARE].cpu
        print(f"  {name:45} {cost.cpu:6.3f} s CPU {cost.wall:6.3f} s wall  {ratio:5.1f} times a bare start")
    print("as published by others (other data and machines: only the order of magnitude compares)")
    for name, figure, source in PUBLISHED:
        print(f"  {name:50} {figure} ({source})")


if __name__ == "__main__":
    main()
