"""Phases of a run and what it says of itself, and how a text log is told from other files."""

from __future__ import annotations

import pytest

from features.notices import Notices
from features.parsers import PARSERS
from features.parsers.textlog import TextLog
from features.records import Phase, Record, RunInfo, Step

HEAD = "2031-04-05T06:07:08.125000+00:00 INFO [rank=2 host=beta] "
T0 = 1933135628.125


def parse(text: str) -> list[Record]:
    """Records of a whole log."""
    parser = TextLog("run.log", Notices())
    return parser.feed(text.encode()) + parser.finish()


def phases(text: str) -> list[Phase]:
    return [record for record in parse(text) if isinstance(record, Phase)]


@pytest.mark.parametrize(
    ("line", "kind", "duration", "step", "epoch"),
    [
        ("start world_size=4 model=tiny batch=64", "start", None, None, None),
        ("epoch=3 val_acc=0.5 eval_time=0.25", "validation", 0.25, None, 3),
        ("checkpoint step=100 bytes=12345 time=0.125", "checkpoint", 0.125, 100, None),
        ("checkpoint step=100 bytes=12345", "checkpoint", None, 100, None),
        ("data shard exhausted at step=180", "exhausted", None, 180, None),
        ("joined, last_joined_rank=1", "join", None, None, None),
        ("done steps=300", "done", None, 300, None),
    ],
)
def test_phases(line: str, kind: str, duration: float | None, step: int | None, epoch: int | None) -> None:
    assert phases(HEAD + line) == [
        Phase(ts=T0, kind=kind, rank=2, duration_s=duration, step=step, epoch=epoch, source="run.log:1")
    ]
    assert not any(isinstance(record, Step) for record in parse(HEAD + line))


def test_phases_in_other_words() -> None:
    assert [p.kind for p in phases("Epoch 00003: val_loss improved from 2 to 1, saving model to /x\n")] == ["checkpoint"]
    assert [(p.kind, p.duration_s) for p in phases("Saved checkpoint /x/y.pt in 12.5 s\n")] == [("checkpoint", 12.5)]
    assert [(p.kind, p.duration_s) for p in phases("Validation took 3.5 s\n")] == [("validation", 3.5)]
    assert [(p.kind, p.duration_s) for p in phases("{'eval_loss': 1.5, 'eval_runtime': 2.5}\n")] == [("validation", 2.5)]


def test_facts_of_the_run() -> None:
    text = (
        f"[2]<stdout>:{HEAD}start world_size=4 model=tiny batch=64\n"
        f"[2]<stdout>:{HEAD}start world_size=4 model=tiny batch=64\n"
        "HOROVOD_CYCLE_TIME=5\n"
        "alpha:7:8 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
        "alpha:7:8 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 1a000\n"
        "NCCL version 2.21.5+cuda12.4\n"
        "error (run with NCCL_DEBUG=INFO for details)\n"
    )
    facts = [record for record in parse(text) if isinstance(record, RunInfo)]
    settings = {key: value for info in facts for key, value in info.settings.items()}
    assert settings == {
        "world_size": "4",
        "model": "tiny",
        "batch": "64",
        "HOROVOD_CYCLE_TIME": "5",
        "NCCL_IB_DISABLE": "1",
        "nccl_version": "2.21.5+cuda12.4",
    }
    assert [info.world_size for info in facts if info.world_size is not None] == [4, 8]
    assert {rank: node for info in facts for rank, node in info.nodes.items()} == {2: "beta", 3: "alpha"}


def test_table_of_parsers_takes_text_last() -> None:
    def kind(data: bytes) -> str | None:
        return next((row.kind for row in PARSERS if row.sniff(data)), None)

    assert kind((HEAD + "step=1 loss=2").encode()) == "log"
    assert kind("müde\r\n\x1b[31mred\x1b[0m".encode()) == "log"
    assert kind(b"") is None
    assert kind(b"\0\0\0\0") is None
    assert kind(bytes(range(256)) * 4) is None
