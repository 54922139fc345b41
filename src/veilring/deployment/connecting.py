"""Connections in a deployment: servers that listen, members that meet, and clients."""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from logging import Logger, getLogger
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from veilring.config import require_key
from veilring.deployment.config import Config, ServerConfig, load_credentials
from veilring.deployment.reloading import Reloads
from veilring.deployment.status import STOPPING, Clock, ReadTotals, Status, notify_systemd, utc_now
from veilring.errors import HandshakeError, PeerLost, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import UNBEGUN, Offer, Service
from veilring.nodes.session import PEER_STOPPED
from veilring.randomness import Streams
from veilring.transport.roster import NEXT, Member, Roster
from veilring.transport.tls import TlsEndpoint, expected_peers

# a person is waiting for the answer
CLIENT_CONNECT_SECONDS: Final = 10.0

# A party that restarts is back within a few seconds: it reads its rows, and the parties dial each
# other again within two. A person waits for these 7.5 s in all.
REPEAT_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)
Repeat = Literal["never", "unbegun", "free"]
"""Which failed sessions a client repeats: none; those in which no party has taken part; or also
those that broke off, because an equal request costs and reveals nothing more. It then gives its
role the same values again."""
# The reasons of aborts in the middle of a session; those before it are `UNBEGUN`.
_AMID: Final = frozenset({PeerLost.__name__, PEER_STOPPED})

# The time for which a party that stops finishes open sessions, whose ε may be spent already. Docker
# kills a container 10 s after its signal.
STOP_SECONDS: Final = 8.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and names the missing ones.
PEERS_SECONDS: Final = 86_400.0
# Often enough for a person who reads the log: some 1,400 lines a day for each missing party.
REMIND_SECONDS: Final = 60.0
# Long enough to exchange a new roster with people on holiday; a year's certificate is renewed once.
EXPIRY_WARNING_DAYS: Final = 30
# A line is repeated at a higher level when a week is left, and on the last day.
_EXPIRY_LEVELS: Final = {
    1: logging.CRITICAL,
    7: logging.ERROR,
    EXPIRY_WARNING_DAYS: logging.WARNING,
}
EXPIRY_CHECK_SECONDS: Final = 86_400.0  # each day that is left, one line for each certificate

# Explanations by the reason of a refusal, shown below the error: the first if the queried party
# refuses, the second if another party refuses the queried one.
_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "OtherTerms": (
        "Its terms differ from yours.",
        "The terms of {culprit} differ from those of {by}.",
    ),
    "NotOffered": (
        "It does not provide this service, or you may not use it: see its configuration.",
        "{culprit} does not provide this service, or {by} may not use it.",
    ),
}

_client_log = getLogger("veilring.client")
_R = TypeVar("_R")


def require_party(roster: Roster, key: str, name: str) -> None:
    """Refuse a name that is not a party's: clients do not serve."""
    require_key(name in roster.parties, key, name, f"a party: {', '.join(roster.parties)}")


class Meeting:
    """A party that connects to all others.

    Args:
        log: The log for missing parties.
    """

    def __init__(self, endpoint: TlsEndpoint, node: Node, log: Logger, status: Status) -> None:
        self.node = node
        self._endpoint, self._log, self._status = endpoint, log, status

    def watch(self, service: Service) -> None:
        """Tell the status which service answers requests."""
        self._status.service = service

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


class Expiry(NamedTuple):
    """A sentence about a certificate or key that ends soon, and the level of its log line."""

    level: int
    sentence: str

    @classmethod
    def of(cls, days: int, sentence: str) -> "Expiry":
        """Return a sentence for a number of days that are left."""
        level = next(level for most, level in _EXPIRY_LEVELS.items() if days <= most)
        return cls(level, sentence)


def expiry_warnings(members: Iterable[Member], now: dt.datetime) -> list[Expiry]:
    """Return a sentence about each certificate or key that ends within `EXPIRY_WARNING_DAYS`."""
    said = []
    for member in members:
        left = member.expires - now
        if left <= dt.timedelta(days=EXPIRY_WARNING_DAYS):
            day = f"{member.expires:%Y-%m-%d}"
            ended = left < dt.timedelta()
            ends = f"ended on {day}" if ended else f"ends on {day} (days left: {left.days})"
            sentence = (
                f"the certificate of {member.name} {ends}; without a new key and a new roster, no"
                " party connects to it after that day"
            )
            said.append(Expiry.of(left.days, sentence))
        if member.previous_until and member.accepts_previous(now.date()):
            days = (member.previous_until - now.date()).days
            if days <= EXPIRY_WARNING_DAYS:
                sentence = (
                    f"the previous key of {member.name} is accepted until {member.previous_until}"
                    f" (days left: {days}); let {member.name} use its new key by then"
                )
                said.append(Expiry.of(days, sentence))
    return said


async def _keep_warning(endpoint: TlsEndpoint, log: Logger, clock: Clock) -> None:
    while True:
        for warning in expiry_warnings(endpoint.roster.members, clock()):
            log.log(warning.level, "%s", warning.sentence)
        await asyncio.sleep(EXPIRY_CHECK_SECONDS)


class Server:
    """A party that accepts connections. Its key and its roster are checked before it listens.

    Args:
        log: The log for its start, its end, and certificates that will expire.
        reload: Reads its files again while it runs; without it, they are read once.
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
        self._config, self._limits, self._log = config, config.limits, log

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
            self.identity, self.roster, listen=self._config.listen, connect_to=(), terms=terms
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
        self, terms: Mapping[str, str], totals: ReadTotals | None = None
    ) -> AsyncIterator[Meeting]:
        """Listen and dial all other parties, and yield a `Meeting` at once.

        Args:
            totals: Returns the totals of its ledger, for its status.

        Raises:
            AddressTaken: If another process is using the address.
        """
        endpoint = await TlsEndpoint.start(
            self.identity, self.roster, listen=self._config.listen, timeout=None, terms=terms
        )
        name, limits, log = self.name, self._limits, self._log
        async with Node(endpoint, Streams(), seconds=limits.session, limits=limits) as node:
            if others := [party for party in self.roster.parties if party != name]:
                log.info("%s is waiting for %s", name, ", ".join(others))
            async with self._running(endpoint, totals) as status:
                yield Meeting(endpoint, node, log, status)

    @asynccontextmanager
    async def _running(
        self, endpoint: TlsEndpoint, totals: ReadTotals | None
    ) -> AsyncIterator[Status]:
        """Warn each day of certificates that will expire, tell the status, and log the end.

        Read the files again when that is requested.
        """
        status = Status(self._config.role, endpoint, totals, self.clock, self._has_next_key)
        tasks = [asyncio.create_task(_keep_warning(endpoint, self._log, self.clock))]
        if reloads := Reloads.current.get():
            tasks.append(asyncio.create_task(self._keep_reloading(reloads, endpoint, status)))
        try:
            async with status.served(self._config.socket, self._log):
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
        return Path(f"{self._config.identity}{NEXT}").is_file()


class ClientConnection:
    """A client's connection to one party."""

    def __init__(self, node: Node, pair: Parties, repeat: Repeat) -> None:
        self._node, self._pair, self._repeat = node, pair, repeat

    async def run(self, role: Callable[..., Awaitable[_R]], *given: object, **public: Any) -> _R:
        """Play a role in a session of its own, and return its result.

        While a party restarts, the session is repeated after each of `REPEAT_PAUSES`, as far as the
        connection allows it. A refusal is final.
        """
        for pause in REPEAT_PAUSES:
            is_here = self._pair[1] in self._node.endpoint.connected
            try:
                return await self._run(role, *given, **public)
            except (PeerLost, SessionAborted) as error:
                has_begun = is_here and not _is_before(error)
                may_follow = has_begun and self._repeat == "free" and _is_loss(error)
                if self._repeat == "never" or (has_begun and not may_follow):
                    raise
                _client_log.warning("%s; asking again in %g s", error, pause)
            await asyncio.sleep(pause)
        return await self._run(role, *given, **public)

    async def _run(self, role: Callable[..., Awaitable[_R]], *given: object, **public: Any) -> _R:
        session = Streams().token("session")
        return await self._node.run(role, session, self._pair, *given, **public)


def _is_before(error: PeerLost | SessionAborted) -> bool:
    """Return whether no party had taken part: one that leaves in order has ended what it began."""
    return error.orderly if isinstance(error, PeerLost) else error.reason in UNBEGUN


def _is_loss(error: PeerLost | SessionAborted) -> bool:
    return isinstance(error, PeerLost) or error.reason in _AMID


class Client:
    """A client of one party. Its key and its roster are checked before it connects.

    Args:
        key: The key of the configuration that names the party.
        server: The name of the party, if that is in the terms.
    """

    def __init__(self, config: Config, key: str = "ask", *, server: str = "") -> None:
        self._identity, self.roster = load_credentials(config)
        self.server: str = server or getattr(config, key)
        require_party(self.roster, key, self.server)
        self._limits = config.limits

    @asynccontextmanager
    async def connect(
        self,
        terms: Mapping[str, str] | None = None,
        *,
        seconds: float = CLIENT_CONNECT_SECONDS,
        repeat: Repeat = "never",
    ) -> AsyncIterator[ClientConnection]:
        """Connect to the party for as long as the context lasts.

        Args:
            terms: The client's terms, key by key; a party with different ones refuses it.
            repeat: Which sessions that failed are repeated.

        Raises:
            HandshakeError: If the party cannot be reached within that time.
            SessionAborted: If the party refused the request, with a note that explains the reason.
        """
        own = self.roster.member(self._identity.name)
        for warning in expiry_warnings((own,), utc_now()):
            _client_log.log(warning.level, "%s", warning.sentence)
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, connect_to=(self.server,), timeout=seconds, terms=terms
        )
        limits = self._limits
        async with Node(endpoint, Streams(), seconds=limits.client, limits=limits) as node:
            try:
                pair = Parties((self._identity.name, self.server))
                yield ClientConnection(node, pair, repeat)
            except SessionAborted as error:
                if error.reason in _HINTS:
                    direct, passed_on = _HINTS[error.reason]
                    hint = passed_on if error.culprit else direct
                    error.add_note(hint.format(culprit=error.culprit, by=error.by))
                raise
