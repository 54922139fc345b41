"""Malicious parties of the ring: those that are named, by which check, and those that pass."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tests.protocols.dropout_worlds import Lie
from tests.protocols.ring.worlds import (
    LAST,
    METHODS,
    NAMES,
    RING,
    STARTER,
    Labelled,
    accusations,
    accused,
    ask,
    bound,
    check_accused,
    each_method,
    play,
    sum_up,
)

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary, Forger, Reorder, Repeat, Replay
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.protocols.batches import Queries
from veilring.protocols.ranksearch import adversaries as searches
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
from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn
from veilring.protocols.ring.algorithm.sums import SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.roles import KNNAnswer, pp_topk, private_knn
from veilring.testing import ProtocolRunner
from veilring.testing.lies import Verdict, audit_lies

DOCS = Path(__file__).parents[3] / "docs"
RNG = np.random.default_rng(20)
FEATURES, LABELS = RNG.random((150, 3)), RNG.integers(0, 3, 150)
QUERIES = RNG.random((40, 3))
ROWS = [Rows(FEATURES[n::5], LABELS[n::5]) for n in range(5)]
# So many rounds that an inexact result would be a false alarm of less than 1e-6: there are 200
# distances and 800 values to be found, each passed over with probability 2^-36.
KNN: Mapping[str, Any] = {"rounds": 9, "delta": 0.005}
POOLED = pooled_knn(QUERIES, FEATURES, LABELS, classes=3, k=5)

VALUES = [np.sort(RNG.random((200, 4)), axis=1) for _ in NAMES]
SMALLEST = np.sort(np.concatenate(VALUES, axis=1), axis=1)[:, :4]
TOPK = TopKParameters(k=4, P0=0.5, d=0.5, rounds=8, delta=0.005, upper=1.0)
each_liar = pytest.mark.parametrize("liar", NAMES)


Lies = Mapping[str, Adversary]


async def knn(adversaries: Lies, method: SumMethod | None = None, **options: Any) -> Run[KNNAnswer]:
    """Label the queries in a ring with some parties controlled by an adversary."""
    parameters = bound(3, 3, method, **KNN, **options)
    return await ask(ROWS, QUERIES, parameters, ring=RING, adversaries=adversaries)


async def topk(adversaries: Lies, parameters: TopKParameters = TOPK) -> Run[Floats]:
    """Find the smallest values in a ring with some parties controlled by an adversary."""
    return await play(pp_topk, VALUES, ring=RING, parameters=parameters, adversaries=adversaries)


total = partial(sum_up, [np.ones((1, 2)) for _ in NAMES])


def agreement(run: Run[KNNAnswer], liar: str) -> float:
    """Return the fraction of queries that honest parties label like the pooled classifier."""
    return float(np.mean([labels == POOLED for labels in honest_labels(run, liar)]))


def honest_labels(run: Run[KNNAnswer], liar: str) -> list[Ints]:
    """Return the results of all parties except one."""
    return [answer.labels for name, answer in run.results.items() if name != liar]


SILENT = replace(TOPK, P0=0.0, delta=1.0)  # without noise to hide in
IMPOSSIBLE = "caused vote totals that honest votes cannot have"
REMOVED = "removed entries from the"


@pytest.mark.parametrize(
    ("liar", "role", "lie", "said"),
    [
        *(
            (liar, *case)
            for liar in NAMES
            for case in (
                (topk, InflateTopK(), REMOVED),
                (topk, InflateTopK(4), REMOVED),
                (topk, InflateTopK(2, first_round=8), REMOVED),
                (topk, Replayer(), REMOVED),
                (partial(topk, parameters=SILENT), InflateTopK(), REMOVED),
                (knn, DeflateTopK(0.5), None),  # fewer than k rows are within the radius
                (knn, TakeOver(by=4, entry=2), IMPOSSIBLE),  # than rows in any honest radius
            )
        ),
        *(
            ("party-4", partial(knn, method=method), WrongSum(by), IMPOSSIBLE)
            for method in METHODS
            for by in (-6.0, 0.25)  # below a party's own votes, and fractional
        ),
        (STARTER, knn, Equivocate("party-1"), IMPOSSIBLE),  # lacks the victim's votes
        ("party-4", topk, Repeat(), None),  # a vector out of turn
        ("party-4", topk, Forger(RING.order[1]), None),  # one in place of the expected party's
        ("party-1", partial(total, method=SumMethod("shares")), Reorder(), None),
    ],
)
async def test_a_liar_is_among_those_named(
    liar: str, role: Callable[..., Awaitable[object]], lie: Adversary, said: str | None
) -> None:
    """An honest party misses entries or votes, or meets a message out of turn, and suspects it."""
    await accused(liar, role(adversaries={liar: lie}), said)


def test_a_lie_is_detected_on_every_runtime(run_protocol: ProtocolRunner) -> None:
    """The adversary is sent to its process, and the accusation returns."""
    liars = {"party-4": InflateTopK()}
    with pytest.raises(RunFailed) as caught:
        run_protocol(pp_topk, NAMES, own=VALUES, ring=RING, parameters=TOPK, adversaries=liars)
    check_accused(caught.value, "party-4")
    assert "one of 4 (party-" in str(accusations(caught.value, "party-4")[0])


async def test_a_removal_within_the_noise_is_not_detected() -> None:
    """With a delta so large that honest noise could explain it, a wrong result passes.

    The result is wrong in all 200 runs: the least value returns only if its owner has answered with
    noise in each of the seven previous rounds, with probability 2^-28 (false alarm 8e-7).
    """
    wide = replace(TOPK, delta=1.0)
    np.testing.assert_array_equal((await topk({}, wide)).result, SMALLEST)
    run = await topk({"party-4": InflateTopK(2, first_round=8)}, wide)
    assert (run.result >= SMALLEST).all()
    assert (run.result != SMALLEST).any(axis=1).all()


@each_liar
async def test_inserted_values_are_not_detected(liar: str) -> None:
    """PP-TopK cannot know the existing values: too small a result passes at every party.

    Weighted votes have no least total: no party votes, and all labels are the lowest class.
    """
    assert not (await topk({liar: DeflateTopK(0.0)})).result.any()
    run = await knn({liar: DeflateTopK(0.0)}, weights="distance")
    assert not run.result.votes.any()
    assert not run.result.labels.any()


async def test_only_the_last_party_detects_another_result_of_the_starter() -> None:
    """It had the vector last; no other party compares, so any other victim uses another radius."""
    failed = await accused(STARTER, topk({STARTER: Equivocate(LAST)}))
    assert failed.errors[LAST] == failed.root
    victim = RING.order[2]
    run = await topk({STARTER: Equivocate(victim)})
    assert not run.results[victim].any()
    np.testing.assert_array_equal(run.results[LAST], SMALLEST)


async def test_vectors_of_an_earlier_session_are_detected() -> None:
    """They lack the others' entries in this session, and their sender is among those named."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        old = await cluster.run(pp_topk, ring=RING, parameters=TOPK, watch=["party-4"])
        replay = {"party-4": Replay(old.views["party-4"].sent)}
        own = [values / 2 for values in VALUES]
        run = cluster.run(pp_topk, ring=RING, parameters=TOPK, own=own, adversaries=replay)
        await accused("party-4", run, REMOVED)


@each_method
async def test_a_wrong_sum_alone_is_never_detected(method: SumMethod) -> None:
    """The secure sum does not know its values, and a sender of totals can send a victim another.

    Round a ring only the starter sends totals; with shares or masks each party does.
    """
    run = await total(adversaries={"party-4": WrongSum(-0.5, entry=1)}, method=method)
    assert all(run.results[honest].tolist() == [[5.0, 4.5]] for honest in NAMES[:-1])
    liar = STARTER if method.goes_round else "party-1"
    run = await total(adversaries={liar: Equivocate("party-4", by=7)}, method=method)
    assert run.results.pop("party-4").tolist() == [[12.0, 12.0]]
    assert all(found.tolist() == [[5.0, 5.0]] for found in run.results.values())


@each_liar
@pytest.mark.parametrize("weights", ["uniform", "distance"])
async def test_one_malicious_party_can_decide_every_label(liar: str, weights: Weights) -> None:
    """A party that shrinks the radius to 0 and casts k votes passes every check."""
    run = await knn({liar: TakeOver(by=5, entry=2)}, weights=weights)
    assert all((answer.labels == 2).all() for answer in run.results.values())


@each_method
async def test_added_votes_are_not_detected(method: SumMethod) -> None:
    """They are a valid input: with six more votes than k, the class always wins."""
    for liar in NAMES:
        run = await knn({liar: WrongSum(6, entry=1)}, method)
        assert all((labels == 1).all() for labels in honest_labels(run, liar))
        run = await knn({liar: WrongSum(1, entry=1)}, method)
        assert 0.5 < agreement(run, liar) < 1.0


async def test_a_client_that_asks_one_party_something_else_is_not_detected() -> None:
    """No party compares queries: the victim uses others, and all end with wrong labels."""

    def reverse(asked: Queries) -> Queries:
        return Queries(features=asked.features[::-1].copy())

    run = await knn({"party-0": Lie(Queries, reverse, to=("party-3",))})
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


async def in_one_ring(party: Party, own: Labelled, *, method: SumMethod) -> list[int]:
    """Label the batch of the first party."""
    parameters = bound(2, 3, k=2, P0=0.25, d=0.25, rounds=2, method=method)
    answer = await private_knn(
        party, own.rows, client=party.parties[0], parameters=parameters, queries=own.queries
    )
    return list(answer.labels.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("method", [SumMethod(), SumMethod("shares"), SumMethod("masks")])
def test_no_lie_has_an_honest_party_named(method: SumMethod) -> None:
    """Each lie about each message of three parties is audited.

    A client that sends different queries, or different numbers of queries, is suspected.
    """
    rng = np.random.default_rng(0)
    first, *others = (Rows(rng.random((20, 2)), rng.integers(0, 3, 20)) for _ in range(3))
    own = [Labelled(first, rng.random((3, 2))), *map(Labelled, others)]
    lies = audit_lies(in_one_ring, own, method=method)
    lies.assert_none(Verdict.MISNAMED, Verdict.UNNAMED, Verdict.HANG)
    asked = lies.about("ring.queries")
    asked.assert_none(Verdict.UNNOTICED)
    changed = [lie for lie in asked.rows if lie.adversary.endswith("features")]
    assert changed
    assert {lie.verdict for lie in changed} == {Verdict.SUSPECTS}


@pytest.mark.parametrize(
    ("page", "adversaries"),
    [("how-to/adversaries.md", ADVERSARIES), ("protocols/rank-search.md", searches.ADVERSARIES)],
)
def test_each_built_in_adversary_is_on_a_page(page: str, adversaries: Mapping[str, object]) -> None:
    """The page has a line for each name that a scenario can use."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert {name for name in adversaries if f"| `{name}` |" not in text} == set()
