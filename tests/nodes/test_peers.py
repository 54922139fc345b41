"""Peers that send unexpected messages, too many messages, or have no part in the session."""

import asyncio

import pytest
from tests.nodes.three import FIRST, NAMES, SECOND, listen_to_ada, pass_word, three_nodes
from tests.roles import Word

from veilring.errors import ProtocolViolation, SessionAborted, TooFarAhead
from veilring.nodes.node import EARLY_BYTES_MAX, EARLY_FRAMES_MAX
from veilring.nodes.party import Parties, Party
from veilring.nodes.session import UNREAD_BYTES_MAX, UNREAD_MESSAGES_MAX
from veilring.transport.messages import Message, encode


class Other(Message, kind="test.other"):
    """A message of another type."""

    number: int


async def send_and_wait(party: Party) -> None:
    """Send many messages to bob, and wait for an answer."""
    await party.send("bob", Word(text="y" * 950))
    await party.receive(Word, sender="bob")


async def test_messages_of_an_outsider_do_not_count() -> None:
    """Only participants are heard, even if an outsider knows the session's name."""
    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        listening = asyncio.create_task(nodes["bob"].run(listen_to_ada, FIRST, pair))
        await asyncio.sleep(0)
        await nodes["cy"].endpoint.send("bob", encode(FIRST, Word(text="trust me")))
        await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="hello")))
        assert await listening == "hello"


async def test_a_message_of_the_wrong_type_names_its_sender() -> None:
    """A peer that sends another type than expected has broken the protocol."""

    async def say_other(party: Party) -> None:
        await party.send("bob", Other(number=1))
        await party.receive(Word, sender="bob")

    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        results = await asyncio.gather(
            nodes["ada"].run(say_other, FIRST, pair),
            nodes["bob"].run(listen_to_ada, FIRST, pair),
            return_exceptions=True,
        )
    assert isinstance(results[1], ProtocolViolation)
    assert results[1].culprit == "ada"
    assert "test.other where test.word" in results[1].reason
    assert isinstance(results[0], SessionAborted)
    assert (results[0].by, results[0].culprit) == ("bob", "ada")


async def test_an_unrequested_message_is_blamed_on_its_sender() -> None:
    """A session does not succeed if an unexpected message remains."""

    async def say_twice(party: Party) -> None:
        await party.send("bob", Word(text="one"))
        await party.send("bob", Word(text="two"))

    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        await nodes["ada"].run(say_twice, FIRST, pair)
        with pytest.raises(ProtocolViolation, match=r"ada.*test\.word, which was not due"):
            await nodes["bob"].run(listen_to_ada, FIRST, pair)


async def test_invalid_bytes_end_every_session_with_their_sender() -> None:
    """Garbage cannot be assigned to a session, so all sessions with its sender end."""
    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        listening = [
            asyncio.create_task(nodes["bob"].run(listen_to_ada, name, pair))
            for name in (FIRST, SECOND)
        ]
        await asyncio.sleep(0)
        await nodes["ada"].endpoint.send("bob", b"\xc1")
        for error in await asyncio.gather(*listening, return_exceptions=True):
            assert isinstance(error, ProtocolViolation)
            assert error.culprit == "ada"


async def test_a_peer_that_floods_a_session_is_named() -> None:
    """A party that runs too many messages ahead in a session is named."""
    pair = Parties(["ada", "bob"])

    async def wait_for_cy(party: Party) -> None:
        await party.receive(Word, sender="cy")

    async with three_nodes() as nodes:
        waiting = asyncio.create_task(nodes["bob"].run(wait_for_cy, FIRST, NAMES))
        await asyncio.sleep(0)
        for _ in range(UNREAD_MESSAGES_MAX + 1):
            await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="x")))
        with pytest.raises(
            TooFarAhead, match=r"^ada sent .* turn: at most 1,024 .* set UNREAD_MESSAGES_MAX"
        ) as caught:
            await waiting
        assert caught.value.culprit == "ada"
        await nodes["ada"].run(pass_word, SECOND, pair)
        assert await nodes["bob"].run(listen_to_ada, SECOND, pair) == "after"


@pytest.mark.parametrize(
    ("size", "frames"), [(1, EARLY_FRAMES_MAX + 1), (1 << 19, EARLY_BYTES_MAX // (1 << 19) + 1)]
)
async def test_frames_of_unopened_sessions_are_no_offence(size: int, frames: int) -> None:
    """However many an honest party sends because of a malicious opener, its sessions continue."""
    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        waiting = asyncio.create_task(nodes["bob"].run(listen_to_ada, FIRST, pair))
        await asyncio.sleep(0)
        for number in range(frames):
            frame = encode(b"unopened" + number.to_bytes(8, "big"), Word(text="x" * size))
            await nodes["ada"].endpoint.send("bob", frame)
        await nodes["ada"].run(pass_word, FIRST, pair)
        assert await waiting == "after"


async def test_a_session_whose_early_frames_were_dropped_fails_without_a_culprit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session fails with a reason, no party is accused, and other sessions continue."""
    monkeypatch.setattr("veilring.nodes.node.EARLY_TOTAL_BYTES_MAX", 1_000)
    pair = Parties(["ada", "bob"])
    async with three_nodes() as nodes:
        waiting = asyncio.create_task(nodes["bob"].run(listen_to_ada, SECOND, pair))
        asking = asyncio.create_task(nodes["ada"].run(send_and_wait, FIRST, pair))
        large = encode(bytes(15) + b"\x02", Word(text="x" * 900))
        for _ in range(20):  # turns of the loop, until all have sent and bob has heard it
            await asyncio.sleep(0)
        await nodes["cy"].endpoint.send("bob", large)
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(SessionAborted) as at_bob:
            await nodes["bob"].run(listen_to_ada, FIRST, pair)
        with pytest.raises(SessionAborted, match="bob had no room for messages") as at_ada:
            await asking
        await nodes["ada"].run(pass_word, SECOND, pair)
        assert await waiting == "after"
    for caught in (at_bob, at_ada):
        assert (caught.value.by, caught.value.culprit) == ("bob", "")


async def test_a_peer_that_floods_with_large_messages_is_named() -> None:
    """A party that runs too many bytes ahead in a session is named."""

    async def wait_for_cy(party: Party) -> None:
        await party.receive(Word, sender="cy")

    async with three_nodes() as nodes:
        waiting = asyncio.create_task(nodes["bob"].run(wait_for_cy, FIRST, NAMES))
        await asyncio.sleep(0)
        large = encode(FIRST, Word(text="x" * 1_000_000))
        for _ in range(UNREAD_BYTES_MAX // len(large) + 1):
            await nodes["ada"].endpoint.send("bob", large)
        with pytest.raises(ProtocolViolation, match=r"ada.*ahead of its turn"):
            await waiting


async def test_a_session_that_has_failed_keeps_nothing_more() -> None:
    """While its role is still working, a flood finds no room in it."""
    pair = Parties(["ada", "bob"])
    done = asyncio.Event()

    async def work(_party: Party) -> None:
        await done.wait()

    async with three_nodes() as nodes:
        working = asyncio.create_task(nodes["bob"].run(work, FIRST, pair))
        await asyncio.sleep(0)
        session = vars(nodes["bob"])["_sessions"][FIRST]
        for _ in range(4 * UNREAD_MESSAGES_MAX):
            await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="x")))
            await asyncio.sleep(0)
        assert len(vars(session)["_inboxes"]["ada"].unread) == UNREAD_MESSAGES_MAX + 1
        done.set()
        with pytest.raises(ProtocolViolation, match=r"ada.*ahead of its turn"):
            await working
