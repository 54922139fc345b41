"""Parties in the simulation, and the faults that strike them."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from typing_extensions import override

from veilring.errors import ClusterError, Deadlock, EndpointClosed, PeerLost
from veilring.nodes.journal import Mark
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party
from veilring.nodes.run import Job, Outcome
from veilring.nodes.runtimes.tasks import TasksRuntime
from veilring.nodes.session import Session
from veilring.randomness import Streams
from veilring.simulation import SimulatedLoop, SimulatedNetwork, Topology
from veilring.simulation.faults import KEEPALIVE_SECONDS, Fault, conditions_of
from veilring.simulation.links import NetworkConditions
from veilring.transport.endpoint import Endpoint

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
            for seconds, strike in self._strikes(fault):
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

    def _strikes(self, fault: Fault) -> list[tuple[float, Callable[[], bool]]]:
        """Return the times and actions of a fault; each action returns whether it had an effect."""
        party, start, end = fault.parties[0], fault.start, fault.end
        match fault.kind:
            case "crash":
                return [(start, lambda: self._crash(party))]
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
        now = asyncio.get_running_loop().time()
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
