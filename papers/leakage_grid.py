"""Leakage of PP-TopK and rank search over a grid of parties and k.

Values are independent and uniform on [0, 1], and each party has the same number of them. The
estimates use the simulated runs of `veilring.protocols.ring.leakage` and
`veilring.protocols.ranksearch.leakage`, without a network. Known closed forms for PP-TopK are
included.
"""

import csv
import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.files import write_whole
from veilring.protocols.promise import Estimate
from veilring.protocols.ranksearch.algorithm.search import Spacing
from veilring.protocols.ranksearch.algorithm.votes import Nearest
from veilring.protocols.ranksearch.leakage import Opened, leakage_of_totals, open_nearest
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring.algorithm.topk import (
    BLOCK_ENTRIES,
    SMALLEST_RING,
    TopKParameters,
    cut_rows,
    exactness_bound,
    run_ring,
    start_vector,
)
from veilring.protocols.ring.leakage import (
    KINDS,
    HopLeakage,
    known_to_successor,
    sample_hop_leakage,
    uniform_values,
)
from veilring.protocols.ring.system import HOP_MEASURES
from veilring.randomness import Streams
from veilring.scenarios.runner import Progress

RING: Final = "ring/pp-topk"
SEARCH: Final = "rank-search"
SUBJECTS: Final = (RING, SEARCH)
"""The protocols with a leakage grid."""

_TRIALS_MIN: Final = 2
# counts of all parties at once: 32 MB
_COUNTS_AT_ONCE: Final = 2**22


@dataclass(frozen=True, slots=True)
class LeakageGrid:
    """The points at which to estimate PP-TopK.

    Attributes:
        parties: The numbers of parties, each at least 3.
        ks: The values of k, each at least 1.
        P0: The noise probability of round 1 of PP-TopK.
        delta: The smallest noise range of PP-TopK, for values from 0 to 1.
        trials: The number of independent runs at each point, at least 2.
    """

    parties: Sequence[int]
    ks: Sequence[int]
    rounds: int = 2
    P0: float = 1.0
    d: float = 0.5
    delta: float = 0.1
    rows: int = 100
    trials: int = 100_000

    def __post_init__(self) -> None:
        """Refuse values outside the documented ranges."""
        _check(self.parties, self.rows, self.trials)
        for k in self.ks:
            self.parameters(k)

    def parameters(self, k: int) -> TopKParameters:
        """Return the parameters of PP-TopK at a point."""
        return TopKParameters(k, self.P0, self.d, self.rounds, self.delta, 1.0)

    @property
    def party_steps(self) -> int:
        """The number of party-steps of all runs together."""
        return len(self.ks) * sum(self.parties) * self.rounds * self.trials


@dataclass(frozen=True, slots=True)
class SearchGrid:
    """The points at which to estimate rank search.

    Attributes:
        parties: The numbers of parties, each at least 3.
        ks: The values of k, each at least 1.
        trials: The number of independent searches at each point, at least 2.
    """

    parties: Sequence[int]
    ks: Sequence[int]
    rows: int = 100
    trials: int = 100_000

    def __post_init__(self) -> None:
        """Refuse values outside the documented ranges."""
        _check(self.parties, self.rows, self.trials)
        for k in self.ks:
            RankSearch(k=k)


@dataclass(frozen=True, slots=True)
class GridPoint:
    """The estimates at one point; `veilring.protocols.ring.leakage` defines the estimators.

    Attributes:
        exposure_exact: The closed form of the exposure, if known: without noise, and if no real
            value can ever be passed on.
    """

    parties: int
    k: int
    exposure: Estimate
    exposure_at_most: float
    exposure_exact: float | None
    claim: Estimate
    lop: Estimate
    lop_peak: Estimate
    result_exact_at_least: float
    party_steps: int
    seconds: float

    @property
    def party_steps_a_second(self) -> float:
        """The number of party-steps per second."""
        return self.party_steps / self.seconds

    def as_row(self) -> dict[str, Any]:
        """Return one flat row, with two columns per estimate: the value and its standard error."""
        return {**_flat(asdict(self)), "party_steps_a_second": self.party_steps_a_second}


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """The estimates for rank search at one point.

    Attributes:
        exposure: Provably 0, like the next three: a view can be simulated from the totals.
        above: The share of opened totals above k.
    """

    parties: int
    k: int
    exposure: Estimate
    claim: Estimate
    lop: Estimate
    lop_peak: Estimate
    radius: Estimate
    above: Estimate
    thresholds: float
    seconds: float

    def as_row(self) -> dict[str, Any]:
        """Return one flat row, with two columns per estimate: the value and its standard error."""
        return _flat(asdict(self))


def _check(parties: Sequence[int], rows: int, trials: int) -> None:
    for n in parties:
        if n < SMALLEST_RING:
            raise InputError("parties", n, f"at least {SMALLEST_RING}")
    if rows < 1:
        raise InputError("rows", rows, "at least 1")
    if trials < _TRIALS_MIN:
        raise InputError("trials", trials, f"at least {_TRIALS_MIN}")


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            row[name], row[f"{name}_error"] = value["value"], value["standard_error"]
        else:
            row[name] = value
    return row


def leakage_grid(
    grid: LeakageGrid,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[GridPoint]:
    """Estimate at each point of the grid: for each number of parties, all values of k.

    The estimates of a point depend only on the seed and the point, not on the rest of the grid.

    Args:
        clock: A clock in seconds; by default this process's CPU time on one core.
    """
    done = 0
    for n in grid.parties:
        for k in grid.ks:
            began = clock()
            found = _estimate(
                grid, n, k, Streams(seed), _trial_reporter(progress, grid, n, k, done)
            )
            steps = n * grid.rounds * grid.trials
            done += steps
            yield _point(grid, n, k, found, steps=steps, seconds=clock() - began)


def search_grid(
    grid: SearchGrid,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[SearchPoint]:
    """Estimate the leakage of rank search at each point of the grid, like `leakage_grid`.

    Args:
        clock: A clock in seconds; by default this process's CPU time on one core.
    """
    points = [(n, k) for n in grid.parties for k in grid.ks]
    for done, (n, k) in enumerate(points):
        if progress is not None:
            progress(f"{n} parties, k = {k}", done * grid.trials, len(points) * grid.trials)
        began, asked = clock(), 0
        rng = Streams(seed).generator("leakage", "search", n, k)
        told = []
        for opened in _searches(grid, n, k, rng):
            told.append(leakage_of_totals(opened, k, 1.0))
            asked += sum(opened.found.steps)
        radius, above = (
            _mean(np.concatenate([each[name] for each in told])) for name in ("radius", "above")
        )
        none = Estimate(0.0, 0.0)
        yield SearchPoint(
            n,
            k,
            **dict.fromkeys(HOP_MEASURES, none),
            radius=radius,
            above=above,
            thresholds=asked / grid.trials,
            seconds=clock() - began,
        )


def _searches(grid: SearchGrid, n: int, k: int, rng: Generator) -> Iterator[Opened]:
    arity = RankSearch(k=k).arity
    for chunk in cut_rows(grid.trials, n * (k + 1) * arity, _COUNTS_AT_ONCE):
        smallest = uniform_values(chunk.stop - chunk.start, n, k + 1, grid.rows, rng)
        labels = np.zeros(smallest.shape[::2], np.int64)
        near = [Nearest(smallest[:, party], labels) for party in range(n)]
        yield open_nearest(near, Spacing(1.0, arity), k=k)


def _mean(values: Floats) -> Estimate:
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(len(values))))


def exposure_at_most(P0: float, d: float, rounds: int) -> float:
    """Return a bound on the exposure of a message, averaged over all messages of a run.

    A party inserts at most once, and not at all if each of its coins shows noise: `(1 - P0**r *
    d**(r(r-1)/2)) / r`, with r = `rounds`.
    """
    always_noise = math.pow(P0, rounds) * math.pow(d, rounds * (rounds - 1) / 2)
    return (1.0 - always_noise) / rounds


def exposure_without_noise(parties: int, rows: int, k: int, rounds: int) -> float:
    """Return the exact exposure of a message if P0 = 0, averaged over all messages of a run.

    The party at position p (from 1) inserts in round 1 if any of the k smallest of the first p
    parties' values is its own. With N = `rows` values each, without ties, it has none of them with
    the hypergeometric probability `C((p-1)N, k) / C(pN, k)`, and it has one if p N <= k. For k = 1
    the sum over p is the harmonic number of n.
    """
    none = (
        math.comb((p - 1) * rows, min(k, p * rows)) / math.comb(p * rows, min(k, p * rows))
        for p in range(1, parties + 1)
    )
    return (parties - math.fsum(none)) / (parties * rounds)


def write_grid(points: Sequence[GridPoint] | Sequence[SearchPoint], path: Path) -> None:
    """Write a CSV file with one row for each point; estimates have a column of standard errors."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(points[0].as_row()))
    writer.writeheader()
    writer.writerows(point.as_row() for point in points)
    try:
        write_whole(path, text.getvalue(), new=True)
    except OSError as error:
        allowed = f"the path of a file that does not exist and can be written ({error.strerror})"
        raise InputError("out", path, allowed) from error


def _trial_reporter(
    progress: Progress | None, grid: LeakageGrid, n: int, k: int, done: int
) -> Callable[[int], None]:
    """Return a callback that reports the trials run at a point."""

    def tell(trials: int) -> None:
        if progress is not None:
            steps = done + trials * n * grid.rounds
            progress(f"{n} parties, k = {k}", steps, grid.party_steps)

    return tell


def _estimate(
    grid: LeakageGrid, n: int, k: int, streams: Streams, tell: Callable[[int], None]
) -> HopLeakage:
    rows, coins = (streams.generator("leakage", kind, n, k) for kind in ("rows", "coins"))

    def draw(chunk: slice) -> Floats:
        tell(chunk.start)
        return uniform_values(chunk.stop - chunk.start, n, k, grid.rows, rows)

    parameters = grid.parameters(k)
    watch = watch_distinct if is_noise_distinct(parameters) else None
    return sample_hop_leakage(draw, (grid.trials, n), parameters, coins, watch)


def _point(
    grid: LeakageGrid, n: int, k: int, found: HopLeakage, *, steps: int, seconds: float
) -> GridPoint:
    names = ("exposure", "claim", "lop", "lop_peak")
    estimates = {name: getattr(found, name) for name in names}
    at_most, exact = exposure_at_most(grid.P0, grid.d, grid.rounds), None
    if grid.P0 == 0:
        exact = exposure_without_noise(n, grid.rows, k, grid.rounds)
    elif at_most == 0:
        exact = 0.0
    return GridPoint(
        parties=n,
        k=k,
        **{name: Estimate(e.value, e.standard_error) for name, e in estimates.items()},
        exposure_at_most=at_most,
        exposure_exact=exact,
        result_exact_at_least=exactness_bound(k, grid.P0, grid.d, grid.rounds),
        party_steps=steps,
        seconds=seconds,
    )


# The minimum noise range, relative to the largest number of a run. Two numbers from it are equal
# with probability at most 2**-32.
NOISE_RANGE_MIN: Final = 2.0**-20


def is_noise_distinct(parameters: TopKParameters) -> bool:
    """Return whether the noise range is so large that equal numbers can be neglected."""
    greatest = max(abs(parameters.lower), abs(parameters.upper))
    return parameters.delta >= NOISE_RANGE_MIN * greatest


def watch_distinct(
    values: Floats, parameters: TopKParameters, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Run the ring and return the counts of all hops, shape (`KINDS`, hops, T), as `watch_hops`.

    A hop replaces the greatest entries of the vector by the same number of others, which are *born*
    on it. If no two numbers of a trial are equal, births show all that `watch_hops` finds by
    comparing multisets, while the ring runs and without a search. An entry is fresh to the
    successor if it was born after the vector that the successor knows. It is the party's own if
    this hop was the party's honest answer and bore it. It is in the result if it lives to the end
    and is not noise above `upper`. Two values from a continuous distribution are distinct except
    with probability about 2**-53.
    """
    trials, parties, k = values.shape
    hops = parties * parameters.rounds
    counts = np.zeros((KINDS, hops, trials), dtype=np.int32)
    exposed, claims, right, public = counts
    births = np.zeros((trials, k), dtype=np.int32)
    last = start_vector(parameters, trials)

    def observe(round_number: int, position: int, received: Floats, passed: Floats) -> None:
        nonlocal last
        hop, last = (round_number - 1) * parties + position, passed
        honest, inserted = _bear(births, hop + 1, received, passed, values[:, position])
        exposed[hop, honest] = 1
        right[hop, honest] = inserted
        fresh = births > known_to_successor(hop, parties)
        claims[hop] = fresh.sum(axis=1, dtype=np.int32)

    run_ring(values, parameters, rng, observe)
    born_by = _born_by(births, last <= parameters.upper, hops)
    for hop in range(hops):
        public[hop] = born_by[hop + 1] - born_by[known_to_successor(hop, parties)]
    return counts


def _bear(
    births: NDArray[np.int32], birth: int, received: Floats, passed: Floats, own: Floats
) -> tuple[Ints, Ints]:
    """Record births in place; return the honestly answered trials, and the insertions in each."""
    # Noise takes the places of the entries that it displaces. The smallest value of an honest
    # answer is the first entry to differ, and moves the entries behind it.
    differs = passed != received
    first = np.arange(0, differs.size, differs.shape[1]) + differs.argmax(axis=1)
    honest = np.flatnonzero((passed.take(first) == own[:, 0]) & differs.take(first))
    before, inserted = births[honest], np.empty(honest.size, dtype=np.int64)
    np.copyto(births, birth, where=differs)
    for block in cut_rows(honest.size, births.shape[1], BLOCK_ENTRIES):
        runs = honest[block]
        births[runs], inserted[block] = _merge(before[block], birth, received[runs], own[runs])
    return honest, inserted


def _merge(
    births: NDArray[np.int32], birth: int, received: Floats, own: Floats
) -> tuple[NDArray[np.int32], Ints]:
    """Return the births of the k smallest of the union, and how many are the party's own."""
    greatest = received[:, ::-1]
    inserted = np.count_nonzero(own < greatest, axis=1)
    order = np.minimum(own, greatest).argsort(axis=1)  # the party's own are at the first places
    last = np.arange(births.shape[1] - 1, births.size, births.shape[1])[:, None]
    merged = births.take(last - order)
    np.copyto(merged, birth, where=order < inserted[:, None])
    return merged, inserted


def _born_by(births: NDArray[np.int32], counted: Bools, hops: int) -> Ints:
    """Return the number of counted entries that were born by each hop, shape (hops + 1, T)."""
    trials = len(births)
    places = births * np.int64(trials) + np.arange(trials)[:, None]
    born = np.bincount(places[counted], minlength=(hops + 1) * trials)
    return np.asarray(born.reshape(hops + 1, trials).cumsum(axis=0), dtype=np.int64)
