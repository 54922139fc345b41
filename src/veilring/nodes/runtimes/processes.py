"""One operating-system process for each party, over mutual TLS on loopback.

A launcher and its own processes communicate over a pipe. Both ends are the same program on the same
machine with the same rights, and the pipe has no name that another process could open: here, and
only here, objects are pickled.
"""

import asyncio
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any, Final

from typing_extensions import override

from veilring.errors import ClusterError, InputError, PeerLost
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.run import Job, Outcome
from veilring.nodes.runtimes.script import Script, left_alone, pickle_item, unpickle_item
from veilring.nodes.runtimes.tasks import Runtime, play_job
from veilring.nodes.runtimes.tls import make_local_roster
from veilring.nodes.service import party_loop
from veilring.randomness import Streams
from veilring.transport.roster import Roster, read_identity, write_identity
from veilring.transport.tls import TlsEndpoint
from veilring.watchdog import watch_until

# A process takes some 20 ms to fork and some 5 ms for the handshake with each peer; on a machine
# that is swapping, much longer. After this it will not start at all.
START_SECONDS: Final = 60.0
# Concurrent parties wait most of the time. With more than this many per core they start so slowly,
# and take so much memory (60 MB each), that the run never ends.
PROCESSES_PER_CORE: Final = 8
# on one core, rings of this many still start within seconds
PROCESSES_MIN: Final = 16
# A party that is told to stop says goodbye and ends at once; otherwise it is killed.
STOP_SECONDS: Final = 5.0
# A party notices its time limit at once, unless its role computes without an `await`, and then ends
# that step itself, unless it is in a call that does not return to Python.
ANSWER_GRACE_SECONDS: Final = 10.0
# Importing NumPy and SciPy costs each process 0.3 s of CPU; a server that has done so once and is
# forked for each party costs 2 ms. The names of modules are data here: nothing is imported upward.
PRELOADED: Final[tuple[str, ...]] = (
    "veilring.nodes.runtimes.processes",
    "veilring.nodes.ring",
    "veilring.protocols.ring.system",
    "scipy.spatial.distance",
    "uvloop",
    "randomgen",
)
_LENGTH: Final = struct.Struct(">Q")  # resident data may be larger than 4 GiB
_NAMES_SHOWN: Final = 8  # in one line of a log
_log = logging.getLogger("veilring.cluster")


@dataclass(frozen=True, slots=True, repr=False)
class _Setup:
    """The inputs of a party's process: its own key and data, and public facts.

    Attributes:
        resident: The party's own data, if it has any: a packed tuple.
        seed: The seed of reproducible runs; `None` in production.
    """

    identity: bytes
    roster: Roster
    resident: bytes
    seed: int | None
    script: Script


class _Control:
    """One end of the pipe, which sends and receives whole objects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, pipe: socket.socket) -> "_Control":
        return cls(*await asyncio.open_unix_connection(sock=pipe))

    async def send(self, item: object) -> None:
        body = pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer.write(_LENGTH.pack(len(body)) + body)
        await self._writer.drain()

    async def receive(self) -> Any:  # noqa: ANN401  (any object may be sent)
        """Wait for the next object."""
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return pickle.loads(await self._reader.readexactly(length))  # noqa: S301  (our own process packed it)

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # the other end was faster


class Processes(Runtime):
    """One process for each party, which gets only its own rows, its own key, and the roster."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._numbers = count()

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each party."""
        return {name: w.pid for name, w in self._workers.items() if w.pid is not None}

    @override
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        _require_room(len(parties))
        warm_up()  # imports take longest: make keys and sockets meanwhile
        local, script = make_local_roster(parties), Script.running()
        self._workers = {name: _Worker(name) for name in parties}
        try:
            async with asyncio.timeout(START_SECONDS), asyncio.TaskGroup() as starting:
                for name, worker in self._workers.items():
                    own = (resident[name],) if name in resident else ()
                    packed = pickle_item(
                        own, f"the data of {name} cannot be sent to another process"
                    )
                    key = write_identity(local.identities[name])
                    setup = _Setup(key, local.roster, packed, streams.seed, script)
                    starting.create_task(worker.start(local.listeners[name], setup))
        except* ClusterError as group:
            raise group.exceptions[0] from None
        except* TimeoutError:
            missing = [name for name, worker in self._workers.items() if not worker.is_up]
            raise ClusterError(_late(missing, len(parties))) from None
        finally:
            for listener in local.listeners.values():
                listener.close()

    @override
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        number = next(self._numbers)
        return await asyncio.gather(
            *(self._workers[name].play(number, job) for name, job in jobs.items())
        )

    @override
    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        killed = [name for name, worker in self._workers.items() if worker.was_killed]
        if killed:
            _log.warning(
                "these processes did not stop when asked and were killed: %s", _some(killed)
            )


class _Worker:
    """The launcher's side of one party's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._process: BaseProcess | None = None
        self._control: _Control | None = None
        self.is_gone = False
        self.is_up = False
        self.was_killed = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, listener: socket.socket, setup: _Setup) -> None:
        """Start the process and wait until it is connected to all its peers."""
        mine, theirs = socket.socketpair()
        output, prints = socket.socketpair()
        self._process = process = _new_process(self.name, (theirs, listener, prints))
        await asyncio.to_thread(_start, process)
        for handed_over in (theirs, prints, listener):
            handed_over.close()
        self._tasks.append(asyncio.create_task(self._log_output(output)))
        self._control = await _Control.over(mine)
        await self._control.send(setup)
        try:
            await self._control.receive()
        except (EOFError, ConnectionError) as error:
            raise ClusterError(f"{self.name} did not start; see its log") from error
        self.is_up = True
        self._tasks.append(asyncio.create_task(self._collect(self._control)))

    async def play(self, number: int, job: Job) -> Outcome:
        """Have the process play a job; if it dies first, the outcome is that error."""
        if self.is_gone or self._control is None:
            return self._lost()
        packed = pickle_item(
            job, "this role, with its arguments and adversary, cannot run in another process"
        )
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            patience = None if job.seconds is None else job.seconds + ANSWER_GRACE_SECONDS
            async with asyncio.timeout(patience):
                await self._control.send((number, packed))
                return await future
        except ConnectionError:
            return self._lost()
        except TimeoutError:
            return self._kill(job.seconds)
        finally:
            self._waiting.pop(number, None)

    def _lost(self) -> Outcome:
        now = asyncio.get_running_loop().time()
        return Outcome(self.name, error=PeerLost(self.name), ended=now)

    def _kill(self, limit: float | None) -> Outcome:
        """End a process that does not answer, and say so."""
        if self._process is not None:
            self._process.kill()
        late = (
            f"{self.name} did not answer {ANSWER_GRACE_SECONDS:g} s after its limit of {limit:g} s"
        )
        busy = "its role computes or blocks without an `await`"
        return self._lost()._replace(error=ClusterError(f"{late}: {busy}; its process was killed"))

    async def _collect(self, control: _Control) -> None:
        try:
            while True:
                number, packed = await control.receive()
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    future.set_result(self._unpacked(packed))
        except (EOFError, ConnectionError):
            self.is_gone = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(self._lost())

    def _unpacked(self, packed: bytes) -> Outcome:
        try:
            outcome: Outcome = pickle.loads(packed)  # noqa: S301  (our own process packed it)
        except Exception as error:  # noqa: BLE001  (an error's class may take other arguments)
            unread = f"the outcome of {self.name} cannot be unpickled here: {error}"
            return Outcome(self.name, error=ClusterError(unread))
        return outcome

    async def _log_output(self, output: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=output)
        log = logging.getLogger(f"veilring.party.{self.name}")
        try:
            while line := await reader.readline():
                log.info("%s", line.decode(errors="replace").rstrip())
        finally:
            writer.close()

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        if self._control is not None and not self.is_gone:
            try:
                await self._control.send(None)  # asks it to end
            except ConnectionError:
                self.is_gone = True
        if self._process is not None and self._process.pid is not None:
            await asyncio.to_thread(self._end, self._process)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._control is not None:
            await self._control.close()

    def _end(self, process: BaseProcess) -> None:
        process.join(STOP_SECONDS)
        if process.exitcode is None:
            self.was_killed = True
            process.kill()
            process.join()
        if process.exitcode not in {0, -signal.SIGTERM}:
            _log.info("%s ended with exit code %s", self.name, process.exitcode)
        process.close()


def warm_up() -> None:
    """Start the fork server. Called early, it makes the first cluster start faster."""
    if sys.platform == "win32":
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    # The server ignores Ctrl-C once it runs, but not while it imports: it inherits this mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _new_process(name: str, sockets: tuple[socket.socket, ...]) -> BaseProcess:
    if sys.platform == "win32":
        spawn = multiprocessing.get_context("spawn")
        return spawn.Process(target=work, args=sockets, name=name, daemon=True)
    fork = multiprocessing.get_context("forkserver")
    return fork.Process(target=work, args=sockets, name=name, daemon=True)


def _start(process: BaseProcess) -> None:
    with left_alone():
        process.start()


def _require_room(parties: int) -> None:
    """Refuse more processes than this machine can run concurrently."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most = max(PROCESSES_MIN, PROCESSES_PER_CORE * (cores or 1))
    if parties > most:
        allowed = f"at most {most} where each is a process of this machine ({cores} cores)"
        instead = "for more, use the runtime simulated or memory (--runtime simulated)"
        raise InputError("parties", parties, f"{allowed}; {instead}")


def _late(missing: Sequence[str], parties: int) -> str:
    up = f"{len(missing)} of {parties} processes had not started after {START_SECONDS:g} s"
    return f"{up}: {_some(missing)}; use fewer, or the runtime simulated or memory"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def work(pipe: socket.socket, listener: socket.socket, output: socket.socket) -> None:
    """Run one party until the launcher stops it or is gone: the main function of the process."""
    # Ctrl-C reaches this process, too, but the launcher ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_work(pipe, listener))


async def _work(pipe: socket.socket, listener: socket.socket) -> None:
    control = await _Control.over(pipe)
    try:
        await _serve(control, listener)
    except (EOFError, ConnectionError):
        return  # the launcher is gone, so this process ends
    finally:
        await control.close()


async def _serve(control: _Control, listener: socket.socket) -> None:
    setup: _Setup = await control.receive()
    streams = Streams(setup.seed)
    endpoint = await TlsEndpoint.start(
        read_identity(setup.identity), setup.roster, listen=listener, streams=streams
    )
    async with Node(endpoint, streams) as node, asyncio.TaskGroup() as playing:
        await control.send(None)
        while (item := await control.receive()) is not None:
            number, job = item
            playing.create_task(_play(control, node, setup, number, job), name=node.name)


async def _play(control: _Control, node: Node, setup: _Setup, number: int, packed: bytes) -> None:
    try:
        job: Job = unpickle_item(packed, setup.script)
        resident = _unpack_once(setup.resident, setup.script)
    except (ImportError, AttributeError) as error:
        advice = (
            "define the role at the top level of a module that processes can import, or of"
            " the script itself, before any code that runs it"
        )
        failed = ClusterError(f"{node.name} cannot find the role: {error}; {advice}")
        outcome = Outcome(node.name, error=failed)
    else:
        with watch_until(job.seconds):
            outcome = await play_job(node, job, resident)
    problem = f"the outcome of {node.name} cannot be sent to another process"
    try:
        packed = pickle_item(outcome, problem)
    except ClusterError as error:
        packed = pickle_item(Outcome(node.name, error=error), problem)
    await control.send((number, packed))


@cache
def _unpack_once(packed: bytes, script: Script) -> tuple[object, ...]:
    found: tuple[object, ...] = unpickle_item(packed, script)
    return found
