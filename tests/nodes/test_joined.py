"""Messages of one peer that are received together."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.nodes.worlds import FIRST, PAIR, Role, begun, turns
from tests.roles import Number, Word

from veilring.errors import PeerGivenUp, ProtocolViolation, SessionAborted
from veilring.nodes.journal import Meter
from veilring.nodes.node import Node
from veilring.nodes.party import Party
from veilring.transport.frames import pack
from veilring.transport.messages import Message, encode

Nodes = dict[str, Node]


class Bits(Message, kind="test.bits"):
    """A message that can be joined."""

    joins = ("bits",)
    bits: bytes


def hear_joined(*types: type[Message], after: asyncio.Event) -> Role:
    """Return a role that receives messages of each type together, first of all once."""

    async def role(party: Party) -> list[Sequence[Message]]:
        heard = [await party.receive_joined(types[0], sender="ada")]
        await after.wait()
        return heard + [await party.receive_joined(each, sender="ada") for each in types]

    return role


async def heard_by_bob(
    nodes: Nodes, frames: Sequence[bytes], *types: type[Message]
) -> list[Sequence[Message]]:
    """Return the messages that bob receives in some frames; the first arrives before the others."""
    after = asyncio.Event()
    hearing = await begun(nodes["bob"], hear_joined(*types, after=after), FIRST, PAIR)
    for frame in frames:
        await nodes["ada"].endpoint.send("bob", frame)
        await turns()
    after.set()
    found: list[Sequence[Message]] = await hearing
    return found


async def test_all_messages_that_have_arrived_are_received_at_once(nodes: Nodes) -> None:
    """Those that can be joined are one message, and others stay in order."""
    frames = [encode(FIRST, Bits(bits=bytes([n]))) for n in range(10)]
    frames += [encode(FIRST, Word(text=f"{n}")) for n in range(3)]
    first, rest, words = await heard_by_bob(nodes, frames, Bits, Word)
    assert [each.fields() for each in (*first, *rest)] == [(b"\0",), (bytes(range(1, 10)),)]
    assert [each.fields() for each in words] == [("0",), ("1",), ("2",)]


async def test_observers_see_each_message(nodes: Nodes) -> None:
    """Messages of an observed session are received together, but not joined."""
    meter, after = Meter("bob"), asyncio.Event()
    role = hear_joined(Bits, after=after)
    hearing = asyncio.create_task(nodes["bob"].run(role, FIRST, PAIR, observers=[meter]))
    await turns()
    for n in range(5):
        await nodes["ada"].endpoint.send("bob", encode(FIRST, Bits(bits=bytes([n]))))
        await turns()
    after.set()
    assert [len(each) for each in await hearing] == [1, 4]
    assert [end[2] for end in meter.passed()] == [Bits.kind] * 5


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (encode(FIRST, Number(number=1)), r"sent test\.number where test\.bits was expected"),
        (pack((FIRST, Bits.kind, "text")), r"test\.bits\.bits"),
        (pack((FIRST, Bits.kind)), "has 1 fields, not 0"),
    ],
    ids=["another kind", "another type", "no field"],
)
async def test_a_wrong_message_among_others_names_its_sender(
    nodes: Nodes, frame: bytes, said: str
) -> None:
    """A message of another kind or form ends the session when it is received."""
    first = encode(FIRST, Bits(bits=b"a"))
    with pytest.raises(ProtocolViolation, match=said) as caught:
        await heard_by_bob(nodes, [first, frame], Bits)
    assert caught.value.culprit == "ada"


async def test_an_aborted_session_hands_out_nothing_more(nodes: Nodes) -> None:
    """Messages that arrived before an abort are not received after it."""

    async def send_and_fail(party: Party) -> None:
        for _ in range(2):
            await party.send("bob", Bits(bits=b"a"))
        raise ValueError

    after = asyncio.Event()
    hearing = await begun(nodes["bob"], hear_joined(Bits, after=after), FIRST, PAIR)
    with pytest.raises(ValueError, match=r"^$"):
        await nodes["ada"].run(send_and_fail, FIRST, PAIR)
    await turns()
    after.set()
    with pytest.raises(SessionAborted):
        await hearing


async def test_receiving_shows_that_a_role_goes_on(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that meets a loss between messages of another peer is no loop without end."""
    monkeypatch.setattr("veilring.nodes.session.REFUSALS_MAX", 2)

    async def role(party: Party) -> int:
        party.tolerate_losses()
        party.give_up("cy")
        heard = 0
        while heard < 5:
            with suppress(PeerGivenUp):
                await party.receive(Bits, sender="cy")
            heard += len(await party.receive_joined(Bits, sender="ada"))
        return heard

    hearing = await begun(nodes["bob"], role)
    for _ in range(5):
        await nodes["ada"].endpoint.send("bob", encode(FIRST, Bits(bits=b"a")))
        await turns()
    assert await hearing == 5
