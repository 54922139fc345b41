"""What a coalition of any size and positions learns from PP-TopK."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters
from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.algorithm.multisets import difference, overlap
from veilring.protocols.ring.leakage.transcripts import cut_trials, transcript


@dataclass(frozen=True, slots=True, eq=False)
class CoalitionExposure:
    """What a coalition of any size and positions learns from PP-TopK.

    Attributes:
        trials: Number of independent runs.
        exactly: For each position, the probability that somewhere in the run a real value of that
            party is pinned to it alone, shape (n,); NaN for members of the coalition.
        among_run: The probability that a real value of the party is seen to come from the honest
            run that it sits in, of whatever length, shape (n,); NaN for members.
    """

    trials: int
    exactly: NDArray[np.float64]
    among_run: NDArray[np.float64]


def exposure_to_coalition(
    values: NDArray[np.float64],
    parameters: TopKParameters,
    coalition: Collection[int],
    rng: np.random.Generator,
) -> CoalitionExposure:
    """Estimate what a coalition, pooling all that its members see, learns of each honest party.

    It sees the vector that enters and the vector that leaves every unbroken run of honest hops.
    What is in the second and not in the first comes from the parties of that run: if it is a
    single party, from that party exactly. The start vector and the result are public, so
    the starter in round 1 needs only a corrupt successor, and the last party in the last round
    only a corrupt predecessor. For a party between two corrupt neighbours `exactly` is its
    `HopLeakage.exposure_by_party`.

    Args:
        values: As for `estimate_hop_leakage`, shape (T, n, k).
        parameters: The public parameters.
        coalition: Positions of the corrupt parties, 0 (the starter) to n - 1.
        rng: Source of the parties' coins and noise.

    Raises:
        InputError: If a position is not in the ring, or as `run_ring` does.
    """
    trials, parties, k = values.shape
    known = set(coalition) <= set(range(parties))
    require(known, "coalition", sorted(coalition), f"positions from 0 to {parties - 1}")
    counts = np.zeros((2, parties))
    for chunk in cut_trials(trials, parties * parameters.rounds * k):
        part = values[chunk]
        seen = np.zeros((2, parties, len(part)), dtype=np.bool_)
        vectors = transcript(part, parameters, rng)
        for run in _honest_runs(parties * parameters.rounds, parties, coalition):
            added = difference(vectors[run[-1] + 1], vectors[run[0]])
            for hop in run:
                party = hop % parties
                own = overlap(added, part[:, party]) > 0
                seen[1, party] |= own
                if len(run) == 1:
                    seen[0, party] |= own
        counts += seen.sum(axis=2)
    counts[:, list(coalition)] = np.nan
    exactly, among_run = counts / trials
    return CoalitionExposure(trials, exactly, among_run)


def _honest_runs(hops: int, parties: int, coalition: Collection[int]) -> list[list[int]]:
    """Return the maximal runs of consecutive hops made by honest parties."""
    by_side = groupby(range(hops), key=lambda hop: hop % parties in coalition)
    return [list(run) for corrupt, run in by_side if not corrupt]
