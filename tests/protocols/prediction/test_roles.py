"""A server, clients and administrators: equal on every runtime, at a stream's known cost."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.prediction.serving import adaptive, curate, make_rules, predict, queries, table

from veilring.errors import BudgetExhausted, InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Adversary, Alter
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.protocols.prediction.messages import LabelArray, PredictionAnswer, PredictionRequest
from veilring.protocols.requests import RequestVerdict
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, Message, encode

Lie: TypeAlias = Callable[[NDArray[np.int16]], NDArray[np.int16]]

NAMES = ["server", "ann"]
OWN: list[Any] = [table(200), queries(50).features]
RULES = make_rules()


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
