"""Members of a deployment of peers, served in this process, and their client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.deployment.commands import PARTIES, SECONDS

from veilring.deployment import load_config_of
from veilring.deployment.peers import (
    ClientConfig,
    Member,
    MemberConfig,
    MemberTerms,
    PeerTerms,
    ask_member,
    serve_member,
)
from veilring.nodes.service import Offer
from veilring.privacy.ledger import read_totals


class Bystander:
    """A party that offers nothing."""

    def offers(self) -> dict[str, Offer]:
        """Return no services."""
        return {}


class Served:
    """Members that are served in this process.

    Args:
        folder: The folder of their files.
        names: The names of all members.
        kind: The model of their terms.

    Attributes:
        members: The members that were ready, by name.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], kind: type[MemberTerms] = PeerTerms
    ) -> None:
        self._folder, self._names, self._kind = folder, names, kind
        self._tasks = dict[str, asyncio.Task[None]]()
        self.members: dict[str, Any] = {}

    async def serve(self, *names: str) -> None:
        """Serve some members, and wait until they are ready."""
        ready = asyncio.Semaphore(0)

        def take(member: Member) -> None:
            self.members[member.node.name] = member
            ready.release()

        for name in names:
            config = load_config_of(self._folder / f"{name}.toml", MemberConfig, "this")
            role = serve_member(config, on_ready=take, kind=self._kind)
            self._tasks[name] = asyncio.create_task(role)
        async with asyncio.timeout(SECONDS):
            for _ in names:
                await ready.acquire()

    async def until_ended(self, name: str) -> None:
        """Wait until a member ends on its own."""
        await self._tasks.pop(name)

    async def end(self, *names: str) -> None:
        """Stop some members, unless they have ended."""
        for name in self._tasks.keys() & names:
            self._tasks[name].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tasks[name]

    async def labels(self, first: int = 0, last: int | None = None) -> list[str]:
        """Return the labels of some of the client's queries, by default of all."""
        return await labels_of(self._folder, first, last)

    def spent(self) -> list[float]:
        """Return the charges of each member."""
        return [read_totals(self._folder / f"{name}.db").spent for name in self._names]


@contextlib.asynccontextmanager
async def all_served(
    folder: Path, names: Sequence[str] = PARTIES, kind: type[MemberTerms] = PeerTerms
) -> AsyncIterator[Served]:
    """Serve all members."""
    served = Served(folder, names, kind)
    try:
        await served.serve(*names)
        yield served
    finally:
        await served.end(*names)


async def labels_of(folder: Path, first: int, last: int | None) -> list[str]:
    """Return the labels of some of the client's queries."""
    header, *rows = (folder / "queries.csv").read_text().splitlines()
    queries = folder / f"{first}-{last}.csv"
    queries.write_text("\n".join([header, *rows[first:last]]))
    config = load_config_of(folder / "client.toml", ClientConfig, "this")
    return (await ask_member(config, queries))["label"]
