"""Connections in a deployment: servers that listen, members that meet, and clients."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from logging import Logger, getLogger
from typing import Any, Final, TypeVar

from veilring.config import require_key
from veilring.deployment.config import Config, ServerConfig, load_credentials
from veilring.errors import HandshakeError, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer, Service
from veilring.randomness import Streams
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import TlsEndpoint

# a person is waiting for the answer
CLIENT_CONNECT_SECONDS: Final = 10.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and names the missing ones.
PEERS_SECONDS: Final = 86_400.0
# Often enough for a person who reads the log: some 1,400 lines a day for each missing party.
REMIND_SECONDS: Final = 60.0
# Long enough to exchange a new roster with people on holiday; a year's certificate is renewed once.
EXPIRY_WARNING_DAYS: Final = 30
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
Clock = Callable[[], dt.datetime]


def require_party(roster: Roster, key: str, name: str) -> None:
    """Refuse a name that is not a party's: clients do not serve."""
    require_key(name in roster.parties, key, name, f"a party: {', '.join(roster.parties)}")


class Meeting:
    """A party that connects to all others.

    Args:
        log: The log for missing parties.
    """

    def __init__(self, endpoint: TlsEndpoint, node: Node, log: Logger) -> None:
        self.node = node
        self._endpoint, self._log = endpoint, log

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


def expiry_warnings(members: Iterable[Member], now: dt.datetime) -> list[str]:
    """Return a sentence about each certificate or key that ends within `EXPIRY_WARNING_DAYS`."""
    said = []
    for member in members:
        left = member.expires - now
        if left <= dt.timedelta(days=EXPIRY_WARNING_DAYS):
            day = f"{member.expires:%Y-%m-%d}"
            ended = left < dt.timedelta()
            ends = f"ended on {day}" if ended else f"ends on {day} (days left: {left.days})"
            said.append(
                f"the certificate of {member.name} {ends}; without a new key and a new roster, no"
                " party connects to it after that day"
            )
        if member.previous_until and member.accepts_previous(now.date()):
            days = (member.previous_until - now.date()).days
            if days <= EXPIRY_WARNING_DAYS:
                said.append(
                    f"the previous key of {member.name} is accepted until {member.previous_until}"
                    f" (days left: {days}); restart {member.name} with its new key by then"
                )
    return said


async def _keep_warning(members: Sequence[Member], log: Logger, clock: Clock) -> None:
    while True:
        for line in expiry_warnings(members, clock()):
            log.warning("%s", line)
        await asyncio.sleep(EXPIRY_CHECK_SECONDS)


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Server:
    """A party that accepts connections. Its key and its roster are checked before it listens.

    Args:
        log: The log for its start, its end, and certificates that will expire.
    """

    def __init__(self, config: ServerConfig, log: Logger, clock: Clock = _utc_now) -> None:
        self.clock = clock
        self._identity, self.roster = load_credentials(config)
        self.name = self._identity.name
        require_party(self.roster, "identity", self.name)
        self._listen, self._limits, self._log = config.listen, config.limits, log

    @asynccontextmanager
    async def listen(
        self, offers: Mapping[str, Offer], *, terms: Mapping[str, str] | None = None, kept: str = ""
    ) -> AsyncIterator[None]:
        """Listen, and answer requests for the offers, until the context is left.

        Args:
            kept: The content of its files, for the log.

        Raises:
            AddressTaken: If another process is using the address.
        """
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, listen=self._listen, connect_to=(), terms=terms
        )
        node = Node(endpoint, Streams(), seconds=self._limits.served, limits=self._limits)
        async with node, Service(node, offers):
            with self._running():
                self._log.info("%s is ready%s", node.name, kept and f": {kept}")
                yield

    @asynccontextmanager
    async def meet(self, terms: Mapping[str, str]) -> AsyncIterator[Meeting]:
        """Listen and dial all other parties, and yield a `Meeting` at once.

        Raises:
            AddressTaken: If another process is using the address.
        """
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, listen=self._listen, timeout=None, terms=terms
        )
        name, limits, log = self.name, self._limits, self._log
        async with Node(endpoint, Streams(), seconds=limits.session, limits=limits) as node:
            if others := [party for party in self.roster.parties if party != name]:
                log.info("%s is waiting for %s", name, ", ".join(others))
            with self._running():
                yield Meeting(endpoint, node, log)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Warn each day of certificates that will expire, and log the end."""
        warning = asyncio.create_task(_keep_warning(self.roster.members, self._log, self.clock))
        try:
            yield
        except asyncio.CancelledError:
            self._log.info("%s is shutting down", self.name)
            raise
        finally:
            warning.cancel()


class ClientConnection:
    """A client's connection to one party."""

    def __init__(self, node: Node, pair: Parties) -> None:
        self._node, self._pair = node, pair

    async def run(self, role: Callable[..., Awaitable[_R]], *given: object, **public: Any) -> _R:
        """Play a role in a session of its own, and return its result."""
        session = Streams().token("session")
        return await self._node.run(role, session, self._pair, *given, **public)


class Client:
    """A client of one party. Its key and its roster are checked before it connects."""

    def __init__(self, config: Config, key: str = "ask") -> None:
        self._identity, self.roster = load_credentials(config)
        self.server: str = getattr(config, key)
        require_party(self.roster, key, self.server)
        self._limits = config.limits

    @asynccontextmanager
    async def connect(
        self, terms: Mapping[str, str] | None = None, *, seconds: float = CLIENT_CONNECT_SECONDS
    ) -> AsyncIterator[ClientConnection]:
        """Connect to the party for as long as the context lasts.

        Args:
            terms: The client's terms, key by key; a party with different ones refuses it.

        Raises:
            HandshakeError: If the party cannot be reached within that time.
            SessionAborted: If the party refused the request, with a note that explains the reason.
        """
        for line in expiry_warnings((self.roster.member(self._identity.name),), _utc_now()):
            _client_log.warning("%s", line)
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, connect_to=(self.server,), timeout=seconds, terms=terms
        )
        limits = self._limits
        async with Node(endpoint, Streams(), seconds=limits.client, limits=limits) as node:
            try:
                yield ClientConnection(node, Parties((self._identity.name, self.server)))
            except SessionAborted as error:
                if error.reason in _HINTS:
                    direct, passed_on = _HINTS[error.reason]
                    hint = passed_on if error.culprit else direct
                    error.add_note(hint.format(culprit=error.culprit, by=error.by))
                raise
