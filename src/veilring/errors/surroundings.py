"""Nobody's fault: a network, a disk or a database failed, or an end is closed."""

from veilring.errors.root import TransportError, VeilringError

__all__ = ("AddressTaken", "EndpointClosed", "PeerLost", "SessionTimeout", "StoreFailed")


class StoreFailed(VeilringError):
    """Raised when a database cannot be reached or did not take what had to be durable."""


class EndpointClosed(TransportError):
    """Raised when an endpoint is used after its own side closed it."""


class AddressTaken(TransportError):
    """Raised when another process listens where this one was to; it may be gone in a moment.

    Attributes:
        host: The address.
        port: The TCP port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(host, port)

    def __str__(self) -> str:
        where = f"{self.host}:{self.port}"
        return f"another process listens at {where}; stop it or change the port in the roster"


class PeerLost(TransportError):
    """Raised when a peer is gone: its process died, its network broke, or it said goodbye.

    Attributes:
        peer: The roster name of the peer.
        orderly: Whether it said goodbye. It will not come back to this session either way.
    """

    def __init__(self, peer: str, *, orderly: bool = False) -> None:
        self.peer, self.orderly = peer, orderly
        super().__init__(peer)

    def __reduce__(self) -> tuple[object, ...]:
        return _peer_lost, (self.peer, self.orderly)

    def __str__(self) -> str:
        how = "left" if self.orderly else "was lost: its connection broke without a goodbye"
        return f"{self.peer} {how}"


def _peer_lost(peer: str, orderly: bool) -> PeerLost:  # noqa: FBT001  (pickle calls it by position)
    return PeerLost(peer, orderly=orderly)


class SessionTimeout(VeilringError):
    """Raised when a session took longer than its limit.

    Attributes:
        seconds: The limit.
        waiting_for: Who waited for what when time was up, in sentences.
    """

    def __init__(self, seconds: float, waiting_for: str) -> None:
        self.seconds, self.waiting_for = seconds, waiting_for
        super().__init__(seconds, waiting_for)

    def __str__(self) -> str:
        return f"not finished after {self.seconds:g} s: {self.waiting_for}"
