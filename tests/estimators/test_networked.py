"""A batch answered in one process: labels and costs of networked parties."""

import asyncio
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.estimators.tables import RANGES, named, scaled, three_classes
from tests.outcomes import measured

import veilring.estimators as ve
from veilring.arrays import Floats
from veilring.estimators.base import Asked
from veilring.nodes.cluster import Cluster
from veilring.randomness import Streams

ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(40, seed=2)
MUCH = 1e4  # so little noise that all labels are equal
# The labels of these do not depend on draws.
EXACT = [
    *(ve.PrivateKNNClassifier(5, 3, sum=name) for name in ("ring", "shares", "masks")),
    ve.PrivateKNNClassifier(5, 3, sum="cycles", cycles=2),
    ve.RankSearchClassifier(5, 3, sum="all-to-all"),
    ve.RankSearchClassifier(5, 3, sum="star", weights="distance"),
    ve.RankSearchClassifier(5, 3, reveal="votes", sum="star"),
    ve.RankSearchClassifier(5, 3, reveal="label"),
    ve.NoisyVotesClassifier(4, MUCH),
    ve.NoisyVotesClassifier(4, MUCH, sum="ring"),
    ve.NoisyVotesClassifier(4, MUCH, k=10, conversion="grid"),
    ve.NoisyVotesClassifier(4, MUCH, k=10, conversion="annuli"),
]
# In these, one party draws all noise: the server, or the client of a tree walk.
DRAWN = [
    ve.OwnerRadiusClassifier(0.7, 0.1),
    ve.OwnerKNNClassifier(0.7, 10),
    ve.OwnerKNNClassifier(0.7, 10, conversion="candidates", public_rows=True),
    ve.IndKNNClassifier(4.0, tau=0.8),
    ve.IndKNNClassifier(4.0, tau=0.8, centre=(0.5, 0.5)),
    ve.TreeWalkClassifier(6.0, "response", splits=0, neighbours=1),
    ve.TreeWalkClassifier(6.0, "response", splits=3, neighbours=1),
    ve.TreeWalkClassifier(6.0, "walk"),
    ve.TreeWalkClassifier(6.0, "walk", neighbours=3),
    ve.TreeWalkClassifier(6.0, "walk", splits=2),
]


RELEASED = [
    ve.ReleasedClassifier(4, statistic=statistic, sum=adding)
    for statistic in ("means", "lda", "grid")
    for adding in ("all-to-all", "star")
]


def check_on_a_network(
    model: Any, rows: Floats = ROWS, queries: Floats = QUERIES, *, is_exact: bool = True
) -> None:
    """Compare a batch with that of parties on a network, which have the same rows."""
    fitted = clone(model).set_params(ranges=RANGES, random_state=1).fit(rows, LABELS)
    labels, setup = fitted.predict(queries), fitted.setup_
    play = setup.play(scaled(queries))

    async def main() -> None:
        async with Cluster(setup.parties, own=setup.resident, seed=3) as cluster:
            run = await cluster.run(setup.role, only=play.only, **play.public)
        found = play.labels(run.results[play.learners[0]])
        assert not is_exact or np.array_equal(labels, fitted.classes_[found])
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
    monkeypatch.setattr(Asked, "coins", lambda *_: rng)
    check_on_a_network(model)


@pytest.mark.parametrize("model", RELEASED, ids=str)
def test_a_release_costs_what_it_costs_parties(model: Any) -> None:
    """The costs are equal; the noise of parties, and so their labels, is drawn by each."""
    check_on_a_network(model, is_exact=False)
