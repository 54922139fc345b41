"""Refusals of requests, seen by an analyst: they never depend on the presence of a row."""

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, neighbours, world

from veilring.data.table import Rows
from veilring.nodes.service import opening, run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius.messages import (
    REQUEST_EPSILON_MAX,
    REQUEST_EPSILON_MIN,
    LabelRequest,
    OwnerRules,
)
from veilring.protocols.radius.owner import (
    LABEL_SERVICE,
    Owner,
    ask_nearest,
    ask_within,
    request_labels,
)
from veilring.protocols.radius.system import DataOwner

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
    with open_ledger(None, case.budgets) as ledger:
        owner = Owner(rows, case.rules, ledger, run_inline)
        servers = {"owner": lambda _node: owner.offers(TERMS)}
        async with world(servers, *ANALYSTS) as served:
            return [
                await served.ask(
                    opening(request_labels, LABEL_SERVICE, TERMS),
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


@st.composite
def rules(draw: st.DrawFn) -> OwnerRules:
    """Draw the rules of an owner, in every mode."""
    shares = st.floats(0.01, 0.99)
    system = DataOwner(
        conversion=draw(st.sampled_from(["grid", "candidates"])),
        count_share=draw(shares),
        conversion_share=draw(shares),
        epsilon=REQUEST_EPSILON_MAX,
    )
    facts = Facts(1, FEATURES, CLASSES, rows=draw(st.none() | st.integers(0, 20)))
    return OwnerRules(system, facts, work=draw(st.sampled_from([0, 10_000])))


@st.composite
def requests(draw: st.DrawFn, chosen: OwnerRules) -> LabelRequest:
    """Draw a request within the rules; keys may be shared, and names may repeat."""
    cells = st.lists(st.floats(0, 1), min_size=FEATURES, max_size=FEATURES)
    queries = np.array(draw(st.lists(cells, min_size=1, max_size=4)))
    epsilon = draw(
        st.sampled_from([REQUEST_EPSILON_MIN, 0.5, REQUEST_EPSILON_MAX]) | st.floats(0.01, 10)
    )
    name = draw(st.sampled_from(["a", "b"]))
    if draw(st.booleans()):
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
    budgets = Budgets(total=draw(st.none() | amounts), analyst=draw(st.none() | amounts))
    asked = draw(st.lists(requests(chosen), min_size=1, max_size=3))
    asked += draw(st.lists(st.sampled_from(asked), max_size=2))
    return Case(chosen, budgets, tuple((draw(st.sampled_from(ANALYSTS)), each) for each in asked))


@settings(max_examples=150)
@given(tables=neighbours(FEATURES, CLASSES), case=cases())
def test_no_outcome_depends_on_a_row(tables: tuple[Rows, Rows], case: Case) -> None:
    """For any legal requests, ending, messages, sizes and charges are equal for both tables."""
    require_equal(tables, case)
