"""What a transport gives a node: whole messages to and from peers whose identity is proven."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from veilring.errors import PeerLost, VeilringError

Sink = Callable[[str, bytes | PeerLost], None]
"""Takes a frame and its sender, or a peer and its loss, at once and without an error."""

# Frames that wait for a node that does not read. Then its peers' sends wait: with frames of 1 MiB
# at most, a stalled node holds 256 MiB at the worst; in practice frames are a few hundred bytes.
QUEUED_FRAMES_MAX: Final = 256


class Endpoint(ABC):
    """One party's door to its peers. This docstring is the contract of every transport.

    *Frames.* A frame is between 1 and `transport.frames.FRAME_BYTES_MAX` bytes. It arrives whole
    or not at all, once, unaltered, and in the order in which its sender sent it; nothing is said
    about the order of frames from different senders.

    *Sender.* The sender that `receive` returns is the one that the transport authenticated, never
    one that a message claims.

    *Backpressure.* `send` waits while the receiver has more than a bounded number of unread frames
    and never drops one. A `send` that returned says that the frame is on its way, not that it was
    read.

    *Loss.* When a peer is gone, every frame that arrived before is still delivered; then `receive`
    raises `PeerLost` exactly once for that peer (`orderly` if it said goodbye) and goes on to serve
    the others. `send` to it raises `PeerLost` each time.

    *Close.* `close` says goodbye to every peer, may be called twice, and wakes a waiting `receive`
    with `EndpointClosed`. `abort` ends without a goodbye: peers see a crash.

    *Cancellation.* A cancelled `receive` loses no frame. A cancelled `send` was either sent whole
    or not at all.

    *Tasks.* One task receives at a time; any number may send at once.
    """

    name: str
    """The roster name of the party that this endpoint belongs to."""

    @property
    @abstractmethod
    def peers(self) -> tuple[str, ...]:
        """The names of all parties that can be sent to, gone or not, without `name`."""

    @property
    @abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The names of those `peers` that can be reached now; one that was lost may come back."""

    @abstractmethod
    async def send(self, to: str, frame: bytes) -> None:
        """Send one frame.

        Raises:
            InputError: If `to` is not one of `peers`.
            FrameError: If the frame is empty or too large. Nothing was sent.
            PeerLost: If the peer is gone.
            EndpointClosed: If this endpoint was closed.
        """

    @abstractmethod
    async def receive(self) -> tuple[str, bytes]:
        """Wait for the next frame and return `(sender, frame)`.

        Raises:
            PeerLost: Once for each peer that is gone.
            EndpointClosed: If this endpoint was or is closed.
        """

    @abstractmethod
    def attach(self, sink: Sink) -> None:
        """Hand over what arrives by a call, in place of `receive`, from now on and for good.

        What has arrived already is handed over first. A sink is called from the event loop, in the
        order of arrival, and costs no task of its own.
        """

    def rest(self, peer: str, seconds: float) -> None:  # noqa: B027  (not every one can)
        """Hand over nothing of a peer for a while: what it sends waits, and is not lost.

        Where peers are in one process this does nothing: who waited there would be ourselves.
        """

    def cut(self, peer: str, why: VeilringError) -> None:  # noqa: B027  (not every one can)
        """End the connection with a peer that broke the rules, and refuse it for a while.

        Peers inside one process belong to one owner and have nothing to connect again: there this
        does nothing, and neither does it where the peer is gone.
        """

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye to all peers and free what is held. Idempotent."""

    @abstractmethod
    def abort(self) -> None:
        """Vanish at once, as if the process had been killed. Idempotent."""
