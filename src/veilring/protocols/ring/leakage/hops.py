"""What the successor of a party learns on a hop of PP-TopK."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters
from veilring.protocols.ring.algorithm.checks import require
from veilring.protocols.ring.leakage.births import is_noise_distinct, watch_distinct
from veilring.protocols.ring.leakage.estimates import MonteCarloEstimate
from veilring.protocols.ring.leakage.tally import HopTally
from veilring.protocols.ring.leakage.transcripts import cut_trials, transcript
from veilring.protocols.ring.leakage.watch import watch_hops

Draw = Callable[[slice], NDArray[np.float64]]
"""Gives the values of the trials of a slice, shape (trials of the slice, n, k)."""


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
    exposure: MonteCarloEstimate
    claim: MonteCarloEstimate
    lop: MonteCarloEstimate
    lop_peak: MonteCarloEstimate
    exposure_by_party: NDArray[np.float64]
    by_hop: Breakdown
    by_round: Breakdown
    by_position: Breakdown


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
    trials, parties, _ = values.shape
    return sample_hop_leakage(lambda chunk: values[chunk], (trials, parties), parameters, rng)


def sample_hop_leakage(
    draw: Draw,
    shape: tuple[int, int],
    parameters: TopKParameters,
    rng: np.random.Generator,
    *,
    distinct: bool = False,
) -> HopLeakage:
    """Estimate as `estimate_hop_leakage` does, on values that are drawn when they are needed.

    Memory stays bounded whatever the number of trials.

    Args:
        draw: Called for one slice of trials after another, in order.
        shape: The number of trials T, at least 2, and that of the parties n, at least 3.
        parameters: The public parameters.
        rng: Source of the parties' coins and noise.
        distinct: Whether the values of a trial are distinct and below `upper`, as those of a
            continuous law are. The estimates are the same, and many times faster for large k.

    Raises:
        InputError: As `estimate_hop_leakage` does.
    """
    trials, parties = shape
    tally = HopTally.empty(trials, parties, parameters.rounds)
    for chunk in cut_trials(trials, parties * parameters.rounds * parameters.k):
        values = draw(chunk)
        if distinct and is_noise_distinct(parameters):
            counts = watch_distinct(values, parameters, rng)
        else:
            counts = watch_hops(transcript(values, parameters, rng), values, parameters)
        tally.add(chunk, counts)
    return _estimates(tally)


def hop_leakage_of(
    vectors: NDArray[np.float64], values: NDArray[np.float64], parameters: TopKParameters
) -> HopLeakage:
    """Return what the hops leaked in runs that took place, such as those of networked parties.

    Args:
        vectors: The start vector and what each hop passed on, shape (n * rounds + 1, T, k), T >= 2.
        values: Each party's own k smallest in each run, shape (T, n, k), in the order of the ring
            and padded with `+inf`.
        parameters: The public parameters of the runs.

    Raises:
        InputError: If there are fewer than 2 runs, or the shapes do not fit each other.
    """
    runs, parties, k = values.shape
    fitting = (parties * parameters.rounds + 1, runs, k)
    require(vectors.shape == fitting, "vectors", f"of shape {vectors.shape}", f"shape {fitting}")
    tally = HopTally.empty(runs, parties, parameters.rounds)
    tally.add(slice(0, runs), watch_hops(vectors, values, parameters))
    return _estimates(tally)


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
    rounds, parties = hops.shape[1:]
    return HopLeakage(
        trials=len(tally.group_of),
        exposure=exposure,
        claim=claim,
        lop=lop,
        lop_peak=lop_peak,
        exposure_by_party=tally.parties.sum(axis=0) / trials,
        by_hop=_breakdown(hops, trials, parties),
        by_round=_breakdown(hops.sum(axis=2), trials * parties, parties),
        by_position=_breakdown(hops.sum(axis=1), trials * rounds, parties),
    )


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
