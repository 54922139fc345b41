"""A hop, over mutual TLS and on the simulated clock, beside the least that can be done."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack

import numpy as np
from simpy import Environment, Event, Store

from benchmarks.measurement import Bound, Measurement, Timed, pairs, ratios
from veilring import simulation
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.protocols.ring.roles import TopKVector
from veilring.transport.listener import bind
from veilring.transport.messages import SESSION_BYTES, Message, encode
from veilring.transport.roster import Identity, Member, Roster, make_identity
from veilring.transport.tls import LOOPBACK, TlsEndpoint, client_context, server_context

K = 5
# Queries whose vectors travel in one frame, and what turns, budgets and limits may cost: a part of
# the time that the least takes.
TARGETS = {1: 1.10, 1_000: 1.05}

Hops = Callable[[bytes, int], Awaitable[None]]


async def _over_endpoints(stack: AsyncExitStack, first: Identity, second: Identity) -> Hops:
    """Return a coroutine function that sends a frame over and back a given number of times."""
    sockets = [bind(LOOPBACK, 0) for _ in (first, second)]
    members = [
        Member.of(identity, LOOPBACK, sock.getsockname()[1])
        for identity, sock in zip((first, second), sockets, strict=True)
    ]
    roster = Roster(tuple(members))
    left, right = await asyncio.gather(
        TlsEndpoint.start(first, roster, listen=sockets[0]),
        TlsEndpoint.start(second, roster, listen=sockets[1]),
    )
    stack.push_async_callback(right.close)
    stack.push_async_callback(left.close)

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


async def _over_streams(stack: AsyncExitStack, first: Identity, second: Identity) -> Hops:
    """Return the same over bare streams."""
    roster = Roster((Member.of(first, LOOPBACK, 1), Member.of(second, LOOPBACK, 2)))
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda reader, writer: accepted.put_nowait((reader, writer)),
        LOOPBACK,
        0,
        ssl=server_context(second, roster),
    )
    reader, writer = await asyncio.open_connection(
        *server.sockets[0].getsockname(), ssl=client_context(first, roster), server_hostname=""
    )
    there, back = await accepted.get()
    for end in (server, back, writer):
        stack.callback(end.close)

    async def echo(size: int, count: int) -> None:
        for _ in range(count):
            back.write(await there.readexactly(size))

    async def hops(frame: bytes, count: int) -> None:
        answering = asyncio.create_task(echo(len(frame), count))
        for _ in range(count):
            writer.write(frame)
            await reader.readexactly(len(frame))
        await answering

    return hops


def measure_hop(*, quick: bool) -> list[Measurement]:
    """Send frames over mutual TLS, beside a bare asyncio stream over the same mutual TLS.

    Both ends run in one process on loopback, with the same certificates and settings. A hop is a
    send and the other side's receive; frames go back and forth, so that nothing is amortised. The
    reference does the least that can be done: one `write`, one `readexactly` of a known length. It
    is the processor time that counts, of many short runs: other work on the machine disturbs less.
    """
    count, repetitions = 200, (25 if quick else 150)
    first, second = make_identity("first"), make_identity("second")
    results = []
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        ours = runner.run(_over_endpoints(stack, first, second))
        bare = runner.run(_over_streams(stack, first, second))

        async def seconds(hops: Hops, frame: bytes) -> float:
            start = time.process_time()
            await hops(frame, count)
            return time.process_time() - start

        def timer(hops: Hops, frame: bytes) -> Timed:
            return lambda: runner.run(seconds(hops, frame))

        for queries, target in TARGETS.items():
            vector = TopKVector(round=1, values=np.zeros((queries, K)))
            frame = encode(bytes(SESSION_BYTES), vector)
            timed = pairs(timer(ours, frame), timer(bare, frame), repetitions)
            name = f"TLS hop, frame of {len(frame):,} bytes"
            results.append(ratios(name, timed, Bound("at most", target), per=2 * count))
        runner.run(stack.aclose())
    return results


ACTORS = 1_000


class Token(Message, kind="benchmark.token"):
    """The token that goes round the ring."""

    hops: int


async def relay(party: Party, *, laps: int) -> None:
    """Pass the token on; the first party starts it, and it ends there."""
    here = party.parties.position(party.me)
    successor = party.parties[(here + 1) % len(party.parties)]
    predecessor = party.parties[here - 1]
    party.round(1)
    if here == 0:
        await party.send(successor, Token(hops=1))
    for lap in range(1, laps + 1):
        token = await party.receive(Token, sender=predecessor)
        if here > 0 or lap < laps:
            await party.send(successor, Token(hops=token.hops + 1))


def _stack(actors: int, laps: int) -> float:
    async def main() -> float:
        async with Cluster(actors, runtime="simulated", seed=0) as cluster:
            start = time.perf_counter()
            await cluster.run(relay, laps=laps)
            return time.perf_counter() - start

    return simulation.simulate(main())


def _queues(actors: int, laps: int) -> float:
    async def actor(queue: asyncio.Queue[int], successor: asyncio.Queue[int]) -> None:
        for _ in range(laps):
            await successor.put(await queue.get() + 1)

    async def main() -> float:
        queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(actors)]
        queues[0].put_nowait(0)
        start = time.perf_counter()
        await asyncio.gather(*(actor(queues[n - 1], queues[n]) for n in range(actors)))
        return time.perf_counter() - start

    return simulation.simulate(main())


def _stores(actors: int, laps: int) -> float:
    environment = Environment()
    stores = [Store(environment) for _ in range(actors)]

    def actor(store: Store, successor: Store) -> Generator[Event, int, None]:
        for _ in range(laps):
            token = yield store.get()
            yield successor.put(token + 1)

    for n in range(actors):
        environment.process(actor(stores[n - 1], stores[n]))
    stores[0].put(0)
    start = time.perf_counter()
    environment.run()
    return time.perf_counter() - start


def measure_simulated(*, quick: bool) -> list[Measurement]:
    """Send one token round a ring of 1,000 actors, beside plain SimPy `Store` processes.

    `queues`: actors are asyncio tasks on the simulated loop, linked by asyncio queues. `stack`:
    they are parties of a cluster, and each hop takes the whole way: message, frame, session,
    observers, simulated link, frame, message.
    """
    laps, repetitions = (10 if quick else 100), 7
    hops = ACTORS * laps
    reference = lambda: _stores(ACTORS, laps)  # noqa: E731  (named for the two lines below)
    queues = pairs(lambda: _queues(ACTORS, laps), reference, repetitions)
    stack = pairs(lambda: _stack(ACTORS, laps), reference, repetitions)
    return [
        ratios("simulated hops/s, queues", queues, Bound("at least", 0.8), per=hops, faster=True),
        ratios("simulated hops/s, stack", stack, Bound("at least", 0.25), per=hops, faster=True),
    ]
