"""Small roles for tests; processes import this module, so it imports little."""

import asyncio
import os
import signal
import time

from veilring.arrays import Floats
from veilring.nodes.party import Party, broadcast, receive_quorum
from veilring.nodes.ring import draw_ring
from veilring.transport.messages import Message


class Word(Message, kind="test.word"):
    """A word to send."""

    text: str


class Number(Message, kind="test.number"):
    """A number to add."""

    number: int


async def add_up(party: Party, own: int) -> int:
    """Send the party's number to all, and return the sum of all."""
    party.round(1)
    await broadcast(party, Number(number=own))
    return own + sum([(await party.receive(Number, sender=p)).number for p in party.peers])


async def draw(party: Party) -> tuple[str, ...]:
    """Draw a ring and return its order."""
    return (await draw_ring(party)).order


async def pass_on(party: Party, own: str = "") -> str:
    """Send a word to the next party and return the received one."""
    here, n = party.parties.position(party.me), len(party.parties)
    party.round(1)
    await party.send(party.parties[(here + 1) % n], Word(text=own or party.me))
    return (await party.receive(Word, sender=party.parties[here - 1])).text


async def fail(party: Party, *, who: str) -> None:
    """Pass a word on, while one party fails instead."""
    if party.me == who:
        raise ValueError(f"{who} had a bad day")
    await pass_on(party)


async def fail_late(party: Party, *, who: str, rounds: int) -> None:
    """Pass words on; then one party fails, and the others wait for it."""
    await chat(party, rounds=rounds)
    if party.me == who:
        raise ValueError(f"{who} had a bad day")
    await chat(party, rounds=1)


async def unreturnable(party: Party) -> object:
    """Return an object that cannot leave a process."""
    await pass_on(party)
    return lambda: None


class MovedError(Exception):
    """An error that pickles but cannot be unpickled: its class takes other arguments."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")


async def fail_unreadably(party: Party) -> None:
    """Raise an error that no other process can read."""
    raise MovedError(party.me, "it is broken")


async def pass_array(party: Party, own: Floats) -> Floats:
    """Return the party's own numbers, once all others are present."""
    await pass_on(party)
    return own


async def chat(party: Party, *, rounds: int) -> None:
    """Pass words on for a long time."""
    here, n = party.parties.position(party.me), len(party.parties)
    for _ in range(rounds):
        await party.send(party.parties[(here + 1) % n], Word(text="still here"))
        await party.receive(Word, sender=party.parties[here - 1])


async def die(party: Party, *, who: str, rounds: int) -> None:
    """Pass words on; then one party's process dies silently, and the others wait for it."""
    await chat(party, rounds=rounds)
    if party.me == who:
        os.kill(os.getpid(), signal.SIGKILL)
    await chat(party, rounds=1)


async def say(party: Party, *, text: str) -> None:
    """Print a line."""
    print(text.format(me=party.me), flush=True)  # noqa: T201  (the tested output)
    await pass_on(party)


async def compute_on(party: Party, *, who: str) -> None:
    """Compute without end at one party, and wait for it at the others."""
    while party.me == who:
        pass
    await party.receive(Word, sender=who)


async def block(party: Party, *, who: str) -> None:
    """Block in a call at one party, and wait for it at the others."""
    if party.me == who:
        time.sleep(3600)  # noqa: ASYNC251  (the point)
    await party.receive(Word, sender=who)


async def say_to_a_stranger(party: Party) -> None:
    """Send a word to a party that does not take part."""
    await party.send("dan", Word(text="hello"))


async def hear_all(party: Party) -> list[tuple[str, str]]:
    """Tell all peers a word, or a number, and return the kinds that arrive, in order."""
    party.round(1)
    even = party.parties.position(party.me) % 2 == 0
    await broadcast(party, Word(text=party.me) if even else Number(number=len(party.me)))
    heard = []
    for _ in party.peers:
        sender, message = await party.receive_any((Word, Number))
        heard.append((sender, message.kind))
    return heard


async def vote(party: Party, *, needed: int) -> int:
    """Return the number of votes that were needed; the others stay unread."""
    party.round(1)
    party.leave_unread()
    await broadcast(party, Number(number=1))
    votes = await receive_quorum(party, Number, needed)
    return sum(each.number for each in votes.values())


async def vote_twice(party: Party) -> list[int]:
    """Return the numbers of votes in two rounds of which each needs one vote."""
    party.leave_unread()
    heard = []
    for number in (1, 2):
        party.round(number)
        await broadcast(party, Number(number=number))
        heard.append(len(await receive_quorum(party, Number, 1)))
    return heard


async def expect_a_word(party: Party) -> None:
    """Send a number where a word is expected."""
    await broadcast(party, Number(number=1))
    await party.receive_any(Word)


async def ask_a_stranger(party: Party) -> None:
    """Wait for somebody who is not a party."""
    await party.receive_any(Word, senders=("ada", "eve"))


async def wait_for_nobody(party: Party) -> None:
    """Wait for no sender at all."""
    await party.receive_any(Word, senders=())


async def exchange_five_times(party: Party) -> None:
    """Declare one round, and take five."""
    party.round(1)
    for number in range(5):
        await broadcast(party, Word(text=str(number)))
        for peer in party.peers:
            await party.receive(Word, sender=peer)


async def swap_concurrently(party: Party) -> None:
    """Swap a word with each peer in a task of its own, all in one round."""

    async def swap(peer: str) -> None:
        await party.send(peer, Word(text=party.me))
        await party.receive(Word, sender=peer)

    party.round(1)
    await asyncio.gather(*map(swap, party.peers))
