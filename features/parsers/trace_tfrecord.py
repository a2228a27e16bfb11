"""Cuts a file of TFRecords into records: length, checksum, bytes, checksum, as TensorFlow and TensorBoard write them.

Format: tensorflow/core/lib/io/record_writer.h. A record is its length (64 bits, little endian), a masked CRC-32C of those
eight bytes, the bytes, and a masked CRC-32C of them. CRC-32C as in RFC 3720, appendix B.4; the mask as in
tensorflow/core/lib/hash/crc32c.h: rotated right by 15 bits, plus 0xa282ead8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from features.notices import Notices

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
MAX_RECORD_BYTES: Final = 1 << 20  # a record of scalars takes some 100 bytes; graphs and pictures are passed over
MAX_LENGTH: Final = 1 << 31  # no protobuf message is longer

DAMAGED: Final = "damaged bytes between records were skipped"
CUT: Final = "the last record is cut off"

_MASK: Final = 0xA282EAD8
_POLYNOMIAL: Final = 0x82F63B78  # of Castagnoli, bits reversed
# Where a record of less than 16 MiB may begin; five bytes of its length are zero then.
_MAYBE: Final = re.compile(rb"(?=(?!\x00{3})[\x00-\xff]{3}\x00{5}[\x00-\xff]{4})")


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE: Final = _table()


def masked_crc(data: bytes) -> int:
    """The checksum as it stands in a file."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def length_at(buf: bytes, at: int) -> int | None:
    """The length of the record that begins there; None if none does."""
    if int.from_bytes(buf[at + 8 : at + HEADER_BYTES], "little") != masked_crc(buf[at : at + 8]):
        return None
    length = int.from_bytes(buf[at : at + 8], "little")
    return length if length < MAX_LENGTH else None


class Frame(NamedTuple):
    """A record, and the checksum that it should have."""

    data: bytes
    crc: int
    at: int  # byte of the file

    def is_sound(self) -> bool:
        """Whether the bytes are those that were written; slow in Python, so only asked of what is used."""
        return masked_crc(self.data) == self.crc


class Frames:
    """Records from bytes in any chunking; long ones are passed over without keeping them."""

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices."""
        self._file, self._notices = file, notices
        self._carry = b""
        self._offset = 0  # of the first byte of the buffer within the file
        self._pass = 0  # bytes of a long record that are still to come
        self._is_lost = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The records that `data` completes."""
        buf = self._carry + data
        pos = 0
        while pos < len(buf):
            if self._pass:
                step = min(self._pass, len(buf) - pos)
                self._pass -= step
                pos += step
                continue
            if len(buf) - pos < HEADER_BYTES:
                break
            length = length_at(buf, pos)
            if length is None:
                pos = self._search(buf, pos)
                continue
            self._is_lost = False
            if length > MAX_RECORD_BYTES:
                self._pass = HEADER_BYTES + length + FOOTER_BYTES
                continue
            end = pos + HEADER_BYTES + length
            if end + FOOTER_BYTES > len(buf):
                break
            crc = int.from_bytes(buf[end : end + FOOTER_BYTES], "little")
            yield Frame(buf[pos + HEADER_BYTES : end], crc, self._offset + pos)
            pos = end + FOOTER_BYTES
        self._carry = buf[pos:]
        self._offset += pos

    def finish(self) -> None:
        """Note a last record without an end."""
        if (self._carry or self._pass) and not self._is_lost:
            self._notices.add("info", CUT, file=self._file, place=f"byte {self._offset}")

    def _search(self, buf: bytes, pos: int) -> int:
        """On to the next record, or to where one may begin with the bytes that follow."""
        if not self._is_lost:
            self._notices.add("warning", DAMAGED, file=self._file, place=f"byte {self._offset + pos}")
            self._is_lost = True
        for match in _MAYBE.finditer(buf, pos + 1):
            if length_at(buf, match.start()) is not None:
                return match.start()
        return max(pos + 1, len(buf) - HEADER_BYTES + 1)
