"""Before each sum all parties confirm equal inputs; from then on it is charged."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.protocols.dropout_worlds import Lie
from tests.protocols.noisyvotes.worlds import CERTAIN, WITHIN, five_parts
from tests.protocols.ring.worlds import NAMES, RING, Labelled

from veilring import simulation
from veilring.data.table import Rows
from veilring.errors import SessionAborted, Tampered
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import View
from veilring.nodes.party import ForwardingParty, Parties, Party
from veilring.nodes.ring import Ring
from veilring.nodes.run import Outcome
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    remaining_epsilon,
)
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer
from veilring.protocols.noisyvotes.roles import PublicDigest, VotesBatch, private_votes
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.ring.algorithm.sums import SumMethod
from veilring.protocols.ring.roles import SumPart, SumPartial, SumShare, SumTotal
from veilring.testing.lies import Verdict, audit_lies
from veilring.transport.messages import Message

pytestmark = pytest.mark.slow

SHARES, ALONG = SumMethod("shares"), SumMethod()
TWO: Any = np.int64(2)
HALF: Any = np.float32(0.5)
NEAR = NearestRows(5, CERTAIN, rows=80, conversion=ByAnnuli())

ROWS, PARTS = five_parts(80)
QUERIES = np.random.default_rng(2).random((9, 2))


def another(message: Message) -> Message:
    """Return queries of which fewer overlap, or other words."""
    match message:
        case VotesBatch():
            return VotesBatch(queries=1 - message.queries**2, radii=message.radii)
        case SumPartial() | SumTotal():
            return message.model_copy(update={"values": message.values + np.uint64(7)})
    raise AssertionError


def outcomes(
    parameters: NoisyVotesParameters,
    *,
    only: Mapping[str, Mapping[str, object]] | None = None,
    adversaries: Mapping[str, Adversary] | None = None,
    role: Callable[..., Awaitable[VotesAnswer]] = private_votes,
) -> dict[str, Outcome]:
    """Return each party's outcome of a run in which some parties have their own arguments."""
    given: dict[str, dict[str, Any]] = {
        name: {"parameters": parameters, "ring": RING, **(only or {}).get(name, {})}
        for name in NAMES
    }
    given["party-2"]["queries"] = QUERIES

    async def main() -> Sequence[Outcome]:
        async with Cluster(NAMES, runtime="simulated", own=PARTS, seed=6) as cluster:
            options: dict[str, Any] = {"only": given, "watch": NAMES, "seconds": 60.0}
            return await cluster.play(role, adversaries=adversaries, client="party-2", **options)

    return {done.party: done for done in simulation.simulate(main())}


def told_before_adding(view: View | None) -> list[list[bool]]:
    """Return, for each sent part of a sum, whether all others had confirmed the same inputs.

    Confirmations come in the preceding round of agreement, from each other party that it heard.
    """
    assert view is not None
    said = {x.round: x.message for x in view.sent if isinstance(x.message, PublicDigest)}
    digests = [x for x in view.received if isinstance(x.message, PublicDigest)]
    added = (seen.round for seen in view.sent if isinstance(seen.message, (SumShare, SumPart)))
    agreements = (max(number for number in said if number < part) for part in added)
    return [[x.message == said[n] for x in digests if x.round == n] for n in agreements]


def assert_stopped(done: Mapping[str, Outcome]) -> None:
    """Honest parties have ended without a result, and added only after all agreed."""
    errors = {type(outcome.error) for outcome in done.values()}
    assert Tampered in errors <= {Tampered, SessionAborted}
    for outcome in done.values():
        assert all(told == [True] * 4 for told in told_before_adding(outcome.view))


@pytest.mark.parametrize(
    ("liar", "only", "method", "released"),
    [
        ("party-2", VotesBatch, SHARES, 0),
        ("party-1", SumPartial, SHARES, 1),
        ("party-3", SumTotal, ALONG, 1),
    ],
)
def test_parties_add_nothing_to_different_inputs(
    liar: str, only: type[Message], method: SumMethod, released: int
) -> None:
    """If one party has other queries or totals, all stop, even if the budget is divided alike."""
    parameters = replace(WITHIN, neighbours=NEAR, sum=method)
    charged: dict[str, list[Allocation]] = {name: [] for name in NAMES}
    done = outcomes(
        parameters,
        only={name: {"charge": charged[name].append} for name in NAMES},
        adversaries={liar: Lie(only, another, to=("party-4",))},
    )
    del done[liar]
    assert_stopped(done)
    assert {len(charged[name]) for name in done} == {released}


async def in_its_own_order(party: Party, own: Rows, **public: Any) -> VotesAnswer:
    """Play a party with a different order of the parties."""
    listing = ForwardingParty(party)
    if party.me == "party-4":
        listing.parties = Parties(reversed(party.parties))
    return await private_votes(listing, own, **public)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        *(
            (SHARES, {"only": {"party-1": {"parameters": replace(WITHIN, **wrong)}}})
            for wrong in (
                {"epsilon_vote": np.nextafter(CERTAIN, 0)},
                {"tolerated": 2},
                {"neighbours": WithinRadius(0.25)},
                {"neighbours": NearestRows(5, CERTAIN, 80)},
            )
        ),
        (ALONG, {"only": {"party-4": {"ring": Ring([NAMES[n] for n in (3, 0, 4, 2, 1)])}}}),
        (SHARES, {"role": in_its_own_order}),
    ],
    ids=["epsilon", "tolerated", "radius", "neighbours", "ring", "list of parties"],
)
def test_a_difference_is_detected_before_any_sum(method: SumMethod, given: dict[str, Any]) -> None:
    """A difference of one party in any parameter, even in its last digit, stops the run.

    So does another ring, as a share of the noise could be missing, and another list of parties, on
    which noise shares depend.
    """
    done = outcomes(replace(WITHIN, sum=method), **given)
    assert_stopped(done)
    assert not any(told_before_adding(outcome.view) for outcome in done.values())


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"features": TWO, "epsilon_vote": 2000}, {}),
        ({"neighbours": WithinRadius(HALF)}, {"neighbours": WithinRadius(0.5)}),
        ({"sum": SumMethod("cycles", TWO)}, {"sum": SumMethod("cycles", 2)}),
        (
            {"neighbours": NearestRows(TWO, HALF, None, 2000, ByGrid(HALF))},
            {"neighbours": NearestRows(2, 0.5, None, CERTAIN, ByGrid(0.5))},
        ),
    ],
    ids=["vote", "radius", "cycles", "grid"],
)
def test_equal_parameters_agree_in_any_type(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Honest parties with equal parameters never suspect each other."""
    only = {"party-1": {"parameters": replace(WITHIN, **mine)}}
    done = outcomes(replace(WITHIN, **theirs), only=only)
    assert [outcome.error for outcome in done.values()] == [None] * 5


def test_a_withheld_total_is_charged() -> None:
    """A party that withholds its words alone has the total, and all others know its cost."""
    charged: dict[str, list[Allocation]] = {name: [] for name in NAMES}
    kept = list[SumPartial]()
    withholds = Lie(SumPartial, kept.append)
    done = outcomes(
        WITHIN,
        only={name: {"charge": charged[name].append} for name in NAMES},
        adversaries={"party-4": withholds},
    )
    view = done.pop("party-4").view
    assert view is not None
    heard = [seen.message for seen in view.received]
    partials = [each.values for each in (kept[0], *heard) if isinstance(each, SumPartial)]
    totals = np.sum(partials, axis=0, dtype=np.uint64).view(np.int64)
    np.testing.assert_array_equal(totals, count_votes(QUERIES, np.full(9, 0.2), ROWS, 3))
    assert all(outcome.error is not None for outcome in done.values())
    for name in done:
        loss = remaining_epsilon(charged[name], 5, tolerated=1, missing=1)
        assert loss == pytest.approx(CERTAIN, rel=1e-12)


async def labels(party: Party, own: Labelled, *, method: SumMethod) -> list[int]:
    """Label a batch among three parties, with equal noise in each run."""
    answer = await private_votes(
        party,
        own.rows,
        client="party-0",
        parameters=NoisyVotesParameters(2, 3, 1.0, WithinRadius(0.2), sum=method),
        queries=own.queries,
        ring=Ring(party.parties),
    )
    return list(answer.labels.tolist())


def are_equal(_inputs: Mapping[str, Any], results: Mapping[str, list[int]]) -> None:
    """Require equal labels at honest parties; a liar may make them wrong."""
    assert len({tuple(found) for found in results.values()}) <= 1


@pytest.mark.parametrize("method", [SHARES, ALONG, SumMethod("masks")], ids=lambda m: m.name)
def test_no_lie_leaves_honest_parties_with_different_labels(method: SumMethod) -> None:
    """Each replayed or altered message ends the run or changes all labels equally."""
    inputs = [Labelled(ROWS, QUERIES), *(Labelled(rows) for rows in PARTS[1:3])]
    lies = audit_lies(labels, inputs, invariant=are_equal, method=method)
    lies.assert_none(Verdict.UNNOTICED, Verdict.MISNAMED, Verdict.UNNAMED)
    assert lies.count(Verdict.SUSPECTS) > 0


def test_a_party_that_cannot_pay_sends_nothing() -> None:
    """A party whose charge is refused ends with the refusal and has added nothing.

    Otherwise it has charged each reported release once, in order.
    """

    def refuse(plan: Allocation) -> None:
        raise PermissionError(len(plan.crowds))

    done = outcomes(WITHIN, only={"party-1": {"charge": refuse}})["party-1"]
    assert isinstance(done.error, PermissionError)
    assert told_before_adding(done.view) == []
    charged: list[Allocation] = []
    only = {"party-0": {"charge": charged.append}}
    done = outcomes(replace(WITHIN, neighbours=NEAR), only=only)["party-0"]
    spent = [plan.epsilons.tolist() for plan in done.result.spent]
    assert [plan.epsilons.tolist() for plan in charged] == spent
    assert len(spent) == 2
