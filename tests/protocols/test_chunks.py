"""Tests of messages that are larger than a frame."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from veilring.errors import InputError, RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.session import UNREAD_BYTES_MAX
from veilring.protocols.chunks import (
    exchange_chunks,
    exchange_cost,
    receive_chunks,
    send_chunks,
    sending_cost,
    split,
)
from veilring.protocols.promise import Forecast
from veilring.simulation import simulate
from veilring.testing import ProtocolRunner
from veilring.transport.frames import CONTENT_BYTES_MAX, FRAME_BYTES_MAX
from veilring.transport.messages import Array, Message, encode

WIDTH = 256
PER_CHUNK = CONTENT_BYTES_MAX // WIDTH


class Table(Message, kind="test.table"):
    """A table with a title."""

    title: str
    values: Annotated[NDArray[np.uint8], Array("|u1", 2)]


class Pair(Message, kind="test.pair"):
    """Two arrays that are split together."""

    one: Annotated[NDArray[np.uint64], Array("<u8", 1)]
    two: Annotated[NDArray[np.uint8], Array("|u1", 2)]


def table(rows: int, title: str = "") -> Table:
    """Return a table of numbers that follow from their places."""
    values = np.arange(rows * WIDTH, dtype=np.uint32) % 251
    return Table(title=title, values=values.astype(np.uint8).reshape(rows, WIDTH))


async def swap(party: Party, *, rows: int) -> int:
    """Exchange tables of equal shapes with all peers, and return the number of equal ones."""
    expected = dict.fromkeys(party.peers, table(rows))
    got = await exchange_chunks(party, table(rows, party.me), expected)
    return sum(got[peer] == table(rows, peer) for peer in party.peers)


async def hand_over(party: Party, *, rows: int, wait: float = 0.0, **_public: object) -> bool:
    """Send a table from the first party to the second, which is not ready at first."""
    sender, receiver, *_ = party.parties
    if party.me == sender:
        await send_chunks(party, receiver, table(rows, "given"))
    elif party.me == receiver:
        await asyncio.sleep(wait)
        return await receive_chunks(party, table(rows), sender=sender) == table(rows, "given")
    return True


@dataclass
class OtherChunk(Adversary):
    """Sends fewer rows, or another title, in each chunk but the first."""

    rows: int
    title: str
    sent: int = 0

    async def sending(self, to: str, message: Message) -> Lines:
        """Change a chunk."""
        self.sent += 1
        if self.sent > 1 and isinstance(message, Table):
            message = Table(title=self.title, values=message.values[: self.rows])
        return [(to, message)]


@pytest.mark.parametrize("rows", [0, 2 * PER_CHUNK + 1])
def test_tables_are_exchanged(run_protocol: ProtocolRunner, rows: int) -> None:
    """Every party gets every table, and the rounds, the depth and the bytes are the closed form."""
    run = run_protocol(swap, 3, rows=rows)
    assert set(run.results.values()) == {2}
    assert run.cost.depth == run.cost.rounds == len(split(table(rows)))
    named = Table(title="party-0", values=table(rows).values)
    assert Forecast.measured(run.cost) == exchange_cost(3, named)


@pytest.mark.parametrize("rows", [1, 3 * PER_CHUNK])
def test_a_table_is_handed_over(run_protocol: ProtocolRunner, rows: int) -> None:
    """One chunk goes in each round, and the receiver follows."""
    run = run_protocol(hand_over, 2, rows=rows)
    assert all(run.results.values())
    assert Forecast.measured(run.cost) == sending_cost(table(rows, "given"))
    assert run.cost.messages == 2 * len(split(table(rows))) - 1


async def trade(party: Party) -> dict[str, int]:
    """Exchange tables of different sizes; one party has none."""
    rows = dict(zip(party.parties, [0, PER_CHUNK, 3 * PER_CHUNK], strict=True))
    mine = table(rows[party.me]) if rows[party.me] else None
    expected = {peer: table(rows[peer]) for peer in party.peers if rows[peer]}
    got = await exchange_chunks(party, mine, expected)
    return {peer: len(each.values) for peer, each in got.items()}


def test_parties_may_have_different_tables(run_protocol: ProtocolRunner) -> None:
    """The longest one determines the rounds; a party without chunks follows its peers."""
    run = run_protocol(trade, 3)
    large = 3 * PER_CHUNK
    assert run.results["party-0"] == {"party-1": PER_CHUNK, "party-2": large}
    assert run.results["party-1"] == {"party-2": large}
    assert run.results["party-2"] == {"party-1": PER_CHUNK}
    assert run.cost.depth == 3


def test_a_sender_waits_for_a_receiver_that_is_not_ready() -> None:
    """More than a session keeps for a peer can be sent: two chunks at most are under way."""
    rows = 2 * UNREAD_BYTES_MAX // WIDTH

    async def main() -> bool:
        async with Cluster(2, runtime="simulated", seed=1) as cluster:
            return all((await cluster.run(hand_over, rows=rows, wait=5.0)).results.values())

    assert simulate(main())


@pytest.mark.parametrize(
    ("rows", "title", "sentence"),
    [
        (
            PER_CHUNK - 1,
            "given",
            r"sent a chunk of test\.table whose values is uint8 \(4094, 256\)",
        ),
        (PER_CHUNK, "taken", r"sent chunks of test\.table that differ in other fields"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(
    run_protocol: ProtocolRunner, rows: int, title: str, sentence: str
) -> None:
    """The sender of a chunk of another shape, or of another message, is named."""
    liar = OtherChunk(rows, title)
    with pytest.raises(RunFailed, match=f"party-0 broke the protocol: {sentence}"):
        run_protocol(hand_over, 2, rows=2 * PER_CHUNK, adversaries={"party-0": liar})


def test_arrays_are_split_together() -> None:
    """Each chunk has the same rows of all arrays, and fits a frame."""
    rows = 300_000
    whole = Pair(one=np.arange(rows, dtype=np.uint64), two=np.zeros((rows, 8), np.uint8))
    chunks = split(whole)
    assert len(chunks) > 4
    assert all(len(chunk.one) == len(chunk.two) for chunk in chunks)
    assert all(len(encode(bytes(16), chunk)) <= FRAME_BYTES_MAX for chunk in chunks)
    assert np.array_equal(np.concatenate([chunk.one for chunk in chunks]), whole.one)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            Pair(one=np.zeros(3, np.uint64), two=np.zeros((2, 8), np.uint8)),
            r"different numbers of rows \(one \(3,\), two \(2, 8\)\); send them in several",
        ),
        (
            Table(title="", values=np.zeros((1, FRAME_BYTES_MAX), np.uint8)),
            "a row of test.table has 1,048,576 bytes; at most 1,048,320 fit a frame",
        ),
    ],
)
def test_messages_that_cannot_be_split_are_refused(message: Any, sentence: str) -> None:
    """The error names the arrays, and what to do."""
    with pytest.raises(InputError, match=sentence):
        split(message)
