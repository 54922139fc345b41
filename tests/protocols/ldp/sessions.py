"""A collector in this process, and clients that open sessions with it."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.protocols.ldp.collecting import make_task

from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.nodes.party import Party
from veilring.nodes.service import Offload
from veilring.protocols.ldp.collector import Collector
from veilring.protocols.ldp.messages import ClientBatch, Task
from veilring.protocols.ldp.roles import submit_reports
from veilring.protocols.ldp.store import open_report_store
from veilring.protocols.ldp.store.base import Store
from veilring.protocols.ldp.store.sqlite import begin_sqlite

TASK = make_task()


class Setting:
    """A collector, and clients that open sessions with it."""

    def __init__(self, store: Store, collector: Collector, cluster: Cluster) -> None:
        self.store, self.collector, self.cluster = store, collector, cluster

    @property
    def task(self) -> Task:
        """The task of the collector."""
        return self.store.task

    async def play(self, client: str, role: Callable[[Party], Any]) -> None:
        """Let a client play a role in its own session."""

        async def both(party: Party) -> None:
            if party.me == "census":
                await self.collector.take(party, client)
            else:
                await role(party)

        await self.cluster.run(both, among=("census", client))

    async def submit_reports(
        self, client: str, made: Iterable[ClientBatch], task: Task | None = None
    ) -> list[int]:
        """Submit batches, and return the verdict on each report in order."""
        verdicts: list[int] = []

        async def role(party: Party) -> None:
            await submit_reports(
                party,
                made,
                task=task or self.task,
                settled=lambda _, v: verdicts.extend(v.tolist()),
            )

        await self.play(client, role)
        return verdicts


def _open_store(path: Path, task: Task) -> Store:
    if not path.exists():
        begin_sqlite(path)
    return open_report_store(str(path), task)


@asynccontextmanager
async def collecting(
    path: Path,
    task: Task = TASK,
    *,
    now: float = 1000.0,
    runtime: RuntimeName = "memory",
    offload: Offload | None = None,
) -> AsyncIterator[Setting]:
    """Start a collector with three clients and a constant clock."""
    store = _open_store(path, task)
    async with (
        Collector(store, lambda: now, offload) as collector,
        Cluster(["census", "ada", "bob", "eve"], runtime=runtime, seed=1) as cluster,
    ):
        yield Setting(store, collector, cluster)
