"""Connections that end without a goodbye: both sides lose a peer."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
from tests.transport.refusals import NAMED_WITHIN_SECONDS
from tests.transport.rosters import Town, port_of, tls_endpoints
from tests.transport.strangers import stranger

from veilring.errors import FrameError, PeerLost
from veilring.transport import connection
from veilring.transport.frames import PREFIX_BYTES, on_stream
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK


async def test_oversized_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length beyond the limit closes the connection; both sides lose each other."""
    async with tls_endpoints(("alice", "bob")) as endpoints:
        monkeypatch.setattr(connection, "on_stream", lambda frame: b"\x00\x10\x00\x01" + frame)
        await endpoints["alice"].send("bob", b"frame")
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            for endpoint in endpoints.values():
                with pytest.raises(PeerLost) as caught:
                    await endpoint.receive()
                assert not caught.value.orderly
        assert endpoint.name == "bob"
        assert isinstance(caught.value.__cause__, FrameError)


def cut_by_close(writer: asyncio.StreamWriter) -> None:
    """End TLS properly, but without a goodbye."""
    writer.close()


def cut_by_fin(writer: asyncio.StreamWriter) -> None:
    """End TCP properly, but not TLS."""
    writer.transport.abort()


def cut_by_reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


CUTS = (cut_by_close, cut_by_fin, cut_by_reset)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("last", [b"", b"\x00", on_stream(b"cut off")[:-1]])
async def test_end_without_goodbye(
    last: bytes, cut: Callable[[asyncio.StreamWriter], None]
) -> None:
    """Any end of a stream without a goodbye, between or within frames, is a crash."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice") as endpoints, stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"whole"))
        assert await endpoints["alice"].receive() == ("carol", b"whole")
        carol.writer.write(last)
        await asyncio.sleep(0)
        cut(carol.writer)
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            with pytest.raises(PeerLost) as caught:
                await endpoints["alice"].receive()
        assert (caught.value.peer, caught.value.orderly) == ("carol", False)


async def test_data_after_the_goodbye_changes_nothing() -> None:
    """Data that a peer sends after its goodbye is ignored."""
    town = Town(("alice",), ("carol",))
    async with town.start_all("alice") as endpoints, stranger(town, greet=True) as carol:
        carol.writer.write(on_stream(b"last") + bytes(PREFIX_BYTES))
        await asyncio.sleep(0.01)
        carol.writer.write(on_stream(b"more"))
        assert await endpoints["alice"].receive() == ("carol", b"last")
        with pytest.raises(PeerLost) as caught:
            await endpoints["alice"].receive()
        assert caught.value.orderly


@pytest.mark.parametrize("cut", CUTS[1:])
async def test_network_breaks(cut: Callable[[asyncio.StreamWriter], None]) -> None:
    """If the network between two endpoints ends or resets their connection, both lose a peer."""
    town = Town(("alice", "bob"))
    wires: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(LOOPBACK, town.ports["bob"])
        wires.extend((writer, back))
        await asyncio.gather(carry(reader, back), carry(onward, writer))

    bob = town.start("bob")
    await asyncio.sleep(0)
    sock = bind(LOOPBACK, 0)
    async with await asyncio.start_server(relay, sock=sock) as server:
        town.roster = town.roster.at({"bob": (LOOPBACK, port_of(sock))})
        endpoints = await asyncio.gather(town.start("alice"), bob)
        server.close()
        for wire in wires:
            cut(wire)
        async with asyncio.timeout(NAMED_WITHIN_SECONDS):
            for endpoint in endpoints:
                with pytest.raises(PeerLost) as caught:
                    await endpoint.receive()
                assert not caught.value.orderly
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))
