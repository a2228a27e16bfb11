"""Labels: what is known to have happened in a run, read for training and evaluation only, never for scoring."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec

from features.errors import InputError

LABEL_FILE = "truth.json"
HEALTHY = "healthy"

CAUSE_OF_FAULT: dict[str, str] = {
    "slow_rank_compute": "compute/slow-rank",
    "cpu_quota": "resource/cpu-quota",
    "cpu_throttle": "resource/cpu-quota",
    "cpu_contention": "resource/cpu-contention",
    "slow_data_loading": "io/slow-data-loading",
    "slow_data_loading_all": "io/slow-data-loading-all",
    "disk_contention": "io/disk-contention",
    "slow_checkpoint": "io/slow-checkpoint",
    "uneven_batch": "io/uneven-batches",
    "uneven_shard_join": "io/uneven-shards",
    "hang_process": "process/hung",
    "hang_main_thread": "communication/collective-stall",
    "hang_main_thread_shutdown": "communication/collective-stall",
    "rank_killed": "process/rank-killed",
    "rank_exception": "process/rank-exception",
    "network_bandwidth": "communication/network-bandwidth",
    "network_loss": "communication/network-loss",
    "network_delay": "communication/network-delay",
    "network_partition": "communication/network-partition",
    "memory_leak": "memory/leak",
    "nan": "numerical/nan",
    "corrupt_shard": "numerical/corrupt-shard",
    "desync_weights": "numerical/desync-weights",
    "desync_init": "numerical/desync-init",
    "lr_scale": "numerical/loss-divergence",
    "misconfiguration": "configuration/misconfiguration",
}
"""The fault names of the recorder, and the causes of the catalog that they are."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one run. Times are seconds since the epoch; `end` is infinite where the fault stayed."""

    fault: str
    accept: tuple[str, ...]  # categories that are right
    ranks: tuple[int, ...]  # at fault; empty = a host
    world_size: int
    start: float = -math.inf
    end: float = math.inf
    launch: float = -math.inf
    exit: float = math.inf
    from_first_step: bool = False
    seen_in: tuple[str, ...] = ()  # sources that can show it

    @property
    def is_healthy(self) -> bool:
        """Nothing went wrong."""
        return self.fault == HEALTHY

    @property
    def cause(self) -> str | None:
        """The catalog's cause; None for a fault that it does not list (a label may also be a cause itself)."""
        return self.fault if "/" in self.fault else CAUSE_OF_FAULT.get(self.fault)


def read_label(run: Path) -> Label | None:
    """The label of a run directory; None without one. Raises InputError for one that cannot be read."""
    path = run / LABEL_FILE
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise TypeError(f"{type(raw).__name__} instead of an object")
        end, start = raw.get("end_time"), raw.get("start_time")
        return Label(
            fault=str(raw["fault"]),
            accept=tuple(raw.get("accept", [])),
            ranks=tuple(int(r) for r in raw.get("ranks", [])),
            world_size=int(raw["world_size"]),
            start=-math.inf if start is None else float(start),
            end=math.inf if end is None else float(end),
            launch=float(raw.get("launch_time", -math.inf)),
            exit=float(raw.get("exit_time", math.inf)),
            from_first_step=raw.get("start_step") == 0,
            seen_in=tuple(raw.get("seen_in", [])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            str(path),
            expected="a label with fault, world_size, ranks and times",
            found=str(error),
            remedy="see docs/labels.md",
        ) from error


def labelled_runs(places: list[Path]) -> list[tuple[Path, Label]]:
    """Every labelled run below these directories (or the directories themselves), in order of name."""
    found: dict[Path, Label] = {}
    for place in places:
        for path in [place, *sorted(place.glob("*"))]:
            if path.is_dir() and (label := read_label(path)) is not None:
                found[path] = label
    return sorted(found.items(), key=lambda item: item[0].name)
