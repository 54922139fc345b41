"""A prediction server with its clients and administrators: charges, restarts, lies and sizes."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.prediction.serving import (
    STATE,
    adaptive,
    curate,
    labels,
    make_rules,
    opened,
    predict,
    queries,
    requests,
    table,
)

from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed, StoreFailed
from veilring.nodes.adversary import Adversary, Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.nodes.service import run_inline
from veilring.privacy.ledger import Ledger, read_totals
from veilring.protocols.prediction.client import label_queries, make_request
from veilring.protocols.prediction.messages import (
    LabelArray,
    PredictionAnswer,
    PredictionRequest,
    ServerRules,
)
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.requests import RequestVerdict
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

RULES = make_rules()


def left(folder: Path, rules: ServerRules, records: int) -> list[int]:
    """Return the remaining budgets of the records in order of addition."""
    with opened(rules, folder) as state:
        numbers = np.array([state._numbers[name] for name in table(records).ids])  # noqa: SLF001  (no public method returns it)
        remaining: list[int] = state._accounts.remaining("ann", numbers).tolist()  # noqa: SLF001  (as above)
        return remaining


def test_a_restarted_server_continues_exactly(tmp_path: Path) -> None:
    """Labels and charges equal those of an uninterrupted server, for any point of the restart."""
    asked = requests(10, 5)
    with opened(RULES, tmp_path / "one", table(100)) as state:
        expected = labels(state, asked)
    found: list[int] = []
    for number, request in enumerate(asked):
        with opened(RULES, tmp_path / "other", None if number else table(100)) as state:
            answer = state.answer("ann", request, np.random.default_rng([0, number]))
            found += answer.labels.tolist()
    assert found == expected
    assert left(tmp_path / "one", RULES, 100) == left(tmp_path / "other", RULES, 100)
    assert min(left(tmp_path / "one", RULES, 100)) < 0.2 * max(left(tmp_path / "one", RULES, 100))


def test_a_repeated_request_gets_the_same_labels_at_no_cost(tmp_path: Path) -> None:
    """This holds for any current noise, and after a restart."""
    asked = requests(4, 5)
    with opened(RULES, tmp_path, table(100)) as state:
        first = labels(state, asked)
        assert labels(state, asked, seed=1) == first
    before = left(tmp_path, RULES, 100)
    with opened(RULES, tmp_path) as state:
        assert labels(state, asked, seed=2) == first
        renamed = [make_request(each.queries.astype(np.float32), name="again") for each in asked]
        assert labels(state, renamed, seed=3) != first
    assert left(tmp_path, RULES, 100) != before
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
    """If the disk fails there is no answer, the server closes, and nothing was charged."""
    asked = requests(2, 5)
    with opened(RULES, tmp_path, table(100)) as state:
        labels(state, asked[:1])
        before = read_totals(tmp_path / STATE)

        def fail(*_: object) -> bytes:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(Ledger, "charge", fail)
        with pytest.raises(StoreFailed, match="disk I/O error"):
            labels(state, asked[1:])
        with pytest.raises(StoreFailed, match="start it again"):
            labels(state, asked[:1])
    assert read_totals(tmp_path / STATE) == before


def test_a_failing_disk_is_reported_to_the_operator() -> None:
    """No client gets an answer, and the task waiting for failures is notified."""

    async def main() -> None:
        with opened(RULES, None, table(5)) as state:
            server = PredictionServer(state, run_inline)
            failing = asyncio.create_task(server.failure())
            await asyncio.sleep(0)
            state.close()

            async def role(party: Party) -> None:
                if party.me == "server":
                    await server.answer(party, "ann")
                else:
                    await label_queries(party, queries(5).features, rules=RULES, block=5)

            async with Cluster(["server", "ann"], seed=5) as cluster:
                with pytest.raises(RunFailed):
                    await cluster.run(role)
            with pytest.raises(StoreFailed, match="start it again"):
                await asyncio.wait_for(failing, 10)

    asyncio.run(main())


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
    asked = queries(50).features

    async def traffic(epsilon: float) -> list[int]:
        rules, own = make_rules(epsilon=epsilon), [table(100), asked]
        async with Cluster(["server", "ann"], own=own, seed=5) as cluster:
            run = await cluster.run(predict, rules=rules, block=5, watch=["ann"])
            return [run.cost.bytes, run.cost.messages, len(run.views["ann"].received)]

    poor = asyncio.run(traffic(0.05))
    logged = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert asyncio.run(traffic(50.0)) == poor
    assert [record.getMessage() for record in caplog.records] == logged


def test_only_administrators_may_change_records() -> None:
    """Every client in the roster may ask; only configured administrators add and forget records."""
    with opened(RULES, None) as state:
        offers = PredictionServer(state, run_inline, ["owner"]).offers(bytes(32))
    may = {name: (offer.may_open("owner"), offer.may_open("ann")) for name, offer in offers.items()}
    everybody, administrators = (True, True), (True, False)
    assert may == {
        PREDICT: everybody,
        STATUS: everybody,
        ADD: administrators,
        FORGET: administrators,
    }


Lie: TypeAlias = Callable[[NDArray[np.int16]], NDArray[np.int16]]

NAMES = ["server", "ann"]
OWN: list[Any] = [table(200), queries(50).features]


async def in_memory(
    role: Any, own: list[Any], *, adversaries: Mapping[str, Adversary] | None = None, **public: Any
) -> Run[Any]:
    """Return a run in memory."""
    async with Cluster(NAMES, own=own, seed=5) as cluster:
        return await cluster.run(role, adversaries=adversaries or {}, **{"rules": RULES, **public})


async def test_the_size_of_a_block_changes_no_label() -> None:
    """A stream in one block, in several, or query by query gets equal labels."""
    whole = (await in_memory(predict, OWN, block=50)).results["ann"]
    assert set(whole.tolist()) == {0, 1, 2}
    for block in (1, 7):
        run = await in_memory(predict, OWN, block=block)
        np.testing.assert_array_equal(run.results["ann"], whole)


def test_an_adaptive_client_asks_one_at_a_time(run_protocol: ProtocolRunner) -> None:
    """Each query may depend on earlier labels, within one session."""
    expected = asyncio.run(in_memory(adaptive, OWN))
    run = run_protocol(adaptive, NAMES, own=OWN, seed=5, rules=RULES)
    np.testing.assert_array_equal(run.results["ann"], expected.results["ann"])
    assert run.transcript == expected.transcript
    assert_cost(run, messages=8, rounds=8)


async def test_records_are_sent_in_messages_that_fit_a_frame() -> None:
    """A large table arrives complete in several messages, each with its receipt."""
    run = await in_memory(curate, [None, table(15_000)])
    assert run.results == {"server": 15_000, "ann": 15_000}
    assert_cost(run, messages=4, rounds=4)


async def test_after_t_queries_the_counter_refuses_more() -> None:
    """A block longer than the rest of T is refused as a whole, with the excess."""
    few, own = make_rules(queries=59), [OWN[0], queries(60).features]
    with pytest.raises(RunFailed) as failed:
        await in_memory(predict, own, rules=few, block=20)
    root = failed.value.root
    assert isinstance(root, BudgetExhausted)
    assert (root.budget, root.asked, root.left, root.unit) == ("total", 20.0, 19.0, "queries")


def test_an_answer_has_one_size_for_any_content() -> None:
    """The number of bytes does not depend on verdict, counter and labels."""
    sizes = {
        frame_size(
            encode(
                bytes(SESSION_BYTES), PredictionAnswer(verdict=verdict, left=left, labels=labels)
            )
        )
        for verdict in RequestVerdict
        for left in (0.0, 19.0, 999_999.0)
        for labels in (np.zeros(20, np.uint16), np.full(20, 65_535, np.uint16))
    }
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "lie",
    [
        lambda queries: np.full_like(queries, 4000),
        np.zeros_like,
        lambda queries: queries[:, :-1],
        lambda queries: queries[:0],
    ],
    ids=["too long", "no direction", "of other features", "none"],
)
def test_requests_against_the_rules_name_the_client(lie: Lie) -> None:
    """A client with a request that no honest client makes is named."""

    def change(message: Message) -> Message:
        assert isinstance(message, PredictionRequest)
        return _altered(message, queries=lie(message.queries))

    liar = Alter(change, only=(PredictionRequest,))
    assert _culprit("server", {"ann": liar}) == "ann"


@pytest.mark.parametrize("labels", [np.zeros(19, np.uint16), np.full(20, 3, np.uint16)], ids=len)
def test_an_invalid_answer_names_the_server(labels: LabelArray) -> None:
    """Too few labels, and unknown classes, are blamed on the server."""
    liar = Alter(lambda message: _altered(message, labels=labels), only=(PredictionAnswer,))
    assert _culprit("ann", {"server": liar}) == "server"


def test_a_client_detects_its_own_mistakes_before_sending() -> None:
    """Blocks that exceed a frame, and streams without a query, are refused by name."""
    for own, block in ((OWN, 0), (OWN, 100_000), ([OWN[0], OWN[1][:0]], 20)):
        with pytest.raises(RunFailed) as failed:
            asyncio.run(in_memory(predict, own, block=block))
        root = failed.value.errors["ann"]
        assert isinstance(root, InputError)
        assert root.field == "block"


def _altered(message: Any, **update: Any) -> Message:
    changed: Message = message.model_copy(update=update)
    return changed


def _culprit(witness: str, adversaries: Mapping[str, Adversary]) -> str:
    """Return the party that another one blames for a lie."""
    with pytest.raises(RunFailed) as failed:
        asyncio.run(in_memory(predict, OWN, adversaries=adversaries, block=20))
    error = failed.value.errors[witness]
    assert isinstance(error, ProtocolViolation)
    return error.culprit
