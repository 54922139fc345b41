"""Messages on a wire: frames, typed messages, and endpoints over memory and mutual TLS."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's attribute is anything)
    """Import TLS on first use: messages in memory need none."""
    if name == "TlsEndpoint":
        return import_module(f"{__name__}.tls").TlsEndpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
