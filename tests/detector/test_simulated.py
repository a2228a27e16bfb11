"""Simulated incidents: every cause of the catalog, the same for everybody, within the bounds of evidence."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from detector.catalog import Catalog
from detector.simulated import KEY, PER_CAUSE, simulate_incidents


@pytest.fixture(scope="module")
def simulated(catalog: Catalog) -> tuple[np.ndarray, list[str]]:
    return simulate_incidents(catalog, seed=7)


def test_every_cause_has_its_incidents(simulated: tuple[np.ndarray, list[str]], catalog: Catalog) -> None:
    rows, causes = simulated
    assert Counter(causes) == dict.fromkeys(catalog.causes, PER_CAUSE)
    assert rows.shape == (len(causes), len(catalog.vocabulary))


def test_the_same_seed_gives_the_same_incidents(simulated: tuple[np.ndarray, list[str]], catalog: Catalog) -> None:
    rows, causes = simulate_incidents(catalog, seed=7)
    np.testing.assert_array_equal(rows, simulated[0])
    assert causes == simulated[1]
    assert not np.array_equal(simulate_incidents(catalog, seed=8)[0], rows)


def test_evidence_is_within_its_bounds(simulated: tuple[np.ndarray, list[str]], catalog: Catalog) -> None:
    rows, _ = simulated
    signed = np.array([word.signed for word in catalog.vocabulary.values()])

    assert np.isfinite(rows).all()
    assert np.abs(rows).max() <= 1.0
    weak = rows[:, ~signed]
    assert (weak < 0).mean() < 0.001, "words that are never negative stay so, but for the noise around a weak signature"


def test_no_two_causes_look_alike_on_average(simulated: tuple[np.ndarray, list[str]], catalog: Catalog) -> None:
    """A classifier cannot part what the catalog does not part."""
    rows, causes = simulated
    middle = np.array([rows[[c == cause for c in causes]].mean(axis=0) for cause in catalog.causes])
    apart = np.linalg.norm(middle[:, None] - middle[None], axis=2) + 9 * np.eye(len(middle))
    assert apart.min() > 0.15


def test_an_incident_is_never_without_evidence(simulated: tuple[np.ndarray, list[str]]) -> None:
    assert (np.abs(simulated[0]).sum(axis=1) > 0).all()


def test_key_words_are_in_every_incident_whose_sources_are_there(
    simulated: tuple[np.ndarray, list[str]], catalog: Catalog
) -> None:
    rows, causes = simulated
    groups = np.array([word.group for word in catalog.vocabulary.values()])
    for cause, entry in catalog.causes.items():
        mine = rows[[c == cause for c in causes]]
        for k, name in enumerate(catalog.vocabulary):
            if entry.evidence.get(name, 0.0) >= KEY:
                there = np.abs(mine[:, groups == groups[k]]).sum(axis=1) > 0
                assert (mine[there, k] > 0).mean() > 0.9, (cause, name)
                assert (mine[:, k] == 0).any(), f"{name} is missing where nobody collected its source"
