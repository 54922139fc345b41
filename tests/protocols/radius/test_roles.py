"""Analyst and data owner on every runtime."""

import asyncio

import numpy as np
import pytest
from tests.protocols.radius.parties import Holding, labelling

from veilring.data.table import Rows
from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.privacy.budgets import Budgets
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.nearest import LabelledBatch, label_nearest, label_within
from veilring.protocols.radius.messages import LabelAnswer, LabelRequest, OwnerRules, label_cost
from veilring.protocols.radius.owner import ask_nearest, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.randomness import Streams
from veilring.testing import ProtocolRunner, assert_cost

ANALYST, OWNER = "party-0", "party-1"
DRAWS = np.random.default_rng(3)
ROWS = Rows(DRAWS.random((200, 2)), DRAWS.integers(3, size=200))
QUERIES = DRAWS.random((40, 2))
RADII = np.full(40, 0.2)
RULES = DataOwner(conversion="grid").bind(Facts(1, 2, 3, rows=200))
BUDGETS = Budgets(total=1.0)
REQUESTS = {
    "radii": ask_within(QUERIES, RADII, 0.5),
    "grid": ask_nearest(QUERIES, 10, 0.5),
    "candidates": ask_nearest(QUERIES, 300, 0.5),
}
OWN_RULES = {"candidates": DataOwner(conversion="candidates").bind(Facts(1, 2, 3))}


def _owner_rng(seed: int) -> np.random.Generator:
    session = Streams(seed).token("session", 0)
    return Streams(seed).generator("party", OWNER, "session", session.hex())


@pytest.mark.parametrize("name", REQUESTS)
def test_roles_label_like_the_algorithm(name: str, run_protocol: ProtocolRunner) -> None:
    """On every runtime a batch gets the vectorised steps' labels at the closed form's cost."""
    request, rules = REQUESTS[name], OWN_RULES.get(name, RULES)
    own = [request, Holding(ROWS, BUDGETS)]
    run = run_protocol(labelling, 2, own=own, rules=rules)
    assert run.channels == asyncio.run(_channels(own, rules))
    answer = run.results[ANALYST]
    assert isinstance(answer, LabelledBatch)
    if request.k:
        found = label_nearest(QUERIES, ROWS, rules.nearest(request.k, 0.5), _owner_rng(0))
        np.testing.assert_array_equal(answer.labels, found.labels)
        np.testing.assert_array_equal(answer.radii, found.radii)
    else:
        expected = label_within(QUERIES, RADII, ROWS, _owner_rng(0), epsilon=0.5, classes=3)
        np.testing.assert_array_equal(answer.labels, expected)
        np.testing.assert_array_equal(answer.radii, RADII)
    assert run.results[OWNER] == request.epsilon
    forecast = label_cost(40, 2, request.k)
    traffic = forecast.traffic
    assert_cost(run, messages=traffic.messages, bytes=traffic.bytes, rounds=forecast.rounds)
    assert run.cost.setup == forecast.setup


async def _channels(own: list[object], rules: OwnerRules) -> object:
    """Return the transcripts of an equal run in memory."""
    async with Cluster(2, own=own, seed=0) as cluster:
        return (await cluster.run(labelling, rules=rules)).channels


def _failure(request: LabelRequest, rules: OwnerRules, budgets: Budgets = BUDGETS) -> BaseException:
    """Return the error that ends a session at the analyst."""

    async def main() -> None:
        async with Cluster(2, own=[request, Holding(ROWS, budgets)], seed=1) as cluster:
            await cluster.run(labelling, rules=rules)

    with pytest.raises(RunFailed) as failed:
        asyncio.run(main())
    return failed.value.errors[ANALYST]


def test_an_analyst_learns_only_the_remainder() -> None:
    """An insufficient budget is named with the requested and the remaining amount."""
    request = ask_within(QUERIES, RADII, 0.5)
    for budgets, name in (
        (Budgets(total=0.3), "total"),
        (Budgets(total=2.0, analyst=0.25), "analyst"),
        (Budgets(total=2.0, analyst=2.0, analysts={ANALYST: 0.125}), "analyst"),
    ):
        error = _failure(request, RULES, budgets)
        assert isinstance(error, BudgetExhausted)
        limit = budgets.total if name == "total" else budgets.analysts.get(ANALYST, budgets.analyst)
        assert (error.budget, error.asked, error.left) == (name, 0.5, limit)


async def _against_the_rules(party: Party, own: object, *, rules: OwnerRules) -> object:
    """Send a request without checking the rules."""
    if isinstance(own, LabelRequest):
        await party.send(party.peers[0], own)
        return await party.receive(LabelAnswer, sender=party.peers[0])
    return await labelling(party, own, rules=rules)


BAD = {
    "features": ask_within(np.hstack([QUERIES, QUERIES]), RADII, 0.5),
    "nothing": ask_within(QUERIES[:0], RADII[:0], 0.5),
    "outside": ask_within(QUERIES + 0.5, RADII, 0.5),
    "nan": ask_within(QUERIES * np.nan, RADII, 0.5),
    "radii": ask_within(QUERIES, RADII[1:], 0.5),
    "negative": ask_within(QUERIES, -RADII, 0.5),
    "infinite": ask_within(QUERIES, RADII * np.inf, 0.5),
    "not a radius": ask_within(QUERIES, RADII * np.nan, 0.5),
    "wide": ask_within(QUERIES, RADII + 1.3, 0.5),
    "free": ask_within(QUERIES, RADII, 0.0),
    "cheap": ask_within(QUERIES, RADII, 1e-9),
    "dear": ask_within(QUERIES, RADII, 1.5),
    "no price": ask_within(QUERIES, RADII, float("nan")),
    "huge k": ask_nearest(QUERIES, 1 << 40, 0.5),
    "both": LabelRequest(key=bytes(16), epsilon=0.5, k=3, queries=QUERIES, radii=RADII),
    "many": ask_within(np.tile(QUERIES, (30, 1)), np.tile(RADII, 30), 0.5),
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_no_honest_analyst_sends_ends_the_session(name: str) -> None:
    """An analyst refuses to send it, and the owner reports a violation without any draw."""
    with pytest.raises(InputError):
        RULES.check(BAD[name])

    async def main() -> RunFailed:
        async with Cluster(2, own=[BAD[name], Holding(ROWS, BUDGETS)], seed=1) as cluster:
            with pytest.raises(RunFailed) as failed:
                await cluster.run(_against_the_rules, rules=RULES)
            return failed.value

    error = asyncio.run(main()).errors[OWNER]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == ANALYST


async def _lying(party: Party, own: object, *, rules: OwnerRules) -> object:
    """Answer with the party's own data."""
    if isinstance(own, LabelAnswer):
        await party.receive(LabelRequest, sender=party.peers[0])
        await party.send(party.peers[0], own)
        return None
    return await labelling(party, own, rules=rules)


@pytest.mark.parametrize(
    ("labels", "radii"),
    [
        (np.zeros(39), np.zeros(40)),
        (np.zeros(40), np.zeros(0)),
        (np.full(40, 3), np.zeros(40)),
        (np.zeros(40), np.full(40, -1.0)),
        (np.zeros(40), np.full(40, np.inf)),
    ],
    ids=["labels", "radii", "class", "negative", "infinite"],
)
def test_an_answer_that_no_honest_owner_sends_is_refused(labels: object, radii: object) -> None:
    """An analyst accepts no labels from an answer that does not fit its request."""
    whole = np.asarray(labels, dtype=np.uint16)
    answer = LabelAnswer(verdict=0, left=0.0, labels=whole, radii=np.asarray(radii))

    async def main() -> RunFailed:
        async with Cluster(2, own=[REQUESTS["grid"], answer], seed=1) as cluster:
            with pytest.raises(RunFailed) as failed:
                await cluster.run(_lying, rules=RULES)
            return failed.value

    error = asyncio.run(main()).errors[ANALYST]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == OWNER
