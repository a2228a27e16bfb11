"""What the names in traces mean: collectives, data types, phases of a step, numbers of steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
MAX_NAMES: Final = 4096  # remembered names; a trace has thousands of kernels, and few that say anything
MAX_ELEMENTS: Final = 2**48  # of a message; more is damage
MAX_DIMS: Final = 64  # tensors of one message that are looked at; a list of gradients is coalesced into one long before

# In this order: the longer word first, since "reducescatter" also holds "reduce".
_OPS: Final = (
    ("reducescatter", "reducescatter"),
    ("allreduce", "allreduce"),
    ("allgather", "allgather"),
    ("alltoall", "alltoall"),
    ("broadcast", "broadcast"),
    ("bcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "sendrecv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("pushpull", "allreduce"),
    ("send", "send"),
    ("recv", "recv"),
)
# Widths by the names of torch (c10::Half, long int), of its profiler (Float, BFloat16) and of numpy, letters and digits only.
_ITEM_BYTES: Final = {
    "bool": 1, "byte": 1, "char": 1, "unsignedchar": 1, "signedchar": 1, "uint8": 1, "int8": 1, "float8e4m3fn": 1,
    "float8e5m2": 1, "half": 2, "bfloat16": 2, "float16": 2, "short": 2, "shortint": 2, "int16": 2, "int": 4, "int32": 4,
    "float": 4, "float32": 4, "long": 8, "longint": 8, "int64": 8, "double": 8, "float64": 8, "complexfloat": 8,
    "complexdouble": 16,
}  # fmt: skip
_ASKED: Final = re.compile(r"(nccl|gloo|mpi|ucc|xccl|hccl|ccl|rccl):(\w+)")  # c10d: backend, then its function
_API: Final = re.compile(r"(nccl|rccl|MPI|Horovod)(?:_I?)?(?:Grouped)?([A-Z][A-Za-z]+)")  # ncclAllReduce, MPI_Iallreduce
_KERNEL: Final = re.compile(r"(?:void )?(nccl|rccl|msccl|oneccl)", re.IGNORECASE)
_STEP: Final = re.compile(r"ProfilerStep\*?#(\d{1,12})")
_COUNTED: Final = re.compile(
    r"(?:train(?:ing)?[ _-]?)?(?:step|iteration|iter|batch)(?:[ _#:=-]{1,3}(\d{1,12}))?", re.IGNORECASE
)
_END: Final = r"(?:[ _](?:pass|step|compute))?$"
_PHASES: Final = (
    (
        "data",
        re.compile(r"^data$|data[ _]?load|load[ _]data|next_batch|get_batch|batch_generator|fetch[ _](?:data|batch)|^input$"),
    ),
    ("optimizer", re.compile(r"^optimi[sz]er\b|optimi[sz]er[._ ]step|^optim\.step")),
    ("backward", re.compile(rf"(?:^|[.\s_:])(?:backward|bwd){_END}")),
    ("forward", re.compile(rf"(?:^|[.\s_:])(?:forward|fwd){_END}")),
)


class Message(NamedTuple):
    """What a collective moves, as far as the trace tells."""

    op: str | None = None
    transport: str | None = None
    bytes: int | None = None
    shape: str = ""  # "float[1024]"
    group: str = ""  # process group, empty for all ranks

    def over(self, other: Message) -> Message:
        """This one, with what it does not tell taken from `other`."""
        return Message(
            self.op if self.op is not None else other.op,
            self.transport if self.transport is not None else other.transport,
            self.bytes if self.bytes is not None else other.bytes,
            self.shape if self.shape else other.shape,
            self.group if self.group else other.group,
        )

    @property
    def label(self) -> str:
        """A name for it that is the same in every step and on every rank."""
        told = self.shape if self.shape or self.bytes is None else f"{self.bytes} B"
        return " ".join(part for part in (self.op or "collective", told, self.group and f"in {self.group}") if part)


class Known(dict[str, T]):
    """Answers of a function of a name, worked out once per name."""

    def __init__(self, work_out: Callable[[str], T]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, name: str) -> T:
        """Work out what was not asked before."""
        if len(self) >= MAX_NAMES:
            self.clear()
        self[name] = answer = self._work_out(name)
        return answer


def op_of(name: str) -> str | None:
    """The collective that any of its many spellings means."""
    letters = re.sub(r"[^a-z]", "", name.partition("(")[0].lower())
    return next((op for word, op in _OPS if word in letters), None)


def asked_of(name: str) -> Message | None:
    """A collective that the host asks for: `nccl:all_reduce` of torch, `ncclAllReduce` of NCCL itself, `MPI_Bcast`."""
    match = _ASKED.match(name) or _API.match(name)
    if match is None:
        return None
    op = op_of(match[2])
    backend = match[1].lower()
    return None if op is None else Message(op=op, transport=None if backend == "horovod" else backend)


def transfer_of(kernel: str) -> Message | None:
    """The collective that a GPU kernel of a communication library carries out; None for any other kernel."""
    match = _KERNEL.match(kernel)
    if match is None:
        return None
    words = kernel[match.end() :].partition("(")[0]
    return Message(op=op_of(words.replace("Sum", "")), transport="nccl" if match[1].lower() == "rccl" else match[1].lower())


def phase_of(annotation: str) -> str | None:
    """Which part of a step (data, forward, backward, optimizer) an annotation marks."""
    text = annotation.strip("# ").lower()
    return next((phase for phase, pattern in _PHASES if pattern.search(text)), None)


def profiler_step(annotation: str) -> int | None:
    """The number in torch's own mark of a step."""
    match = _STEP.fullmatch(annotation)
    return None if match is None else int(match[1])


def counted_step(annotation: str) -> tuple[bool, int | None]:
    """Whether a range that a person marked is one step, and its number if it has one."""
    step = profiler_step(annotation)
    match = _COUNTED.fullmatch(annotation.strip()) if step is None else None
    if match is None:
        return step is not None, step
    return True, None if match[1] is None else int(match[1])


def item_bytes(dtype: object) -> int | None:
    """Width of an element."""
    text = str(dtype).removeprefix("c10::").removeprefix("at::").lower()
    return _ITEM_BYTES.get(re.sub(r"[^a-z0-9]", "", text))


def sized(elements: int, dtype: object) -> Message:
    """A message of so many elements."""
    width = item_bytes(dtype)
    return Message(bytes=None if width is None else elements * width, shape=f"{dtype}[{elements}]")


def dims_message(dims: object, types: object) -> Message:
    """A message of the tensors that the profiler lists as `Input Dims` and `Input type`."""
    if not isinstance(dims, list) or not isinstance(types, list) or not dims or not types:
        return Message()
    counts = [n for n in map(_elements, dims[:MAX_DIMS]) if n is not None]
    if not counts or not isinstance(types[0], str):
        return Message()
    return sized(sum(counts), types[0])


def _elements(dims: object, *, is_list: bool = True) -> int | None:
    """Elements of one tensor; of all tensors, where it is a list of them."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, int) and 0 <= d < MAX_ELEMENTS for d in dims):
        size = math.prod(dims[:MAX_DIMS])
        return size if size < MAX_ELEMENTS else None
    parts = [n for n in (_elements(d, is_list=False) for d in dims[:MAX_DIMS]) if n is not None] if is_list else []
    return sum(parts) if parts else None
