"""Parties as tasks of one event loop: in memory, over TLS, or on a simulated clock."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from veilring.errors import ClusterError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.play import Job, Outcome, play
from veilring.nodes.runtimes.base import Runtime
from veilring.nodes.runtimes.local_roster import local_roster
from veilring.randomness import Streams
from veilring.simulation import SimulatedLoop, SimulatedNetwork, Topology
from veilring.transport.endpoint import Endpoint
from veilring.transport.memory import MemoryNetwork
from veilring.transport.tls import TlsEndpoint

__all__ = ("Memory", "Simulated", "Tls")


class _Tasks(Runtime):
    """Nodes that share this event loop; a subclass says how they are connected."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._parties = Parties(())
        self._resident: Mapping[str, object] = {}

    @override
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        self._parties, self._resident = parties, resident
        for endpoint in await self._connect(parties, streams):
            node = self._nodes[endpoint.name] = Node(endpoint, streams)
            node.start()

    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        raise NotImplementedError

    @override
    async def play(self, jobs: Mapping[str, Job]) -> list[Outcome]:
        return await asyncio.gather(
            *(
                play(self._nodes[name], self._parties, self._with_own(name, job))
                for name, job in jobs.items()
            )
        )

    def _with_own(self, name: str, job: Job) -> Job:
        if job.given or name not in self._resident:
            return job
        return replace(job, given=(self._resident[name],))

    @override
    async def stop(self) -> None:
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        self._nodes.clear()


class Memory(_Tasks):
    """All parties in this process; every message is still encoded, so that bytes are real."""

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        network = MemoryNetwork(parties)
        return [network.endpoint(name) for name in parties]


class Tls(_Tasks):
    """All parties in this process, each with a key of its own, over mutual TLS on loopback."""

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        local = local_roster(parties)
        return await asyncio.gather(
            *(
                TlsEndpoint.start(
                    local.identities[name], local.roster, listener=local.listeners[name]
                )
                for name in parties
            )
        )


class Simulated(_Tasks):
    """All parties on the simulated clock; run the caller by `veilring.simulation.run`.

    Args:
        topology: The links between the parties; by default all are alike.
    """

    session_seconds: ClassVar[float | None] = None  # a run that cannot end is found as a deadlock

    def __init__(self, topology: Topology | None = None) -> None:
        super().__init__()
        self._topology = topology
        self._network: SimulatedNetwork | None = None

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            raise ClusterError(
                "runtime=simulated needs the simulated clock: veilring.simulation.run"
            )
        loop.describe_waits(self._waits)
        self._network = network = SimulatedNetwork(parties, streams, topology=self._topology)
        return [network.endpoint(name) for name in parties]

    def _waits(self) -> list[str]:
        return [line for node in self._nodes.values() for line in node.waits()]

    @override
    async def stop(self) -> None:
        if self._network is not None:
            self._network.shut_down()  # n parties need not hear n goodbyes each
        await super().stop()
