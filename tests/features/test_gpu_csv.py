"""Tables of GPU samples: header habits, units, stand-ins, times, names of devices, and damage."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers import gpu_csv, gpu_rows, gpu_samples, gpu_times
from features.parsers.gpu_csv import GpuCsv
from features.records import Gpu, Log, Record

MIB = 2.0**20
NOON = 1_777_896_000.0  # 2026-05-04 12:00:00 UTC


def parse(text: str | bytes, file: str = "gpu.csv") -> tuple[list[Record], dict[str, int], GpuCsv]:
    """Records, notices with their counts, and the parser."""
    notices = Notices()
    parser = GpuCsv(file, notices)
    records = parser.feed(text.encode() if isinstance(text, str) else text) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}, parser


def samples(text: str | bytes, file: str = "gpu.csv") -> list[Gpu]:
    """The samples alone."""
    return [r for r in parse(text, file)[0] if isinstance(r, Gpu)]


def test_nvidia_smi_with_units_in_header_and_cells() -> None:
    (one, two), told, parser = parse(
        "timestamp, index, uuid, temperature.gpu, power.draw [W], power.limit [W], utilization.gpu [%], "
        "utilization.memory [%], memory.used [MiB], memory.total [MiB], clocks.current.sm [MHz], "
        "clocks_throttle_reasons.active, ecc.errors.uncorrected.volatile.total\n"
        "2026/05/04 12:00:00.250, 0, GPU-1f00aa00, 61, 287.50 W, 350.00 W, 97 %, 55 %, 30000 MiB, 40960 MiB, 1395 MHz, "
        "0x0000000000000044, 2\n"
        "2026/05/04 12:00:00.254, 1, GPU-1f00aa01, [N/A], [N/A], 350.00 W, [Not Supported], 0 %, 0 MiB, 40960 MiB, 210 MHz, "
        "0x0000000000000000, [N/A]\n"
    )
    assert one == Gpu(
        ts=NOON + 0.25, gpu="GPU-1f00aa00", utilization_ratio=0.97, memory_used_bytes=30000 * MIB,
        memory_total_bytes=40960 * MIB, power_w=287.5, power_limit_w=350.0, sm_clock_hz=1395e6, temperature_c=61.0,
        throttle=("sw_power_cap", "hw_thermal_slowdown"), ecc_uncorrected=2, source="gpu.csv:2",
    )  # fmt: skip
    assert two == Gpu(
        ts=NOON + 0.254, gpu="GPU-1f00aa01", memory_used_bytes=0.0, memory_total_bytes=40960 * MIB, power_limit_w=350.0,
        sm_clock_hz=210e6, throttle=(), source="gpu.csv:3",
    )  # fmt: skip
    assert parser.absolute
    assert told == {gpu_times.NO_ZONE: 2}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("index,utilization.gpu [%],memory.used [MiB],power.draw [W]", "3, 50, 1024, 100.5"),  # nounits keeps them
        ("index, utilization.gpu, memory.used, power.draw", "3, 50 %, 1 GiB, 100500 mW"),
        ("gpu_index,gpu_util_pct,gpu_mem_used_mb,power_W", "3,50,1024,100.5"),
        ("gpu;GPU use (%);memory_used_gb;power_draw_watts", "3;50;1;100.5"),
        ("gpu_id\tutilization_gpu_ratio\tgpu_memory_used_bytes\tgpu_power", "GPU 3\t0.5\t1073741824\t100.5"),
        ("\ufeffdevice,gfx_activity,used_vram,socket_power", "card3,50,1024,100.5"),
    ],
)
def test_names_and_units_of_columns(header: str, row: str) -> None:
    (sample,) = samples(f"{header}\r\n{row}\r\n", "n/gpu.csv")
    assert sample.gpu == "n/gpu.csv/3"
    assert (sample.utilization_ratio, sample.memory_used_bytes, sample.power_w) == (0.5, 1024 * MIB, 100.5)


def test_each_reason_may_have_a_column_of_its_own_under_either_name() -> None:
    text = (
        "index, clocks_{}_reasons.hw_slowdown, clocks_{}_reasons.hw_power_brake_slowdown, clocks_{}_reasons.sw_power_cap\n"
        "0, Active, Active, Not Active\n"
        "1, [N/A], [N/A], [N/A]\n"
    )
    for name in ("throttle", "event"):
        assert [g.throttle for g in samples(text.replace("{}", name))] == [("hw_slowdown", "hw_power_brake"), None]


def test_without_header_units_and_addresses_tell_the_columns() -> None:
    records, told, _ = parse(
        "2026/05/04 12:00:00.000, 0, 00000000:3B:00.0, 97 %, 71, 39000 MiB, 40960 MiB, 301.20 W, 400.00 W, 1410 MHz\n"
        "2026/05/04 12:00:01.000, 0, 00000000:3B:00.0, 98 %, 72, 39000 MiB, 40960 MiB, 302.20 W, 400.00 W, 1410 MHz\n"
    )
    assert records[1] == Gpu(
        ts=NOON + 1, gpu="00000000:3b:00.0", utilization_ratio=0.98, memory_used_bytes=39000 * MIB,
        memory_total_bytes=40960 * MIB, power_w=302.2, power_limit_w=400.0, sm_clock_hz=1410e6, temperature_c=72.0,
        source="gpu.csv:2",
    )  # fmt: skip
    assert told[gpu_csv.NO_HEADER] == 1


def test_bare_numbers_without_header_have_no_meaning_and_that_is_said() -> None:
    records, told, _ = parse("2026/05/04 12:00:00.000, GPU-00112233-4455, 97, 71, 39000\n")
    assert records == [Gpu(ts=NOON, gpu="GPU-00112233-4455", source="gpu.csv:1")]
    assert told[gpu_csv.NO_MEANING] == 1


def test_of_three_amounts_of_memory_only_the_total_is_sure() -> None:
    (sample,) = samples("GPU-00112233-4455, 40960 MiB, 30000 MiB, 10960 MiB\n")
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (40960 * MIB, None)


def test_the_header_comes_back_and_may_change() -> None:
    text = "utilization.gpu [%]\n70 %\nutilization.gpu [%]\n80 %\nutilization.gpu [%], power.draw [W]\n90 %, 5.00 W\n"
    records, told, parser = parse(text)
    assert [(r.ts, r.utilization_ratio, r.power_w) for r in records if isinstance(r, Gpu)] == [
        (0.0, 0.7, None),
        (1.0, 0.8, None),
        (2.0, 0.9, 5.0),
    ]
    assert not parser.absolute
    assert told == {gpu_times.NO_TIME: 3}


def test_a_line_break_in_a_cell_belongs_to_another_device() -> None:
    records, told, parser = parse('elapsed_sec,gpu_util_pct,power_w\n0.5,20,"26.5\n0"\n1.5,21,"27.5\n0"\n')
    assert [(r.ts, r.power_w, r.source) for r in records if isinstance(r, Gpu)] == [
        (0.5, 26.5, "gpu.csv:2"),
        (1.5, 27.5, "gpu.csv:4"),
    ]
    assert told[gpu_rows.BROKEN_CELL] == 2
    assert not parser.absolute


def test_a_stray_quote_costs_no_row() -> None:
    rows = "".join(f"{i},50\n" for i in range(40))
    records, told, _ = parse(f'gpu,gpu_util\n"0,50\n{rows}')
    assert len(records) == 41
    assert told[gpu_rows.OPEN_QUOTE] == 1


def test_lists_in_cells_and_the_hotter_sensor_of_amd() -> None:
    records, told, _ = parse(
        "timestamp,gpu,gfx_activity,vcn_activity,socket_power,throttle_status,gfx_0_clk,gfx_0_max_clk,edge,hotspot,mem\n"
        "1777896000,1,97,\"['N/A', 'N/A']\",750,THROTTLED,2090,2400,N/A,81,60\n\n"
        "1777896001,1,65535,\"['N/A', 'N/A']\",N/A,N/A,2090,2400,55,81,60\n"
    )
    assert records[0] == Gpu(
        ts=NOON, gpu="gpu.csv/1", utilization_ratio=0.97, power_w=750.0, sm_clock_hz=2090e6, temperature_c=81.0,
        throttle=("throttled",), source="gpu.csv:2",
    )  # fmt: skip
    assert isinstance(records[1], Gpu)
    assert records[1].utilization_ratio is None
    assert told == {"value of utilization that cannot be": 1}


def test_columns_named_after_their_gpu_are_a_sample_each() -> None:
    found = samples("time,gpu0_util,gpu0_power_w,gpu1_util,gpu1_power_w\n2026-05-04T12:00:00Z,90,300,10,60\n")
    assert [(g.ts, g.gpu, g.utilization_ratio, g.power_w) for g in found] == [
        (NOON, "gpu.csv/0", 0.9, 300.0),
        (NOON, "gpu.csv/1", 0.1, 60.0),
    ]


@pytest.mark.parametrize(
    ("written", "ts", "is_absolute"),
    [
        ("2026/05/04 12:00:00.500", NOON + 0.5, True),
        ("2026-05-04T14:00:00.5+02:00", NOON + 0.5, True),
        ("Mon May  4 12:00:00 2026", NOON, True),
        ("1777896000", NOON, True),
        ("1777896000500", NOON + 0.5, True),
        ("1777896000500000", NOON + 0.5, True),
        ("1777896000.5", NOON + 0.5, True),
        ("12.25", 12.25, False),
        ("12:00:00", 43200.0, False),
    ],
)
def test_times(written: str, ts: float, is_absolute: bool) -> None:
    records, _, parser = parse(f"timestamp,utilization.gpu\n{written},5\n")
    assert records[0].ts == ts
    assert parser.absolute is is_absolute


def test_date_and_time_in_two_columns() -> None:
    assert samples("date,time,utilization.gpu\n2026/05/04,12:00:01,5\n")[0].ts == NOON + 1


def test_a_time_that_cannot_be_read_takes_the_one_before() -> None:
    records, told, _ = parse("timestamp,utilization.gpu\nsoon,1\n2026/05/04 12:00:00,2\n???,3\n2026/05/04 11:00:00,4\n")
    assert [r.ts for r in records] == [NOON, NOON, NOON - 3600]
    assert (told[gpu_times.UNPLACED], told[gpu_times.UNREADABLE], told[gpu_times.BACK]) == (1, 1, 1)


def test_rows_without_name_are_told_apart_by_their_place_in_the_round() -> None:
    found = samples(
        "timestamp, utilization.gpu [%]\n2026/05/04 12:00:00.000, 1 %\n2026/05/04 12:00:00.004, 2 %\n"
        "2026/05/04 12:00:01.001, 3 %\n2026/05/04 12:00:01.006, 4 %\n"
    )
    assert [(g.gpu, g.utilization_ratio) for g in found] == [
        ("gpu.csv/0", 0.01), ("gpu.csv/1", 0.02), ("gpu.csv/0", 0.03), ("gpu.csv/1", 0.04),
    ]  # fmt: skip


def test_one_gpu_has_one_identity_however_it_is_named() -> None:
    text = (
        "index, pci.bus_id, uuid, utilization.gpu\n2, 00000000:AF:00.0, GPU-77aa, 1\n"
        "2, 0000:af:00.0, [N/A], 2\n2, [N/A], [N/A], 3\n[N/A], 0000:B0:00.0, [N/A], 4\n"
    )
    assert [g.gpu for g in samples(text)] == ["GPU-77aa", "GPU-77aa", "GPU-77aa", "00000000:b0:00.0"]


def test_the_node_comes_from_a_column_or_from_the_path() -> None:
    header = "hostname,index,utilization.gpu,rank\n"
    (sample,) = samples(header + "alpha,1,5,9\n", "run/node7/gpu.csv")
    assert (sample.node, sample.gpu, sample.rank) == ("alpha", "alpha/1", 9)
    (sample,) = samples("index,utilization.gpu\n1,5\n", "run/node7/gpu.csv")
    assert (sample.node, sample.gpu, sample.rank) == ("node7", "node7/1", None)


def test_a_lost_gpu_is_told_once_and_again_after_it_came_back() -> None:
    text = (
        "index, utilization.gpu [%], power.draw [W]\n0, 90 %, 300.00 W\n1, 90 %, 300.00 W\n"
        "0, 90 %, 300.00 W\n[GPU is lost], [GPU is lost], [GPU is lost]\n"
        "0, 90 %, 300.00 W\n[GPU is lost], [GPU is lost], [GPU is lost]\n"
        "0, 90 %, 300.00 W\n1, 90 %, 300.00 W\n0, 90 %, 300.00 W\n1, [GPU requires reset], [GPU requires reset]\n"
    )
    records, _, _ = parse(text)
    lost = [r for r in records if isinstance(r, Log)]
    assert [(r.event, r.fields["gpu"], r.fields["said"]) for r in lost] == [
        ("gpu_lost", "gpu.csv/1", "GPU is lost"),
        ("gpu_lost", "gpu.csv/1", "GPU requires reset"),
    ]
    assert "GPU 1 of gpu.csv" in lost[0].text


def test_a_row_of_nothing_but_errors_is_a_lost_gpu_and_one_error_is_a_notice() -> None:
    records, told, _ = parse(
        "index, utilization.gpu, power.draw, temperature.gpu\n0, 9, 50, ERR!\n"
        "0, [Unknown Error], [Unknown Error], [Unknown Error]\n"
    )
    assert [type(r) for r in records] == [Gpu, Log]
    assert told["'err!' in place of a value"] == 1


def test_sentences_between_the_rows() -> None:
    records, told, _ = parse(
        "Failed to initialize NVML: Driver/library version mismatch\nNo devices were found\n"
        "timestamp, pci.bus_id, utilization.gpu [%]\n"
        "2026/05/04 12:00:00, 00000000:01:00.0, 9 %\n2026/05/04 12:00:00, 00000000:02:00.0, 9 %\n"
        "Unable to determine the device handle for GPU0000:02:00.0: GPU has fallen off the bus.\nNo devices were found\n"
    )
    lost = [r for r in records if isinstance(r, Log)]
    assert [(r.ts, r.fields["gpu"]) for r in lost] == [(NOON, "00000000:02:00.0"), (NOON, "00000000:01:00.0")]
    assert told[gpu_samples.NO_DEVICE] == 1
    assert told["instead of a sample: Failed to initialize NVML: Driver/library version mismatch"] == 1


def test_another_device_in_the_slot_of_a_silent_one() -> None:
    header = "timestamp,index,uuid,utilization.gpu\n"
    rows = "".join(f"{NOON + t:.0f},0,GPU-old1,90\n" for t in (0, 1, 2)) + f"{NOON + 60:.0f},0,GPU-new1,0\n"
    change = next(r for r in parse(header + rows)[0] if isinstance(r, Log))
    assert (change.event, change.ts, change.fields["gpu"]) == ("gpu_lost", NOON + 60, "GPU-old1")
    assert change.fields["replaced_by"] == "GPU-new1"


def test_hosts_that_a_table_does_not_tell_apart_replace_nobody() -> None:
    rows = "".join(f"{NOON + t:.0f},0,GPU-{name},90\n" for t in range(0, 60, 10) for name in ("aaa1", "bbb1"))
    late = f"{NOON + 500:.0f},0,GPU-bbb1,90\n{NOON + 500:.0f},0,GPU-aaa1,90\n"
    assert all(isinstance(r, Gpu) for r in parse("timestamp,index,uuid,utilization.gpu\n" + rows + late)[0])


def test_errors_and_remapped_rows_count_together_and_a_late_counter_is_no_growth() -> None:
    text = "index,ecc.errors.uncorrected.volatile.total,remapped_rows.uncorrectable\n0,1,[N/A]\n0,1,7\n0,2,7\n0,[N/A],[N/A]\n"
    assert [g.ecc_uncorrected for g in samples(text)] == [1, 1, 2, None]
    both = "index,ecc.errors.uncorrected.volatile.total,remapped_rows.uncorrectable\n0,1,3\n0,[N/A],4\n"
    assert [g.ecc_uncorrected for g in samples(both)] == [4, 5]


def test_a_failed_remap_is_a_message_and_an_old_one_says_so() -> None:
    text = "index,remapped_rows.failure\n0,No\n1,Yes\n0,Yes\n1,Yes\n"
    assert [(r.event, r.fields["gpu"], r.fields["old"]) for r in parse(text)[0] if isinstance(r, Log)] == [
        ("gpu_remap_failed", "gpu.csv/1", "true"),
        ("gpu_remap_failed", "gpu.csv/0", "false"),
    ]


def test_what_cannot_be_used_is_counted_with_its_place() -> None:
    notices = Notices()
    parser = GpuCsv("g.csv", notices)
    parser.feed(b"index,utilization.gpu,power.draw\n0,50\n0,50,60,70\n0,much,60,\n0,5")
    records = parser.finish()
    told = {n.text: (n.source, n.count) for n in notices.items()}
    assert records == []
    assert told[gpu_csv.ODD_LENGTH] == ("g.csv:line 2", 2)
    assert told["not a number in a column of utilization"] == ("g.csv:line 4", 1)
    assert told[gpu_csv.CUT_ROW] == ("g.csv:line 5", 1)


def test_utf_16_of_another_shell_is_read() -> None:
    text = "index, utilization.gpu [%]\r\n0, 40 %\r\n"
    assert [g.utilization_ratio for g in samples(text.encode("utf-16"))] == [0.4]
    assert gpu_csv.sniff(text.encode("utf-16"))
