"""Refusals of an owner's and a prediction server's clients: they never depend on a row."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, neighbours, world

import veilring as vr
from veilring.arrays import Floats
from veilring.errors import StoreFailed
from veilring.nodes.service import opening, run_inline
from veilring.privacy.accounting import Accountant
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.algorithm.directions import WIDTH_MAX, KernelName, quantise
from veilring.protocols.prediction.algorithm.filter import SIGMA_MAX, SIGMA_MIN
from veilring.protocols.prediction.client import Stream, make_request, request_status
from veilring.protocols.prediction.messages import Clients, PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import open_state
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
from veilring.protocols.requests import (
    REQUEST_KEY_BYTES,
    RequestVerdict,
    answer_once,
    require_answered,
)

TERMS = bytes(32)
FEATURES, CLASSES = 2, 3
CLIENTS = ("ann", "bob")
NAMES = st.sampled_from(["a", "b"])

Played = Callable[[vr.Rows], Coroutine[None, None, list[Outcome]]]
"""The outcomes of requests to a real server with these rows, under drawn public settings."""


def batches(cells: st.SearchStrategy[float], least: int = 0) -> st.SearchStrategy[Floats]:
    """Return batches of queries, each with at least this many coordinates other than 0."""
    queries = st.lists(cells, min_size=FEATURES, max_size=FEATURES)
    queries = queries.filter(lambda query: np.count_nonzero(query) >= least)
    return st.lists(queries, min_size=1, max_size=4).map(np.array)


@st.composite
def histories(draw: st.DrawFn, requests: st.SearchStrategy[Any]) -> list[tuple[str, Any]]:
    """Draw requests of clients; keys may be shared, and some requests are repeated."""
    shared = requests.map(lambda asked: asked.model_copy(update={"key": bytes(16)}))
    asked = draw(st.lists(requests | shared, min_size=1, max_size=3))
    asked += draw(st.lists(st.sampled_from(asked), max_size=2))
    return [(draw(st.sampled_from(CLIENTS)), each) for each in asked]


@st.composite
def owner_requests(draw: st.DrawFn, rules: OwnerRules) -> LabelRequest:
    """Draw a request within the rules; names may repeat."""
    queries, name = draw(batches(st.floats(0, 1))), draw(NAMES)
    ends = st.sampled_from([REQUEST_EPSILON_MIN, 0.5, REQUEST_EPSILON_MAX])
    epsilon = draw(ends | st.floats(0.01, 10))
    if draw(st.booleans()):
        return ask_nearest(queries, draw(st.integers(1, 30)), epsilon, name=name)
    radius = draw(st.sampled_from([0.0, 0.25, 0.5, rules.radius_max]))
    return ask_within(queries, np.full(len(queries), radius), epsilon, name=name)


@st.composite
def owners(draw: st.DrawFn) -> Played:
    """Draw an owner in every mode, with budgets from none to the largest, 1e6, and its requests."""
    shares = st.floats(0.01, 0.99)
    system = vr.DataOwner(
        conversion=draw(st.sampled_from(["grid", "candidates"])),
        count_share=draw(shares),
        conversion_share=draw(shares),
        epsilon=REQUEST_EPSILON_MAX,
    )
    facts = vr.Facts(1, FEATURES, CLASSES, rows=draw(st.none() | st.integers(0, 20)))
    rules = OwnerRules(system, facts, work=draw(st.sampled_from([0, 10_000])))
    amounts = st.none() | st.sampled_from([0.0, 0.5, 20.0, 1e6]) | st.floats(0, 100)
    budgets = draw(st.builds(Budgets, total=amounts, analyst=amounts))
    requests = draw(histories(owner_requests(rules)))

    async def play(rows: vr.Rows) -> list[Outcome]:
        role = opening(request_labels, LABEL_SERVICE, TERMS)
        with open_ledger(None, budgets) as ledger:
            owner, told = Owner(rows, rules, ledger, run_inline), {"charged": ledger.totals}
            async with world({"server": lambda _node: owner.offers(TERMS)}, *CLIENTS) as served:
                return [
                    await served.ask(role, who, "server", each, rules=rules, **told)
                    for who, each in requests
                ]

    return play


def records_of(rows: vr.Rows) -> LabelledRecords:
    """Return rows as records; a row in the middle has the direction of the diagonal."""
    away = 2 * rows.features - 1
    away[np.square(away).sum(axis=1) == 0] = 1.0
    ids = [f"record {place}" for place in range(len(rows))]
    quantised = quantise(away) if len(rows) else np.zeros((0, FEATURES), np.float32)
    return LabelledRecords.of(ids, quantised, rows.labels)


@st.composite
def prediction_servers(draw: st.DrawFn) -> Played:
    """Draw rules up to the extremes, and blocks that repeat, share a key, or are too long for T."""
    system = vr.IndKNN(
        queries=draw(st.sampled_from([4, 10, 1_000_000])),
        epsilon=draw(st.sampled_from([1e-9, 1e-3, 1.0, 10.0, 1000.0])),  # up to the largest budget
        kernel=draw(st.sampled_from(get_args(KernelName))),
        tau=draw(st.sampled_from([5e-324, 0.3, 1 - 2**-53, 1.0])),
        width=draw(st.sampled_from([5e-324, 1e-20, 1.0, WIDTH_MAX])),
        sigma2=draw(st.sampled_from([SIGMA_MIN, 0.5, 1e3, SIGMA_MAX])),
        accountant=draw(st.sampled_from(get_args(Accountant))),
        clients=draw(st.sampled_from(get_args(Clients))),
    )
    rules = system.bind(vr.Facts(1, FEATURES, CLASSES))
    blocks = batches(st.sampled_from([-4000.0, -1.0, 0.0, 1.0, 700.0, 2800.0, 4000.0]), least=1)
    requests = draw(histories(st.builds(make_request, blocks.map(quantise), name=NAMES)))

    async def ask_block(party: vr.Party, request: PredictionRequest, *, rules: ServerRules) -> None:
        await Stream(party, rules).ask(request)  # whose labels are not part of an outcome

    async def play(rows: vr.Rows) -> list[Outcome]:
        role, status = opening(ask_block, PREDICT, TERMS), opening(request_status, STATUS, TERMS)
        with open_state(rules, None) as state:
            state.add(records_of(rows))
            server, found = PredictionServer(state, run_inline), list[Outcome]()

            def charged() -> object:
                return [state.status(who, [each.key for _, each in requests]) for who in CLIENTS]

            async with world({"server": lambda _node: server.offers(TERMS)}, *CLIENTS) as served:
                for who, block in requests:
                    told: Any = {"charged": charged}
                    found.append(await served.ask(role, who, "server", block, rules=rules, **told))
                    found.append(await served.ask(status, who, "server", [block.key], **told))
        return found

    return play


@pytest.mark.slow
@pytest.mark.parametrize("kind", [owners, prediction_servers])
@settings(max_examples=150)
@given(tables=neighbours(FEATURES, CLASSES), data=st.data())
def test_no_outcome_depends_on_a_row(
    kind: Callable[[], st.SearchStrategy[Played]],
    tables: tuple[vr.Rows, vr.Rows],
    data: st.DataObject,
) -> None:
    """For any legal requests, ending, messages, sizes and charges are equal for both tables."""
    play = data.draw(kind())
    one, other = (asyncio.run(play(rows)) for rows in tables)
    event(", ".join(sorted({outcome.ending for outcome in one})))
    assert one == other


def test_a_records_exhaustion_is_not_a_refusal() -> None:
    """A record that cannot pay is not disclosed: it means that the ledger was changed."""

    def pay() -> bytes:
        raise vr.BudgetExhausted("record", None, None, "epsilon")

    key = bytes(REQUEST_KEY_BYTES)
    with open_ledger(None, Budgets(total=3.0)) as ledger:
        with pytest.raises(StoreFailed, match="is unknown here"):
            answer_once(ledger, "ann", key, b"q", amount=1.0, pay=pay)
        assert ledger.totals().spent == 0.0


def test_the_client_learns_the_meaning_of_an_answer() -> None:
    """An answer passes, and each refusal is the error that names it."""
    require_answered(RequestVerdict.ANSWERED, 0.0, asked=1.0, unit="epsilon")
    with pytest.raises(vr.InputError, match="key"):
        require_answered(RequestVerdict.KEY_USED, 0.0, asked=1.0, unit="epsilon")
    for verdict, budget in (
        (RequestVerdict.CLIENT_EXHAUSTED, "analyst"),
        (RequestVerdict.TOTAL_EXHAUSTED, "total"),
    ):
        with pytest.raises(vr.BudgetExhausted) as caught:
            require_answered(verdict, 0.5, asked=1.0, unit="epsilon")
        assert (caught.value.budget, caught.value.left) == (budget, 0.5)
