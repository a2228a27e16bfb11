"""Simulated incidents: the catalog's signatures with noise, so that causes nobody has recorded yet can be recognised.

They train the classifier; they are never counted as proof of anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detector.catalog import Catalog

PER_CAUSE = 40
NOISE = 0.25
"""Spread of a word's strength between incidents of one cause."""
KEY = 0.9
"""Words this strong belong to every incident of the cause; weaker ones are seen as often as they are strong."""
STRAY, STRAY_STRENGTH = 0.04, 0.5
"""How often a word is seen that has nothing to do with the cause, and how strongly at most."""
CONSEQUENCES = ("net_throughput_low", "workers_idle", "host_cpu_full", "cpu_stolen", "grad_norm_jump")
FOLLOWS = 0.5
"""Whatever slows a run also empties its network and its loaders, and training goes on changing the gradients: these words
come with any cause this often, at any strength."""
BLIND = 0.25
"""How often all words of one group are missing, because their source was not collected."""


def simulate_incidents(catalog: Catalog, *, seed: int) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Evidence rows, shape (n, n_words) in the order of the vocabulary, and their causes."""
    rng = np.random.default_rng(seed)
    causes, names, signatures = catalog.signature_matrix()
    groups = np.array([catalog.vocabulary[name].group for name in names])
    distinct = np.unique(groups)
    follows = np.isin(names, CONSEQUENCES)
    signed = np.array([catalog.vocabulary[name].signed for name in names])
    rows, labels = [], []
    for cause, signature in zip(causes, np.array(signatures), strict=True):
        expected = (signature > 0) | (signed & (signature != 0))  # most words are never negative: "not this" is 0
        key = np.abs(signature) >= KEY
        for _ in range(PER_CAUSE):
            row = np.where(expected, signature + rng.normal(0, NOISE, len(names)), 0.0)
            row[expected & ~key & (rng.random(len(names)) > np.abs(signature))] = 0.0
            stray = ~expected & (signature == 0) & (rng.random(len(names)) < STRAY)
            row[stray] = rng.uniform(0, STRAY_STRENGTH, stray.sum())
            common = follows & ~key & (rng.random(len(names)) < FOLLOWS)
            row[common] = rng.uniform(0, 1, common.sum())
            blind = distinct[rng.random(len(distinct)) < BLIND]
            dark = np.isin(groups, blind)
            if np.abs(np.where(dark, 0.0, row)).sum() > 0.5:  # an incident without any evidence is none
                row[dark] = 0.0
            rows.append(np.clip(row, -1.0, 1.0))
            labels.append(cause)
    return np.array(rows), labels
