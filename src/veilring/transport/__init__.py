"""Messages on a wire: frames, typed messages, and endpoints over memory and mutual TLS."""

from veilring.transport.endpoint import Endpoint, MemoryEndpoint, MemoryNetwork
from veilring.transport.frames import FRAME_BYTES_MAX
from veilring.transport.messages import Message, decode, encode
from veilring.transport.roster import (
    Identity,
    Member,
    Roster,
    load_identity,
    make_identity,
    save_identity,
)
from veilring.transport.tls import TlsEndpoint

__all__ = (
    "FRAME_BYTES_MAX",
    "Endpoint",
    "Identity",
    "Member",
    "MemoryEndpoint",
    "MemoryNetwork",
    "Message",
    "Roster",
    "TlsEndpoint",
    "decode",
    "encode",
    "load_identity",
    "make_identity",
    "save_identity",
)
