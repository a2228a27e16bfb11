"""Telemetry records on the wire: every kind comes back as it was, and what is not said stays unsaid."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import pytest

from features.records import Collective, Cycles, Gpu, Host, Log, Net, Phase, Process, Ready, Record, RunInfo, Step

KINDS: tuple[type[Any], ...] = get_args(Record)
TAGS = {
    RunInfo: "run",
    Step: "step",
    Phase: "phase",
    Collective: "collective",
    Cycles: "cycles",
    Host: "host",
    Process: "process",
    Gpu: "gpu",
    Net: "net",
    Log: "log",
}
"""What is written on the wire: other programs, and messages that are already in a topic, rely on it."""
FULL: dict[type, Record] = {
    RunInfo: RunInfo(ts=1.5, world_size=2, nodes={0: "alpha", 1: "beta"}, settings={"batch": "64"}, source="a.log:1"),
    Step: Step(
        ts=2.5, rank=0, step=7, duration_s=0.1, data_s=0.0, loss=2.5, grad_norm=1e-300, batch=64, epoch=0, source="a.log:2"
    ),
    Phase: Phase(ts=3.5, kind="checkpoint", rank=0, duration_s=0.25, step=7),
    Collective: Collective(
        ts=4.5, tensor="dense", op="allreduce", negotiate_s=0.0, end=4.75, bytes=4096, ready=(Ready(0, 0.0), Ready(1, 0.125))
    ),
    Cycles: Cycles(ts=5.5, count=200, median_gap_s=0.005),
    Host: Host(ts=6.5, node="alpha", cpus=8, cpu_ratio=0.0, load1=1.25),
    Process: Process(ts=7.5, rank=3, status="stopped", rss_bytes=4e8, workers=0),
    Gpu: Gpu(ts=8.5, gpu="GPU-1a2b", utilization_ratio=0.97, throttle=("sw_power_cap",), xid=79),
    Net: Net(ts=9.5, node="alpha", device="mlx5_0/1", errors={"symbol_error": 0.5}, is_up=False),
    Log: Log(ts=None, event="stall", text="waiting", ranks=(1, 2), fields={"tensor": "dense"}),
}


def test_every_kind_is_told_by_its_own_tag() -> None:
    assert {kind: kind.__struct_config__.tag for kind in KINDS} == TAGS
    assert len(set(TAGS.values())) == len(KINDS)


@pytest.mark.parametrize("code", [msgspec.json, msgspec.msgpack], ids=["json", "msgpack"])
def test_a_batch_of_all_kinds_comes_back_as_it_was(code: Any) -> None:
    batch = [FULL[kind] for kind in KINDS]
    again = code.decode(code.encode(batch), type=list[Record])
    assert again == batch
    assert [type(r) for r in again] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_not_said_is_unknown_and_not_zero(kind: type[Any]) -> None:
    fields = msgspec.structs.fields(kind)
    bare = kind(**{f.name: getattr(FULL[kind], f.name) for f in fields if f.required})
    unsaid = {f.name: getattr(bare, f.name) for f in fields if not f.required and f.name != "fused"}  # one tensor is itself
    assert all(value in (None, {}, (), "") for value in unsaid.values()), unsaid
    assert msgspec.json.decode(msgspec.json.encode(bare), type=kind) == bare


def test_zero_is_a_value() -> None:
    step = msgspec.json.decode(msgspec.json.encode(FULL[Step]), type=Record)
    assert isinstance(step, Step)
    assert (step.data_s, step.forward_s, step.epoch) == (0.0, None, 0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_records_are_not_changed_once_they_are_made(kind: type[Any]) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        FULL[kind].ts = 0.0


def test_a_newer_sender_may_say_more() -> None:
    told = b'{"type":"step","ts":1.0,"rank":0,"step":3,"tokens":4096}'
    assert msgspec.json.decode(told, type=Record) == Step(ts=1.0, rank=0, step=3)


@pytest.mark.parametrize(
    "told",
    [
        b'{"type":"step","ts":1.0,"rank":0}',
        b'{"type":"step","ts":"now","rank":0,"step":1}',
        b'{"type":"nothing","ts":1.0}',
        b'{"ts":1.0,"rank":0,"step":1}',
        b"[]",
    ],
)
def test_what_is_no_record_is_refused(told: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(told, type=Record)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_a_value(loss: float) -> None:
    """In memory and in MessagePack; JSON knows no such numbers."""
    step = Step(ts=1.0, rank=0, step=1, loss=loss)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=Record)
    assert isinstance(again, Step)
    assert repr(again.loss) == repr(loss)


def test_arrivals_are_short_on_the_wire() -> None:
    """There is one for each rank and tensor."""
    assert msgspec.json.encode(Ready(3, 0.5)) == b"[3,0.5]"


def test_records_do_not_share_what_they_hold() -> None:
    first, second = RunInfo(ts=1.0), RunInfo(ts=1.0)
    assert first.settings is not second.settings
    assert first.nodes is not second.nodes
