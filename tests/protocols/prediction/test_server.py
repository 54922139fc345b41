"""A prediction server, its clients and administrators: charges, restarts, lies, and its system."""

import asyncio
import logging
import sqlite3
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from papers.baselines import kernel_vote
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
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, RunFailed, StoreFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.nodes.service import run_inline
from veilring.privacy.accounting import ZCDP, GaussianDP, individual_budget
from veilring.privacy.ledger import Ledger, read_totals
from veilring.protocols.prediction.algorithm.directions import TAU, Kernel, KernelName, tau_share
from veilring.protocols.prediction.algorithm.filter import SIGMA_MAX, public_sigma2
from veilring.protocols.prediction.client import Stream, add_at_server, label_queries, make_request
from veilring.protocols.prediction.messages import (
    STREAM_QUERIES,
    PredictionAnswer,
    PredictionRequest,
    ServerRules,
)
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.prediction.system import IndKNN, IndKNNSetup
from veilring.protocols.promise import Facts
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
    """Labels and charges equal those of an uninterrupted server, for any point of the restart.

    A repeated request gets the same labels at no cost, for any current noise; one of another name
    does not.
    """
    asked, remaining, found = requests(10, 5), list[list[int]](), list[int]()
    with opened(RULES, tmp_path / "one", table(100)) as state:
        expected = labels(state, asked)
    for number, request in enumerate(asked):
        with opened(RULES, tmp_path / "other", None if number else table(100)) as state:
            assert labels(state, asked[:number], seed=1) == found
            found += labels(state, [request], first=number)
            assert labels(state, [request], seed=2) == found[-5:]
    assert found == expected
    for folder in ("one", "other"):
        with opened(RULES, tmp_path / folder) as state:
            left = state._accounts.remaining("ann", np.arange(100))  # noqa: SLF001  (no public method returns it)
            remaining.append(left.tolist())
    assert remaining[0] == remaining[1]
    assert min(remaining[0]) < 0.2 * max(remaining[0])
    assert read_totals(tmp_path / "other" / STATE).spent == 50.0
    with opened(RULES, tmp_path / "other") as state:
        renamed = [make_request(each.queries.astype(np.float32), name="again") for each in asked]
        assert labels(state, renamed[:2]) != expected[:10]
    assert read_totals(tmp_path / "other" / STATE).spent == 60.0


def test_the_stream_ends_after_t_queries_of_all_together(tmp_path: Path) -> None:
    """All clients share one stream of T queries, whose public rest is too short for a request."""
    asked = requests(13, 5)
    with opened(make_rules(queries=62), tmp_path, table(100)) as state:
        first = labels(state, asked[:10], who="ann")
        labels(state, asked[10:12], who="bob")
        for who in ("ann", "bob", "eve"):
            answer = state.answer(who, asked[12], np.random.default_rng(0))
            assert (answer.verdict, answer.left) == (RequestVerdict.TOTAL_EXHAUSTED, 2.0)
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
        assert isinstance(failed.value.errors["server"], StoreFailed)
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


CLASSES = 3
ASKED = np.random.default_rng(1).random((60, 2))


def made(rows: int = 60, **parameters: Any) -> IndKNNSetup:
    """Return a setup of three parties, with rows in three directions from the middle."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, rows)
    centres = np.array([[0.9, 0.5], [0.3, 0.9], [0.3, 0.1]])
    features = np.clip(centres[labels] + 0.05 * rng.standard_normal((rows, 2)), 0, 1)
    parts = np.array_split(np.arange(rows), 3)
    dealt = {f"party-{n}": Rows(features[part], labels[part]) for n, part in enumerate(parts)}
    return IndKNN(**parameters).setup(dealt, Facts(3, 2, CLASSES, rows))


def test_a_batch_is_a_stream_of_its_length_or_the_declared_one() -> None:
    """With `auto` a batch has any number of queries, and no stream is shorter than 4."""
    assert [made().rules(count).queries for count in (1, 4, 50)] == [4, 4, 50]
    assert made(queries=30).rules(50).queries == made(queries=30).batch_max == 30
    assert IndKNN().bind(Facts(1, 2, CLASSES)).queries == STREAM_QUERIES


def test_a_server_knows_numbers_that_are_not_given() -> None:
    """τ, σ2 and T are those given, or follow from ε and the public facts.

    σ2 falls with ε and grows with the stream, within the range of a filter.
    """
    facts = Facts(1, 7, 4, queries=20)
    auto = IndKNN(epsilon=0.25).bind(facts)
    assert (auto.queries, auto.kernel.tau, auto.sigma2) == (20, TAU, 2.0)
    given = IndKNN(epsilon=0.25, tau=0.5, sigma2=0.5).bind(facts)
    assert (given.kernel.tau, given.sigma2) == (0.5, 0.5)
    assert public_sigma2(4.0, 20) == pytest.approx(0.5)
    assert public_sigma2(1.0, 20 * 2**20) == pytest.approx(2**3)
    assert public_sigma2(1e-300, 20) == SIGMA_MAX


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_tau_is_reached_by_a_fraction_of_all_pairs_of_queries(kernel: KernelName) -> None:
    """It agrees with the cosines of all pairs, one by one; few queries are not a sample."""
    setup = made(kernel=kernel)
    asked = setup.directions(ASKED)
    chosen = setup.rules(60, asked).kernel
    units = asked / np.linalg.norm(asked, axis=1)[:, None]
    cosines = [float(one @ other) for one, other in combinations(units, 2)]
    share = np.mean([cosine >= chosen.least_cosine - 1e-6 for cosine in cosines])
    assert share == pytest.approx(tau_share(2, 60, 1.0), abs=2 / len(cosines))
    assert setup.rules(9, asked[:9]).kernel.tau == TAU
    assert made(kernel=kernel, tau=0.3).rules(60, asked).kernel.tau == 0.3


def test_tau_does_not_depend_on_records() -> None:
    """Other records of the same public number leave it unchanged; a hidden number is refused."""
    asked = made().directions(ASKED)
    parts = {"ann": Rows(np.full((60, 2), 0.25), np.zeros(60, np.int64))}
    other = IndKNN().setup(parts, Facts(1, 2, CLASSES, 60))
    assert isinstance(other, IndKNNSetup)
    assert other.rules(60, asked).kernel == made().rules(60, asked).kernel
    with pytest.raises(InputError, match=r"number of rows .* not public here; give a number"):
        IndKNN().setup(parts, Facts(1, 2, CLASSES))
    IndKNN(tau=0.5).setup(parts, Facts(1, 2, CLASSES))
    assert "number of records is public" in IndKNN().promise().note
    assert "counts as public" not in IndKNN(tau=0.8).promise().note


@pytest.mark.parametrize("clients", ["together", "apart"])
def test_the_promise_is_for_a_stream(clients: Literal["together", "apart"]) -> None:
    """ε and δ are as given, and the guarantee names the protected parties."""
    promise = IndKNN(epsilon=0.7, delta=1e-6, clients=clients).promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (0.7, 1e-6, "stream")
    assert promise.adjacency == "one record added or removed"
    assert ("individually" in promise.against) == (clients == "apart")
    assert "double-precision" in promise.note


def test_streams_compose_in_the_budgets_of_records() -> None:
    """Each record may spend its budget in each stream."""
    budget = {by: individual_budget(1.0, 1e-5, by) for by in ("gdp", "rdp")}
    for by, expected in (
        ("gdp", GaussianDP(np.sqrt(6 * budget["gdp"])).epsilon(1e-5)),
        ("rdp", ZCDP(3 * budget["rdp"]).epsilon(1e-5)),
    ):
        setup = made(accountant=by)
        assert [setup.spent(streams).epsilon for streams in (0, 1)] == [0.0, 1.0]
        assert setup.spent(3).epsilon == pytest.approx(expected)
        assert (setup.spent(3).delta, setup.spent(3).what) == (1e-5, "for 3 streams")


def test_without_noise_labels_are_the_vote_of_the_kernel() -> None:
    """Labels are those of all neighbours if the noise is far below a vote."""
    setup, queries = made(epsilon=1e4, sigma2=0.05, tau=0.9), ASKED[:12]
    records, asked = setup.records, setup.directions(queries)
    classes = records.labels.astype(np.int64)
    expected = kernel_vote(records.directions, classes, asked, Kernel(tau=0.9), CLASSES)
    near = (asked @ records.directions.T).max(axis=1) > 0.95 * 4090**2
    assert near.sum() > 5
    here = setup.label(queries, np.random.default_rng(2))
    np.testing.assert_array_equal(here[near], expected[near])


def test_an_audit_examines_the_noisy_votes_that_labels_are_chosen_from() -> None:
    """Each stream has full budgets, and the class with the most noisy votes is its label."""
    setup, queries, rng = made(), ASKED[:5], np.random.default_rng(2)
    drawn = setup.observe(queries, 2, np.random.default_rng(2)).reshape(2, 5, 1 + CLASSES)
    labels = [setup.label(queries, rng) for _ in range(2)]
    np.testing.assert_array_equal(drawn[:, :, 1:].argmax(axis=2), labels)


def test_a_row_in_the_middle_has_the_direction_of_the_diagonal() -> None:
    """Otherwise directions are measured from the middle, for any other rows."""
    setup = made()
    rows = np.array([[0.5, 0.5], [1.0, 1.0], [0.5, 0.9]])
    directions = setup.directions(rows)
    np.testing.assert_array_equal(directions[0], directions[1])
    np.testing.assert_array_equal(directions[2], [0, 4090])
    assert rows[0, 0] == 0.5
