"""What runs in a party's own process: its node, and a launcher that tells it what to play."""

import asyncio
import os
import pickle
import signal
import socket
from dataclasses import dataclass, replace

from veilring.errors import ClusterError
from veilring.nodes.node import Node
from veilring.nodes.play import Job, Outcome, play
from veilring.nodes.runtimes.control import Control, unpack_job
from veilring.nodes.runtimes.loops import party_loop
from veilring.randomness import Streams
from veilring.transport.identity import read_identity
from veilring.transport.roster import Roster
from veilring.transport.tls import TlsEndpoint


@dataclass(frozen=True, slots=True, repr=False)
class Setup:
    """All that a party's process is given: its own key, its own data, and what is public.

    Attributes:
        identity: As `write_identity` gives it.
        roster: All parties.
        resident: The party's own data, if it has any.
        seed: Makes runs reproducible; `None` in earnest.
    """

    identity: bytes
    roster: Roster
    resident: tuple[object, ...]
    seed: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Asks a party's process to end."""


def work(pipe: socket.socket, listener: socket.socket, output: socket.socket) -> None:
    """Be one party until the launcher says stop or is gone: the body of the process.

    Args:
        pipe: The way to the launcher, which sends a `Setup` first.
        listener: The party's listening socket.
        output: Where all that this process prints goes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too: the launcher ends us
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_work(pipe, listener))


async def _work(pipe: socket.socket, listener: socket.socket) -> None:
    control = await Control.over(pipe)
    try:
        await _serve(control, listener)
    except (EOFError, ConnectionError):
        return  # the launcher is gone, and so are we
    finally:
        await control.close()


async def _serve(control: Control, listener: socket.socket) -> None:
    setup: Setup = await control.receive()
    endpoint = await TlsEndpoint.start(
        read_identity(setup.identity), setup.roster, listener=listener
    )
    async with Node(endpoint, Streams(setup.seed)) as node, asyncio.TaskGroup() as playing:
        await control.send(None)
        while not isinstance(item := await control.receive(), Stop):
            number, job = item
            playing.create_task(_play(control, node, setup, number, job))


async def _play(control: Control, node: Node, setup: Setup, number: int, packed: bytes) -> None:
    try:
        job: Job = unpack_job(packed)
    except (ImportError, AttributeError) as error:
        advice = "a role that processes play stands at the top of a module that they can import"
        failed = ClusterError(f"{node.name} does not find the role: {error}; {advice}")
        await control.send((number, Outcome(node.name, error=failed)))
        return
    outcome = await play(node, replace(job, given=job.given or setup.resident))
    try:
        await control.send((number, outcome))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        failed = ClusterError(f"the outcome cannot leave the process of {node.name}: {error}")
        await control.send((number, Outcome(node.name, error=failed)))
