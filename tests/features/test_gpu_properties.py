"""Which parser a file of GPU telemetry goes to, and what holds for all of them: chunks, any bytes, any damage."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.notices import Notices
from features.parsers import PARSERS
from features.parsers.gpu import GPU_ROWS
from features.parsers.protocol import ParserRow
from features.records import Gpu, Host, Log, Record

ANSWER = json.dumps(
    {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": f"GPU-{i}abc", "gpu": "0"},
         "values": [[1777896000 + 60 * t, "97"] for t in range(i * 9, i * 9 + 3)]} for i in range(2)]}}
)  # fmt: skip
SMDEBUG = "".join(
    json.dumps({"Type": t, "Name": f"{t}{i}", "Dimension": f"{t.upper()}Utilization", "Value": 9, "NodeId": "", "Timestamp": s})
    + "\n"
    for s in (1777896000.25, 1777896001.25)
    for t in ("cpu", "gpu")
    for i in range(2)
)  # fmt: skip
EXAMPLES: dict[str, str] = {
    "GpuCsv": "timestamp, index, utilization.gpu [%], power.draw [W]\n2026/05/04 12:00:00.1, 0, 97 %, 300.00 W\n"
    '2026/05/04 12:00:01.1, 0, 97 %, "300.00 W\n7"\n2026/05/04 12:00:02.1, [GPU is lost], [GPU is lost], [GPU is lost]\n'
    "No devices were found\n",
    "Dmon": "#Time        gpu    pwr     sm   tviol\n#HH:MM:SS    Idx      W      %    bool\n"
    " 12:00:00     0     99     98       1\nGPU is lost\n 12:00:01     0     99     98       0\n",
    "GpuQuery": "\n=====NVSMI LOG=====\nTimestamp  : Mon May  4 12:00:00 2026\nGPU 0000:3B:00.0\n    Utilization\n"
    "        Gpu  : 9 %\n    Processes\n        Process ID : 1\n            Type : C\n        Process ID : 2\n"
    "GPU 0000:4B:00.0\n",
    "Exposition": '# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1a2b"} 97\n'
    'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1a2b"} 79\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1a2b"} NaN\n',
    "Answers": ANSWER,
    "SmdebugMetrics": SMDEBUG,
}
ROWS = {row.make.__name__: row for row in GPU_ROWS}  # type: ignore[attr-defined]

STRANGERS: dict[str, str] = {
    "training log": "2026-05-04 12:00:00,123 INFO epoch 1 step 10 loss 2.5 lr 0.1 gpu_mem 12.5 GB\n" * 5,
    "training table": "epoch,step,train_loss,gpu_util,memory.used [MiB]\n1,10,2.5,97,3000\n",
    "table with a device monitor": "step,gpu_id: 0/memory.used (MB),gpu_id: 0/utilization.gpu (%),loss\n1,300,97,2.5\n",
    "host table": "timestamp,cpu_percent,memory_used_mb,memory_total_mb,temperature_c\n1777896000,50,3000,9000,55\n",
    "list of processes": "pid, process_name, used_gpu_memory [MiB]\n77, python, 3000 MiB\n",
    "pmon": "# gpu        pid  type    sm   mem   enc   dec   command\n# Idx          #   C/G     %     %     %     %   name\n",
    "comments": "# gpu settings\nlearning_rate: 0.1\n",
    "plain numbers": "1777896000,50,3000,9000\n1777896001,50,3000,9000\n",
    "one line with a unit": "50 %\nof the data is loaded, 3 workers\n",
    "log that quotes a table": "starting job\nindex, utilization.gpu [%]\n0, 97 %\n",
    "host metrics": '# HELP node_load1 1m load average.\nnode_load1 3.5\nnode_cpu_seconds_total{cpu="0"} 9\n',
    "answer about hosts": json.dumps({"data": {"result": [{"metric": {"__name__": "node_load1"}, "values": [[1, "2"]]}]}}),
    "Horovod timeline": '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad/gpu_util"}},\n',
    "host telemetry": '{"ts": 1777896000.0, "host": {"load1": 1.5}, "ranks": {}}\n',
    "JSON lines": '{"step": 1, "loss": 2.5, "gpu_util": 97}\n',
    "nothing": "\n\n",
}


def parse(row: ParserRow, data: bytes) -> tuple[list[Record], list[str]]:
    """Records and notices of a whole file."""
    notices = Notices()
    parser = row.make("node3/file", notices)
    return parser.feed(data) + parser.finish(), [f"{n}" for n in notices.items()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_taken_by_one_parser_and_read(name: str) -> None:
    data = EXAMPLES[name].encode()
    assert [taker for taker, row in ROWS.items() if row.sniff(data)] == [name]
    records, _ = parse(ROWS[name], data)
    assert any(isinstance(r, Gpu) for r in records)
    assert all(row.kind == "gpu" for row in GPU_ROWS)
    others = [row.kind for row in PARSERS if row not in GPU_ROWS and row.kind != "log" and row.sniff(data)]
    assert others == []


@pytest.mark.parametrize("name", STRANGERS)
def test_what_is_no_gpu_telemetry_is_left_to_others(name: str) -> None:
    data = STRANGERS[name].encode()
    assert [taker for taker, row in ROWS.items() if row.sniff(data)] == []


@pytest.mark.parametrize("name", EXAMPLES)
@given(data=st.data())
def test_chunks_make_no_difference(name: str, data: st.DataObject) -> None:
    """Whatever the chunks and wherever the file is cut off."""
    row, whole = ROWS[name], EXAMPLES[name].encode()
    end = data.draw(st.integers(0, len(whole)))
    cuts = data.draw(st.lists(st.integers(0, end), max_size=6))
    notices = Notices()
    parser = row.make("node3/file", notices)
    records = [r for a, b in pairwise([0, *sorted(cuts), end]) for r in parser.feed(whole[a:b])]
    records += parser.finish()
    assert (records, [f"{n}" for n in notices.items()]) == parse(row, whole[:end])


PIECES = st.sampled_from([
    b"\n", b"\r\n", b",", b" ", b'"', b"{", b"}", b"[", b"]", b":", b"#", b"[N/A]", b"[GPU is lost]", b"GPU-12ab", b"\0",
    b"0000:3b:00.0", b"97 %", b"300 W", b"-1", b"1e999", b"9223372036854775794", b"0x0000000000000040", b"0x" + b"f" * 400,
    b"9" * 400, b"NaN", b"index", b"timestamp", b"utilization.gpu [%]", b"power.draw [W]", b"gpu0_util", b"GPU is lost",
    b"No devices were found", b"2026/05/04 12:00:00.1", b"99/99/99", b"GPU 0000:3B:00.0", b"    Processes\n", b"\xff",
    b"        Process ID : 1", b"Timestamp : x", b"=NVSMI LOG=", b'{"metric":', b'"__name__"', b'"DCGM_FI_DEV_GPU_UTIL"',
    b'"values":[[1,"2"]]}', b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1', b"#Entity GPUTL", b"GPU 0 ", b"# gpu sm", "²".encode(),
    b"_" * 70_000, b"1_0",
])  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
@given(st.lists(PIECES, max_size=30), st.binary(max_size=40), st.booleans())
def test_any_bytes_are_survived(name: str, pieces: list[bytes], tail: bytes, after_a_good_start: bool) -> None:
    start = EXAMPLES[name].encode() if after_a_good_start else b""
    data = start + b"".join(pieces) + tail
    for row in GPU_ROWS:
        row.sniff(data[:65_536])
    records, _ = parse(ROWS[name], data)
    assert all(isinstance(r, Gpu | Host | Log) for r in records)


@given(st.lists(st.tuples(st.sampled_from(["utilization.gpu", "power.draw", "memory.used"]), st.text(max_size=8)), max_size=5))
def test_whatever_is_in_the_cells_values_are_believable(cells: list[tuple[str, str]]) -> None:
    table = ",".join(["index", *(name for name, _ in cells)]) + "\n"
    table += ",".join(["0", *(text.replace(",", "").replace("\n", "") for _, text in cells)]) + "\n"
    for record in parse(ROWS["GpuCsv"], table.encode())[0]:
        if isinstance(record, Gpu):
            assert record.utilization_ratio is None or 0 <= record.utilization_ratio <= 1
            assert record.power_w is None or 0 <= record.power_w < 1e5
            assert record.memory_used_bytes is None or record.memory_used_bytes >= 0
