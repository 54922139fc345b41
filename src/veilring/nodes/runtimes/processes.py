"""One operating-system process a party, over mutual TLS on loopback."""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Final

from typing_extensions import override

from veilring.errors import ClusterError, InputError, PeerLost
from veilring.nodes.party import Parties
from veilring.nodes.play import Job, Outcome
from veilring.nodes.runtimes.base import Runtime
from veilring.nodes.runtimes.control import Control, pack_job
from veilring.nodes.runtimes.local_roster import local_roster
from veilring.nodes.runtimes.worker import Setup, Stop, work
from veilring.randomness import Streams
from veilring.transport.identity import write_identity

# A process takes some 20 ms to fork and some 5 ms a peer to shake hands with; on a machine that is
# swapping, much longer. Beyond this it will not come.
START_SECONDS: Final = 60.0
# Beside each other, parties wait for most of the time. With more than this many a core they start
# so slowly, and take so much memory (60 MB each), that the run does not come to its end.
PROCESSES_PER_CORE: Final = 8
# On one core, rings of this many still start within seconds.
PROCESSES_MIN: Final = 16
# A party that was told to stop says goodbye and ends at once; one that does not is killed.
STOP_SECONDS: Final = 5.0
# Importing NumPy and SciPy costs each process 0.3 s of CPU; a server that has done so once and is
# forked for each party costs 2 ms. The names of modules are data here: nothing is imported upward.
PRELOADED: Final = (
    "veilring.nodes.runtimes.worker",
    "veilring.protocols.ring",
    "scipy.spatial.distance",
)

_NAMES_SHOWN: Final = 8  # in one line of a log

_log = logging.getLogger("veilring.cluster")


def _new_process(name: str, sockets: tuple[socket.socket, ...]) -> BaseProcess:
    if sys.platform == "win32":
        spawn = multiprocessing.get_context("spawn")
        return spawn.Process(target=work, args=sockets, name=name, daemon=True)
    fork = multiprocessing.get_context("forkserver")
    return fork.Process(target=work, args=sockets, name=name, daemon=True)


def warm_up() -> None:
    """Start what processes are forked from; call it early, and the first cluster starts faster."""
    if sys.platform == "win32":
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    # The server ignores Ctrl-C once it runs, but not while it imports: it inherits this mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """The launcher's side of one party's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._process: BaseProcess | None = None
        self._control: Control | None = None
        self.is_gone = False
        self.is_up = False
        self.was_killed = False

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return None if self._process is None else self._process.pid

    async def start(self, listener: socket.socket, setup: Setup) -> None:
        """Start the process and wait until it is connected with all its peers."""
        mine, theirs = socket.socketpair()
        output, prints = socket.socketpair()
        self._process = process = _new_process(self.name, (theirs, listener, prints))
        await asyncio.to_thread(process.start)
        for handed_over in (theirs, prints, listener):
            handed_over.close()
        self._tasks.append(asyncio.create_task(self._log_output(output)))
        self._control = await Control.over(mine)
        await self._control.send(setup)
        try:
            await self._control.receive()
        except (EOFError, ConnectionError) as error:
            raise ClusterError(f"{self.name} did not start; see its log") from error
        self.is_up = True
        self._tasks.append(asyncio.create_task(self._collect(self._control)))

    async def play(self, number: int, job: Job) -> Outcome:
        """Have the process play a job; if it dies first, that is the outcome's error."""
        if self.is_gone or self._control is None:
            return self._lost()
        packed = pack_job(job)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._control.send((number, packed))
            return await future
        except ConnectionError:
            return self._lost()
        finally:
            self._waiting.pop(number, None)

    def _lost(self) -> Outcome:
        now = asyncio.get_running_loop().time()
        return Outcome(self.name, error=PeerLost(self.name), ended=now)

    async def _collect(self, control: Control) -> None:
        try:
            while True:
                number, outcome = await control.receive()
                if number in self._waiting:
                    self._waiting[number].set_result(outcome)
        except (EOFError, ConnectionError):
            self.is_gone = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(self._lost())

    async def _log_output(self, output: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=output)
        log = logging.getLogger(f"veilring.party.{self.name}")
        try:
            while line := await reader.readline():
                log.info("%s", line.decode(errors="replace").rstrip())
        finally:
            writer.close()

    async def stop(self) -> None:
        """Ask the process to end, and end it if it does not."""
        if self._control is not None and not self.is_gone:
            try:
                await self._control.send(Stop())
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


class Processes(Runtime):
    """One process a party, each given its own rows, its own key, and the roster; nothing else."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._numbers = count()

    @property
    def pids(self) -> dict[str, int]:
        """The number of each party's process."""
        return {name: w.pid for name, w in self._workers.items() if w.pid is not None}

    @override
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        _require_room(len(parties))
        warm_up()  # imports take longest: keys and sockets are made meanwhile
        local = local_roster(parties)
        self._workers = {name: _Worker(name) for name in parties}
        try:
            async with asyncio.timeout(START_SECONDS), asyncio.TaskGroup() as starting:
                for name, worker in self._workers.items():
                    own = (resident[name],) if name in resident else ()
                    key = write_identity(local.identities[name])
                    setup = Setup(key, local.roster, own, streams.seed)
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
            _log.warning("did not stop when asked and were killed: %s", _some(killed))


def _require_room(parties: int) -> None:
    """Refuse more processes than this machine runs beside each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most = max(PROCESSES_MIN, PROCESSES_PER_CORE * (cores or 1))
    if parties > most:
        allowed = f"at most {most} where each is a process of this machine ({cores} cores)"
        instead = "for more, use the runtime simulated or memory (--runtime simulated)"
        raise InputError("parties", parties, f"{allowed}; {instead}")


def _late(missing: Sequence[str], parties: int) -> str:
    up = f"{len(missing)} of {parties} processes were not up after {START_SECONDS:g} s"
    return f"{up}: {_some(missing)}; use fewer, or the runtime simulated or memory"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
