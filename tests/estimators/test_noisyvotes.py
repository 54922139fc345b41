"""Noisy votes in the ring: labels by rows within the radius, costs, and the remaining ε."""

from typing import Any, Literal

import numpy as np
import pytest
from tests.estimators.tables import RANGES, scaled, three_classes

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators import NoisyVotesClassifier
from veilring.protocols.noisyvotes import NearestRows, guarantee, worst_plans
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(40, seed=2)
MUCH = 1e4  # so little noise that all labels are equal


def wider(rows: Any) -> Any:
    """Return rows with more features than a grid supports."""
    return np.hstack([rows, np.zeros((len(rows), 5))])


def test_with_little_noise_the_rows_within_the_radius_decide() -> None:
    """For any partition, the label is the majority of the rows within the radius."""
    model = NoisyVotesClassifier(
        5, MUCH, radius=0.2, partition="by-label", ranges=RANGES, random_state=2
    )
    labels, numbers = (
        model.fit(ROWS, LABELS).predict(QUERIES),
        np.unique(LABELS, return_inverse=True)[1],
    )
    votes = count_votes(scaled(QUERIES), np.full(40, 0.2), Rows(scaled(ROWS), numbers), 3)
    np.testing.assert_array_equal(labels, model.classes_[votes.argmax(axis=1)])
    assert sorted(np.concatenate(model.parts_)) == list(range(150))


@pytest.mark.parametrize("tolerated", [0, 1, 3])
@pytest.mark.parametrize("name", ["shares", "ring"])
def test_the_remaining_epsilon_is_the_familys_account(
    tolerated: int, name: Literal["shares", "ring"]
) -> None:
    """Each batch counts once, against the largest tolerated coalition or a single party."""
    model = NoisyVotesClassifier(
        6, 1.5, radius=0.2, tolerated=tolerated, sum=name, ranges=RANGES, random_state=1
    ).fit(ROWS, LABELS)
    assert model.deployment_privacy_.epsilon == 0.0
    losses = []
    for queries in (QUERIES, QUERIES[:9], QUERIES):
        model.predict(queries)
        graph = overlap_graph(scaled(queries), np.full(len(queries), 0.2))
        plan, public = allocate_budget(graph, 1.5), model.setup_.parameters.sum
        losses.append(guarantee([plan], 6, max(1, tolerated), public, tolerated=tolerated))
    spent = model.deployment_privacy_.epsilon
    assert spent is not None
    assert spent == pytest.approx(sum(losses[:2]), rel=1e-12)
    # A party's own share is no secret to itself, and two neighbours in a ring leave it alone.
    enough = tolerated > 0 and (name == "shares" or tolerated == 1)
    assert enough == (spent <= 2 * 1.5)
    assert ("at most 3" in model.privacy_.threat_model) == (tolerated == 3)


@pytest.mark.parametrize("width", [2, 7])
def test_counting_finding_radii_and_voting_spend_epsilon_together(width: int) -> None:
    """About k rows vote as rows within a radius do, and every release is charged."""
    rows, queries = (ROWS, QUERIES) if width == 2 else (wider(ROWS), wider(QUERIES))
    model = NoisyVotesClassifier(6, 1.5, k=10, ranges=RANGES, random_state=1).fit(rows, LABELS)
    model.predict(queries)
    near = model.setup_.parameters.neighbours
    assert isinstance(near, NearestRows)
    assert near.epsilon_count == pytest.approx(0.15)
    spent = model.deployment_privacy_.epsilon
    assert spent is not None
    assert 1.5 * (1 - 1e-9) <= spent <= 1.5


@pytest.mark.parametrize("name", ["shares", "ring"])
@pytest.mark.parametrize("width", [2, 7])
def test_the_epsilon_about_k_does_not_depend_on_rows(
    name: Literal["shares", "ring"], width: int
) -> None:
    """The claimed ε for the k nearest rows is the worst case, for overlapping rows or not."""
    queries = QUERIES if width == 2 else wider(QUERIES)
    spent, found = [], []
    for rows in (ROWS, np.zeros_like(ROWS)):
        model = NoisyVotesClassifier(
            6, 1.5, k=10, tolerated=0 if name == "shares" else 2, sum=name, ranges=RANGES
        ).fit(rows if width == 2 else wider(rows), LABELS)
        model.predict(queries)
        public, near = model.setup_.parameters, model.setup_.parameters.neighbours
        assert isinstance(near, NearestRows)
        spent.append(model.deployment_privacy_.epsilon)
        plans = worst_plans(public, len(queries))
        found.append(
            guarantee(plans, 6, max(1, public.tolerated), public.sum, tolerated=public.tolerated)
        )
    assert spent == pytest.approx(found, rel=1e-12)
    assert spent[0] == spent[1]
    assert spent[0] is not None
    assert spent[0] > 1.5


def test_a_batch_about_k_is_refused_before_any_release() -> None:
    """If its vote might have too little noise, no rows are counted and nothing is spent."""
    model = NoisyVotesClassifier(4, 0.01, k=20, ranges=RANGES).fit(np.zeros_like(ROWS), LABELS)
    many = np.random.default_rng(1).uniform(*RANGES, (400, 2))
    with pytest.raises(InputError, match="there are 400 queries"):
        model.predict(many)
    assert model.deployment_privacy_.epsilon == 0.0
    model.predict(QUERIES)
    assert model.deployment_privacy_.epsilon == pytest.approx(0.01)
