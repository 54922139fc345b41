"""Endpoints over mutual TLS 1.3: parties in a full mesh, clients that dial them."""

import asyncio
import logging
import secrets
import socket
import ssl
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from typing_extensions import override

from veilring.errors import HandshakeError, InputError, PeerLost, VeilringError
from veilring.randomness import Streams
from veilring.transport.connection import GOODBYE_SECONDS, Connection, complete_handshake
from veilring.transport.endpoint import QUEUED_FRAMES_MAX, Endpoint, Sink
from veilring.transport.frames import check_frame
from veilring.transport.handshake import FORMAT, HANDSHAKE_SECONDS, ConnectionRefusal
from veilring.transport.links import Links
from veilring.transport.listener import Listener, bind
from veilring.transport.pacing import SparingLog, dial_pauses
from veilring.transport.roster import Identity, Roster, utc_now

LOOPBACK: Final = "127.0.0.1"
"""The default listening address, so that no network is opened by accident."""
# Processes of one run start within seconds of each other, on slow machines within tens.
CONNECT_SECONDS: Final = 30.0
# enough to diagnose a problem; a scanner cannot fill the memory
REFUSALS_KEPT: Final = 100
_STRANGERS: Final = "strangers"  # an unknown member has no log of its own
# The term by which a party refuses a greeting that only compares. It is sorted before all others,
# and short enough to be shown in full.
_COMPARISON: Final = f"Only compared, no connection: {FORMAT}"
_PASSWORD_BYTES: Final = 32  # as strong as any key
_log = logging.getLogger("veilring.transport")


class TlsEndpoint(Endpoint):
    """A party's or a client's endpoint; create it with `TlsEndpoint.start`.

    Of two parties, the one that is earlier in the roster dials the other. Clients dial parties;
    parties never dial clients, and a client becomes a party's peer when it first connects. The side
    that dialled a peer dials it again after a loss, for as long as the endpoint exists, so a
    restarted process is reconnected; it is reachable again only after `receive` has raised its
    `PeerLost`.

    Attributes:
        refusals: The last `REFUSALS_KEPT` refused incoming connections, which never reach a node.
        refused: The number of all refused incoming connections.
        expires: The time at which our own certificate ends, in UTC.
    """

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        terms: Mapping[str, str] | None = None,
        streams: Streams | None = None,
    ) -> None:
        self._handshake_seconds = handshake_seconds
        self._streams = Streams() if streams is None else streams
        self.name = identity.name
        self.expires = identity.certificate.not_valid_after_utc
        self.refusals: deque[HandshakeError] = deque(maxlen=REFUSALS_KEPT)
        self.refused = 0
        self._links = Links(identity, roster, terms or {})
        self._sends = 0  # since one has waited
        self._client_context = client_context(identity, roster)
        self._server_context = server_context(identity, roster)
        self._expected: tuple[str, ...] = ()
        self._obstacles: dict[str, ConnectionRefusal] = {}
        self._lines = SparingLog(_log)
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(
        cls,
        identity: Identity,
        roster: Roster,
        *,
        listen: socket.socket | str = LOOPBACK,
        connect_to: Collection[str] | None = None,
        timeout: float | None = CONNECT_SECONDS,  # noqa: ASYNC109  (its end says who is missing)
        handshake_seconds: float = HANDSHAKE_SECONDS,
        terms: Mapping[str, str] | None = None,
        streams: Streams | None = None,
    ) -> Self:
        """Listen, dial, and return once all expected peers are connected.

        Args:
            identity: Our own identity; its name and key must be in the roster.
            listen: The address to listen at, on the roster's port; or a bound and listening TCP
                socket, owned by the endpoint from then on, for a launcher that allocates ports
                without a race. A client listens at no address.
            connect_to: The parties to wait for; by default all others.
            timeout: The time limit in seconds. With `None` it returns at once; then `absent` has
                the missing parties, and `change` waits for news.
            handshake_seconds: The time limit of one attempt, on either side.
            terms: The public terms, key by key: a peer with different ones is refused, with the
                keys that differ.
            streams: The randomness of the pauses between attempts; cryptographic by default.

        Raises:
            InputError: If an argument does not fit the roster or the machine.
            AddressTaken: If another process is using the port.
            HandshakeError: If peers are missing; it names all of them, with the reasons. Nothing
                stays open.
        """
        try:
            expected = expected_peers(identity, roster, connect_to)
        except InputError:
            if isinstance(listen, socket.socket):
                listen.close()
            raise
        endpoint = cls(identity, roster, handshake_seconds, terms, streams)
        try:
            endpoint._listen(listen)
            endpoint._expected = expected
            for name in expected:
                if dials(roster, endpoint.name, name):
                    endpoint._tasks.add(asyncio.create_task(endpoint._keep_dialling(name)))
            if timeout is not None:
                await endpoint._assemble(timeout)
            endpoint._links.hand_out()
        except BaseException:
            await endpoint.close()
            raise
        return endpoint

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        known = {*self._expected, *self._links.seen}
        return tuple(name for name in self.roster.names if name in known)

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        connected = self._links.connected
        return tuple(name for name in self.roster.names if name in connected)

    @override
    async def send(self, to: str, frame: bytes) -> None:
        while not self.send_now(to, frame):
            connection = self._links.connection_to(to)
            check_frame(frame)
            await asyncio.sleep(0)  # a sender that never waits hears of the end of its session
            self._sends = 0
            await connection.room()
            if not connection.is_open and self._links.connection_to(to) is connection:
                raise self._links.loss_of(to)

    @override
    def send_now(self, to: str, frame: bytes) -> bool:
        connection = self._links.open.get(to)
        self._sends += 1
        if connection is None or self._sends >= QUEUED_FRAMES_MAX:
            return False
        return connection.send_now(frame)

    @override
    async def receive(self) -> tuple[str, bytes]:
        try:
            return await self._links.inbox.get()
        except PeerLost as loss:
            self._links.acknowledge_loss(loss.peer)
            raise

    @override
    def attach(self, sink: Sink) -> None:
        self._links.attach(sink)

    @override
    def rest(self, peer: str, seconds: float) -> None:
        self._links.rest(peer, seconds)

    @override
    def cut(self, peer: str, why: VeilringError) -> None:
        self._links.cut(peer, why)

    @override
    async def close(self) -> None:
        """Say goodbye to all peers and wait up to `GOODBYE_SECONDS` for their answers.

        A peer that has not read everything by then sees a crash instead of a goodbye. Idempotent.
        """
        self._stop()
        try:
            await self._links.leave(GOODBYE_SECONDS)
        finally:
            admissions = self._listener.admissions if self._listener else ()
            await asyncio.gather(*self._tasks, *admissions, return_exceptions=True)

    @override
    def abort(self) -> None:
        self._stop()
        self._links.abort()

    def _stop(self) -> None:
        self._links.inbox.close()
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()

    def _listen(self, at: socket.socket | str) -> None:
        member = self.roster.member(self.name)
        if isinstance(at, socket.socket) or member.kind == "party":
            self._listener = Listener(
                bind(at, member.port) if isinstance(at, str) else at,
                self._admit,
                self._turned_away,
                self._handshake_seconds,
            )

    @property
    def roster(self) -> Roster:
        """The roster in use."""
        return self._links.roster

    def renewal(self, identity: Identity, roster: Roster) -> Callable[[], None]:
        """Check another key, certificate or roster, and return the step that uses it.

        New connections use them. An open connection stays if the roster has the key by which its
        peer was authenticated. With a new key of our own, or a peer's, the side that dials replaces
        it, and no frame is lost.

        Args:
            identity: Our own identity, whose name stays.
            roster: A roster with the same parties in the same order; clients may differ.

        Raises:
            InputError: If they do not fit. Nothing has changed.
        """
        if roster.parties != self.roster.parties or identity.name != self.name:
            raise InputError.because(
                f"the roster has the parties {', '.join(roster.parties)} instead of"
                f" {', '.join(self.roster.parties)}; restart all parties to change them",
                field="roster",
            )
        expected_peers(identity, roster, ())
        contexts = client_context(identity, roster), server_context(identity, roster)

        def renew() -> None:
            self._client_context, self._server_context = contexts
            self.expires = identity.certificate.not_valid_after_utc
            self._links.renew(identity, roster)

        return renew

    def absent(self) -> dict[str, str]:
        """Return the reason why each expected peer is not connected now, by its name."""
        missing = [name for name in self._expected if name not in self._links.connected]
        return {name: self._obstacle_of(name) for name in missing}

    def _obstacle_of(self, name: str) -> str:
        member = self.roster.member(name)
        if name in self._obstacles:
            return f"{member.host}:{member.port}: {self._obstacles[name].reason}"
        if dials(self.roster, self.name, name):
            return f"{member.host}:{member.port}"
        last = f"; the last connection refused: {self.refusals[-1]}" if self.refusals else ""
        return f"{member.host}:{member.port}: it has not connected{last}"

    async def change(self) -> None:
        """Wait until a peer connects, is lost or is unreachable for another reason."""
        await self._links.change()

    async def _assemble(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self._missing() and not self._hopeless():
                    await self._links.change()
        except TimeoutError:
            pass
        missing = self._hopeless() or self._missing()
        if missing:
            raise self._absence(missing, seconds)

    def _missing(self) -> list[str]:
        seen = self._links.seen
        return [name for name in self._expected if name not in seen]

    def _hopeless(self) -> list[str]:
        final = {name for name, obstacle in self._obstacles.items() if not obstacle.again}
        return [name for name in self._missing() if name in final]

    def _absence(self, missing: list[str], seconds: float) -> HandshakeError:
        silent = f"it did not connect within {seconds:g} s"
        if self.refusals:
            silent += f" (the last connection refused: {self.refusals[-1]})"
        reasons = {
            name: self._obstacles[name].reason if name in self._obstacles else silent
            for name in missing
        }
        if len(missing) == 1:
            return HandshakeError(missing[0], reasons[missing[0]])
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return HandshakeError(", ".join(missing), listed)

    async def _keep_dialling(self, name: str) -> None:
        rng = self._streams.generator("dial", self.name, name)
        pauses = dial_pauses(rng)
        while True:
            while self._links.objection(name) is not None:
                await self._links.change()
            refusal = await self._dial(name)
            if refusal is None:
                pauses = dial_pauses(rng)
                self._obstacles.pop(name, None)
                continue
            where = f"{self.roster.member(name).host}:{self.roster.member(name).port}"
            line = "%s cannot reach %s at %s: %s"
            self._lines.say(
                logging.INFO, name, refusal.reason, line, self.name, name, where, refusal.reason
            )
            self._links.drop_unknown(name)
            self._obstacle(name, refusal)
            await asyncio.sleep(next(pauses))

    def _obstacle(self, name: str, refusal: ConnectionRefusal) -> None:
        self._obstacles[name] = refusal
        self._links.pulse()

    async def _dial(self, name: str) -> ConnectionRefusal | None:
        member = self.roster.member(name)
        connection = Connection(self._links, name)
        attempt = asyncio.get_running_loop().create_connection(
            lambda: connection,
            member.host,
            member.port,
            ssl=self._client_context,
            server_hostname="",  # the peer is identified by its key: see `_pinned`
            ssl_handshake_timeout=self._handshake_seconds,
            ssl_shutdown_timeout=GOODBYE_SECONDS,
        )
        return await complete_handshake(connection, attempt, self._handshake_seconds)

    async def _admit(self, sock: socket.socket, address: str) -> bool:
        connection = Connection(self._links)
        attempt = asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            sock,
            ssl=self._server_context,
            ssl_handshake_timeout=self._handshake_seconds,
            ssl_shutdown_timeout=GOODBYE_SECONDS,
        )
        refusal = await complete_handshake(connection, attempt, self._handshake_seconds)
        if refusal is None:
            self._obstacles.pop(connection.peer, None)
        else:
            self._turned_away(connection.peer or address, refusal.reason)
            if connection.peer:
                self._obstacle(connection.peer, refusal)
        return refusal is None

    def _turned_away(self, who: str, reason: str) -> None:
        error = HandshakeError(who, reason)
        self.refusals.append(error)
        self.refused += 1
        about = who if who in self.roster.names else _STRANGERS
        self._lines.say(
            logging.WARNING, about, reason, "%s refused a connection: %s", self.name, error
        )


async def compare_terms(
    identity: Identity, roster: Roster, party: str, terms: Mapping[str, str]
) -> ConnectionRefusal | None:
    """Return the refusal of a party whose roster, formats or terms differ from ours, or `None`.

    No connection is opened, even if we are connected to it: the greeting has one more term, by
    which the party refuses it.
    """
    endpoint = TlsEndpoint(identity, roster, terms={**terms, _COMPARISON: "1"})
    try:
        refusal = await endpoint._dial(party)  # noqa: SLF001  (of the same module)
    finally:
        await endpoint.close()
    if refusal is None:  # an older version, which does not compare formats
        return None
    added = f"{_COMPARISON}: 1 at {identity.name}, nothing at {party}"
    before, found, others = refusal.reason.partition(added)
    if not found:
        return refusal
    return ConnectionRefusal(before + others.lstrip("; ")) if others else None


def expected_peers(
    identity: Identity, roster: Roster, connect_to: Collection[str] | None
) -> tuple[str, ...]:
    """Return the peers that a member waits for when it starts, in the order of the roster.

    Args:
        connect_to: Some of the parties; by default all others.
    """
    me, now = roster.member(identity.name), utc_now()
    if identity.fingerprint == me.previous_fingerprint:
        if not me.accepts_previous(now.date()):
            raise InputError.because(
                f"the identity has the previous key of {me.name}, which was accepted until"
                f" {me.previous_until}; use the new key, {me.fingerprint}",
                field="identity",
            )
    elif me.fingerprint != identity.fingerprint:
        raise InputError.because(
            f"the key of the identity is not the roster's key for {me.name}, which is "
            f"{me.fingerprint}",
            field="identity",
        )
    end = identity.certificate.not_valid_after_utc
    if end < now:
        raise InputError.because(
            f"the certificate of {me.name} expired on {end:%Y-%m-%d}; make a new key with `veilring"
            " keys renew`, and a new roster for all members",
            field="identity",
        )
    others = tuple(name for name in roster.parties if name != me.name)
    if connect_to is None:
        return others
    for name in connect_to:
        if name not in others:
            raise InputError.because(
                f"{name!a} is not another party of the roster", field="connect_to"
            )
    return tuple(name for name in others if name in connect_to)


def dials(roster: Roster, me: str, peer: str) -> bool:
    """Return whether a member dials a peer: a client dials parties, an earlier party later ones."""
    return roster.member(me).kind == "client" or roster.names.index(me) < roster.names.index(peer)


def client_context(identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Return the TLS settings of the side that dials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A peer is identified by its key, which is compared with the roster after the handshake; a host
    # name adds nothing, and an address can change.
    context.check_hostname = False
    return _pinned(context, identity, roster)


def server_context(identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Return the TLS settings of the side that listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Tickets resume a session without certificates, and are the only thing that a server sends
    # unasked: a client that hangs up before it reads them turns its own last words into a reset.
    context.num_tickets = 0
    return _pinned(context, identity, roster)


def _pinned(context: ssl.SSLContext, identity: Identity, roster: Roster) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    # Two certificates of one name, of its previous and its new key: without this flag, OpenSSL
    # compares a self-signed certificate with only one of them.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=roster.certificates)
    _load_key(context, identity)
    return context


def _load_key(context: ssl.SSLContext, identity: Identity) -> None:
    """Load our key into the context, which Python's `ssl` accepts only from a file.

    The file contains the key encrypted under a password that exists only in this call.
    """
    password = secrets.token_bytes(_PASSWORD_BYTES)
    private = identity.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "identity.pem"
        path.write_bytes(private + identity.certificate_pem.encode())
        context.load_cert_chain(path, password=password)
