"""The leakage of PP-TopK, hop by hop and to coalitions, estimated by running it many times.

Sources: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC
2007, Section 6.6; LoP: the same authors, "Topk queries across multiple private databases", ICDCS
2005. Runs are those of `run_ring`, which calls the same step as a networked party.

A *hop* is one message: a round and a position. Vectors are compared as multisets, and only finite
values count as a party's own. A hop's *fresh* entries are those that are new to the successor: not
in the vector that the successor itself passed on last (the public start vector if it has not yet).

`exposure`
    Probability that the vector a party passes on holds a real value of its own that was not in the
    vector it received: that it inserted on this hop. `exposure_by_party` is the probability that
    this happens anywhere in the run. A coalition of predecessor and successor sees both vectors,
    so this is exactly what it learns.
`claim`
    A successor claims each fresh entry as its predecessor's. The fraction of claims that is right:
    all right claims over all claims.
`LoP`
    Loss of privacy, the mean of `P(claim | transcript, result) - P(claim | result)` over claims:
    the fraction of claims that is right minus the mean of what the result alone reveals, 1/n for a
    value in the final result (all n parties are equally likely) and 0 for any other. A party's LoP
    is taken over all claims that its successor makes in a run. If it is negative, the successor
    would do better to guess.

If no claim is ever made, nothing is revealed: `claim` and `LoP` are 0.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.privacy.checks import require, require_that
from veilring.protocols.ring.algorithm.consistency import (
    copy_numbers,
    difference,
    multiplicities,
    overlap,
)
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    cut_rows,
    final_result,
    run_ring,
    start_vector,
)

# A transcript of this many entries takes 64 MiB; more trials are run in several chunks.
TRANSCRIPT_ENTRIES: Final = 2**23

# With this many trials calls cost little compared with the work, and a hop's vectors fit into a
# core's cache.
CHUNK_TRIALS: Final = 2**13

KINDS: Final = 4
"""Counts per trial and hop: exposed (0 or 1), claims, correct claims, claims in the result."""

# Standard errors come from leaving out one group of trials at a time. With 32 groups they are
# themselves good to about an eighth, and the sums of all groups stay small for 1,000 parties.
GROUPS: Final = 32

Draw = Callable[[slice], Floats]
"""Returns the values of the trials of a slice, shape (trials of the slice, n, k)."""

Watch = Callable[[Floats, TopKParameters, np.random.Generator], NDArray[np.int32]]
"""Runs the ring on some values, and returns the counts of all hops, shape (`KINDS`, hops, T)."""


@dataclass(frozen=True, slots=True)
class MonteCarloEstimate:
    """A Monte Carlo estimate and its standard error.

    The error is a delete-one-group jackknife over independent trials, so it includes the dependence
    among the hops of a trial. An event that never occurred has standard error 0; use
    `veilring.privacy.bounds.proportion_bounds` then.
    """

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """The three estimators, each of shape (rounds, n)."""

    exposure: Floats
    claim: Floats
    lop: Floats


@dataclass(frozen=True, slots=True, eq=False)
class HopLeakage:
    """The leakage of the hops of PP-TopK; the module's docstring defines each estimator.

    Attributes:
        lop_peak: The maximum LoP of any party (position). As the maximum of n estimates it is
            biased upward by up to a few standard errors.
        exposure_by_party: For each position, the probability of an exposure anywhere in the run,
            shape (n,): a proportion of T independent runs, for `proportion_bounds`.
        by_hop: Shape (rounds, n); its exposures are proportions of T independent runs as well.
    """

    trials: int
    exposure: MonteCarloEstimate
    claim: MonteCarloEstimate
    lop: MonteCarloEstimate
    lop_peak: MonteCarloEstimate
    exposure_by_party: Floats
    by_hop: Breakdown


@dataclass(frozen=True, slots=True, eq=False)
class CoalitionExposure:
    """The exposure of each honest party to a coalition, by position, shape (n,); NaN for members.

    Attributes:
        exactly: The probability that somewhere in the run a real value of the party is pinned to it
            alone.
        among_run: The probability that a real value of the party is seen to come from its maximal
            run of honest parties, of any length.
    """

    trials: int
    exactly: Floats
    among_run: Floats


def estimate_hop_leakage(
    values: Floats, parameters: TopKParameters, rng: np.random.Generator
) -> HopLeakage:
    """Estimate the leakage per hop of PP-TopK to the successor.

    `values` has each party's own k smallest in each trial, shape (T, n, k) with T >= 2, as in
    `run_ring`. To estimate for a data set, divide its rows among the parties and assign the parties
    to positions again in each trial.
    """
    trials, parties, _ = values.shape
    return sample_hop_leakage(lambda chunk: values[chunk], (trials, parties), parameters, rng)


def leakage_over_orders(
    own: Floats, parameters: TopKParameters, trials: int, rng: np.random.Generator
) -> HopLeakage:
    """Estimate the leakage per hop, over queries and over all orders of the ring.

    Each trial is for a query drawn uniformly, with the parties in a random order.

    `own` has each party's k smallest distances to each query, shape (queries, parties, k).
    """
    queries, parties, _ = own.shape
    drawn = rng.integers(queries, size=trials)
    orders = rng.permuted(np.tile(np.arange(parties), (trials, 1)), axis=1)
    return estimate_hop_leakage(own[drawn[:, None], orders], parameters, rng)


def sample_hop_leakage(
    draw: Draw,
    shape: tuple[int, int],
    parameters: TopKParameters,
    rng: np.random.Generator,
    watch: Watch | None = None,
) -> HopLeakage:
    """Estimate the leakage per hop as `estimate_hop_leakage` does, on values drawn on demand.

    Memory stays bounded for any number of trials; `shape` has the numbers of trials, at least 2,
    and of parties. By default, hops are watched by `watch_hops`.
    """
    trials, parties = shape
    tally = HopTally.empty(trials, parties, parameters.rounds)
    for chunk in cut_trials(trials, parties * parameters.rounds * parameters.k):
        values = draw(chunk)
        if watch is None:
            counts = watch_hops(transcript(values, parameters, rng), values, parameters)
        else:
            counts = watch(values, parameters, rng)
        tally.add(chunk, counts)
    return _estimates(tally)


def exposure_to_coalition(
    values: Floats, parameters: TopKParameters, coalition: Collection[int], rng: np.random.Generator
) -> CoalitionExposure:
    """Estimate what a coalition that pools its members' views learns about each honest party.

    It sees the vectors that enter and leave every unbroken run of honest hops. Entries of the
    leaving vector that the entering vector lacks come from the parties of that run; in a run of a
    single party, they are that party's. The start vector and the result are public, so the starter
    in round 1 needs only a corrupt successor, and the last party in the last round only a corrupt
    predecessor. `exactly` equals `HopLeakage.exposure_by_party` for a party between two corrupt
    neighbours.

    `values` are as for `estimate_hop_leakage`, and `coalition` has positions from 0, the starter.
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


def uniform_values(  # noqa: PLR0917  (a shape and a distribution)
    trials: int,
    parties: int,
    k: int,
    rows_per_party: int,
    rng: np.random.Generator,
    upper: float = 1.0,
) -> Floats:
    """Return each party's k smallest of independent rows uniform on [0, upper].

    The rows themselves are never drawn: the j-th smallest of N uniforms is the sum of the first j
    of N + 1 exponential variables over the sum of all, and the sum of those beyond k is a gamma.

    The rows of shape (trials, parties, k) ascend, and are filled up with `+inf` if N < k.
    """
    for field, count in (("trials", trials), ("parties", parties), ("k", k)):
        require(count >= 1, field, count, "an integer of at least 1")
    require(rows_per_party >= 0, "rows_per_party", rows_per_party, "an integer of at least 0")
    require(0 < upper < np.inf, "upper", upper, "a finite number above 0")
    kept = min(k, rows_per_party)
    values = rng.standard_exponential((trials, parties, kept))
    # In place, as fresh memory costs as much here as the arithmetic.
    np.cumsum(values, axis=2, out=values)
    values /= values[:, :, -1:] + rng.standard_gamma(
        rows_per_party + 1 - kept, (trials, parties, 1)
    )
    values *= upper
    if kept == k:
        return values
    missing = np.full((trials, parties, k - kept), np.inf)
    return np.concatenate((values, missing), axis=2)


def transcript(values: Floats, parameters: TopKParameters, rng: np.random.Generator) -> Floats:
    """Return the start vector followed by the output of each hop, shape (hops + 1, T, k).

    The runs are side by side in memory, which is how multisets are compared fastest.
    """
    trials, parties, k = values.shape
    vectors = np.empty((parties * parameters.rounds + 1, k, trials)).transpose(0, 2, 1)
    vectors[0] = start_vector(parameters, trials)

    def observe(
        round_number: int,
        position: int,
        received: Floats,  # noqa: ARG001  (as `run_ring` calls it)
        passed: Floats,
    ) -> None:
        vectors[(round_number - 1) * parties + position + 1] = passed

    run_ring(values, parameters, rng, observe)
    return vectors


def cut_trials(trials: int, entries: int) -> Iterator[slice]:
    """Yield slices of at most `CHUNK_TRIALS` trials whose transcripts fit `TRANSCRIPT_ENTRIES`."""
    return cut_rows(trials, entries, min(TRANSCRIPT_ENTRIES, CHUNK_TRIALS * entries))


def watch_hops(vectors: Floats, values: Floats, parameters: TopKParameters) -> NDArray[np.int32]:
    """Return the counts of all hops, shape (`KINDS`, hops, T), of vectors as in `transcript`."""
    hops, trials, parties = len(vectors) - 1, len(values), values.shape[1]
    counts = np.empty((KINDS, hops, trials), dtype=np.int32)
    result = final_result(vectors[-1], parameters)
    for hop in range(hops):
        passed, own = vectors[hop + 1], values[:, hop % parties]
        known = vectors[known_to_successor(hop, parties)]
        counts[:, hop] = _watch_hop(vectors[hop], passed, known, own, result)
    return counts


def known_to_successor(hop: int, parties: int) -> int:
    """Return the number of the vector that the successor on a hop (from 0) saw last.

    `vectors[h]` is received on hop h and `vectors[h + 1]` passed on. The successor's own last hop
    was n - 1 hops ago, at every position.
    """
    return max(0, hop + 2 - parties)


def _watch_hop(
    received: Floats, passed: Floats, known: Floats, own_values: Floats, result: Floats
) -> tuple[Ints, ...]:
    copy = copy_numbers(passed)
    own = multiplicities(passed, own_values)
    public = multiplicities(passed, result)
    # Of the copies of a number, those beyond the ones seen before are new; counted from 0.
    added = copy - multiplicities(passed, received)
    fresh = copy - multiplicities(passed, known)
    exposed = ((added >= 0) & (added < own)).any(axis=1)
    claimed = fresh >= 0
    counts = (claimed, claimed & (fresh < own), claimed & (fresh < public))
    return exposed.astype(np.int64), *(np.count_nonzero(count, axis=1) for count in counts)


@dataclass(frozen=True, slots=True, eq=False)
class HopTally:
    """Sums over the trials of each group, and the group of each trial, shape (T,)."""

    hops: Floats  # (groups, KINDS, rounds, n)
    parties: Floats  # (groups, n): trials in which a party was exposed anywhere
    trials: Floats
    group_of: Ints

    @classmethod
    def empty(cls, trials: int, parties: int, rounds: int) -> "HopTally":
        """Return an empty tally; raise `InputError` if there will be too few trials."""
        require_that(trials > 1, "values", "at least 2 trials are needed for a standard error")
        groups = min(GROUPS, trials)
        group_of = np.arange(trials) * groups // trials
        sizes = np.bincount(group_of).astype(np.float64)
        hops, exposed = np.zeros((groups, KINDS, rounds, parties)), np.zeros((groups, parties))
        return cls(hops, exposed, sizes, group_of)

    def add(self, chunk: slice, counts: NDArray[np.int32]) -> None:
        """Add the counts of all hops of some trials."""
        kinds, _, trials = counts.shape
        by_hop = counts.reshape(kinds, *self.hops.shape[2:], trials)
        group = self.group_of[chunk]
        firsts = np.flatnonzero(np.diff(group, prepend=-1))  # of each group: they are in a row
        exposed = by_hop[0].any(axis=0)
        for sums, of_trials in ((self.hops, by_hop), (self.parties, exposed)):
            found = np.add.reduceat(of_trials, firsts, axis=-1, dtype=np.int64)
            sums[group[firsts]] += np.moveaxis(found, -1, 0)


def _estimates(tally: HopTally) -> HopLeakage:
    hops, trials = tally.hops.sum(axis=0), tally.trials.sum()
    summary = _summary(hops, trials)
    groups = zip(tally.hops, tally.trials, strict=True)
    left_out = np.array([_summary(hops - part, trials - count) for part, count in groups])
    variance = left_out.var(axis=0) * (len(left_out) - 1)
    exposure, claim, lop, lop_peak = (
        MonteCarloEstimate(float(value), float(error))
        for value, error in zip(summary, np.sqrt(variance), strict=True)
    )
    parties = hops.shape[2]
    return HopLeakage(
        trials=len(tally.group_of),
        exposure=exposure,
        claim=claim,
        lop=lop,
        lop_peak=lop_peak,
        exposure_by_party=tally.parties.sum(axis=0) / trials,
        by_hop=_breakdown(hops, trials, parties),
    )


def _summary(hops: Floats, trials: float) -> Floats:
    """Return exposure, claim, mean LoP and peak LoP from sums over trials (4, rounds, n)."""
    parties = hops.shape[2]
    total = _breakdown(hops.sum(axis=(1, 2)), trials * hops[0].size, parties)
    lop = _breakdown(hops.sum(axis=1), trials, parties).lop
    return np.array([total.exposure, total.claim, lop.mean(), lop.max()], dtype=np.float64)


def _breakdown(hops: Floats, messages: float, parties: int) -> Breakdown:
    """Turn sums of exposed, claims, right and public claims (4, ...) into the estimators."""
    exposed, claims, right, public = hops
    made = np.maximum(claims, 1)  # without a claim the numerators are 0 too
    return Breakdown(exposed / messages, right / made, (right - public / parties) / made)
