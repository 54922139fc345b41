"""The runtime with all parties in one event loop, over mutual TLS on loopback."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from typing_extensions import override

from veilring.nodes.party import Parties
from veilring.nodes.runtimes.tasks import TasksRuntime
from veilring.randomness import Streams
from veilring.transport.listener import bind
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint


class LocalRoster(NamedTuple):
    """A roster with everything that its parties need to use it."""

    roster: Roster
    identities: dict[str, Identity]
    listeners: dict[str, socket.socket]


def make_local_roster(parties: Sequence[str]) -> LocalRoster:
    """Make a key and a listening socket for each party, and the roster that names them.

    The sockets are listening already, so no port can be lost between choosing and using it, and
    connections to a party that starts late are accepted.
    """
    identities = {name: make_identity(name) for name in parties}
    listeners = {name: bind(LOOPBACK, 0) for name in parties}
    members = [
        Member.of(identities[name], host=LOOPBACK, port=listeners[name].getsockname()[1])
        for name in parties
    ]
    return LocalRoster(Roster(tuple(members)), identities, listeners)


class Tls(TasksRuntime):
    """All parties in this process, each with a key of its own, over mutual TLS on loopback."""

    @override
    async def start(
        self, parties: Parties, resident: Mapping[str, object], streams: Streams
    ) -> None:
        self._resident = resident
        local = make_local_roster(parties)

        async def join(name: str) -> None:
            listener = local.listeners[name]
            endpoint = await TlsEndpoint.start(
                local.identities[name], local.roster, listen=listener, streams=streams
            )
            # At once: a connection that breaks while others still connect can only be made again
            # after the node has noticed the loss.
            self._add_node(endpoint, streams)

        await asyncio.gather(*map(join, parties))
