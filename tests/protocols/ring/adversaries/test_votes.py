"""Malicious parties of PP-kNN: lies detected by the votes, and lies that decide labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tests.protocols.ring.adversaries.hands import (
    KNN,
    METHODS,
    NAMES,
    POOLED,
    QUERIES,
    ROWS,
    STARTER,
    accusations,
    agreement,
    honest_labels,
    is_among,
    knn,
)
from typing_extensions import override

from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.protocols.batches import Queries
from veilring.protocols.ring import SumMethod
from veilring.protocols.ring.adversaries import (
    DeflateTopK,
    Equivocate,
    InputSubstitution,
    TakeOver,
    WrongSum,
)
from veilring.protocols.ring.algorithm.classify import Weights
from veilring.protocols.ring.roles import SumPart
from veilring.transport.messages import Message


@pytest.mark.parametrize("liar", NAMES)
async def test_a_radius_too_small_is_detected_by_the_votes(liar: str) -> None:
    """Fewer than k rows are within it, so fewer than k uniform votes are cast."""
    with pytest.raises(RunFailed) as caught:
        await knn({liar: DeflateTopK(0.5)})
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)


async def test_a_radius_too_small_passes_with_weighted_votes() -> None:
    """Weighted votes have no least total: no party votes, and all labels are the lowest class."""
    run = await knn({"party-1": DeflateTopK(0.0)}, replace(KNN, weights="distance"))
    assert not run.result.votes.any()
    assert not run.result.labels.any()


@pytest.mark.parametrize("liar", NAMES)
@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_one_malicious_party_can_decide_every_label(liar: str, weights: Weights) -> None:
    """A party that shrinks the radius to 0 and casts k votes passes every check."""
    parameters = replace(KNN, weights=weights)
    run = await knn({liar: TakeOver(by=5, entry=2)}, parameters)
    for answer in run.results.values():
        assert (answer.labels == 2).all()


@pytest.mark.parametrize("liar", NAMES)
async def test_too_few_votes_to_take_over_are_detected(liar: str) -> None:
    """Four votes are fewer than the five rows within any honest radius."""
    with pytest.raises(RunFailed, match="caused vote totals that honest votes cannot have"):
        await knn({liar: TakeOver(by=4, entry=2)})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_added_votes_are_not_detected(method: SumMethod) -> None:
    """They are a valid input: with six more votes than k, the class always wins."""
    for liar in NAMES:
        run = await knn({liar: WrongSum(6, entry=1)}, replace(KNN, sum=method))
        assert all((labels == 1).all() for labels in honest_labels(run, liar))
        run = await knn({liar: WrongSum(1, entry=1)}, replace(KNN, sum=method))
        assert 0.5 < agreement(run, liar) < 1.0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("by", [-6.0, 0.25])
async def test_impossible_votes_are_detected(method: SumMethod, by: float) -> None:
    """Totals below a party's own votes, or with fractions, end the run; anyone may be at fault."""
    with pytest.raises(RunFailed, match="caused vote totals") as caught:
        await knn({"party-4": WrongSum(by)}, replace(KNN, sum=method))
    found = accusations(caught.value, "party-4")
    assert found
    assert all(is_among("party-4", error) for error in found)


async def test_votes_that_a_victim_could_not_cast_are_missed() -> None:
    """A victim without a radius casts no votes, and too few are left."""
    with pytest.raises(RunFailed, match="caused vote totals") as caught:
        await knn({STARTER: Equivocate("party-1")})
    assert all(is_among(STARTER, error) for error in accusations(caught.value, STARTER))


async def test_a_client_that_asks_one_party_something_else_is_not_detected() -> None:
    """No party compares queries: the victim uses others, and all end with wrong labels."""

    class AskTwice(Adversary):
        @override
        async def sending(self, to: str, message: Message) -> Lines:
            if to == "party-3" and isinstance(message, Queries):
                message = Queries(features=message.features[::-1].copy())
            return [(to, message)]

    run = await knn({"party-0": AskTwice()})
    first, *others = honest_labels(run, "party-0")
    assert all((labels == first).all() for labels in others)
    to_rows = [cdist(QUERIES[::-1] if n == 3 else QUERIES, ROWS[n].features) for n in range(5)]
    nearest = np.sort(np.concatenate(to_rows, axis=1), axis=1)[:, :5]
    np.testing.assert_allclose(run.result.nearest, nearest, rtol=1e-12)
    assert 0.3 < agreement(run, "party-0") < 1.0


async def test_a_lie_about_its_own_rows_is_never_detected() -> None:
    """A party that gives all its rows one class wins some queries and is never detected."""
    shares = []
    for liar in NAMES:
        run = await knn({liar: InputSubstitution(label=1)})
        assert (run.result.labels == 1).sum() > (POOLED == 1).sum()
        shares.append(agreement(run, liar))
    assert 0.7 < np.mean(shares) < 1.0


async def test_a_custom_adversary_is_three_lines() -> None:
    """It passes the sum on without its votes, which are then too few for the radius."""

    class Abstain(Adversary):
        @override
        async def received(self, sender: str, message: Message) -> Message:
            self.heard = message
            return message

        @override
        async def sending(self, to: str, message: Message) -> Lines:
            return [(to, self.heard if isinstance(message, SumPart) else message)]

    with pytest.raises(RunFailed, match="caused vote totals that honest votes cannot have"):
        await knn({"party-1": Abstain()})
