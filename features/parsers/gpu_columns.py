"""Knows what the columns and metrics of GPU telemetry are called, by tool and by habit of scripts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from features.parsers.gpu_values import FIELDS, UNITS, unit_named


class Column(NamedTuple):
    """What one column or metric says.

    `key` is a field of gpu_values.FIELDS, "reasons" (a bit mask), "reason:NAME" (a flag), or part of who and when:
    uuid, pci, index, node, rank, mig, name, time, date, clock, elapsed. Of columns with one key, the lowest `order` counts.
    """

    key: str
    unit: str = ""
    order: int = 0
    gpu: str | None = None  # the GPU's number, where the name of the column has it ("gpu0_util")
    is_certain: bool = False  # nothing but GPU telemetry calls a column so


WHO = frozenset({"uuid", "pci", "index", "node", "rank", "mig"})
WHO_AND_WHEN = WHO | {"name", "time", "date", "clock", "elapsed"}

# nvidia-smi --query-gpu, amd-smi metric, rocm-smi, and scripts, after `_canonical`; several words for one key in the order
# in which they are preferred.
_NAMES: dict[str, tuple[str, ...]] = {
    "utilization": ("utilization", "util", "utilisation", "usage", "use", "gfx_activity", "gputl", "sm", "sm_util",
                    "load", "gract"),
    "memory_used": ("memory_used", "mem_used", "used_memory", "used_vram", "vram_used", "fb_used", "fbusd", "memory", "mem",
                    "vram", "memory_usage", "mem_usage", "fb"),
    "memory_free": ("memory_free", "mem_free", "free_vram", "vram_free", "fb_free", "fbfre"),
    "memory_total": ("memory_total", "mem_total", "total_memory", "total_vram", "vram_total", "fb_total", "fbttl"),
    "power": ("power_draw", "power_draw_instant", "power_draw_average", "socket_power", "average_socket_power", "power",
              "average_graphics_package_power", "current_socket_graphics_package_power", "power_usage", "pwr"),
    "power_limit": ("enforced_power_limit", "power_limit", "power_cap", "max_power_limit", "pmlmt"),
    "sm_clock": ("clocks_sm", "clock_sm", "sm_clock", "clocks_graphics", "clocks_gr", "graphics_clock", "gfx_0_clk", "gfx_clk",
                 "clock", "pclk", "smclk"),
    "temperature": ("temperature", "temp", "gtemp", "hotspot", "temperature_sensor_junction", "temperature_sensor_edge", "edge",
                    "tmptr"),
    "reasons": ("clocks_event_reasons_active", "clocks_throttle_reasons_active", "throttle_reasons", "throttle_status",
                "dvcctr"),
    "ecc": ("ecc_errors_uncorrected_volatile_total", "ecc_errors_uncorrected_aggregate_total", "ecc_uncorrected",
            "edvtl", "edatl"),
    "remapped": ("remapped_rows_uncorrectable",),
    "remap_failed": ("remapped_rows_failure",),
    "xid": ("xid", "xid_errors", "last_xid", "xider"),
    "uuid": ("uuid",),
    "pci": ("pci_bus_id", "bus_id", "pci_busid", "pci", "bdf", "gpu_bus_id"),
    "index": ("index", "idx", "id", "device", "device_id", "ordinal", "number", "entity", "card"),
    "node": ("hostname", "host", "node", "nodename", "node_name", "server", "machine", "instance"),
    "rank": ("rank", "global_rank"),
    "name": ("name", "product_name", "model"),
    "time": ("timestamp", "time", "datetime", "ts", "epoch", "unix_time", "unix_timestamp", "utc_epoch", "time_stamp",
             "epoch_s", "utc_epoch_s", "timestamp_s", "timestamp_ms", "unix_time_s"),
    "date": ("date",),
    "elapsed": ("elapsed", "elapsed_time", "elapsed_sec", "elapsed_seconds", "elapsed_s", "seconds", "time_sec", "time_s",
                "relative_time", "rel_time", "t"),
}  # fmt: skip
_BY_NAME = {name: (key, order) for key, names in _NAMES.items() for order, name in enumerate(names)}

_CERTAIN = re.compile(
    r"(?:utilization[._]gpu|temperature[._]gpu|power[._]draw|clocks?[._](?:current[._])?(?:sm|gr|graphics)|clocks_\w+_reasons\W"
    r"|clocks_\w+_reasons_active|ecc[._]errors|gfx_activity|umc_activity|socket_power|remapped_rows|gputl|smact|tmptr)"
)
"""Names that only tools for GPUs give."""
_WITH_UNIT = re.compile(r"(?:memory|enforced|power|utilization|temperature|clocks)\.[\w.]+ \[(?:MiB|W|%|MHz)\]")
"""The style of nvidia-smi: a dotted name and a unit in brackets."""
_VAGUE = frozenset({"mem", "memory", "util", "usage", "use", "load", "clock", "power", "temp", "temperature", "sm", "fb",
                    "vram", "utilization", "utilisation", "pwr", "memory_usage", "mem_usage"})  # fmt: skip
"""Names that mean a GPU's value only if the word GPU or a unit stands with them."""
_FILLERS = frozenset({"gpu", "nvidia", "current", "avg", "percent", "pct"})
TRAINING_WORDS = frozenset(
    {"loss", "acc", "accuracy", "lr", "epoch", "step", "iter", "iteration", "throughput", "pid", "perplexity"}
)
"""A table with one of these in its header is a training log (or, with pid, a list of processes)."""

REASONS: dict[str, str] = {
    "gpu_idle": "gpu_idle",
    "idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
    "hw_power_brake": "hw_power_brake",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "display_clock_setting": "display_clock_setting",
}
"""Names of reasons as tools write them, and as the records do."""
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons_(\w+)")
_UNIT = re.compile(r"[\[(]\s*([^\])]*?)\s*[\])]\s*$")
_NUMBERED = re.compile(r"^(?:nvidia_)?gpus?[ _.\[-]?(\d{1,3})\]?[ _.:/-]+(?=\w)")


LONGEST_NAME = 120  # characters


def words_of(header: str) -> list[str]:
    """The words of a column's name."""
    return [word for word in re.split(r"[^a-z0-9%]+", header.lower()) if word]


def column_of(header: str) -> Column | None:
    """What a column of this name says; None if nothing that is read here.

    >>> column_of("clocks.current.sm [MHz]")
    Column(key='sm_clock', unit='mhz', order=0, gpu=None, is_certain=True)
    >>> column_of("mem"), column_of("utilization.memory [%]")
    (None, None)
    """
    return _column(header) if len(header) <= LONGEST_NAME else None


@lru_cache(maxsize=4096)
def _column(header: str) -> Column | None:
    text = header.strip().strip('"').lstrip("\ufeff#").strip()
    unit_match = _UNIT.search(text)
    unit = unit_named(unit_match[1]) if unit_match else None
    name = text[: unit_match.start()] if unit_match and (unit is not None or not unit_match[1]) else text
    lowered = name.lower()
    numbered = _NUMBERED.match(lowered)
    gpu = None if numbered is None else numbered[1]
    words = words_of(lowered[numbered.end() :] if numbered else lowered)
    reason = _REASON.fullmatch("_".join(words))
    if reason is not None and reason[1] in REASONS:
        return Column(f"reason:{REASONS[reason[1]]}", gpu=gpu, is_certain=True)
    certain = bool(_CERTAIN.search(lowered + " ") or _WITH_UNIT.match(text))
    found = _canonical(words, unit, says_gpu="gpu" in lowered)
    return None if found is None else found._replace(gpu=gpu, is_certain=certain or (found.key in FIELDS and "gpu" in lowered))


def _canonical(words: list[str], unit: str | None, *, says_gpu: bool) -> Column | None:
    """Look the words up, without the unit at their end and without words that add nothing."""
    whole = "_".join(words)
    if whole == "gpu":
        return Column("index")
    if whole in _BY_NAME and _BY_NAME[whole][0] in WHO_AND_WHEN:
        return Column(_BY_NAME[whole][0], order=_BY_NAME[whole][1])
    if unit is None and len(words) > 1 and (last := unit_named(words[-1])) is not None:
        unit, words = last, words[:-1]
    name = "_".join(word for word in words if word not in _FILLERS)
    known = _BY_NAME.get(name)
    if known is None or (name in _VAGUE and not says_gpu and unit is None):
        return None
    key, order = known
    if key in FIELDS and unit is not None and UNITS[unit].measures != FIELDS[key].measures:
        return None  # "gpu_mem_percent" is no amount of memory
    return Column(key, unit or "", order)


def _table(rows: dict[str, str], unit: str = "") -> dict[str, Column]:
    return {name: Column(key, unit, order, is_certain=True) for order, (name, key) in enumerate(rows.items())}


DCGM: dict[str, Column] = {
    **_table({
        "DCGM_FI_DEV_GPU_UTIL": "utilization",
        "DCGM_FI_DEV_FB_USED": "memory_used",
        "DCGM_FI_DEV_FB_FREE": "memory_free",
        "DCGM_FI_DEV_FB_TOTAL": "memory_total",
        "DCGM_FI_DEV_POWER_USAGE": "power",
        "DCGM_FI_DEV_POWER_USAGE_INSTANT": "power",
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "power_limit",
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit",
        "DCGM_FI_DEV_SM_CLOCK": "sm_clock",
        "DCGM_FI_DEV_GPU_TEMP": "temperature",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "reasons",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "reasons",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc",
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "ecc",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remapped",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failed",
        "DCGM_FI_DEV_XID_ERRORS": "xid",
        "DCGM_FI_DEV_THERMAL_VIOLATION": "thermal_counter",
    }),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Column("utilization", "ratio", 90, is_certain=True),
}  # fmt: skip
"""Fields of DCGM (dcgm_fields.h), as dcgm-exporter names its metrics; DEV_GPU_UTIL is in percent, PROF_* are ratios."""

EXPORTERS: dict[str, Column] = {
    **_table({"nvidia_smi_utilization_gpu_ratio": "utilization"}, "ratio"),
    **_table({"nvidia_smi_memory_used_bytes": "memory_used", "nvidia_smi_memory_total_bytes": "memory_total"}, "b"),
    **_table({"nvidia_smi_clocks_current_sm_clock_hz": "sm_clock"}, "hz"),
    **_table({
        "nvidia_smi_power_draw_watts": "power",
        "nvidia_smi_enforced_power_limit_watts": "power_limit",
        "nvidia_smi_power_limit_watts": "power_limit",
        "nvidia_smi_temperature_gpu": "temperature",
        "nvidia_smi_clocks_event_reasons_active": "reasons",
        "nvidia_smi_clocks_throttle_reasons_active": "reasons",
        "nvidia_smi_ecc_errors_uncorrected_volatile_total": "ecc",
        "nvidia_smi_remapped_rows_uncorrectable": "remapped",
        "nvidia_smi_remapped_rows_failure": "remap_failed",
        "nvidia_gpu_duty_cycle": "utilization",
        "nvidia_gpu_temperature_celsius": "temperature",
    }),
    **_table({"nvidia_gpu_memory_used_bytes": "memory_used", "nvidia_gpu_memory_total_bytes": "memory_total"}, "b"),
    **_table({"nvidia_gpu_power_usage_milliwatts": "power"}, "mw"),
}  # fmt: skip
"""Metrics of other exporters: nvidia_gpu_exporter, and nvidia_gpu_prometheus_exporter."""

METRICS = DCGM | EXPORTERS

TAGS: dict[str, Column] = {
    **_table({
        "GPUTL": "utilization", "FBUSD": "memory_used", "FBFRE": "memory_free", "FBTTL": "memory_total", "POWER": "power",
        "PMLMT": "power_limit", "SMCLK": "sm_clock", "TMPTR": "temperature", "DVCCTR": "reasons", "EDVTL": "ecc",
        "EDATL": "ecc", "XIDER": "xid", "TVIOL": "thermal_counter",
    }),
    "GRACT": Column("utilization", "ratio", 90, is_certain=True),
}  # fmt: skip
"""Short names of fields as `dcgmi dmon` heads its columns (dcgm_fields.cpp)."""

DMON: dict[str, Column] = {
    **_table({"sm": "utilization", "pwr": "power", "gtemp": "temperature", "temp": "temperature", "pclk": "sm_clock",
              "fb": "memory_used", "dbecc": "ecc", "tviol": "thermal_flag"}),
    "gpu": Column("index"),
    "date": Column("date"),
    "time": Column("clock"),
}  # fmt: skip
"""Columns of `nvidia-smi dmon`; which of them come depends on -s and the driver."""
