"""Folds by run: rows of a run are never on both sides, since neighbouring windows of a run are nearly the same row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.arrays import Flags


def fold_numbers(groups: ArrayLike, folds: int) -> NDArray[np.int64]:
    """The fold of each row, shape (n_rows,): whole groups, largest first, each to the fold with the fewest rows so far.

    As many folds as asked for, or as there are groups. A single group is cut into consecutive stretches instead:
    neighbours meet only at the cuts, which is the most that one run can be asked; `is_grouped` tells the caller.
    """
    names, group_of, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if len(names) == 1:
        return np.arange(len(group_of)) * min(folds, len(group_of)) // len(group_of)
    rows_in = np.zeros(min(folds, len(names)), dtype=np.int64)
    fold_of = np.zeros(len(names), dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fold_of[group] = int(np.argmin(rows_in))
        rows_in[fold_of[group]] += sizes[group]
    return fold_of[group_of]


def is_grouped(groups: ArrayLike) -> bool:
    """Whether there are groups to hold out: more than one."""
    return len(np.unique(np.asarray(groups))) > 1


def held_out(groups: ArrayLike, folds: int) -> Iterator[tuple[Flags, Flags]]:
    """(rows to learn from, rows to hold out) of each fold, as masks of shape (n_rows,)."""
    numbers = fold_numbers(groups, folds)
    for fold in range(int(numbers.max()) + 1):
        yield numbers != fold, numbers == fold
