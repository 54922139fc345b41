"""A batch answered in one process: labels and costs of networked parties."""

import asyncio
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.estimators.tables import COINS, RANGES, measured, named, scaled, three_classes

from veilring.arrays import Floats
from veilring.estimators import (
    IndKNNClassifier,
    NoisyVotesClassifier,
    OwnerKNNClassifier,
    OwnerRadiusClassifier,
    PrivateKNNClassifier,
    RankSearchClassifier,
    TreeWalkClassifier,
)
from veilring.nodes.cluster import Cluster
from veilring.randomness import Streams

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(40, seed=2)
MUCH = 1e4  # so little noise that all labels are equal
# The labels of these do not depend on draws.
EXACT = [
    *(PrivateKNNClassifier(5, 3, sum=name) for name in ("ring", "shares", "masks")),
    PrivateKNNClassifier(5, 3, sum="cycles", cycles=2),
    RankSearchClassifier(5, 3, sum="all-to-all"),
    RankSearchClassifier(5, 3, sum="star", weights="distance"),
    RankSearchClassifier(5, 3, reveal="votes", sum="star"),
    RankSearchClassifier(5, 3, reveal="label"),
    NoisyVotesClassifier(4, MUCH),
    NoisyVotesClassifier(4, MUCH, sum="ring"),
    NoisyVotesClassifier(4, MUCH, k=10, conversion="grid"),
    NoisyVotesClassifier(4, MUCH, k=10, conversion="annuli"),
]
# In these, one party draws all noise: the server, or the client of a tree walk.
DRAWN = [
    OwnerRadiusClassifier(0.7, 0.1),
    OwnerKNNClassifier(0.7, 10),
    OwnerKNNClassifier(0.7, 10, conversion="candidates", public_rows=True),
    IndKNNClassifier(4.0, tau=0.8),
    IndKNNClassifier(4.0, tau=0.8, centre=(0.5, 0.5)),
    TreeWalkClassifier(6.0, "response", splits=0, neighbours=1),
    TreeWalkClassifier(6.0, "response", splits=3, neighbours=1),
    TreeWalkClassifier(6.0, "walk"),
    TreeWalkClassifier(6.0, "walk", neighbours=3),
    TreeWalkClassifier(6.0, "walk", splits=2),
]


def check_on_a_network(model: Any, rows: Floats = ROWS, queries: Floats = QUERIES) -> None:
    """Compare a batch with that of parties on a network, which have the same rows."""
    fitted = clone(model).set_params(ranges=RANGES, random_state=1).fit(rows, LABELS)
    labels, setup = fitted.predict(queries), fitted.setup_
    play = setup.play(scaled(queries))

    async def main() -> None:
        async with Cluster(setup.parties, own=setup.resident, seed=3) as cluster:
            run = await cluster.run(setup.role, only=play.only, **play.public)
        found = play.labels(run.results[play.learners[0]])
        np.testing.assert_array_equal(labels, fitted.classes_[found])
        assert fitted.cost_ == measured(run.cost)

    asyncio.run(main())


@pytest.mark.parametrize("model", EXACT, ids=str)
@pytest.mark.parametrize("digits", [0, 9], ids=["tied", "apart"])
def test_labels_and_costs_are_those_of_parties(model: Any, digits: int) -> None:
    """Without noise, or with little, they equal those of parties with the same rows."""
    check_on_a_network(model, *(np.round(each, digits) for each in (ROWS, QUERIES)))


@pytest.mark.parametrize("model", DRAWN, ids=str)
def test_with_equal_randomness_labels_and_costs_are_equal(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the randomness of the networked party, its answers and its messages are the same."""
    party = "party-0" if named(model) == "TreeWalkClassifier" else "server"
    session = Streams(3).token("session", 0).hex()
    rng = Streams(3).generator("party", party, "session", session)
    monkeypatch.setattr(COINS, lambda *_: rng)
    check_on_a_network(model)
