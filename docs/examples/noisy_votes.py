"""Noisy votes in the ring: accuracy, cost, and the guarantee if noise shares are missing."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.datasets import make_moons

from veilring import Cluster, Rows, Run, simulation
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    remaining_epsilon,
)
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer, noisy_votes
from veilring.protocols.noisyvotes.roles import private_votes, votes_cost
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.radius.algorithm.nearest import label_within
from veilring.protocols.ring.algorithm.sums import SumMethod

PARTIES, RADIUS, K, SPLITS = 10, 0.05, 30, 6
LOWS, HIGHS = np.array([-2.0, -1.5]), np.array([3.0, 2.0])
Numbers = NDArray[np.float64]


def moons(rows: int, rng: Generator) -> Rows:
    """Return two interlocking crescents within public bounds."""
    places, labels = make_moons(rows, noise=0.25, random_state=int(rng.integers(2**31)))
    return Rows(np.clip((places - LOWS) / (HIGHS - LOWS), 0, 1), labels.astype(np.int64))


def deal(rows: Rows) -> list[Rows]:
    """Deal rows to the parties."""
    cuts = pairwise(np.linspace(0, len(rows), PARTIES + 1).astype(int))
    return [Rows(rows.features[a:b], rows.labels[a:b]) for a, b in cuts]


def accuracies(epsilon: float, rng: Generator) -> list[float]:
    """Return accuracies: without noise, by one owner, and by parties in four ways."""
    hits: list[Sequence[float]] = []
    for _ in range(SPLITS):
        rows, asked = moons(3000, rng), moons(100, rng)
        X, radii, parts = asked.features, np.full(100, RADIUS), deal(rows)
        grid, annuli = (
            NearestRows(K, epsilon / 2, 3000, conversion=how) for how in (ByGrid(), ByAnnuli())
        )
        together = (
            NoisyVotesParameters(2, 2, epsilon, WithinRadius(RADIUS), tolerated=0),
            NoisyVotesParameters(2, 2, epsilon, WithinRadius(RADIUS), tolerated=5),
            NoisyVotesParameters(2, 2, epsilon / 2, grid),
            NoisyVotesParameters(2, 2, epsilon / 2, annuli),
        )
        labels = [
            count_votes(X, radii, rows, 2).argmax(axis=1),
            label_within(X, radii, rows, rng, epsilon=epsilon, classes=2),
            *(noisy_votes(X, parts, parameters, rng).labels for parameters in together),
        ]
        hits.append([float(np.mean(found == asked.labels)) for found in labels])
    return [float(share) for share in np.mean(hits, axis=0)]


async def run(X: Numbers, parts: list[Rows], parameters: NoisyVotesParameters) -> Run[VotesAnswer]:
    """Run it among parties in the simulation."""
    async with Cluster(PARTIES, runtime="simulated", own=parts, seed=7) as cluster:
        only = {"party-0": {"queries": X}}
        return await cluster.run(private_votes, only=only, client="party-0", parameters=parameters)


def main() -> None:
    """Print accuracies, costs, and the remaining guarantee."""
    rng = np.random.default_rng(7)
    print("epsilon  no noise | one owner |         ten parties")
    print("                  |           | c = 0   c = 5   k, grid k, annuli")
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        of = accuracies(epsilon, rng)
        parties = " ".join(f"{a:7.3f}" for a in of[2:])
        print(f"{epsilon:4g}       {of[0]:6.3f} |   {of[1]:.3f}   |{parties}")

    rows, asked = moons(3000, rng), moons(100, rng).features
    print("\nsum        voters     rounds  messages     bytes as forecast")
    for near in (WithinRadius(RADIUS), NearestRows(K, 0.5, 3000)):
        kind = "radius" if isinstance(near, WithinRadius) else "k"
        for method in (SumMethod("shares"), SumMethod("cycles", 2), SumMethod()):
            parameters = NoisyVotesParameters(2, 2, 1.0, near, sum=method)
            cost = simulation.simulate(run(asked, deal(rows), parameters)).cost
            forecast = votes_cost(PARTIES, len(asked), parameters).traffic.bytes == cost.bytes
            name = f"{method.name:10} {kind:10}"
            print(f"{name} {cost.rounds:6} {cost.messages:9} {cost.bytes:9,} {forecast}")

    parameters = NoisyVotesParameters(2, 2, 1.0, WithinRadius(RADIUS))
    spent = noisy_votes(asked, deal(rows), parameters, rng).spent
    alone = noisy_votes(asked[:1], deal(rows), parameters, rng).spent
    crowd = spent[0].crowds.max()
    print(f"\nepsilon = 1, {PARTIES} parties; one query, or all 100 with omega up to {crowd}")
    print("ε for an outsider, by the number of parties that add no noise")
    print("        " + "".join(f"{missing:7}" for missing in range(PARTIES)))
    for tolerated in (0, 1, 3, 9):
        for plan, omega in ((alone, "one"), (spent, "all")):
            left = [
                remaining_epsilon(plan, PARTIES, tolerated=tolerated, missing=missing)
                for missing in range(PARTIES)
            ]
            print(f"c={tolerated} {omega} " + "".join(f"{loss:7.2f}" for loss in left))
    print("ε for a party, by the number of others that add no noise, for one query")
    for tolerated in (0, 1, 3, 9):
        left = [
            guarantee(alone, PARTIES, 1, parameters.sum, tolerated=tolerated, missing=missing)
            for missing in range(PARTIES - 1)
        ]
        print(f"c={tolerated} one " + "".join(f"{loss:7.2f}" for loss in left))
    print("ε for a coalition, by its size, for one query and c = 3")
    for method in (SumMethod("shares"), SumMethod("cycles", 2), SumMethod()):
        left = [guarantee(alone, PARTIES, size, method, tolerated=3) for size in range(PARTIES)]
        print(f"{method.name:7} " + "".join(f"{loss:7.2f}" for loss in left))


if __name__ == "__main__":
    main()
