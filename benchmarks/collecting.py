"""A collection driven as hard as it goes: one collector, and processes that submit to it.

It is what the collector is measured on. The collector is `veilring serve`, and what it has
acknowledged is in a committed transaction.

    python -m benchmarks.collecting FOLDER NAME REPORTS AT_ONCE

is one survey client of many, which sends reports that it made beforehand; FOLDER is one of
`veilring deploy survey`. It prints `ready` once it is connected, and waits for a line. Then it
prints one line of JSON: when it began and ended, on the system's monotonic clock, its CPU seconds
in between, the bytes of its messages and how many reports the collector says it counted.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measurement import peak_mib
from benchmarks.ports import reserve_ports
from veilring.data.sources import load
from veilring.deployment.config import load_credentials
from veilring.deployment.duties import load_config
from veilring.deployment.examples.example import NewDeployment
from veilring.deployment.examples.folder import COLLECTOR
from veilring.deployment.examples.surveys import SurveyExample
from veilring.deployment.surveys.client import SurveyClientConfig, for_one_session
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.errors import ClusterError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import opening, party_loop
from veilring.protocols.ldp.collector import SUBMIT
from veilring.protocols.ldp.messages import ClientBatch, Task, Verdicts
from veilring.protocols.ldp.roles import ClientPool, submit_reports
from veilring.randomness import Streams
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, encode
from veilring.transport.tls import TlsEndpoint

BATCHED: Final = 8_192
"""Reports a message, where they are sent in batches."""
_ROWS: Final = 1_000  # of the survey clients' files, from which clients are drawn again and again
_MODULE: Final = "benchmarks.collecting"

_Process = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a collection.

    Attributes:
        seconds: The time from the first report sent to the last acknowledgement.
        disk_bytes: The size of the database after the last round.
        wire_bytes: The size of all messages with reports.
        mib: The peak memory of the collector.
        client_cpu: The CPU seconds of all submitting processes.
        spent: Other counters of its process.
    """

    reports: int
    seconds: float
    disk_bytes: float
    wire_bytes: float
    mib: float
    client_cpu: float
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Drive:
    """The load on a collector.

    Attributes:
        at_once: The number of reports in a message.
        spent: Called with the collector's process before and after; the difference of its counters
            is reported, such as CPU seconds.
    """

    survey_clients: int = 2
    at_once: int = BATCHED
    spent: Callable[[int], float] = lambda _process: 0.0


def drive_collection(reports: int, drive: Drive) -> Collected:
    """Run a collection of a number of reports, drawn from the wine table at epsilon 1.

    Args:
        reports: A multiple of the survey clients.

    Raises:
        ClusterError: If a survey client did not come, or not every report was counted.
    """
    (found,) = drive_rounds(1, reports, drive)
    return found


def drive_rounds(rounds: int, reports: int, drive: Drive) -> list[Collected]:
    """Do as `drive_collection` several times, always with the same collector."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "survey"
        example = _example(drive)
        example.write(load("wine"), NewDeployment(folder, 0, reserve_ports()))
        serve = [sys.executable, "-m", "veilring", "serve", str(folder / f"{COLLECTOR}.toml")]
        with (folder / "log").open("w", encoding="utf-8") as log:
            collector = subprocess.Popen(serve, stderr=log, text=True)
            try:
                found = [
                    _drive(folder, example.names, reports, drive, collector.pid)
                    for _ in range(rounds)
                ]
            finally:
                collector.terminate()
                collector.wait()
        # One that left in order has moved its log into the file.
        disk = (folder / f"{COLLECTOR}.db").stat().st_size
    return [Collected(reports, disk_bytes=disk, **each) for each in found]


def _example(drive: Drive) -> SurveyExample:
    return SurveyExample(
        reports=max(_ROWS, drive.survey_clients), survey_clients=drive.survey_clients
    )


def _drive(
    folder: Path, names: Sequence[str], reports: int, drive: Drive, collector: int
) -> dict[str, float]:
    each = reports // len(names)
    processes = [_start(folder, name, each, drive.at_once) for name in names]
    try:
        for process in processes:
            _await(process)
        before = drive.spent(collector)
        for process in processes:
            _tell(process)
        found = [json.loads(process.communicate()[0]) for process in processes]
    except BaseException:
        for process in processes:
            process.kill()
        raise
    if sum(one["counted"] for one in found) != reports:
        raise ClusterError("not every report was counted")
    return {
        "seconds": max(one["ended"] for one in found) - min(one["began"] for one in found),
        "spent": drive.spent(collector) - before,
        "wire_bytes": sum(one["bytes"] for one in found) / len(found) * reports,
        "mib": peak_mib(collector),
        "client_cpu": sum(one["cpu"] for one in found),
    }


def _start(folder: Path, name: str, reports: int, at_once: int) -> _Process:
    command = [sys.executable, "-m", _MODULE, str(folder), name, str(reports), str(at_once)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def _await(process: _Process) -> None:
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise ClusterError("a survey client did not come; its errors are above")


def _tell(process: _Process) -> None:
    if process.stdin is not None:
        process.stdin.write("go\n")
        process.stdin.flush()


def _reports(task: Task, folder: Path, name: str, count: int, at_once: int) -> list[ClientBatch]:
    """Return the reports of as many clients, drawn from the survey client's rows."""
    terms = SurveyTerms.load(folder / "terms.toml")
    pool = terms.read_clients(folder / f"{name}.csv")
    rows = np.random.default_rng().integers(len(pool), size=count)
    clients = ClientPool(pool.rows[rows], pool.labels[rows])
    return list(clients.answer(task, Streams().generator("clients"), at_once=at_once))


def _sessions(batches: list[ClientBatch]) -> Iterator[list[ClientBatch]]:
    """Divide batches as a survey client does."""
    each = iter(batches)
    while session := list(for_one_session(each)):
        yield session


async def _send(folder: Path, name: str, count: int, at_once: int) -> None:
    config = load_config(folder / f"{name}.toml")
    if not isinstance(config, SurveyClientConfig):
        raise TypeError("not a survey client")
    task = SurveyTerms.load(folder / "terms.toml").task
    sessions = list(_sessions(_reports(task, folder, name, count, at_once)))
    sent = sum(
        frame_size(encode(bytes(SESSION_BYTES), batch.message(task, more=True)))
        for batches in sessions
        for batch in batches
    )
    identity, roster = load_credentials(config)
    endpoint = await TlsEndpoint.start(identity, roster, connect_to=(config.collector,))
    counted = 0

    def settled(_batch: ClientBatch, verdicts: Verdicts) -> None:
        nonlocal counted
        counted += int(np.count_nonzero(verdicts == 0))

    async with Node(endpoint, Streams()) as node:
        _say("ready")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        began, cpu = time.monotonic(), time.process_time()
        for batches in sessions:
            await node.run(
                opening(submit_reports, SUBMIT, task.digest),
                Streams().token("session"),
                Parties((name, config.collector)),
                batches,
                task=task,
                settled=settled,
            )
        ended, cpu = time.monotonic(), time.process_time() - cpu
    done = {"began": began, "ended": ended, "counted": counted, "bytes": sent / count, "cpu": cpu}
    _say(json.dumps(done))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """Send reports, as told by the four arguments of the command line."""
    folder, name, count, at_once = arguments
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_send(Path(folder), name, int(count), int(at_once)))


if __name__ == "__main__":
    main(sys.argv[1:])
