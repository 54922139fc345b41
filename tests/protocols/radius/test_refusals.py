"""Refusals of requests, seen by an analyst: they never depend on the presence of a row."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, neighbours, world

from veilring.data.table import Rows
from veilring.nodes.offload import run_inline
from veilring.privacy.budgets import UNITS, Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.radius.algorithm.allocation import AllocationRule
from veilring.protocols.radius.algorithm.conversion import ByCandidates, ByGrid, Conversion
from veilring.protocols.radius.algorithm.voting import Mechanism
from veilring.protocols.radius.analyst import ask_nearest, ask_within, convene_owner
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import Owner
from veilring.protocols.radius.rules import REQUEST_EPSILON_MAX, REQUEST_EPSILON_MIN, OwnerRules

pytestmark = pytest.mark.slow

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
ANALYSTS = ("ann", "bob")
# Of as much as 64 bits can count, the largest budget that there is.
BUDGET_MAX = 1e6


@dataclass(frozen=True)
class Case:
    """An owner's public settings and its requests."""

    rules: OwnerRules
    budgets: Budgets
    asked: tuple[tuple[str, LabelRequest], ...]


async def outcomes_of(rows: Rows, case: Case) -> list[Outcome]:
    """Ask a real owner with these rows, request after request."""
    ids = None
    if case.rules.accounting == "record":
        ids = [f"row {place}" for place in range(len(rows))]
    with open_ledger(None, case.budgets) as ledger:
        owner = Owner(rows, case.rules, ledger, run_inline, ids=ids)
        servers = {"owner": lambda _node: owner.offers(TERMS)}
        async with world(servers, *ANALYSTS) as served:
            return [
                await served.ask(
                    convene_owner(TERMS),
                    who,
                    "owner",
                    asked,
                    charged=ledger.totals,
                    rules=case.rules,
                )
                for who, asked in case.asked
            ]


def require_equal(tables: tuple[Rows, Rows], case: Case) -> list[Outcome]:
    """Require that only labels and radii differ between two tables."""
    one, other = (asyncio.run(outcomes_of(rows, case)) for rows in tables)
    event(", ".join(sorted({outcome.ending for outcome in one})))
    assert one == other
    return one


CONVERSIONS: Sequence[Conversion | None] = (
    None,
    ByGrid(),
    ByCandidates(),
    ByCandidates.paper(),
)


@st.composite
def rules(draw: st.DrawFn) -> OwnerRules:
    """Draw the rules of an owner, in every mode."""
    by_row = draw(st.booleans())
    shares = st.floats(0.01, 0.99)
    return OwnerRules(
        FEATURES,
        CLASSES,
        accounting="record" if by_row else "batch",
        allocation=draw(st.sampled_from(get_args(AllocationRule))),
        mechanism=draw(st.sampled_from(get_args(Mechanism))),
        conversion=None if by_row else draw(st.sampled_from(CONVERSIONS)),
        rows=draw(st.none() | st.integers(0, 20)),
        count_share=draw(shares),
        conversion_share=draw(shares),
        epsilon_max=REQUEST_EPSILON_MAX,
        work=draw(st.sampled_from([0, 10_000])),
    )


@st.composite
def requests(draw: st.DrawFn, chosen: OwnerRules) -> LabelRequest:
    """Draw a request within the rules; keys may be shared, and names may repeat."""
    cells = st.lists(st.floats(0, 1), min_size=FEATURES, max_size=FEATURES)
    queries = np.array(draw(st.lists(cells, min_size=1, max_size=4)))
    epsilon = draw(
        st.sampled_from([REQUEST_EPSILON_MIN, 0.5, REQUEST_EPSILON_MAX]) | st.floats(0.01, 10)
    )
    name = draw(st.sampled_from(["a", "b"]))
    if chosen.conversion is not None and draw(st.booleans()):
        asked = ask_nearest(queries, draw(st.integers(1, 30)), epsilon, name=name)
    else:
        radius = draw(st.sampled_from([0.0, 0.25, 0.5, chosen.radius_max]))
        asked = ask_within(queries, np.full(len(queries), radius), epsilon, name=name)
    return asked.model_copy(update={"key": bytes(16)}) if draw(st.booleans()) else asked


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw rules, budgets from none to the largest, and requests of which some repeat."""
    chosen = draw(rules())
    amounts = st.sampled_from([0.0, 0.5, 20.0, BUDGET_MAX]) | st.floats(0, 100)
    by_row = chosen.accounting == "record"
    budgets = Budgets(
        total=draw(st.none() | amounts),
        analyst=draw(st.none() | amounts),
        record=draw(amounts) if by_row else None,
    )
    asked = draw(st.lists(requests(chosen), min_size=1, max_size=3))
    asked += draw(st.lists(st.sampled_from(asked), max_size=2))
    return Case(chosen, budgets, tuple((draw(st.sampled_from(ANALYSTS)), each) for each in asked))


@settings(max_examples=150)
@given(tables=neighbours(FEATURES, CLASSES), case=cases())
def test_no_outcome_depends_on_a_row(tables: tuple[Rows, Rows], case: Case) -> None:
    """For any legal requests, ending, messages, sizes and charges are equal for both tables."""
    require_equal(tables, case)


@st.composite
def near_the_end_of_64_bits(draw: st.DrawFn) -> tuple[tuple[Rows, Rows], Case]:
    """Draw rows that together pay about 2**63 units for one batch."""
    count = draw(st.integers(1000, 4096))
    crowd = int(2**63 / UNITS / REQUEST_EPSILON_MAX / count) - draw(st.integers(0, 8))
    tables = draw(neighbours(1, CLASSES, crowd=crowd))
    chosen = OwnerRules(1, CLASSES, "record", epsilon_max=REQUEST_EPSILON_MAX, batch_max=count)
    place = np.median(tables[0].features, axis=0)  # where the crowd is
    asked = ask_within(np.tile(place, (count, 1)), np.zeros(count), REQUEST_EPSILON_MAX)
    return tables, Case(chosen, Budgets(record=BUDGET_MAX), (("ann", asked),))


@settings(max_examples=10)
@given(near_the_end_of_64_bits())
def test_payments_beyond_64_bits_are_answered(
    given_: tuple[tuple[Rows, Rows], Case],
) -> None:
    """A request is answered for any number of paying rows and any total payment."""
    (outcome,) = require_equal(*given_)
    assert outcome.ending == "answered"
