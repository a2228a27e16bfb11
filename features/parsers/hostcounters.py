"""Turns two samples of cumulative counters into rates: the arithmetic behind the telemetry of hosts and processes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

# Interfaces that repeat the traffic of another one: counting them would count the same bytes twice.
VIRTUAL_INTERFACES = ("ifb", "veth", "docker", "br-", "virbr", "cni", "flannel", "cali", "dummy")


class CounterReset(Exception):
    """A cumulative counter is lower than before: the interval says nothing."""


def number(value: Any) -> float | None:
    """`value` if it is a finite number, else None (booleans and texts are no numbers)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:  # JSON bounds no integer
        return None
    return plain if math.isfinite(plain) else None


def table(value: Any) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def scaled(value: Any, factor: float) -> float | None:
    """`value` in another unit; rounded to a whole, since the factor only undoes the writer's division."""
    plain = number(value)
    product = None if plain is None else number(plain * factor)
    return None if product is None else float(round(product))


def whole(value: Any) -> int | None:
    """`value` as an int, if it is a number."""
    plain = number(value)
    return None if plain is None else int(plain)


def delta(new: Any, old: Any) -> float | None:
    """Growth of one counter; None if either end is unknown. Raises CounterReset if it went back."""
    after, before = number(new), number(old)
    if after is None or before is None:
        return None
    if after < before:
        raise CounterReset
    return after - before


def sum_delta(new: dict[str, Any], old: dict[str, Any], keys: Iterable[str]) -> float | None:
    """Growth of several counters together; those unknown on either side are left out."""
    parts = [part for key in keys if (part := delta(new.get(key), old.get(key))) is not None]
    return math.fsum(parts) if parts else None


def net_delta(new: dict[str, Any], old: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    """Growth of `keys` over all interfaces known at both ends, without those that repeat others.

    The loopback counts: between ranks of one host it carries the whole traffic.
    """
    parts = [
        part
        for name in new
        if name in old and not name.startswith(VIRTUAL_INTERFACES)
        if (part := sum_delta(table(new[name]), table(old[name]), keys)) is not None
    ]
    return math.fsum(parts) if parts else None


def cpu_ratios(new: dict[str, Any], old: dict[str, Any]) -> dict[str, float]:
    """Shares of all CPUs' time between two samples of cumulative CPU seconds.

    Busy is neither idle nor waiting for a disk nor stolen; guest time is part of user time already.
    """
    spent = {}
    for key in new:
        if key.startswith("guest") or number(new[key]) is None or number(old.get(key)) is None:
            continue
        # Linux says of iowait that it may decrease now and then: no reset, just no waiting.
        falls = key == "iowait" and new[key] < old[key]
        spent[key] = 0.0 if falls else delta(new[key], old[key]) or 0.0
    total = math.fsum(spent.values())
    if total <= 0 or "idle" not in spent:
        return {}
    away = math.fsum(spent.get(key, 0.0) for key in ("idle", "iowait", "steal"))
    ratios = {"cpu_ratio": max(0.0, (total - away) / total)}
    if "system" in spent:
        ratios["system_ratio"] = math.fsum(spent.get(key, 0.0) for key in ("system", "irq", "softirq")) / total
    for key in ("iowait", "steal"):
        if key in spent:
            ratios[f"{key}_ratio"] = spent[key] / total
    return ratios
