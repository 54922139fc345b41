"""Median of all parties' numbers, found by counting under masks how many are below some limits.

Source: Aggarwal, Mishra and Pinkas, "Secure computation of the k-th ranked element", EUROCRYPT
2004, for the search; Bonawitz et al., CCS 2017, for the masks.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring import (
    Cluster,
    Constant,
    Forecast,
    InputError,
    LinkModel,
    MaskedSums,
    Party,
    Run,
    Simulated,
    Topology,
    agree_keys,
    simulate,
)
from veilring.nodes.cluster import RUNTIMES
from veilring.nodes.journal import Traffic
from veilring.protocols.masks import keys_cost, masked_cost
from veilring.protocols.promise import total_cost
from veilring.testing import ProtocolRunner

Counts = NDArray[np.integer[Any]]
Limits = NDArray[np.int64]


async def masked_median(
    party: Party, own: Sequence[int], *, bits: int, at_once: int = 1
) -> int | None:
    """Find the lower median of all numbers below 2**bits, or None if there are no numbers.

    Args:
        own: The party's numbers; there may be none.
        at_once: The bits that each round finds, a divisor of `bits`.
    """
    if bits % at_once:
        raise InputError("at_once", at_once, f"a divisor of {bits}")
    if not all(0 <= number < 2**bits for number in own):
        raise InputError.because(f"a number is not from 0 to {2**bits - 1}", field="own")
    sums, steps = MaskedSums(party, await agree_keys(party)), search(bits, at_once)
    limits = next(steps)
    while True:
        (counts,) = await sums.add([count_below(own, limits)])
        try:
            limits = steps.send(counts)
        except StopIteration as found:
            median: int | None = found.value
            return median


def search(bits: int, at_once: int) -> Generator[Limits, Counts, int | None]:
    """Yield limits, receive the number of all numbers below each, and return the lower median."""
    low, rank = 0, None
    for left in range(bits - at_once, -1, -at_once):  # bits that are unknown after the round
        counts = yield low + (np.arange(1, 2**at_once + 1) << left)
        if rank is None:  # the last limit of the first round is above all numbers
            rank = (int(counts[-1]) + 1) // 2
        if rank == 0:
            return None
        low += int(np.searchsorted(counts, rank)) << left
    return low


def count_below(numbers: Iterable[int], limits: Limits) -> Counts:
    """Count the numbers below each limit."""
    return np.searchsorted(np.sort(np.array([*numbers], np.int64)), limits).astype(np.uint32)


class Search(NamedTuple):
    """A median, and everything that parties learn from finding it."""

    median: int | None
    counts: list[list[int]]
    """The counts of each round."""


def find_by_counts(numbers: Iterable[int], bits: int, at_once: int = 1) -> Search:
    """Search as the parties do, where all numbers are in one place."""
    every, steps, revealed = [*numbers], search(bits, at_once), list[list[int]]()
    limits = next(steps)
    while True:
        counts = count_below(every, limits)
        revealed.append(counts.tolist())
        try:
            limits = steps.send(counts)
        except StopIteration as found:
            return Search(found.value, revealed)


def forecast(parties: int, bits: int, at_once: int = 1) -> Forecast:
    """Return the closed form of the cost: keys, and then 2**at_once counts in each round."""
    keys = Forecast(0, Traffic(), setup=keys_cost(parties))
    counts = masked_cost(parties, [np.zeros(2**at_once, np.uint32)], star=False)
    return total_cost(keys, *[counts] * (bits // at_once))


BITS: Final = 3
INPUTS: Final = {"ada": (7, 3), "ben": (), "cy": (7, 1, 6)}
"""Numbers with a tie, and a party without any."""


async def over_the_world(at_once: int) -> Run[int | None]:
    """Find a median of 8 bits on links with a latency of 50 ms."""
    runtime = Simulated(Topology(LinkModel(latency=Constant(0.05))))
    own = list(INPUTS.values())
    async with Cluster(tuple(INPUTS), runtime=runtime, own=own, seed=7) as cluster:
        return await cluster.run(masked_median, bits=8, at_once=at_once)


def main() -> None:
    """Run it on all runtimes and over a wide-area network."""
    names, own, transcripts = tuple(INPUTS), list(INPUTS.values()), set()
    for runtime in RUNTIMES:
        run: Run[Any] = ProtocolRunner(runtime)(masked_median, names, own=own, bits=BITS)
        print(f"{runtime:10} median {run.result},", Forecast.measured(run.cost))
        transcripts.add(run.transcript)
    print("forecast             ", forecast(len(names), BITS))
    print("different transcripts:", len(transcripts))
    print("\nmedian of 8 bits, latency 50 ms:")
    for at_once in (1, 2, 4, 8):
        run = simulate(over_the_world(at_once))
        cost, counts = Forecast.measured(run.cost), 8 // at_once * (2**at_once - 1) + 1
        print(f"  {at_once} at once: {run.seconds:.2f} s, {counts:3} counts revealed, {cost}")


if __name__ == "__main__":
    main()
