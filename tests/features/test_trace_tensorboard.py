"""TensorBoard event files, written here byte by byte: all ways to write a scalar, and what writers call things."""

from __future__ import annotations

import math
import struct

import pytest

from features.notices import Notices
from features.parsers import trace_tensorboard, trace_tfrecord
from features.parsers.trace import TRACE_ROWS
from features.parsers.trace_tensorboard import TENSORBOARD, meaning_of
from features.parsers.trace_tfrecord import masked_crc
from features.records import Phase, Record, Step

T0 = 1_700_000_000.0


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes | int | float) -> bytes:
    """A field: bytes with their length, a whole number, or a 64-bit float."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 1) + struct.pack("<d", value)


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, kind: int, *parts: bytes) -> bytes:
    """As TensorFlow 2 writes a scalar: with metadata, in a tensor without dimensions."""
    metadata = field(9, field(1, field(1, b"scalars")))
    return field(1, tag.encode()) + field(8, field(1, kind) + field(2, b"") + b"".join(parts)) + metadata


def event(step: int, *values: bytes, ts: float | None = None) -> bytes:
    told = b"".join(field(1, value) for value in values)
    return field(1, T0 + step if ts is None else ts) + field(2, step) + (field(5, told) if values else b"")


def record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


HEAD = record(field(1, T0) + field(3, b"brain.Event:2"))


def read(*events: bytes, file: str = "rank1/events.out.tfevents.1.host") -> tuple[list[Record], dict[str, int]]:
    data = HEAD + b"".join(map(record, events))
    return read_bytes(data, file)


def read_bytes(data: bytes, file: str = "rank1/events.out.tfevents.1.host") -> tuple[list[Record], dict[str, int]]:
    notices = Notices()
    assert next(row for row in TRACE_ROWS if row.sniff(data)) is TENSORBOARD
    parser = TENSORBOARD.make(file, notices)
    records = parser.feed(data) + parser.finish()
    return records, {n.text: n.count for n in notices.items()}


def steps(records: list[Record]) -> list[Step]:
    return [r for r in records if isinstance(r, Step)]


def test_checksum_is_that_of_the_rfc() -> None:
    def unmasked(crc: int) -> int:
        turned = crc - 0xA282EAD8 & 0xFFFFFFFF
        return (turned >> 17 | turned << 15) & 0xFFFFFFFF

    assert unmasked(masked_crc(b"123456789")) == 0xE3069283
    assert unmasked(masked_crc(bytes(32))) == 0x8A9136AA


def test_values_of_a_step_come_together() -> None:
    records, notices = read(
        event(10, simple("train/loss", 0.5)),
        event(10, simple("train/grad_norm", 2.0), simple("steps_per_sec", 4.0), ts=T0 + 11),
        event(20, simple("train/loss", math.nan)),
    )
    first, second = steps(records)
    assert first == Step(
        ts=T0 + 11, rank=1, step=10, duration_s=0.25, loss=0.5, grad_norm=2.0, source="rank1/events.out.tfevents.1.host:step 10"
    )
    assert second.loss is not None
    assert math.isnan(second.loss)
    assert notices == {trace_tensorboard.MEANS: 1}


@pytest.mark.parametrize(
    "value",
    [
        tensor("loss", 1, field(4, struct.pack("<f", 1.5))),
        tensor("loss", 1, varint(5 << 3 | 5) + struct.pack("<f", 1.5)),
        tensor("loss", 1, field(5, struct.pack("<f", 1.5))),
        tensor("loss", 2, field(6, struct.pack("<d", 1.5))),
        tensor("loss", 2, field(4, struct.pack("<d", 1.5))),
        tensor("loss", 19, field(4, struct.pack("<e", 1.5))),
        tensor("loss", 19, field(13, 0x3E00)),
        tensor("loss", 14, field(13, 0x3FC0)),
        tensor("loss", 14, field(4, b"\xc0\x3f")),
    ],
    ids=["content", "float", "packed", "double", "double content", "half", "half list", "bfloat16 list", "bfloat16"],
)
def test_scalars_in_tensors(value: bytes) -> None:
    assert [s.loss for s in steps(read(event(1, value))[0])] == [1.5]


def test_tensors_of_many_are_no_scalars() -> None:
    assert steps(read(event(1, tensor("loss", 1, field(4, struct.pack("<ff", 1.5, 2)))))[0]) == []


@pytest.mark.parametrize(
    ("tag", "meaning"),
    [
        ("loss", "loss"), ("Loss/train", "loss"), ("train_loss_step", "loss"), ("batch_loss", "loss"), ("lm loss", "loss"),
        ("losses/total_loss", "loss"), ("loss_1", "loss"), ("epoch_loss", "e_loss"), ("train_loss_epoch", "e_loss"),
        ("global_step/sec", "speed"), ("steps_per_sec", "speed"), ("batch_steps_per_second", "speed"),
        ("epoch_steps_per_second", "e_speed"), ("iteration-time", "duration_s"), ("perf/step_time_ms", "duration_ms"),
        ("time/step", "duration_s"), ("sec_per_step", "duration_s"), ("train/data_time", "data_s"), ("epoch", "epoch"),
        ("grad-norm", "grad_norm"), ("total_gradient_norm", "grad_norm"), ("val_loss", "aside"), ("eval/loss", "aside"),
        ("epoch_val_loss", "aside"), ("learning_rate", None), ("lossy", None), ("evaluation_loss_vs_iterations", "aside"),
    ],
)  # fmt: skip
def test_what_tags_mean(tag: str, meaning: str | None) -> None:
    assert meaning_of(tag) == meaning


def test_times_of_steps_from_whatever_tells_them() -> None:
    records, notices = read(
        event(1, simple("step_time_ms", 250.0)), event(2, simple("iteration-time", 0.5)), event(3, simple("loss", 1.0))
    )
    assert [s.duration_s for s in steps(records)] == [0.25, 0.5, 1.0]  # the last from the times of writing
    assert notices == {trace_tensorboard.MEANS: 1}


def test_a_validation_is_a_pause_and_no_slow_step() -> None:
    records, _ = read(
        event(100, simple("loss", 1.0), ts=T0),
        event(100, simple("eval/loss", 1.2), simple("eval/accuracy", 0.2), ts=T0 + 50),
        event(110, simple("loss", 0.9), ts=T0 + 60),
        event(120, simple("loss", 0.8), ts=T0 + 65),
    )
    assert [s.duration_s for s in steps(records)] == [None, None, 0.5]
    assert [(p.kind, p.step, p.ts) for p in records if isinstance(p, Phase)] == [("validation", 100, T0 + 50)]


def test_a_folder_of_validations_has_no_steps() -> None:
    records, _ = read(event(0, simple("epoch_loss", 1.0)), file="logs/validation/events.out.tfevents.1")
    assert [type(r) for r in records] == [Phase]


def test_epochs_are_steps_where_nothing_else_is_told() -> None:
    epochs = [event(n, simple("epoch_loss", 1.0 / (n + 1)), simple("epoch_steps_per_second", 8.0)) for n in range(3)]
    records, notices = read(*epochs)
    assert [(s.step, s.epoch, s.duration_s) for s in steps(records)] == [(n, n, 0.125) for n in range(3)]
    assert notices == {trace_tensorboard.EPOCHS: 1}
    assert [s.step for s in steps(read(*epochs, event(40, simple("batch_loss", 1.0)))[0])] == [40]


def test_steps_come_while_the_file_grows() -> None:
    parser = TENSORBOARD.make("rank0/e", Notices())
    early = parser.feed(HEAD + b"".join(record(event(n, simple("loss", 1.0))) for n in range(100)))
    assert [s.step for s in steps(early)] == list(range(100 - trace_tensorboard.OPEN_STEPS))


def test_negative_and_absurd_events_are_counted() -> None:
    records, notices = read(
        event(2**64 - 1, simple("loss", 1.0), ts=T0), event(3, simple("loss", 1.0), ts=math.inf), event(4, simple("loss", 1.0))
    )
    assert [s.step for s in steps(records)] == [4]
    assert notices == {trace_tensorboard.BAD: 2}


def test_damaged_record_is_left_out_and_the_next_one_found() -> None:
    good = [record(event(n, simple("loss", float(n)))) for n in range(1, 5)]
    wrong = good[1][:-6] + b"\x01" + good[1][-5:]
    records, notices = read_bytes(HEAD + good[0] + wrong + b"junk" + good[2] + good[3][:-3])
    assert [s.step for s in steps(records)] == [1, 3]
    assert notices == {trace_tensorboard.BAD: 1, trace_tfrecord.DAMAGED: 1, trace_tfrecord.CUT: 1, trace_tensorboard.MEANS: 1}


def test_graphs_of_any_size_are_passed_over() -> None:
    graph = field(1, T0) + field(4, bytes(3 << 20))
    notices = Notices()
    parser = TENSORBOARD.make("rank0/e", notices)
    data = HEAD + record(graph) + record(event(5, simple("loss", 1.0)))
    for start in range(0, len(data), 65536):
        parser.feed(data[start : start + 65536])
    assert [s.step for s in steps(parser.finish())] == [5]
    assert notices.items() == []


def test_file_without_steps_says_so() -> None:
    assert read(event(1, simple("learning_rate", 0.1)))[1] == {trace_tensorboard.NOTHING: 1}


def test_other_records_are_not_taken() -> None:
    assert not TENSORBOARD.sniff(record(field(1, b"an example of a dataset")))
    assert not TENSORBOARD.sniff(HEAD[:8] + b"\x00" + HEAD[9:])
