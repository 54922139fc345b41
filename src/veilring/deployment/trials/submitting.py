"""A fresh process: one submitter of many, which sends reports that it made beforehand.

Usage: python -m veilring.deployment.trials.submitting FOLDER NAME REPORTS AT_ONCE

FOLDER is one of `veilring deploy survey`. It prints `ready` once it is connected, waits for a line,
and prints one line of JSON: when it began and ended, on the system's monotonic clock, the bytes of
its messages and how many reports the collector says it counted.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from veilring.deployment.config import load_credentials
from veilring.deployment.roles import load_config
from veilring.deployment.submitter import SubmitterConfig, for_one_session
from veilring.deployment.survey import SurveyTerms
from veilring.nodes.node import Node
from veilring.nodes.offload import party_loop
from veilring.nodes.party import Parties
from veilring.nodes.service import opening
from veilring.protocols.ldp.collector import SUBMIT
from veilring.protocols.ldp.messages import ClientBatch, Verdicts
from veilring.protocols.ldp.roles import ClientPool, submit_reports
from veilring.protocols.ldp.task import Task
from veilring.randomness import Streams
from veilring.transport.frames import frame_size
from veilring.transport.messages import SESSION_BYTES, encode
from veilring.transport.tls import TlsEndpoint


def _reports(task: Task, folder: Path, name: str, count: int, at_once: int) -> list[ClientBatch]:
    """Return the reports of as many clients, drawn from the submitter's rows."""
    terms = SurveyTerms.load(folder / "terms.toml")
    pool = terms.read_clients(folder / f"{name}.csv")
    rows = np.random.default_rng().integers(len(pool), size=count)
    clients = ClientPool(pool.rows[rows], pool.labels[rows])
    return list(clients.answer(task, Streams().generator("clients"), at_once=at_once))


def _sessions(batches: list[ClientBatch]) -> Iterator[list[ClientBatch]]:
    """Divide batches as a submitter does."""
    each = iter(batches)
    while session := list(for_one_session(each)):
        yield session


async def _send(folder: Path, name: str, count: int, at_once: int) -> None:
    config = load_config(folder / f"{name}.toml")
    if not isinstance(config, SubmitterConfig):
        raise TypeError("not a submitter")
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
        began = time.monotonic()
        for batches in sessions:
            await node.run(
                opening(submit_reports, SUBMIT, task.digest),
                Streams().token("session"),
                Parties((name, config.collector)),
                batches,
                task=task,
                settled=settled,
            )
        ended = time.monotonic()
    done = {"began": began, "ended": ended, "counted": counted, "bytes": sent / count}
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
