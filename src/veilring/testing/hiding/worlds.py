"""Many runs of one protocol in one process, for audits: the views of a coalition, and the results.

A world is a protocol with its inputs. Its runs share no session, key, coin or noise. Messages are
encoded, measured and decoded as on any transport, but go from party to party without one, so a run
takes a fraction of its time on a `Cluster`. Time is simulated and passes only where a role sleeps.

A world records the random draws of a coalition's members. A member knows its own and can subtract
them from whatever contains them: a number that it added to a total, or a mask of its own.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import BitGenerator, Generator
from typing_extensions import override

from veilring.errors import InputError, ProtocolViolation, VeilringError
from veilring.nodes.journal import SETUP_ROUND, Seen, View
from veilring.nodes.party import OneOf, Parties, Party, expected_kinds
from veilring.privacy.checks import require
from veilring.protocols.masks import (
    KEY_BYTES,
    KeyPair,
    MaskedWords,
    MaskKey,
    PairwiseKeys,
    Words,
    derive_secret,
)
from veilring.randomness import Streams
from veilring.testing.hiding.leaves import Block, Place
from veilring.transport.frames import frame_size
from veilring.transport.messages import Message, decode, encode

DRAWS_MAX: Final = 8
"""The number of draws of a member that are recorded: coordinates share the rate of false alarms."""
_NUMERIC: Final = "biuf"
# Keys are drawn as bytes, and `stripping` removes the masks that are derived from them.
_NOT_NUMBERS: Final = frozenset({"bytes", "shuffle", "spawn"})


class RecordingGenerator(Generator):
    """A generator that keeps a copy of the numbers that it draws, call by call.

    Args:
        bit_generator: The source of randomness; its stream is the same as without a record.
    """

    def __init__(self, bit_generator: BitGenerator) -> None:
        super().__init__(bit_generator)
        self.drawn: list[object] = []
        self._is_drawing = False


def _recorded(draw: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(draw)
    def record(self: RecordingGenerator, *args: Any, **options: Any) -> object:
        if self._is_drawing:  # NumPy's methods call one another; only the caller's result counts
            return draw(self, *args, **options)
        self._is_drawing = True
        try:
            result = draw(self, *args, **options)
        finally:
            self._is_drawing = False
        if len(self.drawn) < DRAWS_MAX and np.asarray(result).dtype.kind in _NUMERIC:
            self.drawn.append(np.copy(result))
        return result

    return record


for _name, _draw in vars(Generator).items():
    if callable(_draw) and not _name.startswith("_") and _name not in _NOT_NUMBERS:
        setattr(RecordingGenerator, _name, _recorded(_draw))


def subtract_draws(
    targets: Mapping[Place, Block], draws: Mapping[str, Sequence[Block]]
) -> Iterator[tuple[Place, Block]]:
    """Yield numbers of the view minus each draw of the members, and minus sums of their draws."""
    for name, known in _subtrahends(draws):
        for place, block in targets.items():
            if block.is_like(known):
                where = f"{place.message} minus {name}"
                yield Place(where, place.field, place.slot, is_combined=True), block.minus(known)


def _subtrahends(draws: Mapping[str, Sequence[Block]]) -> Iterator[tuple[str, Block]]:
    """Yield each draw, then the sums of the members' draws of one number and of all draws."""
    for member, drawn in draws.items():
        for number, block in enumerate(drawn, start=1):
            yield f"draw {number} of {member}", block
    if len(draws) > 1:
        for number, together in enumerate(zip(*draws.values(), strict=False), start=1):
            yield from _sum(f"draw {number} of all members", together)
    if any(len(drawn) > 1 for drawn in draws.values()):
        yield from _sum(
            "all draws of the members", [each for own in draws.values() for each in own]
        )


def _sum(name: str, blocks: Sequence[Block]) -> Iterator[tuple[str, Block]]:
    first, *others = blocks
    if all(first.is_like(other) for other in others):
        for other in others:
            first = first.plus(other)
        yield name, first


_M = TypeVar("_M", bound=Message)
Role = Callable[..., Awaitable[Any]]
Inputs = Sequence[object] | Mapping[str, object] | Callable[[Generator], Sequence[object]]
"""Each party's private input, in order or by name; or a function that makes those of each run."""
# A loop keeps what its tasks leave behind until it ends, so batches bound the memory use.
RUNS_AT_ONCE: Final = 1_000


class Arrival(NamedTuple):
    """The metadata of a message that a member of the coalition observes."""

    seconds: float
    """The time at which it was sent or arrived, in simulated seconds since the run began."""
    bytes: int
    """The size of its frame."""
    number: int
    """The number of messages that the member had sent, or received, before it."""
    tick: int
    """The time on a clock that all parties read, which advances with each message of the run."""


@dataclass(slots=True)
class MemberView(View):
    """The messages that one member of the coalition saw in a run, and its random draws.

    Attributes:
        session: The public name of the run.
        received_at: The metadata of each received message.
        sent_at: The metadata of each sent message.
    """

    own: object = None
    result: object = None
    session: bytes = b""
    parties: Parties = field(default_factory=lambda: Parties(()))
    received_at: list[Arrival] = field(default_factory=list)
    sent_at: list[Arrival] = field(default_factory=list)
    _coins: "Coins | None" = None

    @property
    def drawn(self) -> Sequence[object]:
        """The first numbers and arrays that the member drew, up to `DRAWS_MAX`."""
        return () if self._coins is None else self._coins.generator.drawn

    def coins(self) -> Generator:
        """Return the member's randomness of the run, from its beginning.

        Raises:
            InputError: If the view does not come from a run of the role.
        """
        if self._coins is None:
            raise InputError.because("a simulator's view has no coins", field="view")
        return self._coins.again()


class Played(NamedTuple):
    """One run of a world."""

    inputs: Mapping[str, object]
    """Each party's input."""
    views: Mapping[str, MemberView]
    """The view of each member of the coalition."""
    results: Mapping[str, object]
    """The result of each party's role."""


class Coins:
    """The randomness of one party in one run: a section of the party's stream."""

    def __init__(self, generator: Generator) -> None:
        self.generator = RecordingGenerator(generator.bit_generator)
        self._bits, self._state = generator.bit_generator, generator.bit_generator.state

    def again(self) -> Generator:
        """Return a generator that repeats these draws."""
        bits = type(self._bits)()
        bits.state = self._state
        return Generator(bits)


@dataclass(frozen=True, slots=True)
class World:
    """A protocol with its inputs."""

    role: Role
    inputs: Inputs
    parties: Parties
    coalition: tuple[str, ...]
    public: Mapping[str, object] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an invalid coalition."""
        members, names = frozenset(self.coalition), ", ".join(self.parties)
        for name in (*self.coalition, *self.only):
            require(name in self.parties, "coalition", name, f"some of {names}")
        if not members or len(members) == len(self.parties):
            allowed = f"at least one of {names}, and not all of them"
            raise InputError("coalition", ", ".join(self.coalition), allowed)

    def draw_inputs(self, rng: Generator) -> dict[str, object]:
        """Return the inputs of a run by party."""
        given = self.inputs(rng) if callable(self.inputs) else self.inputs
        if isinstance(given, Mapping):
            given = [given[name] for name in self.parties if name in given]
        if len(given) != len(self.parties):
            raise InputError.because(
                f"there are {len(given)} inputs for {len(self.parties)} parties", field="inputs"
            )
        return dict(zip(self.parties, given, strict=True))


def name_parties(inputs: Inputs, parties: int | Sequence[str] | None) -> Parties:
    """Return the named parties of a world, or one party for each input."""
    if isinstance(parties, int):
        return Parties(f"party-{number}" for number in range(parties))
    if parties is not None:
        return Parties(parties)
    if callable(inputs):
        raise InputError.because(
            "the inputs are made for each run; give the parties or their number", field="parties"
        )
    if isinstance(inputs, Mapping):
        return Parties(inputs)
    return name_parties(inputs, len(inputs))


def play_world(world: World, runs: int, streams: Streams, name: str = "") -> Iterator[Played]:
    """Run a world the given number of times, each with fresh keys and coins.

    An error of a run is raised, since an audit needs a protocol that works.
    """
    from veilring.simulation.loop import complete  # noqa: PLC0415  (an extra)
    from veilring.testing.exploring.worlds import simulate_explored  # noqa: PLC0415  (an extra)

    drawn = streams.generator("inputs", name)
    coins = {party: streams.generator("coins", name, "party", party) for party in world.parties}
    for first in range(0, runs, RUNS_AT_ONCE):
        sessions = [
            streams.token("session", name, number)
            for number in range(first, min(first + RUNS_AT_ONCE, runs))
        ]

        async def play(sessions: list[bytes] = sessions) -> list[Played]:
            return [
                await _play_once(world, world.draw_inputs(drawn), session, coins)
                for session in sessions
            ]

        yield from complete(play, simulate_explored)


async def _play_once(
    world: World, inputs: Mapping[str, object], session: bytes, coins: Mapping[str, Generator]
) -> Played:
    network: dict[str, _DirectParty] = {}
    ticks = count()
    for name in world.parties:
        view, rng = None, coins[name]
        if name in world.coalition:
            kept = Coins(rng)
            rng = kept.generator
            view = MemberView(name, own=inputs[name], session=session, parties=world.parties)
            view._coins = kept  # noqa: SLF001  (the view is made here)
        network[name] = _DirectParty(name, world.parties, session, rng, network, ticks, view)
    played = [
        world.role(party, inputs[name], **world.public, **world.only.get(name, {}))
        for name, party in network.items()
    ]
    results = dict(zip(network, await asyncio.gather(*played), strict=True))
    for party in network.values():
        party.finish()
    views = {name: network[name].view for name in world.coalition}
    for name, view in views.items():
        view.result = results[name]
    return Played(inputs, views, results)


class _DirectParty(Party):
    """A participant whose messages go straight into its peers' inboxes."""

    def __init__(  # noqa: PLR0917  (a participant, and its place)
        self,
        name: str,
        parties: Parties,
        session: bytes,
        rng: Generator,
        network: "Mapping[str, _DirectParty]",
        ticks: Iterator[int],
        view: MemberView | None,
    ) -> None:
        self.me, self.parties, self.session, self._rng = name, parties, session, rng
        self._network, self._ticks, self._view = network, ticks, view
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._round = SETUP_ROUND
        self._last: tuple[bytes, Message] = (b"", Message())
        self._passed = 0
        self._unread: dict[str, deque[tuple[Message, Arrival]]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._leaves_unread = False

    @property
    @override
    def rng(self) -> Generator:
        return self._rng

    @property
    def view(self) -> MemberView:
        """The view of a member."""
        if self._view is None:
            raise InputError("coalition", self.me, "a member")
        return self._view

    @override
    def round(self, number: int) -> None:
        self._round = number

    @override
    async def send(self, to: str, message: Message) -> None:
        receiver = self._network.get(to)
        if receiver is None or receiver is self:
            raise InputError("to", to, "a peer of this session")
        frame = encode(self.session, message)
        if frame != self._last[0]:  # a broadcast is decoded once: arrays that arrive are read-only
            self._last = (frame, decode(frame)[1])
        arrived, size = self._last[1], frame_size(frame)
        if self._view is not None:
            self._view.sent.append(Seen(self._round, to, arrived))
            self._view.sent_at.append(self._note(size))
        receiver.deliver(self.me, arrived, size)

    def deliver(self, sender: str, message: Message, size: int) -> None:
        """Add a message from a peer to the inbox."""
        inbox = self._unread.get(sender)
        if inbox is None:
            inbox = self._unread[sender] = deque()
        inbox.append((message, self._note(size)))
        waiting = self._waiting.pop(sender, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _note(self, size: int) -> Arrival:
        self._passed += 1
        seconds = self._clock() - self._began
        return Arrival(seconds, size, self._passed - 1, next(self._ticks))

    @override
    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        if sender == self.me or sender not in self.parties:
            raise InputError("sender", sender, "a peer of this session")
        return (await self.receive_any(message_type, senders=(sender,)))[1]

    @override
    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        among = self.peers if senders is None else tuple(senders)
        for name in among:
            if name == self.me or name not in self.parties:
                raise InputError("senders", name, "a peer of this session")
        while not (unread := [name for name in among if self._unread.get(name)]):
            if taken := [name for name in among if name in self._waiting]:
                said = f"another task is already waiting for a message from {taken[0]}"
                raise InputError.because(said, field="senders")
            waiting = asyncio.get_running_loop().create_future()
            self._waiting |= dict.fromkeys(among, waiting)
            try:
                await waiting
            finally:
                self._waiting = {n: w for n, w in self._waiting.items() if w is not waiting}
        sender = min(unread, key=lambda name: self._unread[name][0][1].tick)
        message, arrival = self._unread[sender].popleft()
        if not isinstance(message, types):
            expected = f"sent {message.kind} where {expected_kinds(types)} was expected"
            raise ProtocolViolation(sender, expected)
        if self._view is not None:
            self._view.received.append(Seen(self._round, sender, message))
            self._view.received_at.append(arrival)
        return sender, message

    @override
    def leave_unread(self) -> None:
        self._leaves_unread = True

    @override
    def accuse(self, error: VeilringError) -> None:
        raise error

    @override
    def tolerate_losses(self) -> None:
        """Do nothing, because no party is lost in these worlds."""

    @override
    def give_up(self, peer: str) -> None:
        raise InputError.because(
            f"{peer} cannot be given up: no party is lost in these worlds", field="peer"
        )

    def finish(self) -> None:
        """Blame unread messages on their sender, as a session does."""
        for sender, inbox in self._unread.items():
            if inbox and not self._leaves_unread:
                extra = f"sent {inbox[0][0].kind}, which was not due"
                raise ProtocolViolation(sender, extra)


def strip_masks(views: Mapping[str, MemberView]) -> dict[str, Words]:
    """Return each honest party's masked words minus the masks that it shares with members.

    Use it for roles that draw their key first, as `masked_sum` does: pass it to `assert_hides` as
    `strip`.
    """
    secrets: dict[str, dict[str, bytes]] = {}
    for member, view in views.items():
        own = KeyPair.of(view.coins().bytes(KEY_BYTES))
        for seen in view.received:
            if isinstance(seen.message, MaskKey) and seen.sender not in views:
                ends = (member, own), (seen.sender, seen.message.public)
                keys = secrets.setdefault(seen.sender, {})
                keys[member] = derive_secret(view.session, *ends)
    return {name: words for party in secrets for name, words in _strip(views, party, secrets)}


def _strip(
    views: Mapping[str, MemberView], party: str, secrets: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, Words]]:
    """Return the stripped words of one honest party, as seen by the first member that has them."""
    keys = PairwiseKeys(party, secrets[party])
    for view in views.values():
        masked = [
            seen.message
            for seen in view.received
            if seen.sender == party and isinstance(seen.message, MaskedWords)
        ]
        if masked:
            break
    stripped = []
    for number, message in enumerate(masked, start=1):
        masks = keys.mask([np.zeros_like(array) for array in message.words], message.digest)
        for place, (array, mask) in enumerate(zip(message.words, masks, strict=True)):
            name = f"words[{place}] number {number} of {party}"
            stripped.append((name, np.subtract(array, mask)))
    return stripped
