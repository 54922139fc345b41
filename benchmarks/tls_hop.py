"""What one hop over `TlsEndpoint` costs, beside a bare asyncio stream over the same mutual TLS.

Both ends run in one process on loopback, with the same certificates and contexts. A hop is a send
and the other side's receive; messages go back and forth, so that nothing is amortised. The two are
measured in turns within one run, so that whatever slows the machine slows both.

Usage: python benchmarks/tls_hop.py [--uvloop]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from veilring.transport.frames import PREFIX_BYTES, on_stream
from veilring.transport.identity import Identity, make_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.sockets import bind
from veilring.transport.tls import LOOPBACK, TlsEndpoint
from veilring.transport.tls_context import client_context, server_context

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
REPETITIONS = 15
SECONDS = 0.1  # about how long each repetition takes

Hops = Callable[[bytes, int], Awaitable[None]]


@asynccontextmanager
async def endpoints(
    first: Identity, second: Identity
) -> AsyncIterator[tuple[TlsEndpoint, TlsEndpoint]]:
    """Connect two parties."""
    identities = (first, second)
    sockets = [bind(LOOPBACK, 0) for _ in identities]
    ports = [sock.getsockname()[1] for sock in sockets]
    members = (Member.of(i, LOOPBACK, p) for i, p in zip(identities, ports, strict=True))
    roster = Roster(tuple(members))
    pairs = zip(identities, sockets, strict=True)
    started = [TlsEndpoint.start(i, roster, listener=sock) for i, sock in pairs]
    left, right = await asyncio.gather(*started)
    try:
        yield left, right
    finally:
        await left.close()
        await right.close()


async def over_endpoints(stack: AsyncExitStack, first: Identity, second: Identity) -> Hops:
    """Return what sends a frame over and back, a number of times."""
    left, right = await stack.enter_async_context(endpoints(first, second))

    async def echo(count: int) -> None:
        for _ in range(count):
            sender, frame = await right.receive()
            await right.send(sender, frame)

    async def hops(frame: bytes, count: int) -> None:
        answering = asyncio.create_task(echo(count))
        for _ in range(count):
            await left.send("second", frame)
            await left.receive()
        await answering

    return hops


async def over_streams(stack: AsyncExitStack, first: Identity, second: Identity) -> Hops:
    """Return the same over bare streams: one write, a `readexactly` for the prefix and the body."""
    roster = Roster((Member.of(first, LOOPBACK, 1), Member.of(second, LOOPBACK, 1)))

    async def read(reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(PREFIX_BYTES), "big")
        return await reader.readexactly(size)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(on_stream(await read(reader)))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(echo, LOOPBACK, 0, ssl=server_context(second, roster))
    stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    context = client_context(first, roster)
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context, server_hostname="")
    stack.push_async_callback(writer.wait_closed)
    stack.callback(writer.close)

    async def hops(frame: bytes, count: int) -> None:
        for _ in range(count):
            writer.write(on_stream(frame))
            await read(reader)

    return hops


async def seconds(hops: Hops, frame: bytes, count: int) -> float:
    """Return the seconds that one hop takes."""
    start = time.perf_counter()
    await hops(frame, count)
    return (time.perf_counter() - start) / (2 * count)


async def measure() -> None:
    """Print a line for each size."""
    first, second = make_identity("first"), make_identity("second")
    async with AsyncExitStack() as stack:
        ours = await over_endpoints(stack, first, second)
        bare = await over_streams(stack, first, second)
        print(f"{'bytes':>9} {'endpoint':>12} {'stream':>12} {'ratio':>7}")
        for size in SIZES:
            frame = bytes(size)
            count = max(2, round(SECONDS / (2 * await seconds(bare, frame, 5))))
            await ours(frame, count)
            await bare(frame, count)
            pairs = [
                (await seconds(ours, frame, count), await seconds(bare, frame, count))
                for _ in range(REPETITIONS)
            ]
            mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{size:>9,} {mine * 1e6:>9.1f} us {theirs * 1e6:>9.1f} us {ratio:>7.2f}")


def main() -> None:
    """Measure on the loop that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uvloop", action="store_true", help="measure on uvloop")
    if parser.parse_args().uvloop:
        import uvloop  # noqa: PLC0415  (an optional extra)

        uvloop.run(measure())
    else:
        asyncio.run(measure())


if __name__ == "__main__":
    main()
