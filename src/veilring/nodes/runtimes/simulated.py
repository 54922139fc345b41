"""The simulated runtime: all parties on one simulated clock, with links, faults and machines."""

import asyncio
import contextvars
import math
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import thread_time
from typing import Any, ClassVar, Final, Literal, TypeVar, cast

from typing_extensions import override

from veilring.errors import ClusterError, Deadlock, EndpointClosed, InputError, PeerLost
from veilring.nodes.journal import Mark
from veilring.nodes.node import Node
from veilring.nodes.party import ForwardingParty, OneOf, Parties, Party
from veilring.nodes.run import Job, Outcome, forget_frames
from veilring.nodes.runtimes.tasks import TasksRuntime, play_job
from veilring.nodes.session import Session
from veilring.pairs import SHARED
from veilring.randomness import Streams
from veilring.simulation.clocks import OWN_CLOCK, Clock
from veilring.simulation.faults import KEEPALIVE_SECONDS, Fault, conditions_of
from veilring.simulation.links import NetworkConditions
from veilring.simulation.loop import EACH_TASK, SimulatedLoop, running_environment, wait_event
from veilring.simulation.network import SimulatedNetwork, Topology
from veilring.transport.endpoint import Endpoint
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)
_R = TypeVar("_R")
Compute = float | Literal["measured"]
"""The time that roles take: seconds for each call, or measured."""

# A day is far more than any protocol takes on the slowest links, and a role that asks for the time
# once a second without end computes for about a second until then.
SIMULATED_SECONDS: Final = 86_400.0


_CLOCKS: Final = ("skew", "jump")
"""The faults of clocks. They are no events: a deadlock is found without waiting for them."""


class Simulated(TasksRuntime):
    """All parties in the simulation; run the caller with `veilring.simulation.simulate`.

    A run in which every party waits ends at once. Any other ends after its time limit, by default
    `SIMULATED_SECONDS` of simulated time.

    Args:
        topology: The links between the parties; by default all are equal and instantaneous.
        faults: The faults; their times count from the start of the cluster.
        compute: The time that roles take: seconds for each call of `send` and `receive` and for the
            end, or the processor time that the tasks of the role take here, `measured`. A
            simulation with measured times has no replay.
    """

    session_seconds: ClassVar[float | None] = None  # a deadlock ends a run at once

    def __init__(
        self,
        topology: Topology | None = None,
        faults: Sequence[Fault] = (),
        *,
        compute: Compute = 0.0,
    ) -> None:
        super().__init__()
        is_number = isinstance(compute, int | float) and not isinstance(compute, bool)
        if compute != "measured" and not (is_number and 0 <= compute < math.inf):
            raise InputError("compute", compute, 'seconds of at least 0, or "measured"')
        self._compute = compute
        self._topology = topology
        self._faults = tuple(faults)
        self._started = 0.0
        self._conditions = NetworkConditions()
        self._streams = Streams(0)
        self._network: SimulatedNetwork | None = None
        self._clocks: dict[str, Clock] = {}
        self._shared: dict[Hashable, bytes] = {}
        self._skews: list[Fault] = []
        """The faults of clocks that strike now."""
        self._loop: SimulatedLoop
        self._forgetful: set[str] = set()
        self.crashed: set[str] = set()
        """The parties that are currently absent."""

    @property
    def struck(self) -> tuple[Fault, ...]:
        """The faults that have had an effect so far: a message or a party met them."""
        met = self._conditions.met
        return tuple(fault for cause, fault in enumerate(self._faults) if cause in met)

    @property
    @override
    def marks(self) -> tuple[Mark, ...]:
        return tuple(
            Mark(self._started + fault.start, party, f"fault: {fault.kind}", until)
            for fault in self.struck
            for until in (self._started + fault.end if fault.end < math.inf else None,)
            for party in fault.parties
        )

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            advice = "veilring.simulation.simulate"
            raise ClusterError(f"runtime=simulated needs the simulated clock: {advice}")
        self._loop = loop
        loop.at_deadlock(self._release)
        self._streams, self._started = streams, loop.time()
        self._conditions = conditions_of(self._faults, parties, streams.generator("jitter"))
        self._network = network = SimulatedNetwork(
            parties, streams, topology=self._topology, conditions=self._conditions
        )
        turned = (fault.parties for fault in self._faults if fault.kind in _CLOCKS)
        self._clocks = {name: Clock(loop.environment) for names in turned for name in names}
        for cause, fault in enumerate(self._faults):
            for seconds, strike in self._strikes(cause, fault):
                struck = partial(self._strike, cause, strike)
                if fault.kind == "mid-send" and not seconds:
                    struck()  # a timer would end after the first step of the parties
                    continue
                begin = loop.limit if fault.kind in _CLOCKS else loop.call_later
                begin(seconds, struck)
        return [network.endpoint(name) for name in parties]

    def _sessions(self, name: bytes | None = None) -> list[Session]:
        every = (each for node in self._nodes.values() for each in node.open_sessions)
        return [each for each in every if name is None or each.session == name]

    def _release(self) -> bool:
        """End each session with the waits of its parties; return whether there was any."""
        waits: dict[bytes, list[str]] = {}
        for each in self._sessions():
            waited = each.standing().sentences() or [f"{each.me} is waiting for no message"]
            waits.setdefault(each.session, []).extend(waited)
        stuck = {name: Deadlock(tuple(sentences)) for name, sentences in waits.items()}
        released = [each.interrupt(stuck[each.session]) for each in self._sessions()]
        return any(released)

    def _expire(self, name: bytes, seconds: float) -> None:
        for each in self._sessions(name):
            each.expire(seconds)

    def _strikes(self, cause: int, fault: Fault) -> list[tuple[float, Callable[[], bool]]]:
        """Return the times and actions of a fault; each action returns whether it had an effect."""
        party, start, end = fault.parties[0], fault.start, fault.end
        strikes: list[tuple[float, Callable[[], bool]]] = []
        match fault.kind:
            case "crash":
                strikes = [(start, lambda: self._crash(party))]
            case "mid-send":
                later = partial(self._crash_later, cause, party, int(fault.strength))
                strikes = [(start, later)]
            case "skew":
                turn = partial(self._turn_clock, cause, fault)
                strikes = [(start, turn), (end, partial(turn, ends=True))]
            case "jump":
                strikes = [(start, partial(self._turn_clock, cause, fault))]
            case "restart" | "amnesia":
                back = partial(self._restart, party, forgetful=fault.kind == "amnesia")
                strikes = [(start, lambda: self._crash(party)), (end, back)]
            case "reset" | "half-open":
                other = fault.parties[1]
                patience = KEEPALIVE_SECONDS if fault.kind == "half-open" else 0.0
                noticed = min(end, start + patience)
                strikes = [
                    (start, lambda: self._break(party, other)),
                    (noticed, lambda: self._notice(other, party)),
                    (end, lambda: self._mend(party, other)),
                ]
        return strikes

    def _strike(self, cause: int, strike: Callable[[], bool]) -> None:
        if self._network is not None and strike():
            self._conditions.met.add(cause)

    def _turn_clock(self, cause: int, fault: Fault, *, ends: bool = False) -> bool:
        """Set the rate of clocks, or let them jump; the fault strikes when that is seen."""
        if ends:
            self._skews.remove(fault)
        elif fault.kind == "skew":
            self._skews.append(fault)
        jump = fault.strength if fault.kind == "jump" else 0.0
        noticed = partial(self._conditions.met.add, cause)
        for party in fault.parties:
            rates = [1.0 / each.strength for each in self._skews if party in each.parties]
            # A clock has one rate: that of the latest fault.
            self._clocks[party].change(noticed, rate=rates[-1] if rates else 1.0, jump=jump)
        return False

    def _crash(self, party: str) -> bool:
        if party in self.crashed or party not in self._nodes:
            return False
        self.crashed.add(party)
        self._nodes[party].abort()
        return True

    def _crash_later(self, cause: int, party: str, sends: int) -> bool:
        """Let a party crash after it has sent some more messages."""
        if self._network is not None:
            crash = partial(self._strike, cause, lambda: self._crash(party))
            self._network.endpoint(party).after_sends(sends, crash)
        return False

    def _restart(self, party: str, *, forgetful: bool = False) -> bool:
        if party not in self.crashed or self._network is None:
            return False
        self.crashed.remove(party)
        if forgetful and party in self._resident:
            self._forgetful.add(party)
            self._resident = {name: own for name, own in self._resident.items() if name != party}
        node = self._nodes[party] = Node(self._network.revive(party), self._streams)
        node.start()
        return True

    def _break(self, party: str, other: str) -> bool:
        if self._network is None or {party, other} & self.crashed:
            return False
        self._network.break_connection(party, other)
        return True

    def _notice(self, party: str, other: str) -> bool:
        if self._network is None or party in self.crashed:
            return False
        self._network.endpoint(party).lose(PeerLost(other))
        return True

    def _mend(self, party: str, other: str) -> bool:
        if self._network is not None:
            self._network.mend_connection(party, other)
        return False

    @override
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        struck = {name: self._struck_job(name, job) for name, job in jobs.items()}
        limits = [
            self._loop.limit(seconds, partial(self._expire, session, seconds))
            for session, seconds in {job.session: self._limit(job) for job in jobs.values()}.items()
        ]
        sharing = SHARED.set(None if self._compute == "measured" else self._shared)
        try:
            return [_as_seen_from_outside(outcome) for outcome in await super().play(struck)]
        finally:
            SHARED.reset(sharing)
            for limit in limits:
                limit.cancel()

    def _limit(self, job: Job) -> float:
        """Return the limit that need not pass before a deadlock is found.

        A fault may lose a message: as in reality, a wait for it then ends with the limit that the
        job gives to each party.
        """
        return SIMULATED_SECONDS if job.seconds is None or self._faults else job.seconds

    def _struck_job(self, name: str, job: Job) -> Job:
        if name in self._forgetful and not job.given:
            return job._replace(role=_without_data, public={})
        if self._compute:
            job = job._replace(role=computing(job.role, self._compute))
        return job if self._faults else job._replace(seconds=None)

    @override
    def _watching(self, jobs: Iterable[Job]) -> AbstractContextManager[None]:
        return nullcontext()  # `simulate` watches the loop

    @override
    def _begin(self, name: str, job: Job) -> asyncio.Task[Outcome]:
        environment = self._loop.environment
        playing = play_job(self._nodes[name], job, self._own(name), lambda: environment.now)
        context = contextvars.copy_context()
        if name in self._clocks:
            context.run(OWN_CLOCK.set, self._clocks[name])
        return self._loop.create_task(playing, name=name, context=context)

    @override
    async def stop(self) -> None:
        if self._network is not None:
            self._network.shut_down()  # n parties need not receive n goodbyes each
            self._network = None
        await super().stop()


def _as_seen_from_outside(outcome: Outcome) -> Outcome:
    """Report a crashed party as lost, as the launcher of its process would."""
    if isinstance(outcome.error, EndpointClosed):
        forget_frames(outcome.error)
        return outcome._replace(error=PeerLost(outcome.party))
    return outcome


async def _without_data(party: Party) -> None:
    """Play the part of a party that returned without its data."""
    raise ClusterError(f"{party.me} restarted without its data")


class _Computing(ForwardingParty):
    """A party whose role takes time: what it has computed is paid before its next call."""

    def __init__(self, party: Party, owed: Callable[[], float]) -> None:
        super().__init__(party)
        self._owed = owed
        self._processor = asyncio.Lock()

    async def pay(self) -> None:
        """Let the owed time pass; one task of the party computes at a time."""
        async with self._processor:
            await wait_event(running_environment().timeout(self._owed()))

    @override
    async def send(self, to: str, message: Message) -> None:
        await self.pay()
        await super().send(to, message)

    @override
    async def receive(self, message_type: type[_M], *, sender: str, due: int | None = None) -> _M:
        await self.pay()
        return await super().receive(message_type, sender=sender, due=due)

    @override
    async def receive_any(
        self, types: OneOf[_M], *, senders: Iterable[str] | None = None, needed: int = 1
    ) -> tuple[str, _M]:
        await self.pay()
        return await super().receive_any(types, senders=senders, needed=needed)


class _Stopwatch:
    """The processor time of a party's tasks while they run, since it was last read."""

    def __init__(self) -> None:
        self._owed = 0.0
        self._since: float | None = None

    def read(self) -> float:
        """Return the time, and begin at 0 again."""
        owed, self._owed = self._owed, 0.0
        if self._since is not None:
            now = thread_time()
            owed, self._since = owed + now - self._since, now
        return owed

    def run(self, step: Callable[..., _R], *given: Any) -> _R:
        """Run a step of a task, and measure it."""
        self._since = thread_time()
        try:
            return step(*given)
        finally:
            self._owed += thread_time() - self._since
            self._since = None

    def measure(self, playing: Coroutine[Any, Any, _R]) -> "_Measured[_R]":
        """Return a coroutine each of whose steps is measured."""
        return _Measured(self, playing)


class _Measured(Coroutine[Any, Any, _R]):
    """A coroutine whose steps a stopwatch measures, also those of the tasks that it starts."""

    def __init__(self, watch: _Stopwatch, playing: Coroutine[Any, Any, _R]) -> None:
        self._watch, self._playing = watch, playing

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (its name and frames, for errors)
        return getattr(self._playing, name)

    def __next__(self) -> Any:  # noqa: ANN401  (what asyncio passes on)
        return self.send(None)

    @override
    def send(self, value: Any, /) -> Any:
        return self._watch.run(self._playing.send, value)

    @override
    def throw(self, *error: Any) -> Any:
        return self._watch.run(self._playing.throw, *error)

    @override
    def close(self) -> None:
        self._playing.close()

    @override
    def __await__(self) -> Generator[Any, Any, _R]:
        return cast("Generator[Any, Any, _R]", self)


def computing(role: Callable[..., Awaitable[_R]], compute: Compute) -> Callable[..., Awaitable[_R]]:
    """Return a role that takes time."""

    async def play(party: Party, *given: object, **public: object) -> _R:
        watch = _Stopwatch()
        machine = _Computing(party, watch.read if compute == "measured" else lambda: compute)

        async def as_coroutine() -> _R:
            return await role(machine, *given, **public)

        if compute == "measured":
            EACH_TASK.set(watch.measure)
        playing = as_coroutine()
        result = await (watch.measure(playing) if compute == "measured" else playing)
        await machine.pay()
        return result

    return play
