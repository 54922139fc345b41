"""Recovery of a party's summand by a coalition, with and without several cycles."""

import asyncio

import numpy as np
from numpy.typing import NDArray

from veilring import Cluster
from veilring.nodes.journal import View
from veilring.nodes.ring import Ring, deal_ring
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod, walecki_cycles
from veilring.protocols.ring.attacks import CoalitionView, recover_input
from veilring.protocols.ring.roles import secure_sum

SIZES = range(5, 14)


def neighbours(ring: Ring, victim: str, cycles: int) -> list[str]:
    """Return the parties that the victim receives from or sends to in any cycle."""
    n, place = len(ring), ring.position(victim)
    along = walecki_cycles(n)[:cycles] if cycles > 1 else (tuple(range(n)),)
    at = [cycle.index(place) for cycle in along]
    places = [cycle[(p + way) % n] for cycle, p in zip(along, at, strict=True) for way in (-1, 1)]
    return [ring.order[place] for place in places]


async def attack(n: int, cycles: int) -> tuple[int, int]:
    """Add up n values; count the victims that neighbours recover, and all others but one.

    The others are all parties except the victim and one of its neighbours, each in turn.
    """
    method = SumMethod("cycles", cycles) if cycles > 1 else SumMethod()
    names, rng = [f"party-{number}" for number in range(n)], np.random.default_rng([n, cycles])
    ring, fixed, own = deal_ring(names, rng), FixedPoint(20, n), list(rng.normal(size=(n, 1, 1)))
    async with Cluster(names, own=own, seed=n) as cluster:
        run = await cluster.run(secure_sum, ring=ring, fixed=fixed, method=method, watch=names)

    def reads(members: set[str], victim: str, truth: NDArray[np.float64]) -> bool:
        views: dict[str, View] = {name: run.views[name] for name in members}
        found = recover_input(CoalitionView(ring, views), victim, method=method, fixed=fixed)
        return found is not None and bool((found == fixed.decode(fixed.encode(truth))).all())

    by_all, by_fewer = 0, 0
    for victim, truth in zip(names, own, strict=True):
        around = neighbours(ring, victim, cycles)
        by_all += reads(set(around), victim, truth)
        by_fewer += any(reads(set(names) - {victim, one}, victim, truth) for one in around)
    return by_all, by_fewer


def main() -> None:
    """Print a line for each number of parties and a column for each number of cycles."""
    print(" n  s = " + "".join(f"{s:<7}" for s in range(1, 7)).rstrip())
    for n in SIZES:
        cells = [asyncio.run(attack(n, s)) for s in range(1, (n - 1) // 2 + 1)]
        print(f"{n:2}      " + "".join(f"{f'{all_}, {few}':7}" for all_, few in cells).rstrip())


if __name__ == "__main__":
    main()
