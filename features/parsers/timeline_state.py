"""The state of each tensor in a Horovod timeline, and the record of tensors that shared an operation."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from features.parsers.timeline_scan import Begin
from features.records import Collective, Ready

MICROS: Final = 1e6  # the file counts microseconds
NEGOTIATE: Final = "NEGOTIATE_"
TRANSFERS: Final = ("NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_", "MLSL_")  # the libraries that move the bytes
TOP_OPS: Final = {  # the outermost span; Adasum is a way of reducing
    "ALLREDUCE": "allreduce",
    "ADASUM": "allreduce",
    "BROADCAST": "broadcast",
    "ALLGATHER": "allgather",
    "ALLTOALL": "alltoall",
    "REDUCESCATTER": "reducescatter",
    "JOIN": "join",
    "BARRIER": "barrier",
}
ERROR: Final = "ERROR"  # the operation by which Horovod refuses what it negotiated
ACTIVITY, TRANSFER, NEGOTIATION, OPERATION = range(4)  # what a span is; the last two are outermost
NEGOTIATION_ONLY: Final = frozenset({"join", "barrier"})  # over with the negotiation: no operation follows
ITEM_BYTES: Final = {
    "bool": 1, "byte": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
MAX_SIZES: Final = 4096  # remembered shapes; a model has fewer
MAX_NAMES: Final = 1024  # remembered span names; Horovod has some 60
_SHAPE: Final = re.compile(r"\[\s*(?:\d{1,18}\s*(?:,\s*\d{1,18}\s*)*)?\]")


class Tensor:
    """One pid of the timeline: its name, and the collective it is in."""

    __slots__ = (
        "closed", "depth", "end", "group", "inner", "inner_depth", "library", "name", "named", "negotiating", "op",
        "opened", "pid", "size", "start", "ticks", "transfer", "where",
    )  # fmt: skip

    def __init__(self, pid: int, name: str, *, named: bool) -> None:
        """`named` is false where the name is made up, since none came yet."""
        self.pid, self.name, self.named = pid, name, named
        self.where: str | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the collective: the tensor is at rest."""
        self.depth = 0  # open spans
        self.negotiating = False
        self.op = ""
        self.opened: float | None = None  # negotiation, in the file's microseconds
        self.closed: float | None = None
        self.ticks: list[tuple[int, float]] = []
        self.start: float | None = None  # operation
        self.end: float | None = None
        self.inner_depth = 0  # depth of the transfer that is open, 0 for none
        self.inner = 0.0
        self.transfer: float | None = None
        self.library: str | None = None  # name of the first transfer
        self.size: int | None = None
        self.group: Group | None = None

    def source(self, file: str) -> str:
        """What records say of where they come from; there are many records of each tensor."""
        if self.where is None:
            self.where = f"{file}:pid {self.pid}"
        return self.where

    @property
    def busy(self) -> bool:
        """Whether a collective is under way or only half told."""
        return self.opened is not None or self.start is not None

    @property
    def begin(self) -> float:
        """When the collective began, as far as is known."""
        return self.opened if self.opened is not None else self.start if self.start is not None else 0.0

    def moves(self, event: Begin) -> None:
        """A transfer begins."""
        self.inner_depth, self.inner = self.depth, event.ts
        if self.library is None:
            self.library = event.name

    def moved(self, ts: float) -> None:
        """The open transfer ends; an operation may have several."""
        self.transfer = (self.transfer if self.transfer is not None else 0.0) + ts - self.inner
        self.inner_depth = 0


class Group:
    """Tensors of one negotiated response: Horovod starts them in one go and ends them in one go."""

    __slots__ = ("ended", "members", "op")

    def __init__(self, op: str) -> None:
        self.op = op
        self.members: list[Tensor] = []
        self.ended = 0


class Spans(dict[str, int]):
    """What the name of a span says of it, worked out once per name."""

    def __missing__(self, name: str) -> int:
        """Classify a name that was not seen before."""
        if len(self) >= MAX_NAMES:
            self.clear()
        if name.startswith(NEGOTIATE):
            span = NEGOTIATION
        elif name in TOP_OPS or name == ERROR:
            span = OPERATION
        else:
            span = TRANSFER if name.startswith(TRANSFERS) else ACTIVITY
        self[name] = span
        return span


def library_of(name: str) -> str:
    """The library that a transfer is in, from the name of its span."""
    return name.partition("_")[0].lower()


def op_of(name: str) -> str:
    """The op of a record from Horovod's name of it."""
    return TOP_OPS.get(name) or name.lower()


class Sizes(dict[bytes, int | None]):
    """Bytes of a tensor from the raw `args` of its last event; few distinct ones come, many times each.

    None where dtype or shape is missing or unknown; an error of msgspec where the args are no JSON.
    """

    def __missing__(self, raw: bytes) -> int | None:
        """Work out what was not seen before."""
        args = msgspec.json.decode(raw) if raw else {}
        if len(self) >= MAX_SIZES:
            self.clear()
        self[raw] = size = _size(args) if isinstance(args, dict) else None
        return size


def _size(args: dict[str, object]) -> int | None:
    item, shape = ITEM_BYTES.get(str(args.get("dtype"))), str(args.get("shape"))
    if item is None or not _SHAPE.fullmatch(shape):
        return None
    total = item
    for dim in re.findall(r"\d+", shape):
        total *= int(dim)
    return total if total < 2**63 else None


def loose(raw: bytes) -> dict[str, object]:
    """A JSON object as a dict; empty for anything else."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def collective(members: list[Tensor], *, epoch_us: float, file: str) -> Collective:
    """One record of tensors that shared a response; what is not over stays None."""
    first = members[0]
    opened = [m.opened for m in members if m.opened is not None]
    starts = [m.start for m in members if m.start is not None]
    ends = [m.end for m in members if m.end is not None]
    waits = [m.closed - m.opened for m in members if m.opened is not None and m.closed is not None]
    moves = [m.transfer for m in members if m.transfer is not None]
    sizes = [m.size for m in members if m.size is not None]
    begin = min(opened or starts or ends)
    over = max(ends) if ends else None
    return Collective(
        ts=(epoch_us + begin) / MICROS,
        tensor=first.name,
        op=first.op,
        negotiate_s=_seconds(max(waits) if waits else None),
        execute_s=_seconds(over - min(starts) if over is not None and starts else None),
        transfer_s=_seconds(max(moves) if moves and over is not None else None),
        end=None if over is None else (epoch_us + over) / MICROS,
        bytes=sum(sizes) if len(sizes) == len(members) else None,
        transport=library_of(first.library) if first.library is not None else None,
        fused=len(members),
        ready=_ready(members, begin),
        source=first.source(file),
    )


def _seconds(micros: float | None) -> float | None:
    """A duration; a negative one (the clock jumped) is unknown."""
    return None if micros is None or micros < 0 else micros / MICROS


def _ready(members: list[Tensor], begin: float) -> tuple[Ready, ...]:
    """When each rank had announced all of these tensors, by rank."""
    latest: dict[int, float] = {}
    for member in members:
        for rank, ts in member.ticks:
            if ts > latest.get(rank, -float("inf")):
                latest[rank] = ts
    return tuple(Ready(rank, (latest[rank] - begin) / MICROS) for rank in sorted(latest))
