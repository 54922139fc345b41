"""Refusals: of arguments by name, and of batches without dependence on the presence of a row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, Repeating, World, neighbours, world

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, StoreFailed
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, Totals, open_ledger
from veilring.privacy.shares import count_loss
from veilring.protocols import peers as member
from veilring.protocols.noisyvotes.algorithm import releases
from veilring.protocols.noisyvotes.algorithm.noise import noise_share
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    remaining_epsilon,
    single_run_plan,
)
from veilring.protocols.noisyvotes.algorithm.releases import noisy_votes
from veilring.protocols.noisyvotes.roles import queries_max, votes_membership
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.peers import PeerMember, Till, check_labels, peer_client
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.ring.algorithm.sums import SumMethod
from veilring.protocols.ring.system import PrivateKNN

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
PARTIES, CLIENTS = Parties(["ada", "bob", "cyd"]), ("ann", "eve")
WITHIN = NoisyVotesParameters(FEATURES, CLASSES, 1.0, WithinRadius(0.5))
FACTS = Facts(parties=len(PARTIES), features=FEATURES, classes=CLASSES)
Tables = tuple[Rows, Rows]


@dataclass(frozen=True)
class Case:
    """A system and the budgets of three parties; and clients, asked parties and queries."""

    system: NoisyVotesParameters | PrivateKNN
    budgets: tuple[Budgets, ...]
    asked: tuple[tuple[str, str, Floats], ...]


@dataclass
class Deployed:
    """The ledgers and members of three parties, their nodes' world, and a client's role."""

    ledgers: Sequence[Ledger]
    role: Callable[..., Awaitable[Any]]
    members: dict[str, PeerMember] = field(default_factory=dict)
    world: World = field(init=False)

    async def ask(self, client: str, asked: str, queries: Floats) -> Outcome:
        """Ask one member for the labels of a batch."""
        return await self.world.ask(self.role, client, asked, queries, charged=self.totals)

    def totals(self) -> list[Totals]:
        """Return the charges of each member."""
        return [ledger.totals() for ledger in self.ledgers]


@asynccontextmanager
async def deployed(
    parts: Sequence[Rows],
    system: NoisyVotesParameters | PrivateKNN,
    budgets: Iterable[Budgets],
    *clients: str,
) -> AsyncIterator[Deployed]:
    """Serve three members, which pay for noisy votes from in-memory ledgers."""
    if isinstance(system, PrivateKNN):
        membership, epsilon = system.membership(FACTS), 0.0
    else:
        membership, epsilon = votes_membership(system, queries_max(system)), system.epsilon
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_ledger(None, each)) for each in budgets]
        made = Deployed(ledgers, peer_client(TERMS, CLASSES, epsilon))

        def offers(place: int, node: Node) -> dict[str, Offer]:
            till = Till(ledgers[place], epsilon, TERMS) if epsilon else None
            member = PeerMember(node, parts[place], PARTIES, membership, FACTS, TERMS, till=till)
            made.members[node.name] = member
            return member.offers()

        servers = {name: partial(offers, place) for place, name in enumerate(PARTIES)}
        async with world(servers, *clients) as made.world:
            yield made


def require_equal_outcomes(tables: Tables, place: int, held: int, case: Case) -> None:
    """Require equal outcomes if one party lacks a row, and the others hold a number of rows."""
    others = Rows(np.full((held, FEATURES), 0.5), np.arange(held) % CLASSES)

    async def play(rows: Rows) -> list[Outcome]:
        parts = [rows if at == place else others for at in range(len(PARTIES))]
        async with deployed(parts, case.system, case.budgets, *CLIENTS) as made:
            return [await made.ask(*each) for each in case.asked]

    outcomes = []
    for rows in tables:
        streams = Repeating()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(member, "Streams", lambda streams=streams: streams)
            outcomes.append(asyncio.run(play(rows)))
    event(", ".join(sorted({outcome.ending for outcome in outcomes[0]})))
    assert outcomes[0] == outcomes[1]


CELLS = st.lists(st.floats(0, 1), min_size=FEATURES, max_size=FEATURES)
BATCHES = st.lists(CELLS, min_size=1, max_size=3).map(np.array)
ILLEGAL = st.sampled_from([np.full((1, FEATURES), 2.0), np.zeros((1, FEATURES + 1))])
ASKED = st.sampled_from(list(PARTIES))
NEIGHBOURS, PLACES = neighbours(FEATURES, CLASSES), st.integers(0, len(PARTIES) - 1)


@st.composite
def parameters(draw: st.DrawFn) -> NoisyVotesParameters:
    """Draw parameters in every mode.

    A grid that is found for a released number of rows determines the size of messages; in that mode
    the number of rows is public.
    """
    epsilons = st.floats(0.01, 5.0)
    grid = draw(st.booleans())
    rows = draw(st.integers(0, 20) if grid else st.none() | st.integers(0, 20))
    nearest = NearestRows(
        draw(st.integers(1, 9)),
        draw(epsilons),
        rows,
        draw(epsilons) if rows is None else 0.0,
        ByGrid() if grid else ByAnnuli(draw(st.integers(2, 5))),
    )
    radius = draw(st.sampled_from([0.0, 0.25, 0.5, 2.0]))
    return NoisyVotesParameters(
        FEATURES,
        CLASSES,
        draw(epsilons),
        WithinRadius(radius) if draw(st.booleans()) else nearest,
        tolerated=draw(st.integers(0, 2)),
        sum=draw(st.sampled_from([SumMethod("shares"), SumMethod("masks"), SumMethod()])),
        work=draw(st.sampled_from([0, 10_000])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw parameters, small budgets for each party, and some batches."""
    chosen = draw(parameters())
    batches = st.sampled_from([0.0, 1.0, 2.0, 1e9, 1e9, 1e9, 1e9]).map(
        lambda count: min(count * chosen.epsilon, 1e6)
    )
    budgets = st.builds(
        lambda total, client: Budgets(total=total, analysts={"eve": client}), batches, batches
    )
    chances = st.tuples(st.sampled_from(CLIENTS), ASKED, BATCHES)
    asked = draw(st.lists(chances, min_size=1, max_size=3))
    asked += draw(st.lists(st.sampled_from(asked), max_size=1))
    return Case(chosen, tuple(draw(budgets) for _ in PARTIES), tuple(asked))


@pytest.mark.slow
@settings(max_examples=100)
@given(tables=NEIGHBOURS, place=PLACES, case=cases())
def test_no_outcome_of_votes_depends_on_a_row(tables: Tables, place: int, case: Case) -> None:
    """If a party lacks a row, ending, messages, sizes and charges at all parties stay the same."""
    require_equal_outcomes(tables, place, 4, case)


@settings(max_examples=60)
@given(
    tables=NEIGHBOURS,
    place=PLACES,
    held=st.integers(0, 2),
    case=st.builds(
        Case,
        st.builds(
            PrivateKNN,
            k=st.sampled_from([1, 3, 20]),
            weights=st.sampled_from(["uniform", "distance"]),
            sum=st.sampled_from(["ring", "shares", "masks"]),
            rounds=st.just(6),
        ),
        st.just(()),
        st.lists(st.tuples(st.just("ann"), ASKED, BATCHES | ILLEGAL), min_size=1, max_size=3).map(
            tuple
        ),
    ),
)
def test_no_ring_outcome_depends_on_a_row(
    tables: Tables, place: int, held: int, case: Case
) -> None:
    """Even with fewer rows than k, endings, messages and all sizes are equal."""
    require_equal_outcomes(tables, place, held, case)


@pytest.mark.parametrize(
    ("labels", "said"),
    [([0], "1 labels for 2"), ([0, 1, 1], "3 labels"), ([0, 2], "outside"), ([-1, 0], "outside")],
)
def test_a_member_with_invalid_labels_is_named(labels: list[int], said: str) -> None:
    """There is one label per query, each a class of the terms, never a negative index."""
    with pytest.raises(ProtocolViolation, match=f"ada.*{said}"):
        check_labels(np.array(labels), "ada", 2, 2)
    check_labels(np.array([0, 1]), "ada", 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("error", [MemoryError("row 7"), InputError("rows", "row 7", "none")])
async def test_a_party_that_cannot_count_its_rows_ends(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """All others get the same error for any failure, and pay for that batch only."""
    parts = [Rows(np.full((4, FEATURES), 0.5), np.zeros(4, np.int64)) for _ in PARTIES]

    def fail_for_cyd(_queries: object, _radii: object, rows: Rows, _classes: int) -> object:
        if rows is parts[2]:
            raise error
        return np.zeros((1, CLASSES), np.int64)

    monkeypatch.setattr(releases, "count_votes", fail_for_cyd)
    async with deployed(parts, WITHIN, [Budgets(total=9.0)] * 3, "ann") as made:
        for batch in range(3):
            queries = np.full((1, FEATURES), batch / 3)
            outcome = await made.ask("ann", "ada", queries)
            assert "StoreFailed" in outcome.text
            assert "cyd" in outcome.text
            assert [each.spent for each in made.totals()] == [1.0, 1.0, 0.0]
        with pytest.raises(StoreFailed) as failed:
            await made.members["cyd"].failure()
    assert "row 7" not in str(failed.value)
    assert type(error).__name__ in str(failed.value)


@pytest.mark.parametrize("limits", [{"analysts": {"eve": 1.0}}, {"total": 1.0}])
async def test_a_budget_for_one_batch_pays_for_one_of_many_at_once(limits: dict[str, Any]) -> None:
    """The batches that cannot be paid for are refused before any party is charged for them."""
    rows = Rows(np.full((4, FEATURES), 0.5), np.arange(4) % CLASSES)
    budgets = (Budgets(**limits), Budgets(), Budgets())
    async with deployed([rows] * 3, WITHIN, budgets, "eve") as made:
        sessions = (
            made.world.nodes["eve"].run(
                made.role,
                made.world.streams.token("session", number),
                Parties(("eve", "ada")),
                np.full((1, FEATURES), number / 3),
            )
            for number in range(3)
        )
        told = await asyncio.gather(*sessions, return_exceptions=True)
        kinds = sorted(type(each).__name__ for each in told)
        assert kinds == ["BudgetExhausted", "BudgetExhausted", "ndarray"]
        assert [each.spent for each in made.totals()] == [1.0] * 3


ONE, RING = NoisyVotesParameters(1, 2, 0.9, tolerated=0), SumMethod("shares")
QUERIES, RADII = np.linspace(0.1, 0.9, 5)[:, None], np.full(5, 0.1)
FIXED = replace(ONE, neighbours=WithinRadius(0.1))
NOBODY, WIDE = (Rows(np.zeros((0, n)), np.zeros(0, dtype=np.int64)) for n in (1, 2))
STRANGE, HALF, RNG = Rows(np.zeros((1, 1)), np.array([2])), Fraction(1, 2), np.random.default_rng()
SPENT = [Allocation(np.array([1]), np.array([1.0]), exact=True)]
votes_with = partial(NoisyVotesParameters, features=2, classes=2, epsilon_vote=1.0)
nearest = partial(NearestRows, k=1, epsilon_conversion=0.1, rows=5)


def label(
    parameters: NoisyVotesParameters = FIXED,
    *parts: Rows,
    queries: Floats = QUERIES,
    radii: Floats | None = None,
) -> object:
    """Label a batch among three parties without rows, or with the given ones."""
    return noisy_votes(queries, parts or [NOBODY] * 3, parameters, RNG, radii=radii)


def protects(
    parties: int = 3, coalition: int = 0, method: SumMethod = RING, tolerated: int = 0
) -> object:
    """Return the guarantee of one release."""
    return guarantee(SPENT, parties, coalition, method, tolerated=tolerated)


def set_up(features: int = 2, **parameters: Any) -> object:
    """Set the system up for five parties without rows."""
    facts = Facts(parties=5, features=features, classes=3, rows=150)
    nobody = Rows(np.zeros((0, features)), np.zeros(0, dtype=np.int64))
    return NoisyVotes(**parameters).setup({f"party-{n}": nobody for n in range(5)}, facts)


INVALID: list[tuple[str, Callable[[], object]]] = [
    ("features is 0", partial(votes_with, features=0)),
    ("features is 1.5; allowed: a whole number from 1 to", partial(votes_with, features=1.5)),
    ("features is 7; allowed: a .* 1 to 6", partial(votes_with, features=7, neighbours=nearest())),
    ("k is 0.*; allowed: a whole", partial(nearest, k=0)),
    ("k is 9007199254740993.*; allowed: a whole", partial(nearest, k=2**53 + 1)),
    ("k is 1000.*; allowed: a whole", partial(nearest, k=10**400)),
    ("rows is 1000", partial(nearest, rows=10**400)),
    ("rows is -5", partial(nearest, rows=-5)),
    ("epsilon_count is 0", partial(nearest, rows=None)),
    ("epsilon_count is 1", partial(nearest, epsilon_count=1.0)),
    ("candidates is 1", partial(ByAnnuli, number=1)),
    (r"queries has the shape \(0, 1\)", partial(label, queries=np.zeros((0, 1)))),
    (r"queries has the shape \(1, 2\)", partial(label, queries=np.zeros((1, 2)))),
    ("numbers from 0 to 1", partial(label, queries=np.full((1, 1), 2.0))),
    ("radii are missing; give one for each query", partial(label, ONE)),
    (r"radii has the shape \(2,\)", partial(label, ONE, radii=RADII[:2])),
    ("finite numbers of at least 0", partial(label, ONE, radii=-RADII)),
    ("leave the radii out", partial(label, radii=RADII)),
    ("parties is 2", partial(label, FIXED, NOBODY, NOBODY)),
    ("tolerated is 3; allowed: below", partial(label, replace(FIXED, tolerated=3))),
    ("cycles is 2", partial(label, replace(FIXED, sum=SumMethod("cycles", 2)))),
    ("rows have 2 features", partial(label, FIXED, WIDE, NOBODY, NOBODY)),
    ("labels must be below", partial(label, FIXED, STRANGE, NOBODY, NOBODY)),
    ("each of the epsilons must be at", partial(noise_share, single_run_plan(1e-6), 2, HALF, RNG)),
    ("coalition is 3; allowed: 0 to 2", partial(protects, coalition=3)),
    ("coalition is -1", partial(protects, coalition=-1)),
    ("parties is 2", partial(protects, 2)),
    ("cycles is 3", partial(protects, 5, method=SumMethod("cycles", 3))),
    ("tolerated is 3", partial(protects, tolerated=3)),
    ("missing is 3", partial(remaining_epsilon, SPENT, 3, tolerated=0, missing=3)),
    ("epsilon is", partial(count_loss, 1e-9, Fraction(1))),
    ("exponent is", partial(count_loss, 1.0, Fraction(-1))),
    (r"epsilon is 0\.0; allowed: a number above 1/32768 and up to", partial(set_up, epsilon=0.0)),
    ("epsilon is .*; allowed: a larger number", partial(set_up, epsilon=1.5 * 2.0**-15)),
    ("epsilon_", partial(set_up, epsilon=2.0**-14, k=5)),
    ('radius.* a number of at least 0, or "auto"', partial(set_up, radius=-1.0)),
    ("k is -1; allowed: a whole number of at least 0", partial(set_up, k=-1)),
    ("tolerated is 5; allowed: below the number of parties, 5", partial(set_up, tolerated=5)),
    ("cycles is 1; allowed: 2 or more if sum", partial(set_up, sum="cycles")),
    ("cycles is 3; allowed: at most 2 for 5 parties", partial(set_up, sum="cycles", cycles=3)),
    ("sum is .*star.*; allowed: ring, cycles, shares or masks", partial(set_up, sum="star")),
    ("batch is 0; allowed: a whole number from 1 to", partial(set_up, batch=0)),
    (r"count_share is 1\.0; allowed: a number from 0\.01 to 0", partial(set_up, count_share=1.0)),
    ("radios", partial(set_up, radios=0.1)),
    ("features is 7; allowed: .* 1 to 6", partial(set_up, 7, k=5, conversion="grid")),
]
for epsilon in (0.0, 2.0**-15, 2.0**-40, 2.0**21, 1e300, np.inf, np.nan):
    INVALID += [  # no noise is possible with any of them
        ("epsilon_vote is", partial(votes_with, epsilon_vote=epsilon)),
        ("epsilon_conversion is", partial(nearest, epsilon_conversion=epsilon)),
        ("epsilon_count is", partial(nearest, rows=None, epsilon_count=epsilon)),
    ]


@pytest.mark.parametrize(("said", "call"), INVALID)
def test_an_impossible_argument_is_refused(said: str, call: Callable[[], object]) -> None:
    """The error names the parameter, batch or number, and what is allowed; budgets when set."""
    with pytest.raises(InputError, match=said):
        call()
