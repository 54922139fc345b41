"""Fresh keys and race-free ports for parties that all live on this machine."""

import socket
from collections.abc import Sequence
from typing import NamedTuple

from veilring.transport.identity import Identity, make_identity
from veilring.transport.listener import bind
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK


class LocalRoster(NamedTuple):
    """A roster with everything that its parties need to appear under it."""

    roster: Roster
    identities: dict[str, Identity]
    listeners: dict[str, socket.socket]


def local_roster(parties: Sequence[str]) -> LocalRoster:
    """Make a key and a listening socket for each party, and the roster that names them.

    The sockets listen already, so that no port can be lost between choosing and using it, and a
    party that is late to start finds its callers waiting.
    """
    identities = {name: make_identity(name) for name in parties}
    listeners = {name: bind(LOOPBACK, 0) for name in parties}
    members = [
        Member.of(identities[name], host=LOOPBACK, port=listeners[name].getsockname()[1])
        for name in parties
    ]
    return LocalRoster(Roster(tuple(members)), identities, listeners)
