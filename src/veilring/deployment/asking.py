"""A client of one party: its connection, and the requests that it repeats."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Any, Final, Literal, TypeVar

from veilring.deployment.config import Config, load_credentials, require_party
from veilring.deployment.expiry import expiry_warnings
from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import UNBEGUN
from veilring.nodes.session import PEER_STOPPED
from veilring.randomness import Streams
from veilring.transport.roster import utc_now
from veilring.transport.tls import TlsEndpoint

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
