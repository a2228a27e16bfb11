"""Gives each GPU of a file one identity, however its samples name it, and knows which device sits in which slot."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from features.parsers.gpu_values import MISSING, pci_of, plain

ROUND_S = 0.02
"""Rows that come this close together are one round over the GPUs: nvidia-smi needs milliseconds for each."""
GPUS_MAX = 65_536
"""Devices of one file. More are no devices: such a table is something else, and would grow without end."""
GAP_STEPS = 2.0
"""Usual distances of a GPU's samples after which another one in its slot has replaced it, and does not alternate with it."""

_NODE_IN_PATH = re.compile(r"(?:^|[/._-])((?:node|host|worker|nid)[-_]?\d{1,6})(?=[/._-]|$)", re.IGNORECASE)
_INDEX = re.compile(r"(?:gpu|nvidia|card|cuda|gcd)?[ :_-]?(\d{1,9})", re.IGNORECASE)
_UUID = re.compile(r"(?:GPU|MIG)-[\w/-]{3,80}")


class Who(NamedTuple):
    """How a sample names its GPU: whatever of these it has."""

    uuid: str | None = None
    pci: str | None = None
    number: str | None = None
    node: str | None = None
    rank: int | None = None


@lru_cache(maxsize=4096)
def who_of(cells: tuple[tuple[str, str], ...]) -> Who:
    """Names from the cells of a row; a UUID or an address in a column of indices counts as what it is.

    >>> who_of((("index", "GPU 3"), ("node", "n1")))
    Who(uuid=None, pci=None, number='3', node='n1', rank=None)
    """
    known = {key: text.strip() for key, text in cells if plain(text) not in MISSING}
    index, uuid, pci = known.get("index", ""), known.get("uuid"), known.get("pci")
    uuid = index if uuid is None and _UUID.fullmatch(index) else uuid
    if uuid is not None and "mig" in known:
        uuid = f"{uuid}/MIG-{known['mig']}"
    address = pci_of(pci) if pci is not None else pci_of(index)
    number = _INDEX.fullmatch(index)
    rank = known.get("rank", "")
    return Who(
        uuid=uuid,
        pci=address,
        number=None if number is None else str(int(number[1])),
        node=known.get("node"),
        rank=int(rank) if rank.isdecimal() and len(rank) < 8 else None,
    )


def gpu_shown(gpu: str) -> str:
    """An identity in words.

    >>> gpu_shown("node1/3"), gpu_shown("GPU-8f")
    ('GPU 3 of node1', 'GPU-8f')
    """
    head, slash, tail = gpu.rpartition("/")
    if slash and tail.isdecimal():
        return f"GPU {tail} of {head}"
    return gpu if gpu.startswith(("GPU", "MIG")) else f"GPU {gpu}"


class Replaced(NamedTuple):
    """Another device sits where `old` did, which was seen last at `until`."""

    old: str
    until: float
    slot: str


class _Slot(msgspec.Struct):
    gpu: str
    last: float
    step: float | None = None
    is_shared: bool = False  # two devices take turns under this name: hosts that the file does not tell apart


class Devices:
    """The GPUs of one file, in the order in which they first came."""

    def __init__(self, file: str) -> None:
        match = _NODE_IN_PATH.search(file.replace("\\", "/"))
        self.home = None if match is None else match[1]
        self.order: list[str] = []
        self._file = file
        self._places: dict[str, int] = {}
        self._alias: dict[tuple[str, str], str] = {}  # node and address or index -> the better name of the same GPU
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._at = -1
        self._round: float | None = None

    def identity(self, who: Who, ts: float | None) -> str | None:
        """The one identity of the GPU that a sample names; None beyond the bound on devices."""
        node = self._home_of(who)
        gpu = self._named(who, node) or f"{node}/{self._position(ts) if ts is not None else 0}"
        if gpu not in self._places:
            if len(self.order) >= GPUS_MAX:
                return None
            self._places[gpu] = len(self.order)
            self.order.append(gpu)
        for name in (who.pci, who.number):
            if name is not None and gpu != name:
                self._alias[(node, name)] = gpu
        self._go_to(self._places[gpu], ts)
        return gpu

    def whose_turn(self, who: Who, ts: float | None) -> str | None:
        """The GPU that a row speaks of whose own names may be lost: the one that comes next in the usual order."""
        gpu = self._named(who, self._home_of(who))
        is_other_name = gpu not in self._places and len(self.order) == 1 and "/" in self.order[0] and who.number is None
        if gpu is not None and not is_other_name:
            return gpu  # an address next to one GPU that is known by its index alone is that GPU's
        if not self.order:
            return gpu
        at = self._position(ts) % len(self.order)
        self._go_to(at, ts)
        return self.order[at]

    def replaced(self, who: Who, gpu: str, ts: float) -> Replaced | None:
        """Note who sits in which slot; tells when a device came to where another one fell silent."""
        name = who.pci or who.number
        if who.uuid is None or name is None:
            return None
        slot = self._slots.get((self._home_of(who), name))
        if slot is None:
            self._slots[(self._home_of(who), name)] = _Slot(gpu, ts)
            return None
        since = ts - slot.last
        if slot.gpu == gpu:
            slot.step = since if since > 0 else slot.step
            slot.last = max(slot.last, ts)
            return None
        silent = slot.step is not None and since > GAP_STEPS * slot.step and not slot.is_shared
        slot.is_shared = slot.is_shared or not silent
        change = Replaced(slot.gpu, slot.last, name) if silent else None
        slot.gpu, slot.last, slot.step = gpu, ts, None
        return change

    def _home_of(self, who: Who) -> str:
        return who.node or self.home or self._file

    def _named(self, who: Who, node: str) -> str | None:
        if who.uuid is not None:
            return who.uuid
        if who.pci is not None:
            return self._alias.get((node, who.pci), who.pci)
        if who.number is not None:
            return self._alias.get((node, who.number), f"{node}/{who.number}")
        return None

    def _position(self, ts: float | None) -> int:
        """Where in its round a row without a name stands."""
        if ts is not None and (self._round is None or not 0 <= ts - self._round <= ROUND_S):
            return 0
        return self._at + 1

    def _go_to(self, at: int, ts: float | None) -> None:
        if ts is not None and (self._round is None or not 0 <= ts - self._round <= ROUND_S):
            self._round = ts
        self._at = at
