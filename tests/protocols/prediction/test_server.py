"""A prediction server with its clients and administrators: charges, restarts, lies and sizes."""

import asyncio
import logging
import sqlite3
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.prediction.serving import (
    STATE,
    labels,
    make_rules,
    opened,
    queries,
    requests,
    table,
)

from veilring.arrays import Ints
from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed, StoreFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.nodes.service import run_inline
from veilring.privacy.ledger import Ledger, read_totals
from veilring.protocols.prediction.client import Stream, add_at_server, label_queries, make_request
from veilring.protocols.prediction.messages import PredictionAnswer, PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.requests import RequestVerdict
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

RULES = make_rules()
NAMES = ["server", "ann"]
OWN: list[Any] = [table(200), queries(50).features]


async def predict(party: Party, own: Any, *, rules: ServerRules, block: int) -> Ints | None:
    """Play the server with its records, or a client with its queries."""
    if party.me == "ann":
        return await label_queries(party, own, rules=rules, block=block)
    with opened(rules, None, own) as state:
        await PredictionServer(state, run_inline).answer(party, "ann")
    return None


async def adaptive(party: Party, own: Any, *, rules: ServerRules) -> Ints | None:
    """Ask one query at a time; each label selects the next query."""
    if party.me == "server":
        return await predict(party, own, rules=rules, block=1)
    stream, at, found = Stream(party, rules), 0, list[int]()
    for more in (True, True, True, False):
        (label,) = await stream.ask(make_request(own[at : at + 1], more=more))
        found.append(int(label))
        at += 1 + int(label)
    return np.array(found)


async def curate(party: Party, own: LabelledRecords | None, *, rules: ServerRules) -> int:
    """Play the administrator if given records, and otherwise the server, which counts its own."""
    if own is not None:
        return await add_at_server(party, own)
    with opened(rules, None) as state:
        await PredictionServer(state, run_inline, ["ann"]).add(party, "ann")
        return len(state)


def play(role: Any, own: list[Any] = OWN, rules: ServerRules = RULES, **given: Any) -> Run[Any]:
    """Return a run in memory."""
    return ProtocolRunner("memory")(role, NAMES, own=own, seed=5, rules=rules, **given)


def test_a_restarted_server_continues_exactly(tmp_path: Path) -> None:
    """Labels and charges equal those of an uninterrupted server, for any point of the restart."""
    asked, remaining, found = requests(10, 5), list[list[int]](), list[int]()
    with opened(RULES, tmp_path / "one", table(100)) as state:
        expected = labels(state, asked)
    for number, request in enumerate(asked):
        with opened(RULES, tmp_path / "other", None if number else table(100)) as state:
            found += labels(state, [request], first=number)
    assert found == expected
    for folder in ("one", "other"):
        with opened(RULES, tmp_path / folder) as state:
            left = state._accounts.remaining("ann", np.arange(100))  # noqa: SLF001  (no public method returns it)
            remaining.append(left.tolist())
    assert remaining[0] == remaining[1]
    assert min(remaining[0]) < 0.2 * max(remaining[0])


def test_a_repeated_request_gets_the_same_labels_at_no_cost(tmp_path: Path) -> None:
    """This holds for any current noise, and after a restart; another name is another request."""
    asked = requests(4, 5)
    with opened(RULES, tmp_path, table(100)) as state:
        first = labels(state, asked)
        assert labels(state, asked, seed=1) == first
    with opened(RULES, tmp_path) as state:
        assert labels(state, asked, seed=2) == first
        assert read_totals(tmp_path / STATE).spent == 20.0
        renamed = [make_request(each.queries.astype(np.float32), name="again") for each in asked]
        assert labels(state, renamed, seed=3) != first
    assert read_totals(tmp_path / STATE).spent == 40.0


def test_the_stream_ends_after_t_queries_of_all_together(tmp_path: Path) -> None:
    """All clients share one stream of T queries, and its counter is public."""
    asked = requests(13, 5)
    with opened(RULES, tmp_path, table(100)) as state:
        first = labels(state, asked[:10], who="ann")
        labels(state, asked[10:12], who="bob")
        for who in ("ann", "bob", "eve"):
            answer = state.answer(who, asked[12], np.random.default_rng(0))
            assert (answer.verdict, answer.left) == (RequestVerdict.TOTAL_EXHAUSTED, 0.0)
        assert labels(state, asked[:10], seed=1, who="ann") == first  # paid answers stay


@pytest.mark.parametrize("clients", ["together", "apart"])
def test_reading_the_state_is_free_and_shows_only_the_clients_own(clients: str) -> None:
    """Reading the state is free, and shows queries left and the client's own answered requests."""
    asked, rules = requests(4, 5), make_rules(clients=clients)
    keys = [request.key for request in asked]
    with opened(rules, None, table(100)) as state:
        assert (state.status("ann", keys).left, sum(state.status("ann", keys).answered)) == (60, 0)
        labels(state, asked[1:3], who="ann")
        for _ in range(2):
            ann, bob = state.status("ann", keys), state.status("bob", keys)
            assert list(ann.answered) == [0, 1, 1, 0]
            assert list(bob.answered) == [0, 0, 0, 0]
            assert (ann.left, bob.left) == ((50, 50) if clients == "together" else (50, 60))


def test_separate_clients_have_separate_streams_and_budgets(tmp_path: Path) -> None:
    """Separate clients have separate streams and budgets, also after a restart."""
    rules, asked = make_rules(clients="apart"), requests(13, 5)
    with opened(rules, tmp_path / "alone", table(100)) as state:
        alone = labels(state, asked[:12], who="bob")
    with opened(rules, tmp_path / "both", table(100)) as state:
        labels(state, asked[:12], seed=1, who="ann")
        half = labels(state, asked[:6], who="bob")
    with opened(rules, tmp_path / "both") as state:
        rest = labels(state, asked[:12], who="bob")
        assert rest[:30] == half == alone[:30]
        assert rest == alone
        answer = state.answer("bob", asked[12], np.random.default_rng(0))
        assert (answer.verdict, answer.left) == (RequestVerdict.CLIENT_EXHAUSTED, 0.0)
        assert labels(state, asked[12:], who="eve")


def test_no_answer_leaves_before_its_charge_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails, no client gets an answer or is charged, and the operator is told."""

    def fail(*_: object) -> bytes:
        raise sqlite3.OperationalError("disk I/O error")

    async def role(party: Party, _own: None, *, rules: ServerRules, server: Any) -> None:
        if party.me == "ann":
            await label_queries(party, queries(5).features, rules=rules, block=5)
            return
        failing = asyncio.create_task(server.failure())
        try:
            await server.answer(party, "ann")
        finally:
            with pytest.raises(StoreFailed, match="disk I/O error"):
                await asyncio.wait_for(failing, 10)

    with opened(RULES, tmp_path, table(100)) as state:
        labels(state, requests(1, 5, seed=9))
        before = read_totals(tmp_path / STATE)
        monkeypatch.setattr(Ledger, "charge", fail)
        with pytest.raises(RunFailed) as failed:
            play(role, [None, None], server=PredictionServer(state, run_inline))
        assert set(failed.value.errors) == {"server", "ann"}
        with pytest.raises(StoreFailed, match="start it again"):
            labels(state, requests(1, 5, seed=9))
    assert read_totals(tmp_path / STATE) == before


def test_a_second_server_of_the_same_files_is_refused(tmp_path: Path) -> None:
    """A second server of the same files is refused, under equal or other rules."""
    with opened(RULES, tmp_path, table(5)), pytest.raises(InputError, match="locked"):
        open_state(RULES, tmp_path / STATE)
    for other in (make_rules(epsilon=3.0), make_rules(queries=61)):
        with pytest.raises(InputError, match="budgets"):
            open_state(other, tmp_path / STATE)
    with pytest.raises(InputError, match="rows"):
        open_state(RULES, tmp_path / STATE, schema=bytes(31) + b"\1")
    with opened(RULES, tmp_path) as state:
        assert len(state) == 5


def test_messages_and_logs_do_not_depend_on_remaining_budgets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Transcript sizes and logs are equal for records with spent and with fresh budgets."""
    caplog.set_level(logging.DEBUG)
    asked = [table(100), queries(50).features]

    def traffic(epsilon: float) -> list[int]:
        run = play(predict, asked, rules=make_rules(epsilon=epsilon), block=5, watch=["ann"])
        return [run.cost.bytes, run.cost.messages, len(run.views["ann"].received)]

    poor = traffic(0.05)
    logged = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert traffic(50.0) == poor
    assert [record.getMessage() for record in caplog.records] == logged


def test_only_administrators_may_change_records() -> None:
    """Every client in the roster may ask; only configured administrators add and forget records."""
    with opened(RULES, None) as state:
        offers = PredictionServer(state, run_inline, ["owner"]).offers(bytes(32))
    for who, may in (("owner", {PREDICT, STATUS, ADD, FORGET}), ("ann", {PREDICT, STATUS})):
        assert {name for name, offer in offers.items() if offer.may_open(who)} == may


def test_the_size_of_a_block_changes_no_label() -> None:
    """A stream in one block, in several, or query by query gets equal labels."""
    whole, *others = (play(predict, block=block).results["ann"] for block in (50, 1, 7))
    assert set(whole.tolist()) == {0, 1, 2}
    for each in others:
        np.testing.assert_array_equal(each, whole)


def test_an_adaptive_client_asks_one_at_a_time(run_protocol: ProtocolRunner) -> None:
    """Each query may depend on earlier labels, within one session."""
    expected = play(adaptive)
    run = run_protocol(adaptive, NAMES, own=OWN, seed=5, rules=RULES)
    np.testing.assert_array_equal(run.results["ann"], expected.results["ann"])
    assert run.transcript == expected.transcript
    assert_cost(run, messages=8, rounds=8)


def test_records_are_sent_in_messages_that_fit_a_frame() -> None:
    """A large table arrives complete in several messages, each with its receipt."""
    run = play(curate, [None, table(15_000)])
    assert run.results == {"server": 15_000, "ann": 15_000}
    assert_cost(run, messages=4, rounds=4)


def test_after_t_queries_the_counter_refuses_more() -> None:
    """A block longer than the rest of T is refused as a whole, with the excess."""
    own = [OWN[0], queries(60).features]
    with pytest.raises(RunFailed) as failed:
        play(predict, own, rules=make_rules(queries=59), block=20)
    root = failed.value.root
    assert isinstance(root, BudgetExhausted)
    assert (root.budget, root.asked, root.left, root.unit) == ("total", 20.0, 19.0, "queries")


def test_an_answer_has_one_size_for_any_content() -> None:
    """The number of bytes does not depend on verdict, counter and labels."""
    answers = (
        PredictionAnswer(verdict=verdict, left=left, labels=np.full(20, label, np.uint16))
        for verdict, left, label in product(RequestVerdict, (0.0, 19.0, 999_999.0), (0, 65_535))
    )
    assert len({frame_size(encode(bytes(SESSION_BYTES), answer)) for answer in answers}) == 1


QUERIES = make_request(OWN[1][:20]).queries


@pytest.mark.parametrize(
    ("liar", "kind", "field", "value"),
    [
        pytest.param("ann", PredictionRequest, "queries", np.full_like(QUERIES, 4000), id="long"),
        pytest.param("ann", PredictionRequest, "queries", 0 * QUERIES, id="no direction"),
        pytest.param("ann", PredictionRequest, "queries", QUERIES[:, :-1], id="features"),
        pytest.param("ann", PredictionRequest, "queries", QUERIES[:0], id="none"),
        pytest.param("server", PredictionAnswer, "labels", np.zeros(19, np.uint16), id="few"),
        pytest.param("server", PredictionAnswer, "labels", np.full(20, 3, np.uint16), id="unknown"),
    ],
)
def test_a_message_against_the_rules_names_its_sender(
    liar: str, kind: type[Message], field: str, value: Any
) -> None:
    """A request or an answer that no honest party sends is blamed on its sender."""

    def lie(message: Message) -> Message:
        return message.model_copy(update={field: value})

    with pytest.raises(RunFailed) as failed:
        play(predict, block=20, adversaries={liar: Alter(lie, only=(kind,))})
    (witness,) = {*NAMES} - {liar}
    error = failed.value.errors[witness]
    assert isinstance(error, ProtocolViolation)
    assert error.culprit == liar


def test_a_client_detects_its_own_mistakes_before_sending() -> None:
    """Blocks that exceed a frame, and streams without a query, are refused by name."""
    for own, block in ((OWN, 0), (OWN, 100_000), ([OWN[0], OWN[1][:0]], 20)):
        with pytest.raises(RunFailed) as failed:
            play(predict, own, block=block)
        root = failed.value.errors["ann"]
        assert isinstance(root, InputError)
        assert root.field == "block"
