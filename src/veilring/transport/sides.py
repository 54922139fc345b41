"""The two sides of a new connection, and how each greets the other."""

import asyncio
from collections.abc import Awaitable

from typing_extensions import override

from veilring.transport.connection import Connection, Hub
from veilring.transport.handshake import (
    PROTOCOL_VERSION,
    Hello,
    Refusal,
    Refuse,
    Welcome,
    greeting,
    judge,
)


class Outgoing(Connection):
    """The side that dialled.

    Args:
        hub: The endpoint that it belongs to.
        expected: The member that the address belongs to.
    """

    def __init__(self, hub: Hub, expected: str) -> None:
        super().__init__(hub)
        self._expected = expected

    @override
    def secured(self) -> None:
        me = self._hub.me
        if self.peer == me:
            self.refuse(Refusal(f"{me} reached itself at the address of {self._expected}"))
        elif self.peer != self._expected:
            found = f"the address of {self._expected} answered with the key of {self.peer}"
            self.refuse(Refusal(found))
        else:
            hello = Hello(
                version=PROTOCOL_VERSION,
                roster=self._hub.roster.hash,
                sender=me,
                receiver=self.peer,
                terms=self._hub.terms,
            )
            self.write(greeting(hello))

    @override
    def heard(self, message: Hello | Welcome | Refuse) -> None:
        if isinstance(message, Welcome):
            self.open()
        else:
            self.refuse(Refusal("a greeting was answered with another"))


class Incoming(Connection):
    """The side that listened."""

    @override
    def secured(self) -> None:
        """The dialler speaks first."""

    @override
    def heard(self, message: Hello | Welcome | Refuse) -> None:
        if not isinstance(message, Hello):
            self.refuse(Refusal("a welcome came before any greeting"))
            return
        hub = self._hub
        refusal = judge(message, hub.roster, me=hub.me, peer=self.peer, terms=hub.terms)
        refusal = refusal or hub.objection(self.peer) or hub.haste(self.peer)
        if refusal is not None:
            self.refuse(refusal)
        else:
            self.write(greeting(Welcome()))
            self.open()


async def greeted(
    connection: Connection, attempt: Awaitable[object], seconds: float
) -> Refusal | None:
    """Carry a connection through TLS and greeting, both within the given time."""
    try:
        async with asyncio.timeout(seconds):
            await attempt
            # unshielded, the end of our patience would look like an outcome
            return await asyncio.shield(connection.greeted)
    except OSError as error:
        refusal = Refusal.by(error)
        connection.refuse(refusal)
        return refusal
    except asyncio.CancelledError:
        connection.abort()
        raise
