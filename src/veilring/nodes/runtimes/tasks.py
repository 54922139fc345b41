"""The interface of runtimes, and those with all parties in one event loop on a real clock."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from traceback import walk_tb
from typing import ClassVar, Final, NamedTuple

from typing_extensions import override

from veilring.errors import InputError, VeilringError
from veilring.nodes.adversary import corrupt
from veilring.nodes.journal import Mark, Observer, Record, View
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.run import Job, Outcome
from veilring.nodes.session import SESSION_SECONDS
from veilring.randomness import Streams
from veilring.transport.endpoint import Endpoint, MemoryNetwork
from veilring.transport.listener import bind
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint
from veilring.watchdog import Interruption, watch_until

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


async def play_job(
    node: Node, job: Job, resident: tuple[object, ...], clock: Callable[[], float] | None = None
) -> Outcome:
    """Play a job at a node; any error becomes part of the outcome and is never raised.

    Args:
        resident: The party's resident data, if there is any, for a job without a private input.
        clock: The true time in seconds; by default the event loop's.
    """
    clock = clock or asyncio.get_running_loop().time
    record = Record(node.name) if job.measured else None
    view = View(node.name) if job.watched else None
    trace = None if job.trace is None else job.trace.observer(clock)
    observers: list[Observer] = [each for each in (record, view, trace) if each]
    result, failure = None, None
    try:
        result = await node.run(
            job.role if job.adversary is None else corrupt(job.role, job.adversary),
            job.session,
            job.parties,
            *(job.given or resident),
            observers=observers,
            seconds=job.seconds,
            tolerant=False,
            **job.public,
        )
    except BaseException as error:
        interruption = Interruption.found_in(error)
        failure = error if interruption is None else interruption.told(node.name)
        if not isinstance(failure, Exception):
            raise
        _note_lines(failure, node.name)
    return Outcome(
        node.name,
        result,
        failure,
        None if record is None else record.meter,
        {} if record is None or job.adversary is not None else record.digests(),
        view,
        job.trace,
        ended=clock(),
        standing=node.standing(job.session),
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
            self._add_node(endpoint, streams)

    def _add_node(self, endpoint: Endpoint, streams: Streams) -> None:
        node = self._nodes[endpoint.name] = Node(endpoint, streams)
        node.start()

    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        raise NotImplementedError

    @override
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        with self._watching(jobs.values()):
            return await asyncio.gather(*(self._begin(name, job) for name, job in jobs.items()))

    def _watching(self, jobs: Iterable[Job]) -> AbstractContextManager[None]:
        """Watch the loop of all parties, to end a step that lasts too long."""
        limits = [job.seconds for job in jobs if job.seconds is not None]
        return watch_until(max(limits, default=None))

    def _begin(self, name: str, job: Job) -> asyncio.Task[Outcome]:
        return asyncio.create_task(play_job(self._nodes[name], job, self._own(name)), name=name)

    def _own(self, name: str) -> tuple[object, ...]:
        """Return the resident data of a party, if there is any."""
        return (self._resident[name],) if name in self._resident else ()

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
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        self._resident = resident
        local = make_local_roster(parties)

        async def join(name: str) -> None:
            listener = local.listeners[name]
            endpoint = await TlsEndpoint.start(
                local.identities[name], local.roster, listen=listener, streams=streams
            )
            # At once: a connection that breaks while others still connect can only be made again
            # after the node has noticed the loss.
            self._add_node(endpoint, streams)

        await asyncio.gather(*map(join, parties))
