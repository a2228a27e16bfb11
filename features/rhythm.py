"""The rhythm of a run: how long its steps are, and which window length suits them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from features.records import Collective, Gpu, Host, Process, Record, Step

LENGTHS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Window lengths to choose from, seconds: few and round, so that runs of one kind share their windows."""
STEPS_PER_WINDOW, LONG_STEPS_PER_WINDOW, LONG_STEP_S = 12, 4, 1.0
"""A median over a dozen steps is steady; where a step takes seconds, four must do, or a verdict would take minutes."""
LINES_PER_WINDOW = 3
"""Logs that print only every so many steps: a window holds a few lines all the same."""
SAMPLES_PER_WINDOW = 4
"""Where only sampled telemetry is there: enough samples for a rate and its spread."""
ENOUGH = 48
"""Step durations looked at: the length is decided from the run's beginning, as a live scorer must."""


def window_length(records: Iterable[Record]) -> float:
    """Length of the windows in seconds, from the first steps (or collectives, or samples) of the run.

    Looks at records in the order given and stops as soon as it has seen enough, so a stream and an archive agree.
    """
    steps: list[float] = []
    lines: list[float] = []
    last_line: dict[int, float] = {}
    periods: list[float] = []
    samples: list[float] = []
    last_use: dict[str, float] = {}
    last_sample: dict[str, float] = {}
    for record in records:
        if isinstance(record, Step) and record.duration_s is not None:
            steps.append(record.duration_s)
            if record.rank in last_line:
                lines.append(record.ts - last_line[record.rank])
            last_line[record.rank] = record.ts
        elif isinstance(record, Collective) and record.end is not None:
            if record.view() in last_use:
                periods.append(record.end - last_use[record.view()])
            last_use[record.view()] = record.end
        elif isinstance(record, Gpu):
            if record.gpu in last_sample:
                samples.append(record.ts - last_sample[record.gpu])
            last_sample[record.gpu] = record.ts
        elif isinstance(record, (Host, Process)) and record.interval_s is not None:
            samples.append(record.interval_s)
        if len(steps) >= ENOUGH:
            break
    # Where other sources tell of the time between the lines, windows need not wait for lines.
    return _choose(_of_steps(steps, [] if periods or samples else lines), periods, samples)


def _of_steps(steps: list[float], lines: list[float]) -> float:
    """Length that suits the steps and how often the log tells of them; 0 without any."""
    if not steps:
        return 0.0
    step_s = statistics.median(steps)
    wanted = (STEPS_PER_WINDOW if step_s < LONG_STEP_S else LONG_STEPS_PER_WINDOW) * step_s
    return max(wanted, LINES_PER_WINDOW * statistics.median(lines)) if lines else wanted


def _choose(wanted: float, periods: list[float], samples: list[float]) -> float:
    if not wanted and periods:
        wanted = STEPS_PER_WINDOW * statistics.median(periods[: 10 * ENOUGH])
    if samples:
        wanted = max(wanted, SAMPLES_PER_WINDOW * statistics.median(samples[: 10 * ENOUGH]))
    return next((length for length in LENGTHS_S if length >= wanted), LENGTHS_S[-1])
