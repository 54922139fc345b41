"""Parties as tasks of one event loop, in memory or over TLS."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.play import Job, Outcome, play
from veilring.nodes.runtimes.base import Runtime
from veilring.nodes.runtimes.local_roster import local_roster
from veilring.randomness import Streams
from veilring.transport.endpoint import Endpoint
from veilring.transport.memory import MemoryNetwork
from veilring.transport.tls import TlsEndpoint


class TasksRuntime(Runtime):
    """Nodes that share this event loop; a subclass says how they are connected."""

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
            *(play(self._nodes[name], self._with_own(name, job)) for name, job in jobs.items())
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
    """All parties in this process; every message is still encoded, so that bytes are real."""

    @override
    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        network = MemoryNetwork(parties)
        return [network.endpoint(name) for name in parties]


class Tls(TasksRuntime):
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
