"""Reads the protocol buffers that TensorBoard event files hold, as far as scalars need it, without their library.

Encoding: protobuf.dev/programming-guides/encoding. Numbers of fields: tensorflow/core/util/event.proto (Event),
tensorflow/core/framework/summary.proto (Summary, Summary.Value) and tensor.proto (TensorProto); of types: types.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) are used by none of these messages
EVENT_WALL_TIME, EVENT_STEP, EVENT_SUMMARY = 1, 2, 5
SUMMARY_VALUE = 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_TYPE, TENSOR_CONTENT, TENSOR_HALF = 1, 4, 13
TENSOR_LISTS: Final = {5: "<f", 6: "<d"}  # float_val and double_val, packed or not
CONTENTS: Final = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}  # by type: float, double, int32, int64, half
HALF, BFLOAT16 = 19, 14
SIGN: Final = 1 << 63

Field = tuple[int, int, int | bytes]


class BadWire(ValueError):
    """The bytes are no message."""


class Scalars(NamedTuple):
    """One event: when it was written, of which step, and its values by tag."""

    ts: float
    step: int
    values: list[tuple[str, float]]


def scalars(data: bytes) -> Scalars:
    """The scalars of one event; BadWire if it is none."""
    ts, step, values = 0.0, 0, []
    for number, wire, value in fields(data):
        if number == EVENT_WALL_TIME and wire == FIXED64:
            ts = _unpack("<d", value)
        elif number == EVENT_STEP and isinstance(value, int):
            step = value - 2 * SIGN if value >= SIGN else value
        elif number == EVENT_SUMMARY and isinstance(value, bytes):
            for inner, _, part in fields(value):
                if inner == SUMMARY_VALUE and isinstance(part, bytes):
                    values += _scalar(part)
    return Scalars(ts, step, values)


def fields(data: bytes) -> Iterator[Field]:
    """Number, wire type and value of each field; BadWire where the bytes do not go on."""
    pos = 0
    while pos < len(data):
        key, pos = _varint(data, pos)
        wire = key & 7
        if wire == VARINT:
            value, pos = _varint(data, pos)
            yield key >> 3, wire, value
            continue
        if wire == BYTES:
            size, pos = _varint(data, pos)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise BadWire
        if size > len(data) - pos:
            raise BadWire
        yield key >> 3, wire, data[pos : pos + size]
        pos += size


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while pos < len(data) and shift < 64:
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        pos += 1
        if byte < 0x80:
            return value, pos
        shift += 7
    raise BadWire


def _unpack(form: str, value: int | bytes) -> float:
    if isinstance(value, int) or len(value) != struct.calcsize(form):
        raise BadWire
    (number,) = struct.unpack(form, value)
    return float(number)


def _scalar(data: bytes) -> list[tuple[str, float]]:
    """Tag and value of a Summary.Value, where it holds one number."""
    tag, number = "", None
    for field, wire, value in fields(data):
        if field == VALUE_TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == VALUE_SIMPLE and wire == FIXED32:
            number = _unpack("<f", value)
        elif field == VALUE_TENSOR and isinstance(value, bytes):
            number = _tensor(value)
    return [] if number is None else [(tag, number)]


def _tensor(data: bytes) -> float | None:
    """The number in a tensor of one; TensorFlow 2 writes its scalars so."""
    kind: int | bytes = 0
    listed: float | None = None
    content = b""
    for field, _, value in fields(data):
        if field == TENSOR_TYPE:
            kind = value
        elif field == TENSOR_CONTENT and isinstance(value, bytes):
            content = value
        elif isinstance(value, bytes) and field in TENSOR_LISTS:
            form = TENSOR_LISTS[field]
            listed = _unpack(form, value) if len(value) == struct.calcsize(form) else None
        elif field == TENSOR_HALF:
            bits = value if isinstance(value, int) else _varint(value, 0)[0]
            content = (bits & 0xFFFF).to_bytes(2, "little")
    return listed if listed is not None else _content(kind, content)


def _content(kind: int | bytes, content: bytes) -> float | None:
    if kind == BFLOAT16 and len(content) == 2:
        return _unpack("<f", b"\x00\x00" + content)
    form = CONTENTS.get(kind) if isinstance(kind, int) else None
    return _unpack(form, content) if form is not None and len(content) == struct.calcsize(form) else None
