"""PP-TopK: the k smallest values of the union of all parties' values, passed round a ring.

Source: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC 2007,
Algorithm 2 and Section 5.1. Vectors are sorted ascending; the leading axis is always T independent
runs (queries when networked, trials when estimating), and a party's missing values are `+inf`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.blocks import cut_rows
from veilring.protocols.ring.algorithm.checks import require, require_noise


@dataclass(frozen=True, slots=True)
class TopKParameters:
    """The public parameters of PP-TopK; all parties must hold the same.

    Attributes:
        k: How many of the smallest values are sought, at least 1.
        P0: Probability of answering with noise in round 1, in [0, 1].
        d: Factor by which that probability falls each round, in (0, 1].
        rounds: How often the vector goes round the ring (`r_max`), at least 1.
        delta: Least range of the noise, in the unit of the values; positive.
        upper: A bound that no value exceeds; the vector starts filled with it.
        lower: A bound that no value falls below.

    Raises:
        InputError: If a field is outside its range, or `upper + k * delta` is not finite.
    """

    k: int
    P0: float
    d: float
    rounds: int
    delta: float
    upper: float
    lower: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is outside the documented ranges."""
        require_noise(self.k, self.P0, self.d)
        require(self.rounds >= 1, "rounds", self.rounds, "an integer of at least 1")
        require(0 < self.delta < math.inf, "delta", self.delta, "a finite number above 0")
        require(math.isfinite(self.lower), "lower", self.lower, "a finite number")
        require(
            self.lower < self.upper < math.inf, "upper", self.upper, "a finite number above lower"
        )
        require(
            math.isfinite(self.upper - self.lower + self.k * self.delta),
            "upper",
            self.upper,
            "small enough that upper - lower + k * delta is finite",
        )

    def noise_probability(self, round_number: int) -> float:
        """Return the probability of noise in a round (1-based): `P0 * d**(round_number - 1)`."""
        return self.P0 * self.d ** (round_number - 1)


def own_smallest(values: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return a party's contribution `V`: its k smallest values in each run.

    The padding is `+inf`, not `upper`: noise may lift an entry of the vector above `upper`, and
    padding must never displace it.

    Args:
        values: All of the party's values, shape (T, m), in any order; m may be 0, and `+inf`
            stands for a value that is missing.
        k: How many to keep, at least 1.

    Returns:
        Shape (T, k), each row ascending and filled up with `+inf` where m < k.

    Raises:
        InputError: If `k` < 1, or `values` is not two-dimensional or holds a NaN or `-inf`.
    """
    require(k >= 1, "k", k, "an integer of at least 1")
    require(values.ndim == 2, "values", f"of shape {values.shape}", "shape (runs, values)")  # noqa: PLR2004  (runs by values)
    numbers = bool((values > -np.inf).all())
    require(numbers, "values", "not a number in some place", "numbers, or +inf for a missing one")
    kept = min(k, values.shape[1])
    smallest = np.full((len(values), k), np.inf)
    if kept:
        smallest[:, :kept] = np.sort(np.partition(values, kept - 1, axis=1)[:, :kept], axis=1)
    return smallest


def require_bounded(
    values: NDArray[np.float64], parameters: TopKParameters, field: str = "values"
) -> None:
    """Refuse values outside `[lower, upper]`; `+inf` stands for a missing value and may pass.

    Raises:
        InputError: If any value is outside, or NaN. The message never holds a value.
    """
    above = values[values > parameters.upper]
    inside = values.min(initial=np.inf) >= parameters.lower and np.isposinf(above).all()
    allowed = f"numbers in [lower, upper] = [{parameters.lower:g}, {parameters.upper:g}]"
    require(bool(inside), field, "outside the public bounds in some place", allowed)


def start_vector(parameters: TopKParameters, runs: int) -> NDArray[np.float64]:
    """Return the public vector that the starter receives in round 1: `upper`, shape (runs, k)."""
    return np.full((runs, parameters.k), parameters.upper, dtype=np.float64)


def topk_step(  # noqa: PLR0917  (the inputs of Algorithm 2, no more)
    G: NDArray[np.float64],
    V: NDArray[np.float64],
    inserted: NDArray[np.bool_],
    round_number: int,
    parameters: TopKParameters,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what a party passes on, and whether it has now inserted (Algorithm 2).

    Of two sorted rows, `V[j]` is among the k smallest of the union (ties to `G`) exactly if
    `V[j] < G[k-1-j]`. These are the first m of `V`, they displace the last m of `G`, and m is the
    size of the multiset difference `G' - G`, equal values included.

    The generator gives one coin a run that has something to contribute, then m uniforms for each
    of those that answers with noise, in the order of the runs; so the draws depend on shapes and
    data only.

    Args:
        G: The vector received, shape (T, k), rows ascending and finite.
        V: The party's own k smallest, shape (T, k), as `own_smallest` gives them.
        inserted: Whether the party has inserted before, shape (T,).
        round_number: The round, from 1.
        parameters: The public parameters.
        rng: Source of the coins and of the noise. Both are secrets of the party.

    Returns:
        New arrays: the vector passed on, shape (T, k), and `inserted` afterwards, shape (T,).
    """
    passed, inserted_out = G.copy(), inserted.copy()
    active = np.flatnonzero((V[:, 0] < G[:, -1]) & ~inserted)
    if not active.size:
        return passed, inserted_out
    noisy = rng.random(active.size) < parameters.noise_probability(round_number)
    honest, hiding = active[~noisy], active[noisy]
    inserted_out[honest] = True
    for rows in _in_blocks(honest, parameters.k):
        passed[rows] = _merged(G[rows], V[rows])
    for rows in _in_blocks(hiding, parameters.k):
        passed[rows] = _with_noise(G[rows], V[rows], parameters.delta, rng)
    return passed, inserted_out


def _in_blocks(rows: NDArray[np.int64], k: int) -> Iterator[NDArray[np.int64]]:
    return (rows[block] for block in cut_rows(len(rows), k))


def _merged(G: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the k smallest of the union."""
    merged = np.minimum(V, G[:, ::-1])
    merged.sort(axis=1)
    return merged


def _with_noise(
    G: NDArray[np.float64], V: NDArray[np.float64], delta: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Replace the tail that `V` displaces by uniforms from `lowest` = `G'[k]` upward, in place."""
    k, rows = G.shape[1], np.arange(len(G))
    below = G[:, ::-1] > V  # in the first m places of each row
    m = np.where(below[:, -1], k, below.argmin(axis=1))
    lowest = V[rows, m - 1]  # the greater of the last that comes in and the last that stays
    np.maximum(lowest, G[rows, k - m - 1], out=lowest, where=m < k)
    highest = np.maximum(lowest + delta, G[rows, k - m])
    most = m.max()
    displaced = below[:, :most][:, ::-1]
    noise = np.zeros((len(G), most))
    noise[displaced] = rng.random(int(m.sum()))
    noise *= (highest - lowest)[:, None]
    noise += lowest[:, None]
    np.minimum(noise, highest[:, None], out=noise)  # rounding must not pass the bound
    tail = G[:, k - most :]
    np.copyto(tail, noise, where=displaced)
    tail.sort(axis=1)
    return G


def final_result(G: NDArray[np.float64], parameters: TopKParameters) -> NDArray[np.float64]:
    """Return the public result, shape (T, k): the last vector, with nothing above `upper`.

    If the union holds fewer than k values, the result is filled up with `upper`; noise then lies
    at or above `upper` and nothing would ever displace it. No value lies there, so every party
    cuts the vector that the starter sent at the public bound.
    """
    return np.minimum(G, parameters.upper)


def highest_entry(parameters: TopKParameters, hops: int) -> float:
    """Return the greatest entry that a vector can have after honest hops.

    A noisy answer draws from at most `max(G'[k] + delta, G[k-m+1])`, and `G'[k]` is the greater of
    a real value, at most `upper`, and `G[k-m]`. So one hop lifts the greatest entry by at most
    `delta`; and by induction entry j (from 1) never exceeds `upper + j * delta`, because the
    drawn entries are those from `j = k-m+1` on, and they are at most
    `max(upper, upper + (k-m) * delta) + delta`. Hence `upper + min(hops, k) * delta`.

    The bound is added up one `delta` at a time, as the hops do it; rounding is monotone, so no
    honest vector is above it by even one bit.

    Args:
        parameters: The public parameters.
        hops: How many parties have passed the vector on since the start, 0 or more.

    Raises:
        InputError: If `hops` is negative.
    """
    require(hops >= 0, "hops", hops, "an integer of at least 0")
    highest = parameters.upper
    for _ in range(min(hops, parameters.k)):
        highest += parameters.delta
    return highest
