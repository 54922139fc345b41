"""The settings of TLS: version 1.3 only, certificates both ways, trust in the roster alone."""

import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from veilring.transport.identity import Identity
from veilring.transport.roster import Roster

_PASSWORD_BYTES: Final = 32  # as strong as any key


def client_context(identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Return the settings of the side that dials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A peer is its key, compared with the roster once the handshake is done; a host name says
    # nothing more, and an address can change.
    context.check_hostname = False
    return _pinned(context, identity, roster)


def server_context(identity: Identity, roster: Roster) -> ssl.SSLContext:
    """Return the settings of the side that listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Tickets resume a session without certificates, and are the one thing that a server sends
    # unasked: a client that hangs up before it reads them turns its own last words into a reset.
    context.num_tickets = 0
    return _pinned(context, identity, roster)


def _pinned(context: ssl.SSLContext, identity: Identity, roster: Roster) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata="\n".join(m.certificate for m in roster.members))
    _load_key(context, identity)
    return context


def _load_key(context: ssl.SSLContext, identity: Identity) -> None:
    """Give the context our key, which Python's `ssl` takes from a file only.

    The file holds the key encrypted under a password that exists in this call alone.
    """
    password = secrets.token_bytes(_PASSWORD_BYTES)
    private = identity.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "identity.pem"
        path.write_bytes(private + identity.certificate_pem.encode())
        context.load_cert_chain(path, password=password)
