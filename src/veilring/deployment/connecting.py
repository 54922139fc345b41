"""How parties of a deployment meet: one listens and answers, another connects to it and asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from logging import Logger
from types import MappingProxyType
from typing import Any, Final, TypeVar

from veilring.deployment.config import Config, ServerConfig, load_credentials
from veilring.errors import HandshakeError, ScenarioError, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer, Service
from veilring.randomness import Streams
from veilring.transport.roster import Roster
from veilring.transport.tls import TlsEndpoint

# Somebody sits and waits for the answer.
CLIENT_CONNECT_SECONDS: Final = 10.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and names those that are missing.
PEERS_SECONDS: Final = 86_400.0
# Often enough for a person who reads the log: some 1,400 lines a day for each party missing.
REMIND_SECONDS: Final = 60.0

# By the reason of a refusal, shown below the error: first if the party asked refuses, and second if
# another party refuses the party asked.
_HINTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "OtherTerms": (
            "Its file of terms says something else than yours.",
            "{culprit}'s terms say something else than {by}'s.",
        ),
        "NotOffered": (
            "It does not do this, or not for you: its configuration says for whom.",
            "{culprit} does not do this, or not for {by}.",
        ),
    }
)

_R = TypeVar("_R")


def require_party(roster: Roster, key: str, name: str) -> None:
    """Refuse a name that is no party's: clients cannot be asked, and do not serve.

    Args:
        roster: The parties and the clients.
        key: The key of the configuration that has the name.
        name: The name.

    Raises:
        ScenarioError: It lists the parties.
    """
    if name not in roster.parties:
        raise ScenarioError(key, name, f"a party: {', '.join(roster.parties)}")


class Meeting:
    """A party that is to be connected with all others.

    Args:
        endpoint: It dials the others.
        node: What runs on it.
        log: Where it says for whom it waits.
    """

    def __init__(self, endpoint: TlsEndpoint, node: Node, log: Logger) -> None:
        self.node = node
        self._endpoint, self._log = endpoint, log

    async def all_here(self, seconds: float = PEERS_SECONDS) -> None:
        """Wait until all others are connected, and log the missing ones once a minute.

        Raises:
            HandshakeError: If a party is missing after that time; it names all that are.
        """
        loop = asyncio.get_running_loop()
        end, said = loop.time() + seconds, loop.time()
        while absent := self._endpoint.absent():
            if loop.time() >= end:
                reasons = "; ".join(f"{name} at {why}" for name, why in absent.items())
                raise HandshakeError(", ".join(absent), f"missing after {seconds:g} s: {reasons}")
            if loop.time() >= said + REMIND_SECONDS:
                said = loop.time()
                self._remind(absent)
            await self._change(min(end, said + REMIND_SECONDS))

    async def stay(self, end: Awaitable[object]) -> None:
        """Go on until an end, and log the missing parties once a minute."""
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
            self._log.warning("%s waits for %s at %s", self.node.name, name, why)

    async def _change(self, when: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(when):
                await self._endpoint.change()


class Server:
    """A party that others reach. Its key and its roster are checked before it listens.

    Args:
        config: Its configuration.
        log: The log in which it says that it is ready, and that it leaves.

    Attributes:
        roster: The parties and the clients.

    Raises:
        ScenarioError: If its key or its roster cannot be read, or it is no party of the roster.
    """

    def __init__(self, config: ServerConfig, log: Logger) -> None:
        self._identity, self.roster = load_credentials(config)
        require_party(self.roster, "identity", self._identity.name)
        self._listen, self._limits, self._log = config.listen, config.limits, log

    @asynccontextmanager
    async def listen(
        self,
        offers: Mapping[str, Offer],
        *,
        terms: Mapping[str, str] | None = None,
        kept: str = "",
    ) -> AsyncIterator[None]:
        """Listen, and answer members that ask for an offer, until the context is left.

        Args:
            offers: The offers by name.
            terms: What is served, key by key: clients that believe otherwise are refused.
            kept: What its files hold, to be said when it is ready.

        Raises:
            AddressTaken: If another process has the address.
        """
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, listen=self._listen, connect_to=(), terms=terms
        )
        node = Node(endpoint, Streams(), seconds=self._limits.served, limits=self._limits)
        async with node, Service(node, offers):
            with _saying_when_it_leaves(node.name, self._log):
                self._log.info("%s is ready%s", node.name, kept and f": {kept}")
                yield

    @asynccontextmanager
    async def meet(self, terms: Mapping[str, str]) -> AsyncIterator[Meeting]:
        """Listen and dial all other parties, and yield at once a party that is to meet them.

        Args:
            terms: What is run, key by key: members that believe otherwise are refused.

        Raises:
            InputError: If its key is not the roster's.
            HandshakeError: If its own certificate has expired.
            AddressTaken: If another process has the address.
        """
        endpoint = await TlsEndpoint.start(
            self._identity, self.roster, listen=self._listen, timeout=None, terms=terms
        )
        name, limits, log = self._identity.name, self._limits, self._log
        async with Node(endpoint, Streams(), seconds=limits.session, limits=limits) as node:
            log.info("%s waits for all of %s", name, ", ".join(self.roster.parties))
            with _saying_when_it_leaves(name, log):
                yield Meeting(endpoint, node, log)


class ClientConnection:
    """A client's connection with one party.

    Args:
        node: The client's node.
        pair: The client and the party.
    """

    def __init__(self, node: Node, pair: Parties) -> None:
        self._node, self._pair = node, pair

    async def run(self, role: Callable[..., Awaitable[_R]], *given: object, **public: Any) -> _R:
        """Play a role in a session of its own, and return its result."""
        session = Streams().token("session")
        return await self._node.run(role, session, self._pair, *given, **public)


class Client:
    """A client of one party. Its key and its roster are checked before it connects.

    Args:
        config: Its configuration.
        key: The key of the configuration that names the party.

    Attributes:
        roster: The parties and the clients.
        server: The name of the party.

    Raises:
        ScenarioError: If its key or its roster cannot be read, or what it asks is no party.
    """

    def __init__(self, config: Config, key: str = "ask") -> None:
        self._identity, self.roster = load_credentials(config)
        self.server: str = getattr(config, key)
        require_party(self.roster, key, self.server)
        self._limits = config.limits

    @asynccontextmanager
    async def connect(
        self, terms: Mapping[str, str] | None = None, *, seconds: float = CLIENT_CONNECT_SECONDS
    ) -> AsyncIterator[ClientConnection]:
        """Connect with the party for as long as the context lasts.

        Args:
            terms: What the client believes is run, key by key; a party that has others refuses it.
            seconds: How long it tries.

        Raises:
            HandshakeError: If the party cannot be reached within that time.
            SessionAborted: If it refused what was asked of it, with a note that says why.
        """
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


@contextmanager
def _saying_when_it_leaves(name: str, log: Logger) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        log.info("%s is leaving", name)
        raise
