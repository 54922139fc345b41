"""Malicious parties of the ring: who is found, by what, and what the others gain."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from typing_extensions import override

from veilring.errors import (
    InputError,
    ProtocolViolation,
    RunFailed,
    SessionTimeout,
    Tampered,
    VeilringError,
)
from veilring.nodes.adversaries import Delay, Forger, Reorder, Repeat, Replay, Silent
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.cluster import Cluster, Run
from veilring.nodes.ring import Ring
from veilring.protocols.ring import (
    FixedPoint,
    KNNAnswer,
    KNNParameters,
    SumMethod,
    TopKParameters,
    pooled_knn,
    pp_topk,
    private_knn,
    secure_sum,
)
from veilring.protocols.ring.adversaries import (
    ADVERSARIES,
    DeflateTopK,
    Equivocate,
    InflateTopK,
    InputSubstitution,
    Replayer,
    TakeOver,
    WrongSum,
)
from veilring.protocols.ring.messages import Queries, SumPart
from veilring.protocols.rows import Rows
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "adversaries.md"
NAMES = [f"party-{n}" for n in range(5)]
RING = Ring([NAMES[n] for n in (3, 0, 4, 1, 2)])
STARTER, LAST = RING.order[0], RING.order[-1]
METHODS = [SumMethod(), SumMethod("cycles", 2), SumMethod("shares")]

RNG = np.random.default_rng(20)
FEATURES, LABELS = RNG.random((150, 3)), RNG.integers(0, 3, 150)
QUERIES = RNG.random((40, 3))
ROWS = [Rows(FEATURES[n::5], LABELS[n::5]) for n in range(5)]
# So many rounds that an inexact result would be a false alarm of less than 1e-6: there are 200
# distances and 800 values to be found, each passed over with probability 2^-36.
KNN = KNNParameters(features=3, classes=3, k=5, rounds=9, delta=0.005)
POOLED = pooled_knn(QUERIES, FEATURES, LABELS, classes=3, k=5)

VALUES = [np.sort(RNG.random((200, 4)), axis=1) for _ in NAMES]
SMALLEST = np.sort(np.concatenate(VALUES, axis=1), axis=1)[:, :4]
TOPK = TopKParameters(k=4, P0=0.5, d=0.5, rounds=8, delta=0.005, upper=1.0)


async def knn(
    adversaries: Mapping[str, Adversary], parameters: KNNParameters = KNN
) -> Run[KNNAnswer]:
    """Label the queries in a ring with some parties in an adversary's hands."""
    async with Cluster(NAMES, own=ROWS, seed=5) as cluster:
        return await cluster.run(
            private_knn,
            only={"party-0": {"queries": QUERIES}},
            asker="party-0",
            parameters=parameters,
            ring=RING,
            adversaries=adversaries,
        )


async def topk(
    adversaries: Mapping[str, Adversary], parameters: TopKParameters = TOPK
) -> Run[NDArray[np.float64]]:
    """Find the smallest values in a ring with some parties in an adversary's hands."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        return await cluster.run(pp_topk, ring=RING, parameters=parameters, adversaries=adversaries)


def accusations(failed: RunFailed, liar: str) -> list[VeilringError]:
    """Return what honest parties found out themselves."""
    honest = (error for name, error in failed.errors.items() if name != liar)
    return [error for error in honest if isinstance(error, ProtocolViolation | Tampered)]


def is_among(liar: str, error: VeilringError) -> bool:
    """Return whether an accusation holds the liar."""
    if isinstance(error, Tampered):
        return liar in error.suspects
    return isinstance(error, ProtocolViolation) and error.culprit == liar


def agreement(run: Run[KNNAnswer], liar: str) -> float:
    """Return the share of queries that honest parties label as the pooled classifier does."""
    return float(np.mean([labels == POOLED for labels in honest_labels(run, liar)]))


def honest_labels(run: Run[KNNAnswer], liar: str) -> list[NDArray[np.int64]]:
    """Return what the parties but one end with."""
    return [answer.labels for name, answer in run.results.items() if name != liar]


FOUND_IN_TOPK = [InflateTopK(), InflateTopK(4), InflateTopK(2, first_round=8), Replayer()]


@pytest.mark.parametrize("adversary", FOUND_IN_TOPK, ids=repr)
@pytest.mark.parametrize("liar", NAMES)
async def test_who_takes_entries_out_is_among_those_named(liar: str, adversary: Adversary) -> None:
    """Wherever it sits in the ring, an honest party finds entries gone, and suspects it too."""
    with pytest.raises(RunFailed, match="took entries out of the") as caught:
        await topk({liar: adversary})
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)


def test_it_is_found_on_every_runtime(run_protocol: ProtocolRunner) -> None:
    """The adversary travels to its process, and the accusation back."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            pp_topk,
            NAMES,
            own=VALUES,
            ring=RING,
            parameters=TOPK,
            adversaries={"party-4": InflateTopK()},
        )
    found = accusations(caught.value, "party-4")
    assert found
    assert all(is_among("party-4", error) for error in found)
    assert "one of 4 (party-" in str(found[0])


async def test_one_that_stays_within_the_noise_is_not_found() -> None:
    """With delta so large that honest noise could have done it, the result is wrong and passes.

    It is wrong in all 200 runs: the least value comes back only if its owner has made noise in each
    of the seven rounds before, with probability 2^-28 (false alarm 8e-7).
    """
    wide = replace(TOPK, delta=1.0)
    np.testing.assert_array_equal((await topk({}, wide)).result, SMALLEST)
    run = await topk({"party-4": InflateTopK(2, first_round=8)}, wide)
    assert (run.result >= SMALLEST).all()
    assert (run.result != SMALLEST).any(axis=1).all()


async def test_without_noise_nothing_can_be_taken_out() -> None:
    """With P0 = 0 there is no noise to hide in, however large delta is."""
    silent = replace(TOPK, P0=0.0, delta=1.0)
    for liar in NAMES:
        with pytest.raises(RunFailed, match="took entries out of the"):
            await topk({liar: InflateTopK()}, silent)


async def test_what_is_put_in_is_not_found() -> None:
    """PP-TopK cannot know which values exist: too small a result passes at every party."""
    for liar in NAMES:
        run = await topk({liar: DeflateTopK(0.0)})
        assert not run.result.any()


@pytest.mark.parametrize("liar", NAMES)
async def test_a_radius_too_small_is_found_by_the_votes(liar: str) -> None:
    """In PP-kNN fewer than k rows are within it, and so fewer than k uniform votes are cast."""
    with pytest.raises(RunFailed) as caught:
        await knn({liar: DeflateTopK(0.5)})
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)


async def test_a_radius_too_small_passes_with_weighted_votes() -> None:
    """Votes by distance have no least total: nobody votes, and all labels are the lowest class."""
    run = await knn({"party-1": DeflateTopK(0.0)}, replace(KNN, weights="distance"))
    assert not run.result.votes.any()
    assert not run.result.labels.any()


@pytest.mark.parametrize("liar", NAMES)
@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_one_malicious_party_can_decide_every_label(liar: str, weights: str) -> None:
    """Whoever shrinks the radius to nothing and casts k votes itself is found by no check."""
    parameters = replace(KNN, weights=weights)  # type: ignore[arg-type]  # one of the two
    run = await knn({liar: TakeOver(by=5, entry=2)}, parameters)
    for answer in run.results.values():
        assert (answer.labels == 2).all()


@pytest.mark.parametrize("liar", NAMES)
async def test_too_few_votes_to_take_over_are_found(liar: str) -> None:
    """Four votes are fewer than the five rows that are within any honest radius."""
    with pytest.raises(RunFailed, match="made vote totals that no honest votes have"):
        await knn({liar: TakeOver(by=4, entry=2)})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_votes_that_are_added_are_not_found(method: SumMethod) -> None:
    """They are an input as good as any: with six more votes than k, the class is always theirs."""
    for liar in NAMES:
        run = await knn({liar: WrongSum(6, entry=1)}, replace(KNN, sum=method))
        assert all((labels == 1).all() for labels in honest_labels(run, liar))
        run = await knn({liar: WrongSum(1, entry=1)}, replace(KNN, sum=method))
        assert 0.5 < agreement(run, liar) < 1.0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("by", [-6.0, 0.25])
async def test_votes_that_nobody_can_have_are_found(method: SumMethod, by: float) -> None:
    """Fewer than one's own votes, or parts of a vote, end the run; anybody may have done it."""
    with pytest.raises(RunFailed, match="made vote totals") as caught:
        await knn({"party-4": WrongSum(by)}, replace(KNN, sum=method))
    found = accusations(caught.value, "party-4")
    assert found
    assert all(is_among("party-4", error) for error in found)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_wrong_sum_alone_is_never_found(run_protocol: ProtocolRunner, method: SumMethod) -> None:
    """The secure sum knows nothing of its values: the total is off by what was added."""
    run = run_protocol(
        secure_sum,
        NAMES,
        own=[np.ones((2, 3)) for _ in NAMES],
        ring=RING,
        fixed=FixedPoint(24, 5),
        method=method,
        adversaries={"party-4": WrongSum(-0.5, entry=1)},
    )
    honest = [total for name, total in run.results.items() if name != "party-4"]
    for total in honest:
        np.testing.assert_array_equal(total, [[5.0, 4.5, 5.0]] * 2)


async def test_a_starter_that_sends_another_result_is_found_by_the_last() -> None:
    """Only the party that had the vector last knows that the result is another."""
    with pytest.raises(RunFailed) as caught:
        await topk({STARTER: Equivocate(LAST)})
    assert caught.value.errors[LAST] == caught.value.root
    assert is_among(STARTER, accusations(caught.value, STARTER)[0])


async def test_a_starter_that_sends_another_result_to_one_party_only_is_not_found() -> None:
    """Nobody compares: any victim but the last has another radius, and takes it for everybody's."""
    victim = RING.order[2]
    run = await topk({STARTER: Equivocate(victim)})
    assert not run.results[victim].any()
    np.testing.assert_array_equal(run.results[LAST], SMALLEST)


async def test_votes_that_one_party_was_kept_from_casting_are_missed() -> None:
    """In PP-kNN a victim without a radius casts no votes, and too few are left."""
    with pytest.raises(RunFailed, match="made vote totals") as caught:
        await knn({STARTER: Equivocate("party-1")})
    assert all(is_among(STARTER, error) for error in accusations(caught.value, STARTER))


async def test_an_asker_that_asks_one_party_something_else_is_not_found() -> None:
    """Nobody compares queries: the victim measures from others, and all end with wrong labels."""

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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_a_sum_can_differ_from_party_to_party(method: SumMethod) -> None:
    """A starter can tell a victim another total; with shares, each party can."""
    liar = "party-1" if method.name == "shares" else STARTER
    async with Cluster(NAMES, own=[np.ones((1, 2)) for _ in NAMES], seed=5) as cluster:
        run = await cluster.run(
            secure_sum,
            ring=RING,
            fixed=FixedPoint(24, 5),
            method=method,
            adversaries={liar: Equivocate("party-4", by=7)},
        )
    assert run.results.pop("party-4").tolist() == [[12.0, 12.0]]
    assert all(total.tolist() == [[5.0, 5.0]] for total in run.results.values())


async def test_a_lie_about_its_own_rows_is_never_found() -> None:
    """Whoever says that all its rows are of one class wins some queries, and nobody can know."""
    shares = []
    for liar in NAMES:
        run = await knn({liar: InputSubstitution(label=1)})
        assert (run.result.labels == 1).sum() > (POOLED == 1).sum()
        shares.append(agreement(run, liar))
    assert 0.7 < np.mean(shares) < 1.0


async def test_a_silent_party_is_waited_for_and_named() -> None:
    """Its successor names it when the time is up; the others name whom they wait for."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(
                pp_topk,
                ring=RING,
                parameters=TOPK,
                seconds=0.3,
                adversaries={"party-4": Silent(first_round=8)},
            )
    errors = caught.value.errors
    successor = RING.successor("party-4")
    assert any(isinstance(error, SessionTimeout) for error in errors.values())
    assert "ring.topk.vector from party-4" in str(errors[successor])


@pytest.mark.parametrize("adversary", [Repeat(), Forger(RING.order[1])], ids=repr)
async def test_vectors_out_of_turn_name_their_sender(adversary: Adversary) -> None:
    """A vector twice, or in the place of the party whose turn it is, accuses its sender."""
    with pytest.raises(RunFailed) as caught:
        await topk({"party-4": adversary})
    assert all(is_among("party-4", error) for error in accusations(caught.value, "party-4"))
    assert accusations(caught.value, "party-4")


async def test_shares_in_another_order_name_their_sender() -> None:
    """A partial sum before a share is not what is due."""
    async with Cluster(NAMES, own=[np.ones((1, 2)) for _ in NAMES], seed=5) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(
                secure_sum,
                ring=RING,
                fixed=FixedPoint(24, 5),
                method=SumMethod("shares"),
                adversaries={"party-1": Reorder()},
            )
    assert all(is_among("party-1", error) for error in accusations(caught.value, "party-1"))
    assert accusations(caught.value, "party-1")


async def test_vectors_of_an_earlier_session_are_found() -> None:
    """They lack what others have put into this one, and their sender is among those named."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        old = await cluster.run(pp_topk, ring=RING, parameters=TOPK, watch=["party-4"])
        replay = {"party-4": Replay(old.views["party-4"].sent)}
        own = [values / 2 for values in VALUES]
        with pytest.raises(RunFailed, match="took entries out of the") as caught:
            await cluster.run(pp_topk, ring=RING, parameters=TOPK, own=own, adversaries=replay)
    assert all(is_among("party-4", error) for error in accusations(caught.value, "party-4"))


async def test_a_delay_changes_nothing_but_time() -> None:
    """Whoever is late has said what was due."""
    run = await topk({"party-1": Delay(0.001)})
    np.testing.assert_array_equal(run.result, SMALLEST)


async def test_an_adversary_of_ones_own_is_three_lines() -> None:
    """One that passes the sum on without its votes, which are then too few for the radius."""

    class Abstain(Adversary):
        @override
        async def received(self, sender: str, message: Message) -> Message:
            self.heard = message
            return message

        @override
        async def sending(self, to: str, message: Message) -> Lines:
            return [(to, self.heard if isinstance(message, SumPart) else message)]

    with pytest.raises(RunFailed, match="made vote totals that no honest votes have"):
        await knn({"party-1": Abstain()})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InputSubstitution(-1), "label is -1"),
        (lambda: InflateTopK(0), "entries is 0"),
        (lambda: InflateTopK(1, 0), "first_round is 0"),
        (lambda: DeflateTopK(1.5), "factor is 1.5"),
        (lambda: WrongSum(float("inf")), "by is inf"),
        (lambda: WrongSum(1, -1), "entry is -1"),
    ],
)
def test_an_adversary_is_met_at_the_edge(make: type[Adversary], message: str) -> None:
    """What it cannot do is refused with what is allowed."""
    with pytest.raises(InputError, match=message):
        make()


def test_each_ready_one_is_on_the_page() -> None:
    """The page on adversaries has a line for each name that a scenario can use."""
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in ADVERSARIES if f"| `{name}` |" not in page} == set()
