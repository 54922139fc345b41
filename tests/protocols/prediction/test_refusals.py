"""Refusals of requests, seen by a client: they never depend on the presence of a record."""

import asyncio
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, neighbours, world

from veilring.data.table import Rows
from veilring.nodes.party import Party
from veilring.nodes.service import opening, run_inline
from veilring.privacy.accounting import Accountant
from veilring.protocols.prediction.algorithm.directions import WIDTH_MAX, KernelName, quantise
from veilring.protocols.prediction.algorithm.filter import SIGMA_MAX, SIGMA_MIN
from veilring.protocols.prediction.client import Stream, make_request, request_status
from veilring.protocols.prediction.messages import Clients, PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts

pytestmark = pytest.mark.slow

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
CLIENTS = ("ann", "bob")
# From nothing to the largest budget that a ledger counts.
EPSILONS = (1e-9, 1e-3, 1.0, 10.0, 1000.0)


@dataclass(frozen=True)
class Case:
    """A server's public settings, and its requests: blocks of given clients."""

    rules: ServerRules
    asked: tuple[tuple[str, PredictionRequest], ...]


async def ask_block(party: Party, request: PredictionRequest, *, rules: ServerRules) -> None:
    """Ask one block, whose labels are not part of an outcome."""
    await Stream(party, rules).ask(request)


def records_of(rows: Rows) -> LabelledRecords:
    """Return rows as records; a row in the middle has the direction of the diagonal."""
    away = 2 * rows.features - 1
    away[np.square(away).sum(axis=1) == 0] = 1.0
    ids = [f"record {place}" for place in range(len(rows))]
    quantised = quantise(away) if len(rows) else np.zeros((0, FEATURES), np.float32)
    return LabelledRecords.of(ids, quantised, rows.labels)


async def outcomes_of(rows: Rows, case: Case) -> list[Outcome]:
    """Ask a real server with these records, request after request."""
    with open_state(case.rules, None) as state:
        state.add(records_of(rows))
        server = PredictionServer(state, run_inline)

        def charged() -> object:
            return [state.status(who, [each.key for _, each in case.asked]) for who in CLIENTS]

        async with world({"server": lambda _node: server.offers(TERMS)}, *CLIENTS) as served:
            found = list[Outcome]()
            role = opening(ask_block, PREDICT, TERMS)
            status = opening(request_status, STATUS, TERMS)
            for who, request in case.asked:
                for one, given_ in ((role, request), (status, [request.key])):
                    public = {"rules": case.rules} if one is role else {}
                    found.append(
                        await served.ask(one, who, "server", given_, charged=charged, **public)
                    )
            return found


def require_equal(tables: tuple[Rows, Rows], case: Case) -> list[Outcome]:
    """Require that only labels differ between two tables."""
    one, other = (asyncio.run(outcomes_of(rows, case)) for rows in tables)
    event(", ".join(sorted({outcome.ending for outcome in one})))
    assert one == other
    return one


@st.composite
def rules(draw: st.DrawFn) -> ServerRules:
    """Draw the rules of a server, up to the allowed extremes."""
    system = IndKNN(
        queries=draw(st.sampled_from([4, 10, 1_000_000])),
        epsilon=draw(st.sampled_from(EPSILONS)),
        kernel=draw(st.sampled_from(get_args(KernelName))),
        tau=draw(st.sampled_from([5e-324, 0.3, 1 - 2**-53, 1.0])),
        width=draw(st.sampled_from([5e-324, 1e-20, 1.0, WIDTH_MAX])),
        sigma2=draw(st.sampled_from([SIGMA_MIN, 0.5, 1e3, SIGMA_MAX])),
        accountant=draw(st.sampled_from(get_args(Accountant))),
        clients=draw(st.sampled_from(get_args(Clients))),
    )
    return system.bind(Facts(1, FEATURES, CLASSES))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw rules and some blocks, some of which repeat, share a key, or are too long for T."""
    cells = st.sampled_from([-4000, -1, 0, 1, 700, 2800, 4000])
    vectors = st.lists(cells, min_size=FEATURES, max_size=FEATURES).filter(any)
    asked = list[PredictionRequest]()
    for _ in range(draw(st.integers(1, 3))):
        drawn = np.array(draw(st.lists(vectors, min_size=1, max_size=4)), np.float64)
        request = make_request(quantise(drawn), name=draw(st.sampled_from(["a", "b"])))
        shared = request.model_copy(update={"key": bytes(16)})
        asked.append(shared if draw(st.booleans()) else request)
    asked += draw(st.lists(st.sampled_from(asked), max_size=2))
    return Case(draw(rules()), tuple((draw(st.sampled_from(CLIENTS)), each) for each in asked))


@settings(max_examples=150)
@given(tables=neighbours(FEATURES, CLASSES), case=cases())
def test_no_outcome_depends_on_a_record(tables: tuple[Rows, Rows], case: Case) -> None:
    """For any legal requests, ending, messages, sizes and charges are equal for both tables."""
    require_equal(tables, case)
