"""Reads pickles that hold nothing but plain values: no name of a class or function is ever looked up, so nothing can run."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, Final, NoReturn

PLAIN: Final = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP"),
        *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
        *("SHORT_BINSTRING", "BINSTRING"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET"),
        *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    }
)
"""Opcodes that only build numbers, texts and containers. Not among them: GLOBAL, STACK_GLOBAL, INST, OBJ, NEWOBJ, REDUCE,
BUILD, the extension registry, persistent ids and out-of-band buffers."""
PUTS: Final = frozenset({"BINPUT", "LONG_BINPUT"})
DIGITS: Final = 16
"""Bytes of an integer; counters and times take 8, and a number of megabytes takes minutes to print."""


class NotPlain(ValueError):
    """The pickle asks for more than plain values, or is damaged; the text says which."""


class _Refusing(pickle.Unpickler):
    """A second lock: should an opcode that looks up names ever get past the list, it finds none."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise NotPlain(f"asks for {module}.{name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise NotPlain("asks for an object outside the file")


def load_plain(data: bytes) -> Any:
    """The value of a pickle of plain values; raises NotPlain for any other, before anything of it is built."""
    _check(data)
    try:
        return _Refusing(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:  # damaged pickles raise nearly anything: IndexError, TypeError, UnicodeDecodeError, ...
        raise NotPlain(f"damaged ({type(error).__name__})") from error


def _check(data: bytes) -> None:
    """Every opcode is plain, and no slot of the memo lies beyond what the pickle itself can have filled."""
    seen = 0
    try:
        for opcode, argument, at in pickletools.genops(data):
            seen += 1
            if opcode.name not in PLAIN:
                told = f" {argument}".replace("\n", " ")[:80] if isinstance(argument, str) else ""
                raise NotPlain(f"asks for more than plain values: {opcode.name}{told} at byte {at}")
            if opcode.name in PUTS and isinstance(argument, int) and argument > seen:
                raise NotPlain(f"uses slot {argument} of its memo after {seen} opcodes")
            if opcode.name in ("LONG1", "LONG4") and isinstance(argument, int) and argument.bit_length() > 8 * DIGITS:
                raise NotPlain(f"holds an integer of {argument.bit_length()} bits")
    except NotPlain:
        raise
    except Exception as error:
        raise NotPlain(f"damaged ({type(error).__name__})") from error
