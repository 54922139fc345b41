"""The interface of runtimes, and those with all parties in one event loop, real or simulated."""

import asyncio
import math
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import ClassVar, Final, NamedTuple

from typing_extensions import override

from veilring.errors import (
    ClusterError,
    Deadlock,
    EndpointClosed,
    InputError,
    PeerLost,
    VeilringError,
)
from veilring.nodes.adversary import corrupt
from veilring.nodes.journal import Mark, Meter, Observer, Transcript, View
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.run import Job, Outcome
from veilring.nodes.session import SESSION_SECONDS, Session
from veilring.randomness import Streams
from veilring.simulation.faults import KEEPALIVE_SECONDS, Fault, conditions_of
from veilring.simulation.links import NetworkConditions
from veilring.simulation.loop import SimulatedLoop
from veilring.simulation.network import SimulatedNetwork, Topology
from veilring.transport.endpoint import Endpoint, MemoryNetwork
from veilring.transport.listener import bind
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint

# The code between a cluster and the lines of a role.
_BETWEEN: Final = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent))


class Runtime(ABC):
    """The place where the parties of a cluster run, from `start` to `stop`."""

    session_seconds: ClassVar[float | None] = SESSION_SECONDS
    """The default time limit of a run."""

    @property
    def marks(self) -> Sequence[Mark]:
        """The faults that have struck so far, in seconds on the clock of the event loop."""
        return ()

    @abstractmethod
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        """Start all parties and connect them; each gets only its own resident data."""

    @abstractmethod
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        """Play one job at each party concurrently, and return all outcomes.

        A job without a private input gets the party's resident data, if there is any.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End all parties completely. May be called twice."""


async def play_job(node: Node, job: Job) -> Outcome:
    """Play a job at a node; any error becomes part of the outcome and is never raised."""
    clock = asyncio.get_running_loop().time
    meter, transcript = Meter(node.name), Transcript(node.name)
    view = View(node.name) if job.watched else None
    observers: list[Observer] = [meter, transcript]
    if view is not None:
        observers.append(view)
    if job.trace is not None:
        observers.append(job.trace.observer(clock))
    result, failure = None, None
    try:
        result = await node.run(
            job.role if job.adversary is None else corrupt(job.role, job.adversary),
            job.session,
            job.parties,
            *job.given,
            observers=observers,
            seconds=job.seconds,
            tolerant=False,
            **job.public,
        )
    except Exception as error:  # noqa: BLE001  (the cluster raises it again)
        _note_lines(error, node.name)
        failure = error
    digests = transcript.digests() if job.adversary is None else {}
    return Outcome(
        node.name,
        result,
        failure,
        meter,
        digests,
        view,
        job.trace,
        ended=clock(),
        standing=node.standings().get(job.session),
    )


def _note_lines(error: Exception, party: str) -> None:
    """Begin the traceback at the role; note its lines if the mistake is there.

    A traceback does not leave a process; a note does.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_BETWEEN):
        trace = trace.tb_next
    if trace is None:
        return
    error.with_traceback(trace)
    if isinstance(error, VeilringError) and not isinstance(error, InputError):
        return  # a peer's fault, or the network's
    lines = [
        f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_qualname}"
        for frame, line in walk_tb(trace)
        if not frame.f_code.co_filename.startswith(_BETWEEN)
    ]
    error.add_note("\n  ".join((f"raised by {party} at", *lines)))


class LocalRoster(NamedTuple):
    """A roster with everything that its parties need to use it."""

    roster: Roster
    identities: dict[str, Identity]
    listeners: dict[str, socket.socket]


def make_local_roster(parties: Sequence[str]) -> LocalRoster:
    """Make a key and a listening socket for each party, and the roster that names them.

    The sockets are listening already, so no port can be lost between choosing and using it, and
    connections to a party that starts late are accepted.
    """
    identities = {name: make_identity(name) for name in parties}
    listeners = {name: bind(LOOPBACK, 0) for name in parties}
    members = [
        Member.of(identities[name], host=LOOPBACK, port=listeners[name].getsockname()[1])
        for name in parties
    ]
    return LocalRoster(Roster(tuple(members)), identities, listeners)


class TasksRuntime(Runtime):
    """Nodes that share this event loop; a subclass defines their connections."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._resident: Mapping[str, object] = {}

    @override
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        self._resident = resident
        for endpoint in await self._connect(parties, streams):
            node = self._nodes[endpoint.name] = Node(endpoint, streams)
            node.start()

    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        raise NotImplementedError

    @override
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        return await asyncio.gather(
            *(play_job(self._nodes[name], self._with_own(name, job)) for name, job in jobs.items())
        )

    def _with_own(self, name: str, job: Job) -> Job:
        if job.given or name not in self._resident:
            return job
        return replace(job, given=(self._resident[name],))

    @override
    async def stop(self) -> None:
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        self._nodes.clear()


class Memory(TasksRuntime):
    """All parties in this process; every message is still encoded, so that byte counts are real."""

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        network = MemoryNetwork(parties)
        return [network.endpoint(name) for name in parties]


class Tls(TasksRuntime):
    """All parties in this process, each with a key of its own, over mutual TLS on loopback."""

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        local = make_local_roster(parties)
        return await asyncio.gather(
            *(
                TlsEndpoint.start(
                    local.identities[name],
                    local.roster,
                    listen=local.listeners[name],
                    streams=streams,
                )
                for name in parties
            )
        )


# A day is far more than any protocol takes on the slowest links, and a role that asks for the time
# once a second without end computes for about a second until then.
SIMULATED_SECONDS: Final = 86_400.0


class Simulated(TasksRuntime):
    """All parties in the simulation; run the caller with `veilring.simulation.simulate`.

    A run in which every party waits ends at once. Any other ends after its time limit, by default
    `SIMULATED_SECONDS` of simulated time.

    Args:
        topology: The links between the parties; by default all are equal and instantaneous.
        faults: The faults; their times count from the start of the cluster.
    """

    session_seconds: ClassVar[float | None] = None  # a deadlock ends a run at once

    def __init__(self, topology: Topology | None = None, faults: Sequence[Fault] = ()) -> None:
        super().__init__()
        self._topology = topology
        self._faults = tuple(faults)
        self._started = 0.0
        self._conditions = NetworkConditions()
        self._streams = Streams(0)
        self._network: SimulatedNetwork | None = None
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
        for cause, fault in enumerate(self._faults):
            for seconds, strike in self._strikes(cause, fault):
                loop.call_later(seconds, self._strike, cause, strike)
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
        match fault.kind:
            case "crash":
                return [(start, lambda: self._crash(party))]
            case "mid-send":
                return [(start, lambda: self._crash_later(cause, party, int(fault.strength)))]
            case "restart":
                return [(start, lambda: self._crash(party)), (end, lambda: self._restart(party))]
            case "amnesia":
                forget = partial(self._restart, party, forgetful=True)
                return [(start, lambda: self._crash(party)), (end, forget)]
            case "reset" | "half-open":
                other = fault.parties[1]
                patience = KEEPALIVE_SECONDS if fault.kind == "half-open" else 0.0
                noticed = min(end, start + patience)
                return [
                    (start, lambda: self._break(party, other)),
                    (noticed, lambda: self._notice(other, party)),
                    (end, lambda: self._mend(party, other)),
                ]
        return []

    def _strike(self, cause: int, strike: Callable[[], bool]) -> None:
        if self._network is not None and strike():
            self._conditions.met.add(cause)

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
        try:
            return [_as_seen_from_outside(outcome) for outcome in await super().play(struck)]
        finally:
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
            return replace(job, role=_without_data, public={})
        skew = 1.0
        now = self._loop.time()
        for cause, fault in enumerate(self._faults):
            if fault.kind == "skew" and name in fault.parties and fault.start <= now < fault.end:
                skew = fault.strength  # a clock has one speed: that of the latest fault
                self._conditions.met.add(cause)
        own = None if job.seconds is None or not self._faults else job.seconds * skew
        return replace(job, seconds=own)

    @override
    async def stop(self) -> None:
        if self._network is not None:
            self._network.shut_down()  # n parties need not receive n goodbyes each
            self._network = None
        await super().stop()


def _as_seen_from_outside(outcome: Outcome) -> Outcome:
    """Report a crashed party as lost, as the launcher of its process would."""
    if isinstance(outcome.error, EndpointClosed):
        return replace(outcome, error=PeerLost(outcome.party))
    return outcome


async def _without_data(party: Party) -> None:
    """Play the part of a party that returned without its data."""
    raise ClusterError(f"{party.me} restarted without its data")
