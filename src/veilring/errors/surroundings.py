"""Nobody's fault: a network, a disk or a database failed, or an end is closed."""

from veilring.errors.root import TransportError, VeilringError

__all__ = (
    "AddressTaken",
    "EndpointClosed",
    "InternalError",
    "NotReady",
    "PeerLost",
    "PeerSilent",
    "SessionTimeout",
    "StoreFailed",
)


class StoreFailed(VeilringError):
    """Raised when a database cannot be reached or did not take what had to be durable."""


class InternalError(VeilringError):
    """Raised when a party met an error that nobody foresaw; its own log says more."""


class NotReady(VeilringError):
    """Raised when a party is asked for what it cannot do before others are connected.

    Attributes:
        party: Who is asked.
        culprit: The first of the parties that it waits for.
    """

    def __init__(self, party: str, culprit: str) -> None:
        self.party, self.culprit = party, culprit
        super().__init__(party, culprit)

    def __str__(self) -> str:
        return f"{self.party} is not ready: it waits for {self.culprit}"


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
        culprit: The party at fault; empty if nobody can be blamed, one of two parties lies, or
            nobody has asked.
        verdict: What it did, which two parties are suspected of what, or why nobody can be blamed,
            in a sentence; empty if nobody has asked.
    """

    def __init__(
        self, seconds: float, waiting_for: str, culprit: str = "", verdict: str = ""
    ) -> None:
        self.seconds, self.waiting_for = seconds, waiting_for
        self.culprit, self.verdict = culprit, verdict
        super().__init__(seconds, waiting_for, culprit, verdict)

    def __str__(self) -> str:
        late = f"not finished after {self.seconds:g} s: {self.waiting_for}"
        return f"{self.verdict}; {late}" if self.verdict else late


class PeerSilent(SessionTimeout):
    """Raised when a session took too long and a peer does not even say where it stands.

    The peer is connected; its process was stopped, its network is cut, or it computes for long.
    """
