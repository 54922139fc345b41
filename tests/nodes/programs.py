"""Random protocols as data: steps in which parties exchange messages, and their role.

A program is one list of steps for all parties. In each step a party first sends its messages and
then receives its own, so no program has a deadlock; leaving out steps or messages gives another
program. The content of a message depends on the randomness of its sender and on everything that it
has received, and the result of a party is a hash of that.

Two steps at the end, in which all parties hear from all others, make the end of a run independent
of timing: a party that fails before them fails all others.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import PeerLost, ProtocolViolation
from veilring.nodes.party import Party, broadcast, receive_quorum
from veilring.transport.messages import Array, Message

_SIZE_MAX: Final = 6  # entries of an axis
_MANY: Final = 5_000  # entries of the axis of a large message: several records of TLS
_LARGE_SHARE: Final = 0.03


class Bits(Message, kind="program.bits"):
    """Small integers."""

    values: Annotated[NDArray[Any], Array("|b1 |u1 |i1", 1)]


class Grid(Message, kind="program.grid"):
    """Real numbers."""

    values: Annotated[NDArray[Any], Array("<f4 <f8", 2)]


class Block(Message, kind="program.block"):
    """Integers."""

    values: Annotated[NDArray[Any], Array("<u2 <i2 <u4 <i4 <u8 <i8", 3)]


class Note(Message, kind="program.note"):
    """Fields that are no arrays."""

    text: str
    number: int
    raw: bytes


class Done(Message, kind="program.done"):
    """A message of the steps at the end, with a hash of all that its sender received."""

    digest: bytes


CARRIERS: Final[Mapping[Any, tuple[str, ...]]] = {
    Bits: ("|b1", "|u1", "|i1"),
    Grid: ("<f4", "<f8"),
    Block: ("<u2", "<i2", "<u4", "<i4", "<u8", "<i8"),
}
KINDS: Final[tuple[type[Message], ...]] = (Bits, Grid, Block, Note)

Mode = Literal["named", "anybody", "quorum", "tasks", "some"]
"""How messages of a step are received: by name, in order of arrival, a quorum before the others, by
one task for each peer, or a quorum whose others stay unread."""


class Passing(NamedTuple):
    """A message of a step."""

    sender: str
    receiver: str
    carrier: type[Message]
    dtype: str = ""
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.sender}→{self.receiver} {self.carrier.__name__}{self.dtype}{self.shape}"


@dataclass(frozen=True, slots=True)
class Step:
    """A step: at most one message from each party to each other one.

    Attributes:
        equal: Whether each sender sends one message to all its receivers.
        pauses: The seconds that some parties wait first.
    """

    passings: tuple[Passing, ...]
    mode: Mode = "named"
    equal: bool = False
    pauses: Mapping[str, float] | None = None

    def __str__(self) -> str:
        said = "; ".join(map(str, self.passings))
        return f"{self.mode}{' equal' if self.equal else ''} {self.pauses or ''}: {said}"


class Mishap(NamedTuple):
    """The end of a party before a step, or of its connection with its first peer.

    All others have acknowledged its messages by then.
    """

    what: Literal["crash", "goodbye", "reset", "raise", "accuse", "leave"]
    party: str
    place: int
    tolerated: bool = False


@dataclass(frozen=True)
class Program:
    """A protocol.

    Attributes:
        steps: The steps, without those at the end.
        setup: The number of steps that are set-up.
        votes: The number of votes that each party waits for at the end, or none.
    """

    parties: tuple[str, ...]
    steps: tuple[Step, ...]
    setup: int = 0
    votes: int = 0

    @cached_property
    def whole(self) -> tuple[Step, ...]:
        """All steps."""
        everybody = tuple(_pairs(self.parties, self.parties, Done))
        votes = (Step(everybody, "some"),) if self.votes else ()
        return (*self.steps, Step(everybody), Step(everybody, "anybody"), *votes)

    @cached_property
    def rounds(self) -> tuple[Mapping[str, int], ...]:
        """The round of the messages of each sender in each step, 0 and less in the set-up."""
        rounds: list[Mapping[str, int]] = []
        for first, last in ((0, self.setup), (self.setup, len(self.whole))):
            reached, part = dict.fromkeys(self.parties, 0), list[dict[str, int]]()
            for step in self.whole[first:last]:
                part.append({each.sender: reached[each.sender] + 1 for each in step.passings})
                for each in step.passings:
                    reached[each.receiver] = max(reached[each.receiver], part[-1][each.sender])
            # the set-up counts backwards from its last round, which is 0
            last_round = max((n for each in part for n in each.values()), default=0)
            back = 0 if first or not self.setup else last_round
            rounds += [{name: n - back for name, n in each.items()} for each in part]
        return tuple(rounds)

    def without(self, places: range) -> "Program":
        """Return the program without some steps."""
        kept = tuple(step for place, step in enumerate(self.steps) if place not in places)
        early = sum(place < self.setup for place in places)
        return replace(self, steps=kept, setup=self.setup - early)


def _pairs(
    senders: Sequence[str],
    receivers: Sequence[str],
    carrier: type[Message],
    dtype: str = "",
    shape: tuple[int, ...] = (),
) -> list[Passing]:
    return [
        Passing(one, other, carrier, dtype, shape)
        for one in senders
        for other in receivers
        if one != other
    ]


def draw_program(parties: Sequence[str], rng: Generator) -> Program:
    """Draw a program of at most a dozen steps."""
    steps = tuple(_draw_step(parties, rng) for _ in range(int(rng.integers(1, 13))))
    setup = int(rng.integers(0, len(steps))) if rng.random() < 0.4 else 0
    votes = int(rng.integers(1, len(parties))) if rng.random() < 0.3 else 0
    return Program(tuple(parties), steps, setup, votes)


def _draw_step(parties: Sequence[str], rng: Generator) -> Step:
    order = [parties[place] for place in rng.permutation(len(parties))]
    some = order[: int(rng.integers(1, len(order)))]
    match rng.choice(["one", "broadcast", "gather", "all", "swap", "any"]):
        case "one":
            ends = [(order[0], order[1])]
        case "broadcast":
            ends = [(order[0], other) for other in order[1:]]
        case "gather":
            ends = [(other, order[0]) for other in order[1:]]
        case "all":
            ends = [(one, other) for one in order for other in order if one != other]
        case "swap":
            ends = [(one, other) for one in some for other in order if one != other]
            ends += [(other, one) for one, other in ends if other not in some]
        case _:
            ends = [(a, b) for a in order for b in order if a != b and rng.random() < 0.3]
    modes: list[Mode] = ["named", "anybody", "quorum", "tasks"]
    equal = bool(rng.random() < 0.3)
    drawn = {one: _draw_content(rng) for one, _ in ends} if equal else {}
    passings = tuple(Passing(a, b, *(drawn[a] if equal else _draw_content(rng))) for a, b in ends)
    mode = modes[int(rng.choice(len(modes), p=[0.4, 0.3, 0.2, 0.1]))]
    pauses = {name: float(rng.uniform(0.0, 0.002)) for name in order if rng.random() < 0.1}
    return Step(passings, mode, equal, pauses)


def _draw_content(rng: Generator) -> tuple[type[Message], str, tuple[int, ...]]:
    carriers = list(CARRIERS.items())
    place = int(rng.integers(len(carriers) + 1))
    if place == len(carriers):
        return Note, "", (int(rng.integers(40)),)
    carrier, dtypes = carriers[place]
    sizes = rng.integers(0, _SIZE_MAX, place + 1).tolist()
    if rng.random() < _LARGE_SHARE:
        sizes[0] = _MANY
    return carrier, str(rng.choice(dtypes)), tuple(sizes)


async def play(
    party: Party,
    *,
    program: Program,
    mishap: Mishap | None = None,
    end: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Play a program, and return a hash of all messages received.

    Args:
        mishap: The end of one party before the others.
        end: A function that ends the process of this party.
    """
    return await _Player(party, program, mishap, end).play()


class _Player:
    """One party's part in a program."""

    def __init__(
        self,
        party: Party,
        program: Program,
        mishap: Mishap | None,
        end: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._party, self._program = party, program
        self._mishap, self._end = mishap, end
        self._digest = b""
        self._heard: dict[str, bytes] = {}
        if mishap is not None and mishap.tolerated:
            party.tolerate_losses()

    async def play(self) -> str:
        for place, step in enumerate(self._program.whole):
            if self._mishap is not None and place == self._mishap.place:
                await self._meet(self._mishap)
                if self._mishap == ("leave", self._party.me, place, False):
                    return "left"
            await self._take_part(place, step)
        return self._digest.hex()

    async def _meet(self, mishap: Mishap) -> None:
        if self._party.me == mishap.party:
            for peer in self._party.peers:
                await self._party.receive(Done, sender=peer)
            await self._end_early(mishap.what)
            if mishap.what == "reset":
                await self._miss(self._party.peers[0])
            return
        # the party receives the first, and ends before the second
        for _ in range(1 if mishap.what == "reset" else 2):
            await self._party.send(mishap.party, Done(digest=self._digest))
        if mishap.what == "goodbye":
            last = await self._party.receive(Done, sender=mishap.party)
            self._digest = hashlib.sha256(self._digest + last.digest).digest()
        if mishap.tolerated and (mishap.what != "reset" or self._is_first_peer_of(mishap.party)):
            await self._miss(mishap.party)

    def _is_first_peer_of(self, party: str) -> bool:
        return self._party.me == next(name for name in self._party.parties if name != party)

    async def _miss(self, peer: str) -> None:
        with suppress(PeerLost):
            await self._party.receive(Done, sender=peer)
            raise AssertionError("a lost party sent a message")

    async def _end_early(self, what: str) -> None:
        match what:
            case "raise":
                raise ZeroDivisionError
            case "accuse":
                self._party.accuse(ProtocolViolation(self._party.peers[0], "was accused"))
            case "leave":
                self._party.leave_unread()
            case _ if self._end is not None:
                if what == "goodbye":
                    await broadcast(self._party, Done(digest=self._digest))
                await self._end()
                if what != "reset":
                    await self._party.receive(Done, sender=self._party.peers[0])
                    raise AssertionError("a party that has ended received a message")

    async def _take_part(self, place: int, step: Step) -> None:
        me, rounds = self._party.me, self._program.rounds[place]
        if (seconds := (step.pauses or {}).get(me)) is not None:
            await asyncio.sleep(seconds)
        if place >= self._program.setup and me in rounds:
            self._party.round(rounds[me])
        sends = [each for each in step.passings if each.sender == me]
        receives = [each for each in step.passings if each.receiver == me]
        messages = self._written(sends, equal=step.equal)
        if step.mode == "tasks":
            peers = {each.receiver for each in sends} | {each.sender for each in receives}
            await asyncio.gather(
                *(self._swap(peer, messages, receives, rounds) for peer in sorted(peers))
            )
        else:
            await self._send(messages, equal=step.equal)
            await self._receive(step.mode, receives, rounds)
        for sender in sorted(self._heard):
            self._digest = hashlib.sha256(self._digest + self._heard[sender]).digest()
        self._heard.clear()

    def _written(self, sends: Sequence[Passing], *, equal: bool) -> dict[str, Message]:
        if equal and sends:
            return dict.fromkeys((each.receiver for each in sends), self._write(sends[0]))
        return {each.receiver: self._write(each) for each in sends}

    def _write(self, passing: Passing) -> Message:
        if passing.carrier is Done:
            return Done(digest=self._digest)
        seed = hashlib.shake_256(self._digest + self._party.rng.bytes(8))
        if passing.carrier is Note:
            raw = seed.digest(passing.shape[0])
            return Note(text=raw.hex(), number=len(raw) - 20, raw=raw)
        dtype = np.dtype(passing.dtype)
        raw = seed.digest(int(np.prod(passing.shape)) * dtype.itemsize)
        values = np.frombuffer(raw, np.uint8)
        values = values % 2 == 1 if dtype.kind == "b" else values.view(dtype)
        carrier: Any = passing.carrier
        return cast("Message", carrier(values=values.reshape(passing.shape)))

    async def _send(self, messages: Mapping[str, Message], *, equal: bool) -> None:
        if equal and messages and self._mishap is None:
            await broadcast(self._party, next(iter(messages.values())), to=messages)
            return
        for receiver, message in messages.items():
            with suppress(*self._suffered):
                await self._party.send(receiver, message)

    @property
    def _suffered(self) -> tuple[type[PeerLost], ...]:
        tolerates = self._mishap is not None and self._mishap.tolerated
        return (PeerLost,) if tolerates else ()

    async def _receive(
        self, mode: Mode, receives: Sequence[Passing], rounds: Mapping[str, int]
    ) -> None:
        if mode == "some":
            self._party.leave_unread()
            votes = min(self._program.votes, len(receives))
            await receive_quorum(self._party, Done, votes)
            return
        if mode == "named":
            for each in receives:
                await self._hear(each, rounds)
            return
        kinds = tuple({each.carrier: None for each in receives})
        left = [each.sender for each in receives]
        with suppress(*self._suffered):
            if mode == "quorum":
                first = await receive_quorum(self._party, kinds, len(left) // 2, senders=left)
                for sender, message in first.items():
                    self._keep(sender, message)
                    left.remove(sender)
            while left:
                sender, message = await self._party.receive_any(kinds, senders=left)
                self._keep(sender, message)
                left.remove(sender)

    async def _swap(
        self,
        peer: str,
        messages: Mapping[str, Message],
        receives: Sequence[Passing],
        rounds: Mapping[str, int],
    ) -> None:
        await self._send(
            {name: each for name, each in messages.items() if name == peer}, equal=False
        )
        for each in receives:
            if each.sender == peer:
                await self._hear(each, rounds)

    async def _hear(self, passing: Passing, rounds: Mapping[str, int]) -> None:
        sender = passing.sender
        with suppress(*self._suffered):
            message = await self._party.receive(passing.carrier, sender=sender, due=rounds[sender])
            self._keep(sender, message)

    def _keep(self, sender: str, message: Message) -> None:
        said = hashlib.sha256(f"{sender} {message.kind}".encode())
        for value in message.fields():
            array = np.asarray(value) if isinstance(value, np.ndarray) else None
            text = repr(value) if array is None else f"{array.dtype.str} {array.shape}"
            said.update(text.encode() + (b"" if array is None else array.tobytes()))
        self._heard[sender] = said.digest()
