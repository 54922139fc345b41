"""Parties that accept connections: servers that listen, and members that meet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from logging import Logger
from pathlib import Path
from typing import Final, Protocol, TypeVar

from veilring.deployment.config import ServerConfig, load_credentials, require_party
from veilring.deployment.expiry import keep_warning
from veilring.deployment.reloading import Reloads
from veilring.deployment.status import (
    STOPPING,
    Clock,
    ReadReports,
    ReadTotals,
    Status,
    notify_systemd,
)
from veilring.errors import HandshakeError
from veilring.nodes.node import Node
from veilring.nodes.service import Offer, Service
from veilring.randomness import Streams
from veilring.transport.roster import NEXT, utc_now
from veilring.transport.tls import TlsEndpoint, expected_peers

# The time for which a party that stops finishes open sessions, whose ε may be spent already. Docker
# kills a container 10 s after its signal.
STOP_SECONDS: Final = 8.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and names the missing ones.
PEERS_SECONDS: Final = 86_400.0
# Often enough for a person who reads the log: some 1,400 lines a day for each missing party.
REMIND_SECONDS: Final = 60.0


class Participant(Protocol):
    """A party in the sessions that others open."""

    def offers(self) -> Mapping[str, Offer]:
        """Return its services."""


_P = TypeVar("_P", bound=Participant)


class Meeting:
    """A party that connects to all others.

    Args:
        log: The log for missing parties.
    """

    def __init__(self, endpoint: TlsEndpoint, node: Node, log: Logger, status: Status) -> None:
        self.node = node
        self._endpoint, self._log, self._status = endpoint, log, status

    async def all_here(self, seconds: float = PEERS_SECONDS) -> None:
        """Wait until all others are connected, and log the missing ones once a minute.

        Raises:
            HandshakeError: If parties are missing after that time; it names all of them.
        """
        loop = asyncio.get_running_loop()
        end, said = loop.time() + seconds, loop.time()
        while absent := self._endpoint.absent():
            if loop.time() >= end:
                reasons = "; ".join(f"{name} at {why}" for name, why in absent.items())
                raise HandshakeError(
                    ", ".join(absent),
                    f"not all parties are connected after {seconds:g} s: {reasons}",
                )
            if loop.time() >= said + REMIND_SECONDS:
                said = loop.time()
                self._remind(absent)
            await self._change(min(end, said + REMIND_SECONDS))
        self._status.tell_ready()

    async def stay(self, end: Awaitable[object]) -> None:
        """Wait for an end, and log the missing parties once a minute."""
        reminding = asyncio.create_task(self._keep_reminding())
        try:
            await end
        finally:
            reminding.cancel()

    async def _keep_reminding(self) -> None:
        while True:
            while not self._endpoint.absent():
                await self._endpoint.change()
            await asyncio.sleep(REMIND_SECONDS)
            if absent := self._endpoint.absent():
                self._remind(absent)

    def _remind(self, absent: Mapping[str, str]) -> None:
        for name, why in absent.items():
            self._log.warning("%s is waiting for %s at %s", self.node.name, name, why)

    async def _change(self, when: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(when):
                await self._endpoint.change()


class Server:
    """A party that accepts connections. Its key and its roster are checked before it listens.

    Args:
        log: The log for its start, its end, and certificates that will expire.
        reload: Reads its files again while it runs; without it, they are read once.

    Attributes:
        config: The configuration, also after the files were read again.
    """

    def __init__(
        self,
        config: ServerConfig,
        log: Logger,
        clock: Clock = utc_now,
        reload: Callable[[Reloads, TlsEndpoint], Awaitable[str]] | None = None,
    ) -> None:
        self.clock, self._reload = clock, reload
        self.identity, self.roster = load_credentials(config)
        self.name = self.identity.name
        require_party(self.roster, "identity", self.name)
        expected_peers(self.identity, self.roster, ())  # which checks the key and the certificate
        self.config, self._limits, self._log = config, config.limits, log

    @asynccontextmanager
    async def listen(
        self,
        offers: Mapping[str, Offer],
        *,
        terms: Mapping[str, str] | None = None,
        kept: str = "",
        totals: ReadTotals | None = None,
    ) -> AsyncIterator[None]:
        """Listen, and answer requests for the offers, until the context is left.

        Args:
            kept: The content of its files, for the log.
            totals: Returns the totals of its ledger, for its status.

        Raises:
            AddressTaken: If another process is using the address.
        """
        endpoint = await TlsEndpoint.start(
            self.identity, self.roster, listen=self.config.listen, connect_to=(), terms=terms
        )
        node = Node(endpoint, Streams(), seconds=self._limits.served, limits=self._limits)
        running = self._running(endpoint, totals)
        service = Service(node, offers, patience=STOP_SECONDS)
        async with node, service, running as status:
            status.service = service
            self._log.info("%s is ready%s", node.name, kept and f": {kept}")
            status.tell_ready()
            yield

    @asynccontextmanager
    async def meet(
        self,
        terms: Mapping[str, str],
        take_part: Callable[[Node], _P],
        totals: ReadTotals | None = None,
        reports: ReadReports | None = None,
    ) -> AsyncIterator[tuple[Meeting, _P]]:
        """Listen and dial all other parties, and yield a `Meeting` and the participant at once.

        Args:
            take_part: Returns the participant of a node, whose services are offered.
            totals: Returns the totals of its ledger, for its status.
            reports: Returns the number of its reports in each state, likewise.

        Raises:
            AddressTaken: If another process is using the address.
        """
        endpoint = await TlsEndpoint.start(
            self.identity, self.roster, listen=self.config.listen, timeout=None, terms=terms
        )
        name, limits, log = self.name, self._limits, self._log
        node = Node(endpoint, Streams(), seconds=limits.session, limits=limits)
        running, participant = self._running(endpoint, totals, reports), take_part(node)
        # before the node receives: otherwise it would leave the first requests unanswered
        service = Service(node, participant.offers(), patience=STOP_SECONDS)
        async with node, service, running as status:
            status.service = service
            if others := [party for party in self.roster.parties if party != name]:
                log.info("%s is waiting for %s", name, ", ".join(others))
            yield Meeting(endpoint, node, log, status), participant

    @asynccontextmanager
    async def _running(
        self, endpoint: TlsEndpoint, totals: ReadTotals | None, reports: ReadReports | None = None
    ) -> AsyncIterator[Status]:
        """Warn each day of certificates that will expire, tell the status, and log the end.

        Read the files again when that is requested.
        """
        has_next = self._has_next_key
        status = Status(self.config.role, endpoint, totals, self.clock, has_next, reports=reports)
        tasks = [asyncio.create_task(keep_warning(endpoint, self._log, self.clock))]
        if reloads := Reloads.current.get():
            tasks.append(asyncio.create_task(self._keep_reloading(reloads, endpoint, status)))
        try:
            async with status.served(self.config.socket, self._log):
                yield status
        except asyncio.CancelledError:
            self._log.info("%s is shutting down", self.name)
            notify_systemd(STOPPING)
            raise
        finally:
            for task in tasks:
                task.cancel()

    async def _keep_reloading(
        self, reloads: Reloads, endpoint: TlsEndpoint, status: Status
    ) -> None:
        while self._reload is not None:
            await reloads.requested.wait()
            reloads.requested.clear()
            with status.reloading():
                status.reload_error = await self._reload(reloads, endpoint)

    def _has_next_key(self) -> bool:
        return Path(f"{self.config.identity}{NEXT}").is_file()
