"""What all endpoints inside one process have in common, on a real clock and on a simulated one."""

from abc import abstractmethod
from collections.abc import Callable, Iterable

from typing_extensions import override

from veilring.errors import EndpointClosed, InputError, PeerLost
from veilring.transport.endpoint import Endpoint
from veilring.transport.inbox import Inbox


def each_once(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a network's parties.

    Raises:
        InputError: If one occurs twice.
    """
    listed = tuple(names)
    if len(set(listed)) != len(listed):
        raise InputError("names", "a list with repetitions", "each party once")
    return listed


class InProcessEndpoint(Endpoint):
    """An endpoint whose peers are objects beside it; a subclass carries frames to them.

    Args:
        name: The party's.
        parties: All parties of the network.
        on_room: Called whenever the inbox was full and is no longer.

    Attributes:
        inbox: What has arrived.
        gone: The peers that are lost, and how.
    """

    def __init__(self, name: str, parties: tuple[str, ...], on_room: Callable[[], None]) -> None:
        self.name = name
        self.inbox = Inbox(name, on_room)
        self.gone: dict[str, PeerLost] = {}
        self._parties = parties

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self._parties if name != self.name)

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return tuple(name for name in self.peers if name not in self.gone)

    def check_open(self, to: str) -> None:
        """Refuse to send where nothing arrives.

        Raises:
            EndpointClosed: If this endpoint was closed.
            PeerLost: If the peer is gone.
        """
        if self.inbox.closed:
            raise EndpointClosed(f"the endpoint of {self.name} is closed")
        if to in self.gone:
            raise PeerLost(to, orderly=self.gone[to].orderly)

    @abstractmethod
    def end(self, *, orderly: bool) -> None:
        """End, and let the peers hear of it, unless this has ended before."""

    @override
    async def close(self) -> None:
        self.end(orderly=True)

    @override
    def abort(self) -> None:
        self.end(orderly=False)
