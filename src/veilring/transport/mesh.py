"""Who connects with whom: parties in a full mesh, clients that dial them."""

import datetime as dt
from collections.abc import Collection

from veilring.errors import HandshakeError, InputError
from veilring.transport.identity import Identity
from veilring.transport.roster import Roster


def expected_peers(
    identity: Identity, roster: Roster, connect_to: Collection[str] | None
) -> tuple[str, ...]:
    """Return the peers that a member waits for when it starts, in the order of the roster.

    Args:
        identity: The member's own.
        roster: All members.
        connect_to: Some of the parties; all others unless given.

    Raises:
        InputError: If the key is not the roster's, or one of `connect_to` is no other party.
        HandshakeError: If the member's own certificate has expired: nobody would connect with it.
    """
    me = roster.member(identity.name)
    if me.fingerprint != identity.fingerprint:
        raise InputError("identity", f"another key of {me.name}", f"the key {me.fingerprint}")
    end = identity.certificate.not_valid_after_utc
    if end < dt.datetime.now(dt.UTC):
        raise HandshakeError(me.name, f"our own certificate expired on {end:%Y-%m-%d}")
    others = tuple(name for name in roster.parties if name != me.name)
    if connect_to is None:
        return others
    for name in connect_to:
        if name not in others:
            raise InputError("connect_to", ascii(name), "other parties of the roster")
    return tuple(name for name in others if name in connect_to)


def dials(roster: Roster, me: str, peer: str) -> bool:
    """Say whether a member dials a peer: the client of two dials, else the one named earlier."""
    return roster.member(me).kind == "client" or roster.names.index(me) < roster.names.index(peer)
