"""How parties of a deployment meet: one listens and answers, another connects to it and asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from logging import Logger
from types import MappingProxyType
from typing import Final

from veilring.errors import HandshakeError, ScenarioError, SessionAborted
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer, Service
from veilring.nodes.session import SessionLimits
from veilring.randomness import Streams
from veilring.transport.identity import Identity
from veilring.transport.roster import Roster
from veilring.transport.tls import TlsEndpoint

# Somebody sits and waits for the answer.
CONNECT_SECONDS: Final = 10.0

# The parties of a deployment are started by different people on different machines: a member waits
# a day for the others before it gives up and says who is missing.
PEERS_SECONDS: Final = 86_400.0
# Often enough for a person who looks at the log, and some 1,400 lines a day for each party missing.
REMIND_SECONDS: Final = 60.0

# By the reason of a refusal; it is shown below the error. The first is for one who refused us, the
# second for one who refused whom we asked.
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


def require_party(roster: Roster, key: str, name: str) -> None:
    """Refuse a name that is no party's: clients cannot be asked, and do not serve.

    Args:
        roster: Who takes part.
        key: Where the name stands in the configuration.
        name: Whose.

    Raises:
        ScenarioError: It lists the parties.
    """
    if name not in roster.parties:
        raise ScenarioError(key, name, f"a party: {', '.join(roster.parties)}")


@asynccontextmanager
async def answering(
    identity: Identity,
    roster: Roster,
    listen: str,
    offers: Mapping[str, Offer],
    log: Logger,
    *,
    limits: SessionLimits,
    terms: Mapping[str, str] | None = None,
    kept: str = "",
) -> AsyncIterator[None]:
    """Listen, and answer whoever asks for an offer, until the context is left.

    Args:
        identity: Who listens.
        roster: Who may connect.
        listen: The address to listen at.
        offers: What is offered, by name.
        log: Where it says that it is ready.
        limits: How long sessions may take.
        terms: What is served, key by key: clients that believe otherwise are refused.
        kept: What its files hold, to be said with that.

    Raises:
        AddressTaken: If another process has the address.
    """
    endpoint = await TlsEndpoint.start(
        identity, roster, listen_host=listen, connect_to=(), terms=terms
    )
    node = Node(endpoint, Streams(), seconds=limits.served, limits=limits)
    async with node, Service(node, offers):
        with _saying_when_it_leaves(node.name, log):
            log.info("%s is ready%s", node.name, kept and f": {kept}")
            yield


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
        """Wait until all others are connected, and say once a minute for whom.

        Raises:
            HandshakeError: If a party is missing after so many seconds; it names all that are.
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
        """Go on until an end, and say once a minute who is missing, if somebody is."""
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


@asynccontextmanager
async def meeting(  # noqa: PLR0917  (who meets whom, where, and what they have agreed on)
    identity: Identity,
    roster: Roster,
    listen: str,
    log: Logger,
    limits: SessionLimits,
    terms: Mapping[str, str],
) -> AsyncIterator[Meeting]:
    """Listen and dial all other parties, and yield at once a party that is to meet them.

    Args:
        identity: Who waits: a party.
        roster: Who takes part.
        listen: The address to listen at.
        log: Where it says for whom it waits.
        limits: How long sessions may take.
        terms: What is run, key by key: members that believe otherwise are refused.

    Raises:
        ScenarioError: If it is no party, or its key is not the roster's.
        HandshakeError: If its own certificate has expired.
        AddressTaken: If another process has the address.
    """
    require_party(roster, "identity", identity.name)
    endpoint = await TlsEndpoint.start(
        identity, roster, listen_host=listen, timeout=None, terms=terms
    )
    async with Node(endpoint, Streams(), seconds=limits.session, limits=limits) as node:
        log.info("%s waits for all of %s", identity.name, ", ".join(roster.parties))
        with _saying_when_it_leaves(identity.name, log):
            yield Meeting(endpoint, node, log)


@contextmanager
def _saying_when_it_leaves(name: str, log: Logger) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        log.info("%s is leaving", name)
        raise


@asynccontextmanager
async def connected(
    identity: Identity,
    roster: Roster,
    server: str,
    *,
    limits: SessionLimits,
    terms: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Node, Parties]]:
    """Yield a node that is connected with one party, and the pair of both for its sessions.

    Args:
        identity: Who connects.
        roster: Who takes part.
        server: The party.
        limits: How long sessions may take.
        terms: What the client believes is run, key by key; a party that has others refuses it.

    Raises:
        HandshakeError: If the party cannot be reached within `CONNECT_SECONDS`.
        SessionAborted: If it refused what was asked of it, with a note that says why.
    """
    endpoint = await TlsEndpoint.start(
        identity, roster, connect_to=(server,), timeout=CONNECT_SECONDS, terms=terms
    )
    async with Node(endpoint, Streams(), seconds=limits.client, limits=limits) as node:
        try:
            yield node, Parties((identity.name, server))
        except SessionAborted as error:
            if error.reason in _HINTS:
                direct, passed_on = _HINTS[error.reason]
                hint = passed_on if error.culprit else direct
                error.add_note(hint.format(culprit=error.culprit, by=error.by))
            raise
