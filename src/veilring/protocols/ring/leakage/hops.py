"""What the successor of a party learns on a hop of PP-TopK."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters, final_result
from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.algorithm.multisets import copy_numbers, multiplicities
from veilring.protocols.ring.leakage.estimates import Estimate
from veilring.protocols.ring.leakage.transcripts import chunks, transcript

__all__ = ("Breakdown", "HopLeakage", "estimate_hop_leakage")

# Standard errors come from leaving out one group of trials at a time. With 32 groups they are
# themselves good to about an eighth, and the sums of all groups stay small for 1,000 parties.
GROUPS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """The three estimators over some axis: of shape (rounds, n), (rounds,) or (n,)."""

    exposure: NDArray[np.float64]
    claim: NDArray[np.float64]
    lop: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class HopLeakage:
    """What the hops of PP-TopK leak; the module's docstring defines each estimator.

    Attributes:
        trials: Number of independent runs, T.
        exposure: Mean over all hops.
        claim: Over all claims of all hops.
        lop: Mean of the parties' LoP.
        lop_peak: The greatest LoP of any party (position). As the greatest of n estimates it is
            biased upward by up to a few standard errors.
        exposure_by_party: For each position, the probability of an exposure anywhere in the run,
            shape (n,): a proportion of T independent runs, for `proportion_interval`.
        by_hop: Shape (rounds, n); its exposures are proportions of T independent runs as well.
        by_round: Over the hops of each round, shape (rounds,).
        by_position: Over the hops of each position, 0 the starter, shape (n,).
    """

    trials: int
    exposure: Estimate
    claim: Estimate
    lop: Estimate
    lop_peak: Estimate
    exposure_by_party: NDArray[np.float64]
    by_hop: Breakdown
    by_round: Breakdown
    by_position: Breakdown


@dataclass(frozen=True, slots=True, eq=False)
class _Tally:
    """Sums over the trials of each group: `hops` (groups, 4, rounds, n), `parties` (groups, n)."""

    hops: NDArray[np.float64]
    parties: NDArray[np.float64]
    trials: NDArray[np.float64]


def estimate_hop_leakage(
    values: NDArray[np.float64], parameters: TopKParameters, rng: np.random.Generator
) -> HopLeakage:
    """Estimate what a party's successor learns on a hop of PP-TopK.

    Args:
        values: Each party's own k smallest in each trial, shape (T, n, k) with T >= 2 and n >= 3,
            as `run_ring` takes them. To estimate for a data set, deal its rows to the parties and
            the parties to the positions anew in each trial.
        parameters: The public parameters.
        rng: Source of the parties' coins and noise.

    Returns:
        The three estimators, in total and broken down.

    Raises:
        InputError: If there are fewer than 2 trials, or as `run_ring` does.
    """
    given = f"of {len(values)} trials"
    require(len(values) > 1, "values", given, "at least 2 trials, or there is no standard error")
    tally = _tally(values, parameters, rng)
    hops, trials = tally.hops.sum(axis=0), tally.trials.sum()
    summary = _summary(hops, trials)
    groups = zip(tally.hops, tally.trials, strict=True)
    left_out = np.array([_summary(hops - part, trials - count) for part, count in groups])
    variance = left_out.var(axis=0) * (len(left_out) - 1)
    exposure, claim, lop, lop_peak = (
        Estimate(float(value), float(error))
        for value, error in zip(summary, np.sqrt(variance), strict=True)
    )
    rounds, parties = hops.shape[1:]
    return HopLeakage(
        trials=len(values),
        exposure=exposure,
        claim=claim,
        lop=lop,
        lop_peak=lop_peak,
        exposure_by_party=tally.parties.sum(axis=0) / trials,
        by_hop=_breakdown(hops, trials, parties),
        by_round=_breakdown(hops.sum(axis=2), trials * parties, parties),
        by_position=_breakdown(hops.sum(axis=1), trials * rounds, parties),
    )


def _tally(
    values: NDArray[np.float64], parameters: TopKParameters, rng: np.random.Generator
) -> _Tally:
    trials, parties, _ = values.shape
    groups = min(GROUPS, trials)
    group_of = np.arange(trials) * groups // trials
    tally = _Tally(
        hops=np.zeros((groups, 4, parameters.rounds, parties)),
        parties=np.zeros((groups, parties)),
        trials=np.bincount(group_of).astype(np.float64),
    )
    for chunk in chunks(values, parameters):
        part, group = values[chunk], group_of[chunk]
        exposed = np.zeros((parties, len(part)), dtype=np.bool_)
        vectors = transcript(part, parameters, rng)
        result = final_result(vectors[-1], parameters)
        for hop in range(parameters.rounds * parties):
            turn, position = divmod(hop, parties)
            counts = _watch_hop(vectors, hop, part, result)
            exposed[position] |= counts[0] > 0
            for kind, count in enumerate(counts):
                tally.hops[:, kind, turn, position] += np.bincount(group, count, groups)
        for position in range(parties):
            tally.parties[:, position] += np.bincount(group, exposed[position], groups)
    return tally


def _watch_hop(
    vectors: NDArray[np.float64],
    hop: int,
    values: NDArray[np.float64],
    result: NDArray[np.float64],
) -> tuple[NDArray[np.int64], ...]:
    """Return a trial's counts on one hop: exposed (0 or 1), claims, right ones, public ones.

    `vectors[h]` is received on hop h and `vectors[h + 1]` passed on. The successor's own last hop
    was n - 1 hops ago, wherever the two sit.
    """
    parties = values.shape[1]
    passed = vectors[hop + 1]
    copy = copy_numbers(passed)
    own = multiplicities(passed, values[:, hop % parties])
    public = multiplicities(passed, result)
    # Of the copies of a number, those beyond the ones seen before are new; counted from 0.
    added = copy - multiplicities(passed, vectors[hop])
    fresh = copy - multiplicities(passed, vectors[max(0, hop + 2 - parties)])
    exposed = ((added >= 0) & (added < own)).any(axis=1)
    claimed = fresh >= 0
    counts = (claimed, claimed & (fresh < own), claimed & (fresh < public))
    return exposed.astype(np.int64), *(np.count_nonzero(count, axis=1) for count in counts)


def _summary(hops: NDArray[np.float64], trials: float) -> NDArray[np.float64]:
    """Return exposure, claim, mean LoP and peak LoP from sums over trials (4, rounds, n)."""
    parties = hops.shape[2]
    total = _breakdown(hops.sum(axis=(1, 2)), trials * hops[0].size, parties)
    lop = _breakdown(hops.sum(axis=1), trials, parties).lop
    return np.array([total.exposure, total.claim, lop.mean(), lop.max()], dtype=np.float64)


def _breakdown(hops: NDArray[np.float64], messages: float, parties: int) -> Breakdown:
    """Turn sums of exposed, claims, right and public claims (4, ...) into the estimators."""
    exposed, claims, right, public = hops
    made = np.maximum(claims, 1)  # without a claim the numerators are 0 too
    return Breakdown(exposed / messages, right / made, (right - public / parties) / made)
