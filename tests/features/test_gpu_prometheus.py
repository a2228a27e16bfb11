"""Scrapes of GPU exporters and answers of the Prometheus API."""

from __future__ import annotations

import json
from typing import Any

from features.notices import Notices
from features.parsers import gpu_answers, gpu_exposition, gpu_times
from features.parsers.gpu_answers import Answers
from features.parsers.gpu_exposition import Exposition
from features.records import Gpu, Log, Record

MIB = 2.0**20
NOON = 1_777_896_000.0  # 2026-05-04 12:00:00 UTC


def scrape(text: str) -> tuple[list[Record], dict[str, int], Exposition]:
    """Records, notices with their counts, and the parser."""
    notices = Notices()
    parser = Exposition("gpu.prom", notices)
    records = parser.feed(text.encode()) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}, parser


def answer(*series: dict[str, Any], cut: int = 0) -> tuple[list[Record], dict[str, int]]:
    """Records and notices of an answer with these series, without its last `cut` bytes."""
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}, indent=1)
    notices = Notices()
    parser = Answers("range.json", notices)
    data = text.encode()
    records = parser.feed(data[: len(data) - cut]) + parser.finish()
    assert parser.absolute
    return records, {n.text: n.count for n in notices.items()}


def labels(gpu: int, **more: str) -> str:
    """Labels of dcgm-exporter."""
    known = {"gpu": str(gpu), "UUID": f"GPU-{gpu}{gpu}{gpu}", "Hostname": "alpha", **more}
    return ",".join(f'{key}="{value}"' for key, value in known.items())


def test_one_scrape_gives_one_sample_for_each_gpu() -> None:
    records, told, parser = scrape(
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{labels(0)}}} 97\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{labels(1)}}} NaN\n"
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels(0)}}} 0.5\n"
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels(1)}}} 2.5e-01\n"
        f"DCGM_FI_DEV_FB_USED{{{labels(0)}}} 30000\n"
        f"DCGM_FI_DEV_FB_FREE{{{labels(0)}}} 10000\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(0)}}} 9223372036854775794\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(1)}}} 2147483634\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{labels(0)}}} 140737488355330\n"
        f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{labels(0)}}} 36\n"
        f"DCGM_FI_DEV_XID_ERRORS{{{labels(1)}}} 43\n"
        f"DCGM_FI_DEV_MEM_COPY_UTIL{{{labels(0)}}} 50\n"
        'DCGM_FI_DEV_SM_CLOCK{gpu="2", UUID="GPU-older"} 1410\n'
        "node_load1 3.5\nnot a metric at all {\n"
    )
    assert records == [
        Gpu(ts=0.0, gpu="GPU-000", node="alpha", utilization_ratio=0.97, memory_used_bytes=30000 * MIB,
            memory_total_bytes=40000 * MIB, throttle=("sw_power_cap", "sw_thermal_slowdown"), source="gpu.prom:3"),
        Gpu(ts=0.0, gpu="GPU-111", node="alpha", utilization_ratio=0.25, xid=43, source="gpu.prom:4"),
        Gpu(ts=0.0, gpu="GPU-older", sm_clock_hz=1410e6, source="gpu.prom:15"),
    ]  # fmt: skip
    assert not parser.absolute
    assert told[gpu_times.NO_TIME] == 3
    assert told[gpu_exposition.NOT_A_METRIC] == 1
    assert told["Xid 43 is there from the first sample on: it happened at an unknown time before"] == 1


def test_scrapes_after_each_other_and_times_of_their_own() -> None:
    line = "DCGM_FI_DEV_POWER_USAGE{{{}}} {}{}\n"
    records, _, _ = scrape("".join(line.format(labels(g), 100 + s, "") for s in range(3) for g in range(2)))
    assert [(r.ts, r.gpu, r.power_w) for r in records if isinstance(r, Gpu)] == [
        (float(s), f"GPU-{g}{g}{g}", 100.0 + s) for s in range(3) for g in range(2)
    ]
    records, _, parser = scrape("".join(line.format(labels(0), s, f" {NOON * 1000 + s * 500:.0f}") for s in range(3)))
    assert [r.ts for r in records] == [NOON, NOON + 0.5, NOON + 1.0]
    assert parser.absolute


def test_labels_of_the_workload_and_of_the_scraper_name_no_gpu() -> None:
    line = "DCGM_FI_DEV_POWER_USAGE{{{}}} {}\n"
    text = line.format(labels(0, pod="train-0", job="a"), 100) + line.format(labels(0, exported_pod="train-1", job="b"), 900)
    assert [r.power_w for r in scrape(text)[0] if isinstance(r, Gpu)] == [100.0]


def test_parts_of_a_gpu_are_devices_of_their_own() -> None:
    line = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{},GPU_I_ID="{}"}} 0.5\n'
    records, _, _ = scrape(line.format(labels(0), 1) + line.format(labels(0), 2))
    assert [r.gpu for r in records if isinstance(r, Gpu)] == ["GPU-000/MIG-1", "GPU-000/MIG-2"]


def test_other_exporters_and_an_xid_that_is_only_counted() -> None:
    records, _, _ = scrape(
        'nvidia_smi_utilization_gpu_ratio{uuid="GPU-9a"} 0.97\nnvidia_smi_clocks_current_sm_clock_hz{uuid="GPU-9a"} 1.41e+09\n'
        'nvidia_smi_memory_used_bytes{uuid="GPU-9a"} 1048576\n'
        'nvidia_gpu_power_usage_milliwatts{minor_number="3",instance="10.0.0.7:9445"} 250500\n'
        'nvidia_gpu_duty_cycle{minor_number="3",instance="10.0.0.7:9445"} 40\n'
        f"DCGM_EXP_XID_ERRORS_COUNT{{{labels(5, xid='79')}}} 1\nDCGM_EXP_XID_ERRORS_COUNT{{{labels(6, xid='31')}}} 0\n"
    )
    assert records == [
        Gpu(ts=0.0, gpu="GPU-9a", utilization_ratio=0.97, sm_clock_hz=1410e6, memory_used_bytes=MIB, source="gpu.prom:1"),
        Gpu(ts=0.0, gpu="10.0.0.7/3", node="10.0.0.7", utilization_ratio=0.4, power_w=250.5, source="gpu.prom:4"),
        Gpu(ts=0.0, gpu="GPU-555", node="alpha", xid=79, source="gpu.prom:6"),
    ]


def metric(name: str, gpu: str = "GPU-777", **more: str) -> dict[str, str]:
    """Labels of a series in an answer."""
    return {"__name__": name, "UUID": gpu, "gpu": "0", "Hostname": "beta", **more}


def test_series_of_one_gpu_are_joined_and_repeated_ones_counted_once() -> None:
    records, told = answer(
        {"metric": metric("DCGM_FI_DEV_GPU_UTIL", job="a"), "values": [[NOON, "97"], [NOON + 60, "NaN"]]},
        {"metric": metric("DCGM_FI_DEV_GPU_UTIL", job="b"), "values": [[NOON, "97"], [NOON + 60, "12"]]},
        {"metric": metric("DCGM_FI_DEV_POWER_USAGE"), "values": [[NOON, "300.5"], ["?", "1"], [NOON + 120, "310"]]},
        {"metric": {"__name__": "up", "instance": "x"}, "values": [[NOON, "1"]]},
    )
    assert records == [
        Gpu(ts=NOON, gpu="GPU-777", node="beta", utilization_ratio=0.97, power_w=300.5, source="range.json:utilization"),
        Gpu(ts=NOON + 60, gpu="GPU-777", node="beta", utilization_ratio=0.12, source="range.json:utilization"),
        Gpu(ts=NOON + 120, gpu="GPU-777", node="beta", power_w=310.0, source="range.json:power"),
    ]
    assert told == {gpu_answers.BAD_POINT: 1, gpu_answers.NO_SERIES: 1}


def test_a_gpu_that_was_replaced() -> None:
    old = [[NOON + 60 * i, "97"] for i in range(5)]
    new = [[NOON + 3600 + 60 * i, "96"] for i in range(5)]
    records, _ = answer(
        {"metric": metric("DCGM_FI_DEV_GPU_UTIL", "GPU-aaa1"), "values": old},
        {"metric": metric("DCGM_FI_DEV_GPU_UTIL", "GPU-bbb1"), "values": new},
    )
    (change,) = [r for r in records if isinstance(r, Log)]
    assert (change.ts, change.event, change.node) == (NOON + 3600, "gpu_lost", "beta")
    assert (change.fields["gpu"], change.fields["replaced_by"]) == ("GPU-aaa1", "GPU-bbb1")
    assert "after 3360 s of silence" in change.text


def test_an_instant_answer_and_one_that_is_cut() -> None:
    assert [r.ts for r in answer({"metric": metric("DCGM_FI_DEV_GPU_TEMP"), "value": [NOON, "55"]})[0]] == [NOON]
    series = [
        {"metric": metric("DCGM_FI_DEV_GPU_TEMP", f"GPU-{i}{i}{i}"), "values": [[NOON, "55"], [NOON + 1, "56"]]}
        for i in range(2)
    ]
    records, told = answer(*series, cut=30)
    assert [r.gpu for r in records if isinstance(r, Gpu)] == ["GPU-000", "GPU-000"]
    assert told == {gpu_answers.CUT: 1}
