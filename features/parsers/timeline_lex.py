"""Reads the records of a Horovod timeline many at a time, straight from the bytes into columns of numbers.

Horovod writes each kind of record in one fixed form. A record that has that form to the byte is read here, from its end
backwards, since the numbers stand at its end; the first one that has not ends the columns, and the patient way goes on.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BEGIN, END, TICK, MARK, META, ODD, TOLD = range(7)  # kinds of record; TOLD is an END with args
HEAD: Final = 21  # length of {"ph": "B", "name": "
PID: Final = 9  # length of , "pid":_
TS: Final = 9  # length of ", "ts":_
SUFFIX: Final = 10  # length of each of the three things that may follow the numbers
MARGIN: Final = 64  # bytes that may be looked at from the start of a record without knowing its length
MAX_DIGITS: Final = 15  # so that a float holds it
MAX_RANK_DIGITS: Final = 7
MAX_NAMES: Final = 1024  # Horovod has some 60
NAME: Final = re.compile(rb"[A-Za-z0-9_ ]{1,64}")


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little")


def _words(*values: int) -> Words:
    return np.array(values, np.uint64)


def _each(byte: int) -> np.uint64:
    return np.uint64(_word(bytes([byte]) * 8))


ZEROS, HIGH, LOW7, TO_HIGH, LOW4 = _each(0x30), _each(0x80), _each(0x7F), _each(0x76), _each(0x0F)
TENS: Final = 10 ** np.arange(17, dtype=np.int64)
ALL: Final = 2**64 - 1
PH, TS_KEY, PID_KEY = np.uint64(_word(b'{"ph": "')), np.uint64(_word(b', "ts": ')), np.uint64(_word(b', "pid":'))
META_HEAD: Final = np.uint64(_word(b'{"name":'))
LETTERS: Final = np.full(256, ODD)
LETTERS[[ord(letter) for letter in "BEXi"]] = (BEGIN, END, TICK, MARK)
NAMED: Final = _word(b'e": "')
# What stands in the second and third word of a record of each kind, and which of its bits have to.
SECOND: Final = _words(*(_word(w) for w in (b'B", "nam', b'E", "ts"', b'X", "nam', b'i", "nam')), 0, 1)
THIRD: Final = _words(NAMED, _word(b": "), NAMED, _word(b'e": "CYC'), 0, 0)
THIRD_BITS: Final = _words(2**40 - 1, 2**16 - 1, 2**40 - 1, ALL, 0, 0)
MARK_FOURTH: Final = np.uint64(_word(b"LE_START"))
# What ends a record after its numbers: , "dur": 0 or , "s": "g" or , "args": (the brace not included).
COMMA: Final = np.uint64(_word(b", "))
LAST: Final = _words(0, 0, _word(b'"dur": 0'), _word(b'"s": "g"'), 0, 0, _word(b'"args": '))
SUFFIXED: Final = LAST > 0
NUMBERS: Final = np.array([0, 18, 0, 41, 0, 0, 18])  # length of {"ph": "E", "ts":_ and of a mark up to there
U8, U16, U24, U29, U32, U40, U48, U56 = (np.uint64(n) for n in (8, 16, 24, 29, 32, 40, 48, 56))


class Columns(NamedTuple):
    """One entry per record; times in microseconds, places in bytes from the start of what was read."""

    start: Ints
    stop: Ints
    kind: Ints
    ts: Ints
    pid: Ints
    code: Ints  # of a span: its number in the vocabulary; of a tick: the rank
    args: Ints  # where the args of a TOLD begin


class Vocabulary:
    """Numbers for span names, by their length, first and last eight characters: more than tells Horovod's apart."""

    def __init__(self) -> None:
        """It starts empty and learns each name when it first comes."""
        self.names: list[str] = []
        self._keys = np.empty(0, np.uint64)
        self._codes = np.empty(0, np.int64)

    def codes(self, keys: Words, text: bytes, start: Ints, end: Ints) -> Ints:
        """The number of each name, which lies in `text` from `start` to `end`; -1 for what is no name."""
        codes = self._find(keys)
        fresh = np.flatnonzero(codes < 0)
        if len(fresh):
            for at in fresh[np.unique(keys[fresh], return_index=True)[1]].tolist():
                self._learn(text[int(start[at]) : int(end[at])], keys[at])
            codes = self._find(keys)
        return codes

    def _find(self, keys: Words) -> Ints:
        if not len(self._keys):
            return np.full(len(keys), -1)
        places = np.searchsorted(self._keys[1:], keys, side="right")
        return np.where(self._keys[places] == keys, self._codes[places], -1)

    def _learn(self, name: bytes, key: np.uint64) -> None:
        if len(self.names) < MAX_NAMES and NAME.fullmatch(name):
            at = int(np.searchsorted(self._keys, key))
            self._keys = np.insert(self._keys, at, key)
            self._codes = np.insert(self._codes, at, len(self.names))
            self.names.append(name.decode("ascii"))


def lex(text: bytes, vocabulary: Vocabulary) -> Columns | None:
    """The records of `text` from the first on, as far as each has its fixed form."""
    data = np.frombuffer(text, np.uint8)
    braces = np.flatnonzero(data == ord("{"))
    outer = data[braces - 1] != ord(" ")  # args come after a blank, records never do
    starts = braces[outer]
    starts = starts[: np.searchsorted(starts, len(data) - MARGIN)]
    if len(starts) < 2 or text[: int(starts[0])].strip(b"[], \t\r\n"):
        return None
    inner = np.zeros(len(starts), np.int64)  # the brace of the args, 0 for none
    nested = braces[~outer]
    owners = np.searchsorted(starts, nested) - 1
    inner[owners] = nested
    return _columns(text, data, starts, inner[:-1], vocabulary)


def _columns(text: bytes, data: npt.NDArray[np.uint8], starts: Ints, inner: Ints, vocabulary: Vocabulary) -> Columns:
    following, start = starts[1:], starts[:-1]
    close = following - 2 - (data[following - 1] == ord("\n"))
    head = _gather(text, start, 4)
    kind, sound = _kinds(head)
    kind[(kind == END) & (inner > 0)] = TOLD
    end = close.copy()
    told = np.flatnonzero(kind == TOLD)
    end[told] = inner[told]
    sound[told] &= data[close[told] - 1] == ord("}")
    _strip(text, end, kind, sound)
    pid, ts, begin = _numbers(text, end, kind, sound)
    named = (kind == BEGIN) | (kind == TICK)
    sound &= (begin == start + NUMBERS[kind]) | named
    at = np.flatnonzero(kind == MARK)
    sound[at] &= (head[at, 3] == MARK_FOURTH) & (_gather(text, begin[at] - 8, 1)[:, 0] == TS_KEY)
    code = np.zeros(len(start), np.int64)
    at = np.flatnonzero(named)
    before = _gather(text, begin[at] - 24, 3)
    sound[at] &= (before[:, 2] == TS_KEY) & (before[:, 1] >> U56 == ord('"'))
    spans = kind[at] == BEGIN
    code[at[~spans]] = _ranks(before[~spans], (begin - start)[at[~spans]] - HEAD - TS)
    at, before = at[spans], before[spans]
    keys = _keys(head[at], before, begin[at] - start[at])
    code[at] = vocabulary.codes(keys, text, start[at] + HEAD, begin[at] - TS)
    sound &= code >= 0
    sound |= kind == META
    sound &= (data[close] == ord("}")) & (data[close + 1] == ord(","))
    size = len(start) if sound.all() else int(np.argmin(sound))
    return Columns(*(column[:size] for column in (start, close + 1, kind, ts, pid, code, inner)))


def _kinds(head: Words) -> tuple[Ints, Flags]:
    """The kind of each record from its first 32 bytes, and whether they are as they have to be."""
    kind = LETTERS[head[:, 1] & np.uint64(0xFF)]
    right = (head[:, 0] == PH) & (head[:, 1] == SECOND[kind])
    right &= head[:, 2] & THIRD_BITS[kind] == THIRD[kind]
    kind[head[:, 0] == META_HEAD] = META
    return kind, right


def _strip(text: bytes, end: Ints, kind: Ints, sound: Flags) -> None:
    """Move the `end` of records in which something follows the numbers, and see that it is what has to."""
    at = np.flatnonzero(SUFFIXED[kind])
    words, kinds = _gather(text, end[at] - 16, 2), kind[at]
    sound[at] &= (words[:, 1] == LAST[kinds]) & (words[:, 0] >> U48 == COMMA)
    end[at] -= SUFFIX


def _numbers(text: bytes, end: Ints, kind: Ints, sound: Flags) -> tuple[Ints, Ints, Ints]:
    """Pid (-1 for none) and ts, and where ts begins. What is not as it has to be is marked in `sound`."""
    marks = kind == MARK
    digits, pid = _digits(_gather(text, end - 8, 1)[:, 0])
    stop = end - digits - PID
    after = _gather(text, stop, 2)
    right = _plain(digits, pid) & (after[:, 0] == PID_KEY) & (after[:, 1] & np.uint64(0xFF) == ord(" "))
    sound &= right | marks
    pid[marks] = -1
    stop[marks] = end[marks]
    words = _gather(text, stop - 16, 2)
    digits, ts = _digits(words[:, 1])
    long = np.flatnonzero(digits == 8)
    if len(long):
        upper = words[long, 0]
        if (upper == upper[0]).all():  # the higher digits change every 100 seconds only
            upper = upper[:1]
        more, value = _digits(upper)
        digits[long] += more
        ts[long] += value * TENS[8]
    sound &= _plain(digits, ts)
    return pid, ts, stop - digits


def _keys(head: Words, before: Words, size: Ints) -> Words:
    """One number for each span name: its first and last eight characters, and its length."""
    first = head[:, 2] >> U40 | head[:, 3] << U24
    last = before[:, 1] << U8 | before[:, 0] >> U56
    key = (first ^ size.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    found: Words = (key ^ key >> U29 ^ last) * np.uint64(0xC2B2AE3D27D4EB4F)
    return found


def _ranks(before: Words, size: Ints) -> Ints:
    """The ranks that ticks are named by; -1 for other names."""
    digits, rank = _digits(before[:, 1] << U8 | before[:, 0] >> U56)
    return np.where((digits == size) & (digits <= MAX_RANK_DIGITS) & _plain(digits, rank), rank, -1)


def _gather(text: bytes, places: Ints, words: int) -> Words:
    """So many words of 8 bytes from each place, whatever its alignment; a place before the text wraps around."""
    size = 8 * words
    every: npt.NDArray[Any] = np.ndarray((len(text) - size + 1,), np.dtype((np.void, size)), text, 0, (1,))
    found: Words = every[places].view("<u8").reshape(-1, words)
    return found


def _plain(digits: Ints, value: Ints) -> Flags:
    """Whether these are JSON integers of a size that is exact: no digit at all and leading zeros are not."""
    plain: Flags = (digits <= MAX_DIGITS) & (value >= TENS[digits - 1]) | ((digits == 1) & (value == 0))
    return plain


def _digits(word: Words) -> tuple[Ints, Ints]:
    """How many digits end these 8 characters, of which the last is the highest byte, and the number they make."""
    value = word ^ ZEROS
    odd = ((value & LOW7) + TO_HIGH | value) & HIGH  # set in each byte that is no digit
    odd |= odd >> U8
    odd |= odd >> U16
    odd |= odd >> U32
    skip = np.bitwise_count(odd).astype(np.uint64)
    shift = skip * U8
    value = value >> shift << shift  # a shift by 64 leaves nothing
    value = (value & LOW4) * np.uint64(2561) >> U8
    value = (value & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> U16
    value = (value & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> U32
    return 8 - skip.astype(np.int64), value.astype(np.int64)
