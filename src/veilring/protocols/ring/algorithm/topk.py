"""PP-TopK: the k smallest values of the union of all parties' values, passed round a ring.

Source: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC 2007,
Algorithm 2 and Section 5.1. Vectors are sorted ascending; the leading axis is always T independent
runs (queries when networked, trials when estimating), and a party's missing values are `+inf`.

The module defines one party's step, the number of rounds that makes the result exact, and many runs
of the whole ring at once. The Monte Carlo driver calls the same `topk_step` as a networked party,
so the estimates are for the deployed code.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats
from veilring.data.table import is_table
from veilring.privacy.checks import require, require_that

# With two parties, each would see the other's exact contribution.
SMALLEST_RING: Final = 3
# 512 KiB of numbers: intermediate results mostly stay in a core's second-level cache, and the calls
# per block cost little compared with its work.
BLOCK_ENTRIES: Final = 2**16


def cut_rows(rows: int, width: int, entries: int) -> Iterator[slice]:
    """Yield slices of at least one row of `width` entries, otherwise of at most `entries`."""
    step = max(1, entries // width)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


@dataclass(frozen=True, slots=True)
class TopKParameters:
    """The public parameters of PP-TopK, equal for all parties.

    Attributes:
        k: The number of smallest values to find, at least 1.
        P0: Probability of answering with noise in round 1, in [0, 1].
        d: Factor by which that probability falls each round, in (0, 1].
        rounds: The number of rounds of the vector (`r_max`), at least 1.
        delta: The minimum range of the noise, in the unit of the values; positive.
        upper: A bound that no value exceeds; the vector starts filled with it.
        lower: A bound that no value falls below.
    """

    k: int
    P0: float
    d: float
    rounds: int
    delta: float
    upper: float
    lower: float = 0.0

    def __post_init__(self) -> None:
        _require_noise(self.k, self.P0, self.d)
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


def _require_noise(k: int, P0: float, d: float) -> None:
    require(k >= 1, "k", k, "an integer of at least 1")
    require(0 <= P0 <= 1, "P0", P0, "a number in [0, 1]")
    require(0 < d <= 1, "d", d, "a number in (0, 1]")


def own_smallest(values: Floats, k: int) -> Floats:
    """Return a party's contribution `V`: its k smallest values in each run.

    The values, (T, m), have any order, and the result, (T, k), is ascending. The padding is `+inf`,
    not `upper`: noise may lift an entry of the vector above `upper`, and padding must never
    displace it.
    """
    require(k >= 1, "k", k, "an integer of at least 1")
    require_that(
        is_table(values),
        "values",
        f"values has the shape {values.shape}; it must be (runs, values)",
    )
    numbers = bool((values > -np.inf).all())
    require_that(numbers, "values", "values must be numbers, with +inf for a missing one")
    kept = min(k, values.shape[1])
    smallest = np.full((len(values), k), np.inf)
    if kept:
        smallest[:, :kept] = np.sort(np.partition(values, kept - 1, axis=1)[:, :kept], axis=1)
    return smallest


def require_bounded(values: Floats, parameters: TopKParameters, field: str = "values") -> None:
    """Reject values outside `[lower, upper]`; `+inf` stands for a missing value and may pass."""
    above = values[values > parameters.upper]
    inside = values.min(initial=np.inf) >= parameters.lower and (above == np.inf).all()
    allowed = f"numbers in [lower, upper] = [{parameters.lower:g}, {parameters.upper:g}]"
    require_that(bool(inside), field, f"{field} must be within the public bounds: {allowed}")


def start_vector(parameters: TopKParameters, runs: int) -> Floats:
    """Return the public vector that the starter receives in round 1: `upper`, shape (runs, k)."""
    return np.full((runs, parameters.k), parameters.upper, dtype=np.float64)


def topk_step(  # noqa: PLR0917  (the inputs of Algorithm 2, no more)
    G: Floats,
    V: Floats,
    inserted: Bools,
    round_number: int,
    parameters: TopKParameters,
    rng: np.random.Generator,
) -> tuple[Floats, Bools]:
    """Return the vector that a party passes on, and whether it has inserted so far (Algorithm 2).

    Of two sorted rows, `V[j]` is among the k smallest of the union (ties to `G`) exactly if `V[j] <
    G[k-1-j]`. These are the first m of `V`, they displace the last m of `G`, and m is the size of
    the multiset difference `G' - G`, equal values included.

    The generator draws one coin for each run that has something to contribute, then m uniforms for
    each of these runs that answers with noise, in the order of the runs; the draws therefore depend
    only on shapes and data.

    The vector received, G, and the party's own `own_smallest`, V, have the shape (T, k), and
    `inserted` has (T,); results are new arrays. Rounds count from 1. Coins and noise are secrets of
    the party.
    """
    passed, inserted_out = G.copy(), inserted.copy()
    (active,) = ((V[:, 0] < G[:, -1]) & ~inserted).nonzero()
    if not active.size:
        return passed, inserted_out
    noisy = rng.random(active.size) < parameters.noise_probability(round_number)
    honest, hiding = active[~noisy], active[noisy]
    inserted_out[honest] = True
    for block in cut_rows(len(honest), parameters.k, BLOCK_ENTRIES):
        rows = honest[block]
        passed[rows] = _merged(G[rows], V[rows])
    for block in cut_rows(len(hiding), parameters.k, BLOCK_ENTRIES):
        rows = hiding[block]
        passed[rows] = _with_noise(G[rows], V[rows], parameters.delta, rng)
    return passed, inserted_out


def _merged(G: Floats, V: Floats) -> Floats:
    """Return the k smallest of the union."""
    merged = np.minimum(V, G[:, ::-1])
    merged.sort(axis=1)
    return merged


def _with_noise(G: Floats, V: Floats, delta: float, rng: np.random.Generator) -> Floats:
    """Replace the tail that `V` displaces by uniforms from `lowest` = `G'[k]` upward, in place."""
    k, rows = G.shape[1], np.arange(len(G))
    below = G[:, ::-1] > V  # in the first m places of each row
    m = np.where(below[:, -1], k, below.argmin(axis=1))
    lowest = V[rows, m - 1]  # the larger of the last one that enters and the last one that stays
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


def final_result(G: Floats, parameters: TopKParameters) -> Floats:
    """Return the public result, shape (T, k): the last vector, clipped at `upper`.

    If the union has fewer than k values, the result is padded with `upper`; noise at or above
    `upper` would otherwise remain, since no value displaces it. Every party therefore clips the
    starter's vector at the public bound.
    """
    return np.minimum(G, parameters.upper)


def highest_entry(parameters: TopKParameters, hops: int) -> float:
    """Return the largest entry that a vector can have after honest hops.

    A noisy answer draws from at most `max(G'[k] + delta, G[k-m+1])`, and `G'[k]` is the greater of
    a real value, at most `upper`, and `G[k-m]`. So one hop lifts the greatest entry by at most
    `delta`; and by induction entry j (from 1) never exceeds `upper + j * delta`, because the
    drawn entries are those from `j = k-m+1` on, and they are at most
    `max(upper, upper + (k-m) * delta) + delta`. Hence `upper + min(hops, k) * delta`.

    The bound is computed by adding one `delta` at a time, as the hops do; rounding is monotone, so
    no honest vector exceeds it by even one bit.
    """
    require(hops >= 0, "hops", hops, "an integer of at least 0")
    highest = parameters.upper
    for _ in range(min(hops, parameters.k)):
        highest += parameters.delta
    return highest


def exactness_bound(k: int, P0: float, d: float, rounds: int) -> float:
    """Return the minimum probability that the result is exact (Section 5.1).

    At most k parties contribute to the result, and each fails only if it answers with noise in
    every round: `(1 - P0**r * d**(r(r-1)/2))**k` with r = `rounds`. For values without ties and
    exactly c contributing parties, the probability *is* this formula with c in place of k.
    """
    return 1.0 - _error_bound(k, P0, d, rounds)


def rounds_for(error: float, k: int, P0: float, d: float) -> int:
    """Return the number of rounds that makes the result exact with probability `1 - error`."""
    _require_noise(k, P0, d)
    require(0 < error < 1, "error", error, "a number in (0, 1)")
    require(min(P0, d) < 1, "d", d, "below 1 if P0 is 1; otherwise no number of rounds suffices")

    def enough(rounds: int) -> bool:
        return _error_bound(k, P0, d, rounds) <= error

    below, above = 0, 1
    while not enough(above):
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above


def _error_bound(k: int, P0: float, d: float, rounds: int) -> float:
    """Return `1 - exactness_bound`, accurate when it is tiny."""
    _require_noise(k, P0, d)
    require(rounds >= 1, "rounds", rounds, "an integer of at least 1")
    if P0 == 0:
        return 0.0
    always_noise = math.exp(rounds * math.log(P0) + rounds * (rounds - 1) / 2 * math.log(d))
    return 1.0 if always_noise >= 1 else -math.expm1(k * math.log1p(-always_noise))


HopObserver = Callable[[int, int, Floats, Floats], None]
"""A callback for each hop of `run_ring`: round (1-based), position, received and passed (T, k)."""


def run_ring(
    values: Floats,
    parameters: TopKParameters,
    rng: np.random.Generator,
    observe: HopObserver | None = None,
) -> Floats:
    """Run the whole ring T times and return the public result of each run, shape (T, k).

    `values` has each party's own k smallest, shape (T, n, k) with n >= 3, padded with `+inf`; axis
    1 is the ring's order, beginning with the starter. `observe` must not change its arguments.
    """
    _require_ring(values, parameters)
    runs, parties, _ = values.shape
    G = start_vector(parameters, runs)
    inserted = np.zeros((parties, runs), dtype=np.bool_)
    for round_number in range(1, parameters.rounds + 1):
        for position in range(parties):
            passed, inserted[position] = topk_step(
                G, values[:, position], inserted[position], round_number, parameters, rng
            )
            if observe is not None:
                observe(round_number, position, G, passed)
            G = passed
    return final_result(G, parameters)


def true_topk(values: Floats, parameters: TopKParameters) -> Floats:
    """Return the k smallest of the union of (T, n, k) values, (T, k), filled up with `upper`."""
    union = values.reshape(len(values), -1)
    smallest = np.sort(np.partition(union, parameters.k - 1, axis=1)[:, : parameters.k], axis=1)
    return final_result(smallest, parameters)


def _require_ring(values: Floats, parameters: TopKParameters) -> None:
    shape = f"(runs, parties >= {SMALLEST_RING}, k = {parameters.k})"
    fits = values.ndim == 3 and values.shape[1] >= SMALLEST_RING  # noqa: PLR2004  (the axes named in `shape`)
    fits = fits and values.shape[2] == parameters.k
    require_that(fits, "values", f"values has the shape {values.shape}; it must be {shape}")
    ascending = bool((values[..., :-1] <= values[..., 1:]).all())
    require_that(ascending, "values", "each row of values must be sorted ascending")
    require_bounded(values, parameters)
