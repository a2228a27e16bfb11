"""The scrolling tables of nvidia-smi and dcgmi, and the tree of nvidia-smi -q."""

from __future__ import annotations

from features.notices import Notices
from features.parsers import gpu_csv, gpu_times
from features.parsers.gpu_dmon import Dmon
from features.parsers.gpu_query import GpuQuery
from features.records import Gpu, Log, Record

MIB = 2.0**20
NOON = 1_777_896_000.0  # 2026-05-04 12:00:00 UTC


def dmon(text: str) -> tuple[list[Record], dict[str, int], Dmon]:
    """Records, notices with their counts, and the parser."""
    notices = Notices()
    parser = Dmon("dmon.txt", notices)
    records = parser.feed(text.encode()) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}, parser


def query(text: str) -> tuple[list[Record], dict[str, int]]:
    """Records and notices of a tree."""
    notices = Notices()
    parser = GpuQuery("q.txt", notices)
    records = parser.feed(text.encode()) + parser.finish()
    assert parser.absolute is ("Timestamp" in text)
    return records, {n.text: n.count for n in notices.items()}


DATED = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  pviol  tviol     fb  sbecc  dbecc
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz      %   bool     MB   errs   errs
 20260504   12:00:00      0    310     66      -     98     40   1593   1410      0      0  30000      5      0
 20260504   12:00:00      1    120     91      -     98     40   1593    345      0      1  30000      0      -
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  pviol  tviol     fb  sbecc  dbecc
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz      %   bool     MB   errs   errs
 20260504   12:00:01      0    311     66      -     98     40   1593   1410      0      0  30000      5      3
"""


def test_dmon_with_date_and_time() -> None:
    records, told, parser = dmon(DATED)
    assert records == [
        Gpu(ts=NOON, gpu="dmon.txt/0", utilization_ratio=0.98, memory_used_bytes=30000 * MIB, power_w=310.0, sm_clock_hz=1410e6,
            temperature_c=66.0, throttle=(), ecc_uncorrected=0, source="dmon.txt:3"),
        Gpu(ts=NOON, gpu="dmon.txt/1", utilization_ratio=0.98, memory_used_bytes=30000 * MIB, power_w=120.0, sm_clock_hz=345e6,
            temperature_c=91.0, throttle=("thermal_violation",), source="dmon.txt:4"),
        Gpu(ts=NOON + 1, gpu="dmon.txt/0", utilization_ratio=0.98, memory_used_bytes=30000 * MIB, power_w=311.0,
            sm_clock_hz=1410e6, temperature_c=66.0, throttle=(), ecc_uncorrected=3, source="dmon.txt:7"),
    ]  # fmt: skip
    assert parser.absolute
    assert told == {gpu_times.NO_ZONE: 3}


def test_dmon_without_time_counts_rounds() -> None:
    header = "# gpu   pwr  temp    sm   mem\n# Idx     W     C     %     %\n"
    records, told, parser = dmon(header + "".join(f"  {i % 2}   50   40   {i}   0\n" for i in range(6)))
    assert [(r.ts, r.gpu) for r in records if isinstance(r, Gpu)] == [
        (float(i // 2), f"dmon.txt/{i % 2}") for i in range(6)
    ]  # fmt: skip
    assert not parser.absolute
    assert told == {gpu_times.NO_TIME: 6}


def test_dmon_with_a_time_of_day_alone_passes_midnight() -> None:
    records, told, parser = dmon("#Time, gpu, sm\n#HH:MM:SS, Idx, %\n 23:59:59, 0, 7\n 00:00:01, 0, 8\n")
    assert [r.ts for r in records] == [86_399.0, 86_401.0]
    assert not parser.absolute
    assert told == {gpu_times.NO_DATE: 2}


def test_rows_that_do_not_fit_and_sentences_are_counted() -> None:
    records, told, _ = dmon("# gpu   sm\n# Idx    %\n  0   9   9\n  0   9\nGPU is lost\n")
    assert [type(r) for r in records] == [Gpu, Log]
    assert told[gpu_csv.ODD_LENGTH] == 1


def test_dcgmi_dmon_reads_devices_and_leaves_switches_out() -> None:
    records, _, parser = dmon(
        "#Entity   GRACT   GPUTL   SMCLK   TMPTR   POWER    FBUSD   FBFRE   XIDER   DVCCTR   TVIOL\n"
        "ID                                 C       W\n"
        "GPU 0     0.500   99      1410    66      310.5    30000   10000   N/A     4        100\n"
        "GPU 1     0.250   N/A     1410    67      311.5    30000   10000   79      0        100\n"
        "Switch 0  N/A     N/A     N/A     40      N/A      N/A     N/A     N/A     N/A      N/A\n"
        "GPU 0     0.500   99      1410    66      310.5    30000   10000   N/A     N/A      900\n"
    )
    assert records == [
        Gpu(ts=0.0, gpu="dmon.txt/0", utilization_ratio=0.99, memory_used_bytes=30000 * MIB, memory_total_bytes=40000 * MIB,
            power_w=310.5, sm_clock_hz=1410e6, temperature_c=66.0, throttle=("sw_power_cap",), source="dmon.txt:3"),
        Gpu(ts=0.0, gpu="dmon.txt/1", utilization_ratio=0.25, memory_used_bytes=30000 * MIB, memory_total_bytes=40000 * MIB,
            power_w=311.5, sm_clock_hz=1410e6, temperature_c=67.0, throttle=(), xid=79, source="dmon.txt:4"),
        Gpu(ts=1.0, gpu="dmon.txt/0", utilization_ratio=0.99, memory_used_bytes=30000 * MIB, memory_total_bytes=40000 * MIB,
            power_w=310.5, sm_clock_hz=1410e6, temperature_c=66.0, throttle=("thermal_violation",), source="dmon.txt:6"),
    ]  # fmt: skip
    assert not parser.absolute


TREE = """
==============NVSMI LOG==============

Timestamp                                 : Mon May  4 12:00:00 2026
Driver Version                            : 550.54.15
Attached GPUs                             : 2
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    GPU UUID                              : GPU-5511
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 22 us
    FB Memory Usage
        Total                             : 40960 MiB
        Reserved                          : 500 MiB
        Used                              : 30000 MiB
    BAR1 Memory Usage
        Used                              : 4 MiB
    Utilization
        Gpu                               : 98 %
        Memory                            : 40 %
    ECC Errors
        Volatile
            SRAM Correctable              : 9
            SRAM Uncorrectable Parity     : 1
            SRAM Uncorrectable SEC-DED    : 2
            DRAM Uncorrectable            : 3
        Aggregate
            SRAM Uncorrectable Parity     : 50
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 4
        Pending                           : No
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 88 C
        GPU Slowdown Temp                 : 92 C
    GPU Power Readings
        Average Power Draw                : N/A
        Instantaneous Power Draw          : 150.50 W
        Current Power Limit               : 400.00 W
        Default Power Limit               : 500.00 W
    Module Power Readings
        Power Draw                        : 900.00 W
    Clocks
        Graphics                          : 500 MHz
        SM                                : 510 MHz
    Max Clocks
        SM                                : 1410 MHz
    Processes
        Process ID                        : 4001
            Type                          : C
            Name                          : python
        Process ID                        : 4002
            Type                          : C
        Process ID                        : 4003
            Type                          : G
GPU 00000000:AF:00.0
    Utilization
        Gpu                               : GPU is lost
"""


def test_a_tree_of_two_gpus() -> None:
    records, told = query(TREE)
    sample, shared, gone = records
    assert sample == Gpu(
        ts=NOON, gpu="GPU-5511", utilization_ratio=0.98, memory_used_bytes=30000 * MIB, memory_total_bytes=40960 * MIB,
        power_w=150.5, power_limit_w=400.0, sm_clock_hz=510e6, temperature_c=88.0,
        throttle=("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"), ecc_uncorrected=10, source="q.txt:7",
    )  # fmt: skip
    assert isinstance(shared, Log)
    assert (shared.event, shared.fields["gpu"]) == ("gpu_contended", "GPU-5511")
    assert "4001, 4002" in shared.text
    assert isinstance(gone, Log)
    assert (gone.event, gone.fields["gpu"]) == ("gpu_lost", "00000000:af:00.0")
    assert told == {gpu_times.NO_ZONE: 1}


def test_trees_of_older_drivers_one_after_another() -> None:
    tree = """\
==============NVSMI LOG==============
Timestamp                                 : Mon May  4 12:00:0{second} 2026
GPU 0000:3B:00.0
    Clocks Throttle Reasons
        HW Slowdown                       : Not Active
    ECC Errors
        Volatile
            Single Bit
                Total                     : 8
            Double Bit
                Device Memory             : {errors}
                Total                     : {errors}
        Aggregate
            Double Bit
                Total                     : 70
    Power Readings
        Power Draw                        : 90.00 W
        Enforced Power Limit              : 250.00 W
        Power Limit                       : 300.00 W
    Processes                             : None
"""
    records, _ = query(tree.format(second=0, errors=0) + tree.format(second=2, errors=1))
    assert records == [
        Gpu(ts=NOON + 2 * i, gpu="00000000:3b:00.0", power_w=90.0, power_limit_w=250.0, throttle=(), ecc_uncorrected=i,
            source=f"q.txt:{3 + 20 * i}")
        for i in (0, 1)
    ]  # fmt: skip
