"""The conformance checks themselves: they detect each kind of broken transport."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.transport.conformance import CHECKS, Maker, check_transport, run_check
from typing_extensions import override

from veilring.errors import EndpointClosed, PeerLost
from veilring.transport.endpoint import Endpoint, MemoryEndpoint, MemoryNetwork, Sink


class Faulty(Endpoint):
    """An endpoint in memory whose subclasses each break one promise."""

    def __init__(self, inner: MemoryEndpoint) -> None:
        self.inner, self.name = inner, inner.name

    @property
    @override
    def peers(self) -> tuple[str, ...]:
        return self.inner.peers

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return self.inner.connected

    @override
    async def send(self, to: str, frame: bytes) -> None:
        await self.inner.send(to, frame)

    @override
    async def receive(self) -> tuple[str, bytes]:
        return await self.inner.receive()

    @override
    def attach(self, sink: Sink) -> None:
        self.inner.attach(sink)

    @override
    async def close(self) -> None:
        await self.inner.close()

    @override
    def abort(self) -> None:
        self.inner.abort()


class Honest(Faulty):
    """Breaks nothing."""


class Altering(Faulty):
    """Changes a byte of long frames."""

    @override
    async def receive(self) -> tuple[str, bytes]:
        sender, frame = await super().receive()
        return sender, frame[:-1] + b"?" if len(frame) > 1000 else frame


class Reversing(Faulty):
    """Delivers frames in pairs, the later one first."""

    @override
    def attach(self, sink: Sink) -> None:
        held: list[tuple[str, bytes | PeerLost]] = []

        def hold(peer: str, item: bytes | PeerLost) -> None:
            held.append((peer, item))
            if len(held) > 1:
                while held:
                    sink(*held.pop())

        self.inner.attach(hold)


class Hushing(Faulty):
    """Reports no loss."""

    @override
    def attach(self, sink: Sink) -> None:
        def hush(peer: str, item: bytes | PeerLost) -> None:
            sink(peer, b"all is well" if isinstance(item, PeerLost) else item)

        self.inner.attach(hush)


class Misnaming(Faulty):
    """Trusts the sender that a frame claims."""

    @override
    async def receive(self) -> tuple[str, bytes]:
        sender, frame = await super().receive()
        return frame.decode() if frame in (b"alice", b"bob") else sender, frame


class Doubling(Faulty):
    """Sends every frame twice."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        await super().send(to, frame)
        await super().send(to, frame)


class Crashing(Faulty):
    """Leaves without a goodbye."""

    @override
    async def close(self) -> None:
        self.inner.abort()


class Polite(Faulty):
    """Says goodbye even after a crash."""

    @override
    def abort(self) -> None:
        self.inner.end(orderly=True)


class Forgetting(Faulty):
    """Receives as if nothing had been lost."""

    @override
    async def receive(self) -> tuple[str, bytes]:
        while True:
            try:
                return await super().receive()
            except PeerLost:
                continue


class Repeating(Faulty):
    """Reports a loss twice."""

    lost: PeerLost | None = None

    @override
    async def receive(self) -> tuple[str, bytes]:
        if self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost
        try:
            return await super().receive()
        except PeerLost as loss:
            self.lost = PeerLost(loss.peer, orderly=loss.orderly)
            raise


class Deaf(Faulty):
    """Drops messages to a lost peer, and messages sent after closing."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        try:
            await super().send(to, frame)
        except (PeerLost, EndpointClosed):
            return


class Optimistic(Faulty):
    """Reports every peer as connected."""

    @property
    @override
    def connected(self) -> tuple[str, ...]:
        return self.inner.peers


class Unbounded(Faulty):
    """Never waits for a receiver."""

    @override
    async def send(self, to: str, frame: bytes) -> None:
        receiver = self.inner._network.endpoint(to)  # noqa: SLF001  (to break it is the point)
        if receiver.inbox.is_full:
            receiver.deliver((self.name, frame))
        else:
            await super().send(to, frame)


def maker_of(kind: Callable[[MemoryEndpoint], Endpoint]) -> Maker:
    """Return a maker of endpoints with one fault."""

    @asynccontextmanager
    async def make(names: Sequence[str]) -> AsyncIterator[dict[str, Endpoint]]:
        network = MemoryNetwork(names)
        yield {name: kind(network.endpoint(name)) for name in names}

    return make


FINDS = [
    (Altering, "the_largest_frame_arrives"),
    (Altering, "sizes_do_not_change_the_order"),
    (Misnaming, "a_claim_does_not_change_the_sender"),
    (Doubling, "equal_frames_arrive_each"),
    (Doubling, "one_sender_keeps_its_order"),
    (Doubling, "many_small_frames_arrive_each"),
    (Crashing, "a_close_is_a_goodbye"),
    (Crashing, "frames_before_a_goodbye_arrive"),
    (Polite, "an_abort_is_a_crash"),
    (Polite, "an_abort_may_be_repeated"),
    (Repeating, "a_loss_is_reported_once"),
    (Repeating, "each_loss_is_reported"),
    (Deaf, "a_send_to_a_lost_peer_fails_each_time"),
    (Deaf, "a_closed_endpoint_neither_sends_nor_receives"),
    (Optimistic, "a_lost_peer_is_not_connected"),
    (Unbounded, "a_stalled_receiver_stops_its_sender"),
    (Reversing, "a_sink_is_given_each_frame_in_order"),
    (Hushing, "a_sink_is_given_a_loss_once_and_last"),
]


@pytest.mark.parametrize(("kind", "check"), FINDS)
async def test_a_fault_is_detected(kind: type[Faulty], check: str) -> None:
    """A transport that breaks a promise fails the check of that promise, by name."""
    with pytest.raises(AssertionError, match=rf"^{check}: ") as caught:
        await run_check(check, maker_of(kind))
    # detected by its behaviour, not because the test's own transport is broken
    assert leaves(caught.value.__cause__) <= {AssertionError, PeerLost}


def leaves(error: BaseException | None) -> set[type[BaseException]]:
    """Return the types of the errors inside an error group, or of the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for inner in error.exceptions for kind in leaves(inner)}
    return {type(error)} if error is not None else set()


async def test_a_check_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport that never reports a loss fails in time instead of hanging."""
    monkeypatch.setattr("tests.transport.conformance.checking.CHECK_SECONDS", 0.2)
    with pytest.raises(AssertionError, match=r"^a_close_is_a_goodbye: TimeoutError"):
        await run_check("a_close_is_a_goodbye", maker_of(Forgetting))


async def test_all_checks_run() -> None:
    """`check_transport` runs every check and returns their names."""
    names = await check_transport(maker_of(Honest))
    assert names == tuple(CHECKS)
    assert len(names) >= 40
    assert all(check.__doc__ for check in CHECKS.values())
