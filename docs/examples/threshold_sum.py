"""Threshold sum: parties add up numbers that they split into shares, so that few learn nothing.

A number is the value at 0 of a random polynomial of degree t, and party i holds its value at i: t
shares are independent of the number, and t + 1 determine it. Sums of shares are shares of the sum.

Source: Shamir, "How to share a secret", CACM 1979; Ben-Or, Goldwasser and Wigderson, STOC 1988, for
the sums.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import prod
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring import (
    Array,
    Cluster,
    Constant,
    Fault,
    Forecast,
    InputError,
    LinkModel,
    Message,
    Party,
    PeerLost,
    ProtocolViolation,
    Run,
    Simulated,
    Topology,
    simulate,
)
from veilring.errors import SessionAborted, TooManyLost
from veilring.nodes.cluster import RUNTIMES
from veilring.nodes.party import broadcast_to_rest
from veilring.protocols.promise import repeated
from veilring.testing import ProtocolRunner

PRIME: Final = 2**31 - 1
"""The size of the field: a product of two elements fits into 64 bits."""

Elements = NDArray[np.uint64]
"""Elements of the field, from 0 to `PRIME` - 1, shape (entries,)."""
ElementArray = Annotated[Elements, Array("<u8", 1)]

_M = TypeVar("_M", bound=Message)


class Share(Message, kind="threshold.share"):
    """The receiver's shares of the sender's numbers."""

    values: ElementArray


class Held(Message, kind="threshold.held"):
    """The parties whose shares the sender holds."""

    dealers: tuple[str, ...]


class Chosen(Message, kind="threshold.chosen"):
    """The parties whose numbers are added up, and the parties that hold a share of each."""

    dealers: tuple[str, ...]
    holders: tuple[str, ...]


class SumShare(Message, kind="threshold.sum"):
    """The sender's shares of the sums."""

    values: ElementArray


class Total(NamedTuple):
    """The sums modulo `PRIME`, and the parties whose numbers are in them."""

    numbers: tuple[int, ...]
    dealers: tuple[str, ...]


async def threshold_sum(party: Party, own: Elements, *, threshold: int) -> Total:
    """Add up the numbers of all parties whose shares arrived at every party that is left."""
    held = await deal(party, own, threshold)
    chosen = await choose(party, held, threshold)
    return await open_sum(party, held, chosen, threshold, number=4)


async def deal(party: Party, own: Elements, threshold: int) -> dict[str, Elements]:
    """Send each party its shares, and return the shares of all dealers that arrived."""
    if not 1 <= threshold <= len(party.parties) - 2:
        raise InputError("threshold", threshold, f"1 to {len(party.parties) - 2}")
    party.tolerate_losses()
    party.round(1)
    parts = split(own, threshold, len(party.parties), party.rng)
    shares = dict(zip(party.parties, parts, strict=True))
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, Share(values=shares[peer]))
    heard = await hear(party, Share, party.peers, due=1)
    arrived = {name: checked(name, share.values, own.shape) for name, share in heard.items()}
    return {party.me: shares[party.me], **arrived}


async def choose(party: Party, held: Mapping[str, Elements], threshold: int) -> Chosen:
    """Agree on the dealers: the first party asks who holds which shares, and decides."""
    first = party.parties[0]
    party.round(2)
    if party.me != first:
        await party.send(first, Held(dealers=tuple(held)))
        chosen = await party.receive(Chosen, sender=first, due=3)
        if not (held.keys() >= {*chosen.dealers} and {*party.parties} >= {*chosen.holders}):
            raise ProtocolViolation(first, "chose parties whose shares it cannot know of")
        return chosen
    reports = await hear(party, Held, party.peers, due=2)
    dealers = {*held}.intersection(*(report.dealers for report in reports.values()))
    if len(dealers) < threshold + 2:  # with fewer, colluders could subtract their own numbers
        lost = tuple(name for name in party.parties if name not in dealers)
        raise TooManyLost(lost, len(dealers), threshold + 2)
    in_order = tuple(name for name in party.parties if name in dealers)
    chosen = Chosen(dealers=in_order, holders=(first, *reports))
    party.round(3)
    await broadcast_to_rest(party, chosen)
    return chosen


async def open_sum(
    party: Party, held: Mapping[str, Elements], chosen: Chosen, threshold: int, *, number: int
) -> Total:
    """Exchange the shares of the sums, and interpolate from the first that are enough."""
    own = np.add.reduce([held[dealer] for dealer in chosen.dealers]) % PRIME
    party.round(number)
    await broadcast_to_rest(party, SumShare(values=own))
    others = [name for name in chosen.holders if name != party.me]
    heard = await hear(party, SumShare, others, due=number)
    shares = {party.me: own}
    shares |= {name: checked(name, share.values, own.shape) for name, share in heard.items()}
    if len(shares) <= threshold:
        raise TooManyLost(tuple(set(others) - set(heard)), len(shares), threshold + 1)
    points = {party.parties.position(name) + 1: share for name, share in shares.items()}
    enough = dict(sorted(points.items())[: threshold + 1])
    return Total(tuple(interpolate_at_zero(enough).tolist()), chosen.dealers)


async def hear(party: Party, kind: type[_M], senders: Iterable[str], *, due: int) -> dict[str, _M]:
    """Receive a message from each sender that is not lost."""
    heard = {}
    for sender in senders:
        with suppress(PeerLost, SessionAborted):
            heard[sender] = await party.receive(kind, sender=sender, due=due)
    return heard


def checked(sender: str, values: Elements, shape: tuple[int, ...]) -> Elements:
    """Return the elements that a peer sent, if they have the shape and are in the field."""
    if values.shape != shape or (values >= PRIME).any():
        raise ProtocolViolation(sender, f"sent no {shape[0]} elements of the field")
    return values


def split(numbers: Elements, threshold: int, parties: int, rng: Generator) -> list[Elements]:
    """Return each party's shares: the values of random polynomials at 1, 2, …."""
    falling = rng.integers(0, PRIME, (threshold, *numbers.shape), np.uint64)
    shares = []
    for point in range(1, parties + 1):
        values = np.zeros_like(numbers)
        for coefficient in (*falling, numbers):
            values = (values * point + coefficient) % PRIME
        shares.append(values)
    return shares


def interpolate_at_zero(shares: Mapping[int, Elements]) -> Elements:
    """Return the values at 0 of polynomials with these values at other points (Lagrange)."""
    terms = []
    for point, values in shares.items():
        others = [other for other in shares if other != point]
        below = prod(other - point for other in others)
        weight = prod(others) * pow(below, -1, PRIME) % PRIME
        terms.append(values * weight % PRIME)
    total: Elements = np.add.reduce(terms) % PRIME
    return total


def forecast(names: tuple[str, ...], entries: int) -> Forecast:
    """Return the closed form of the cost without losses: 2 (n + 1) (n - 1) messages."""
    n, values = len(names), np.zeros(entries, np.uint64)
    shares = Forecast(1, repeated(n * (n - 1), Share(values=values)))
    reports = Forecast(1, repeated(n - 1, Held(dealers=names)))
    choices = Forecast(1, repeated(n - 1, Chosen(dealers=names, holders=names)))
    sums = Forecast(1, repeated(n * (n - 1), SumShare(values=values)))
    return shares + reports + choices + sums


def numbers(*given: int) -> Elements:
    """Return elements of the field."""
    return np.array(given, np.uint64) % PRIME


INPUTS: Final = {"ada": numbers(3), "ben": numbers(1), "cy": numbers(4), "dee": numbers(1)}


async def over_the_world(*faults: Fault) -> Run[Total]:
    """Run it on links with a latency of 50 ms."""
    runtime = Simulated(Topology(LinkModel(latency=Constant(0.05))), faults)
    own = list(INPUTS.values())
    async with Cluster(tuple(INPUTS), runtime=runtime, own=own, seed=7) as cluster:
        await asyncio.sleep(1.0)  # so that a fault can begin before the run
        return await cluster.run(threshold_sum, threshold=1)


def main() -> None:
    """Run it on all runtimes, over a wide-area network, and with a crash."""
    names, own, transcripts = tuple(INPUTS), list(INPUTS.values()), set()
    for runtime in RUNTIMES:
        run: Run[Any] = ProtocolRunner(runtime)(threshold_sum, names, own=own, threshold=1)
        print(f"{runtime:10}", run.result.numbers, Forecast.measured(run.cost))
        transcripts.add(run.transcript)
    print("forecast  ", forecast(names, entries=1))
    print("different transcripts:", len(transcripts))
    print(f"\nlatency 50 ms: {simulate(over_the_world()).seconds:.2f} s")
    crash = Fault("mid-send", 0.0, 9.0, ("cy",), strength=2)
    run = simulate(over_the_world(crash))
    print(f"cy crashes after two shares: {run.seconds:.2f} s, {run.result}")


if __name__ == "__main__":
    main()
