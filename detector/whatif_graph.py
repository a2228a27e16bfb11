"""The dependencies of a traced step of a hybrid-parallel job, and how long it takes with given lengths of its operations."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from features.optrace import Floats, Ints, OpTable

Meeting = Literal["alone", "pair", "stage", "replica", "all"]
"""With whom an operation meets: nobody; the stage before or after; the same stage of the other replicas; the other stages
of its replica; everybody."""

MEETINGS: Final[dict[str, Meeting]] = {
    "forward-send": "pair",
    "forward-recv": "pair",
    "backward-send": "pair",
    "backward-recv": "pair",
    "params-all-gather": "stage",
    "grads-reduce-scatter": "stage",
    "grads-all-reduce": "stage",
    "embedding-grads-all-reduce": "replica",
    "optimizer-clip-main-grad": "all",
}
"""Of the kinds that Megatron-like trainers trace; all others are a worker's own. Clipping takes the norm over all workers."""
SENDERS: Final = {"forward-recv": ("forward-send", -1), "backward-recv": ("backward-send", +1)}
"""Receiving kind -> sending kind, and on which stage relative to its own."""
FEEDS: Final = {
    "forward-recv": "forward-compute",
    "backward-recv": "backward-compute",
    "forward-compute": "forward-send",
    "backward-compute": "backward-send",
}
"""Kind -> the kind that waits for it: the same number in the order of its kind, on the same worker."""


class Unfit(ValueError):
    """The trace does not hold what a simulation needs; the text says what is missing."""


class Graph:
    """Nodes of one step: an operation, or all operations that meet and end together. `order` is one in which each comes after
    those it waits for."""

    def __init__(self, table: OpTable, rows: Ints) -> None:
        """`rows`: the operations of one step, shape (n_ops,)."""
        self._names = [table.kinds[k] for k in table.kind[rows]]
        self._rank, self._seq = table.rank[rows].tolist(), table.seq[rows].tolist()
        self._dp, self._stage = table.dp[rows].tolist(), table.stage[rows].tolist()
        self._node_of: list[int] = []
        self.kinds: list[str] = []  # of each node
        self.members: list[list[int]] = []  # positions in `rows` of the operations of each node
        self._gather()
        self.workers = [frozenset(self._rank[i] for i in group) for group in self.members]
        self.stages = [frozenset(self._stage[i] for i in group) for group in self.members]
        self._waits: list[set[int]] = [set() for _ in self.members]
        self._connect(table, rows)
        self.order = self._sorted()
        self._sources = [np.array(sorted(w), dtype=np.int64) for w in self._waits]

    def simulate(self, lasts: Floats) -> Floats:
        """When the step ends, shape (n_steps,), given how long each node lasts, shape (n_nodes, n_steps)."""
        ends = np.zeros_like(lasts)
        for node in self.order:
            sources = self._sources[node]
            ends[node] = lasts[node] if not len(sources) else ends[sources].max(axis=0) + lasts[node]
        found: Floats = ends.max(axis=0)
        return found

    def lengths(self, starts: Floats, ends: Floats) -> Floats:
        """How long each node lasts, shape (n_nodes, n_steps), from starts and ends of shape (n_ops, n_steps).

        Operations that meet move data only from when the last of them has begun; before that they wait.
        """
        out = [ends[m].min(axis=0) - starts[m].max(axis=0) if len(m) > 1 else (ends - starts)[m[0]] for m in self.members]
        lasts: Floats = np.maximum(np.array(out), 0.0)
        return lasts

    def _gather(self) -> None:
        nodes: dict[tuple[object, ...], int] = {}
        for i, name in enumerate(self._names):
            key = self._key(i, name)
            if key not in nodes:
                nodes[key] = len(self.members)
                self.members.append([])
                self.kinds.append(SENDERS.get(name, (name, 0))[0])
            self.members[nodes[key]].append(i)
            self._node_of.append(nodes[key])
        for kind, group in zip(self.kinds, self.members, strict=True):
            if MEETINGS.get(kind) == "pair" and len(group) != 2:
                raise Unfit(f"{kind} without its counterpart: only pipelines with one chunk a stage can be simulated")

    def _key(self, i: int, name: str) -> tuple[object, ...]:
        seq, meeting = self._seq[i], MEETINGS.get(name, "alone")
        if meeting == "pair":
            sender, step = SENDERS.get(name, (name, 0))
            return sender, self._dp[i], self._stage[i] + step, seq
        owner = {"alone": self._rank[i], "stage": self._stage[i], "replica": self._dp[i], "all": "all"}[meeting]
        return name, owner, seq

    def _connect(self, table: OpTable, rows: Ints) -> None:
        number = {(self._rank[i], name, self._seq[i]): self._node_of[i] for i, name in enumerate(self._names)}
        for (rank, name, seq), node in number.items():
            follower = number.get((rank, FEEDS.get(name, ""), seq))
            if follower is not None and follower != node:
                self._waits[follower].add(node)
        for before, after in self._chains(table.start_s[rows], table.end_s[rows]):
            if self._node_of[before] != self._node_of[after]:
                self._waits[self._node_of[after]].add(self._node_of[before])

    def _chains(self, starts: Floats, ends: Floats) -> Iterator[tuple[int, int]]:
        """What runs one after the other on a worker: its transfers of one kind by number, all the rest as it was traced.

        An operation that began before its predecessor had ended ran beside it, and follows the last one that had.
        """
        chains: dict[tuple[int, str], list[int]] = defaultdict(list)
        for i, name in enumerate(self._names):
            chains[self._rank[i], name if MEETINGS.get(name) == "pair" else ""].append(i)
        for (_, name), chain in sorted(chains.items()):
            if name:
                chain.sort(key=lambda i: self._seq[i])
                yield from itertools.pairwise(chain)
                continue
            chain.sort(key=lambda i: (starts[i], ends[i], i))
            for place, i in enumerate(chain):
                done = [j for j in chain[max(0, place - BESIDE) : place] if ends[j] <= starts[i] + TOUCH_S]
                if done:
                    yield done[-1], i

    def _sorted(self) -> list[int]:
        left = [len(w) for w in self._waits]
        followers: list[list[int]] = [[] for _ in self._waits]
        for node, waits in enumerate(self._waits):
            for source in waits:
                followers[source].append(node)
        ready = [node for node, n in enumerate(left) if n == 0]
        order = []
        while ready:
            node = ready.pop()
            order.append(node)
            for follower in followers[node]:
                left[follower] -= 1
                if left[follower] == 0:
                    ready.append(follower)
        if len(order) < len(left):
            raise Unfit("operations that wait for one another in a circle")
        return order


BESIDE: Final = 8
"""Operations that may run beside one another on a worker's main stream: gradients of some chunks, and the computation."""
TOUCH_S: Final = 1e-3
"""Clocks of traces have single precision: an operation may seem to begin this much before its predecessor ends."""


def alike(table: OpTable) -> Iterator[tuple[list[int], npt.NDArray[np.int64]]]:
    """Traced steps that hold the same operations in the same order: their numbers, and their rows, shape (n_steps, n_ops)."""
    is_pair = np.array([MEETINGS.get(k) == "pair" for k in table.kinds])[table.kind]
    place = np.where(is_pair, table.seq, table.start_s)
    order = np.lexsort((place, np.where(is_pair, table.kind, -1), table.rank, table.step))
    steps, begins = np.unique(table.step[order], return_index=True)
    groups: dict[bytes, tuple[list[int], list[Ints]]] = {}
    for step, rows in zip(steps.tolist(), np.split(order, begins[1:]), strict=True):
        key = np.stack([table.rank[rows], table.kind[rows], table.seq[rows]]).tobytes()
        numbers, collected = groups.setdefault(key, ([], []))
        numbers.append(step)
        collected.append(rows)
    for numbers, collected in groups.values():
        yield numbers, np.stack(collected)
