"""Attacks on clients' reports, compared with the bounds on their privacy loss.

`attack_oracle`, `attack_codes`
    The best guess of a client's value from one report, and a bound on its success. With a uniform
    prior over d values, no guess from a report of loss epsilon is right with probability above
    `e^epsilon / (e^epsilon + d - 1)`: each other value is at least `e^-epsilon` times as likely.
`loss_of`, `epsilon_at_least`
    A lower bound on epsilon, from reports alone. Two clients with different values report many
    times. On one half of the reports an adversary searches for the event that best distinguishes
    the two; on the other half its probabilities are bounded. If the bound exceeds the claimed
    epsilon, the mechanism is broken, or the sample was one in a million.
"""

from dataclasses import dataclass
from math import exp
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.bounds import ALARM, proportion_bounds
from veilring.protocols.ldp.algorithm.codes import CodeDistribution, Codes, rounded
from veilring.protocols.ldp.algorithm.means import Means, SampledFeature
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, LocalRandomiser, Reports

_EVENTS: Final = 256  # the number of thresholds to try; more would hardly improve the bound


@dataclass(frozen=True, slots=True)
class Guesses:
    """The success of guesses."""

    right: int
    trials: int
    values: int
    exact_epsilon: float

    @property
    def success(self) -> float:
        """The fraction of right guesses."""
        return self.right / self.trials

    @property
    def blind(self) -> float:
        """The success of a guess without the report."""
        return 1 / self.values

    @property
    def bound(self) -> float:
        """The maximum success that the privacy loss allows."""
        return 1 / (1 + (self.values - 1) * exp(-self.exact_epsilon))


def attack_oracle(oracle: FrequencyOracle, trials: int, rng: Generator) -> Guesses:
    """Guess clients' values, uniform over the domain, from one report each.

    The guess is the most likely value, one that the report supports most: all values supported by a
    pure oracle's report are equally likely, and more likely than others. For summed histograms it
    is the value with the largest number. Ties are broken at random.
    """
    _require_trials(trials)
    values = rng.integers(oracle.domain, size=trials)
    support = single_sums(oracle, oracle.perturb(values, rng))
    right = int((_best(support.astype(np.float64), rng) == values).sum())
    return Guesses(right, trials, oracle.domain, oracle.exact_epsilon)


def attack_codes(
    distribution: CodeDistribution, candidates: Floats, trials: int, rng: Generator
) -> Guesses:
    """Guess clients' numbers, uniform over some candidates, from one code each.

    Args:
        candidates: Distinct numbers in [-1, 1], at least two, shape (values,).
    """
    _require_trials(trials)
    inside = candidates.ndim == 1 and bool((np.abs(candidates) <= 1).all())
    if not inside or not 2 <= candidates.size == np.unique(candidates).size:  # noqa: PLR2004  (a single candidate needs no guess)
        raise InputError.because(
            "candidates must be at least two different numbers from -1 to 1", field="candidates"
        )
    places = rng.integers(len(candidates), size=trials)
    codes = distribution.sample(rounded(candidates[places], distribution.levels, rng), rng)
    right = int((_best(likelihoods(distribution, codes, candidates), rng) == places).sum())
    return Guesses(right, trials, len(candidates), distribution.exact_epsilon)


def likelihoods(distribution: CodeDistribution, codes: Codes, candidates: Floats) -> Floats:
    """Return the probability of each code for each number, shape (codes, candidates).

    A number between two points of the grid is rounded to either point, so its distribution is a
    mixture of theirs.
    """
    found = np.empty((len(codes), len(candidates)))
    for column, number in enumerate(candidates.tolist()):
        below = int(np.floor(number * distribution.levels))
        part = number * distribution.levels - below
        found[:, column] = (1 - part) * distribution.probability(codes, below)
        if part:
            found[:, column] += part * distribution.probability(codes, below + 1)
    return found


def loss_of(
    randomiser: LocalRandomiser,
    pair: NDArray[Any],
    weights: Floats,
    trials: int,
    rng: Generator,
    *,
    alarm: float = ALARM,
) -> float:
    """Return a lower bound on a randomiser's epsilon, measured by running it.

    Args:
        pair: Two values, in the form of `perturb`, shape (2, ...).
        weights: The weight of each sum in a report's score; see `weights_of`.
        trials: The number of reports of each value, at least 4.
    """
    reports = (randomiser.perturb(np.repeat(each[None], trials, axis=0), rng) for each in pair)
    scores = (single_sums(randomiser, each) @ weights for each in reports)
    return epsilon_at_least(*scores, alarm=alarm)


def weights_of(randomiser: LocalRandomiser, pair: NDArray[Any]) -> Floats:
    """Return weights for scoring reports by their evidence for the first of a pair.

    The weights are the difference of the two values in the form of the randomiser's estimate.
    """
    match randomiser:
        case FrequencyOracle():
            one_hot = np.eye(randomiser.cells)[pair]
            return np.asarray(one_hot[0] - one_hot[1])
        case Means():
            vectors = _vectors(randomiser, pair)
            parts = randomiser.distribution.total(
                np.eye(randomiser.distribution.parts, dtype=np.int64)
            )
            weights = ((vectors[0] - vectors[1])[..., None] * parts).reshape(len(vectors[0]), -1)
            if isinstance(randomiser, SampledFeature):
                weights = np.hstack((np.zeros((len(weights), 1)), weights))
            return np.asarray(weights.ravel(), dtype=np.float64)
        case _:
            name = type(randomiser).__name__
            raise InputError("randomiser", name, "a frequency oracle or a mean mechanism")


def epsilon_at_least(first: Floats, second: Floats, *, alarm: float = ALARM) -> float:
    """Return a lower bound on the loss of the distributions of two samples of scores.

    It is at least 0, and too high with probability at most `alarm`.

    Events are scores above or below a threshold. The best event on the first halves is evaluated on
    the second halves, with Clopper-Pearson bounds on both probabilities.
    """
    if min(len(first), len(second)) < 4:  # noqa: PLR2004  (each half has at least two)
        raise InputError.because(
            f"there are {len(first)} and {len(second)} scores; at least 4 of each are needed",
            field="scores",
        )
    halves = [np.array_split(scores, 2) for scores in (first, second)]
    seen, judged = ([half[place] for half in halves] for place in (0, 1))
    thresholds = np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, _EVENTS)))
    events = [(swap, above, at) for swap in (0, 1) for above in (0, 1) for at in thresholds]
    best = max(events, key=lambda event: _bound(seen, event, alarm))
    return max(0.0, _bound(judged, best, alarm))


def _best(scores: Floats, rng: Generator) -> Ints:
    """Return the position of the maximum score in each row, a random one in a tie."""
    highest = scores.max(axis=1, keepdims=True)
    # Scores that differ only by rounding are equal.
    is_best = scores >= highest - 1e-12 * np.abs(highest)
    return np.asarray((is_best * rng.random(scores.shape)).argmax(axis=1), dtype=np.int64)


def _require_trials(trials: int) -> None:
    if trials < 1:
        raise InputError("trials", trials, "an integer of at least 1")


def single_sums(randomiser: LocalRandomiser, reports: Reports) -> Ints:
    """Return the sums of each report, shape (clients, cells).

    The sums of a pure frequency oracle show the values that a report supports. Equal reports are
    examined once.
    """
    different, which = np.unique(reports, axis=0, return_inverse=True)
    sums = np.empty((len(different), randomiser.cells), dtype=np.int64)
    for row in range(len(different)):
        sums[row] = randomiser.aggregate(different[row : row + 1])
    return np.asarray(sums[which.ravel()])


def _vectors(means: Means, pair: Floats) -> Floats:
    """Return the two values as one-hot vectors by class, shape (2, features, classes)."""
    if means.classes == 1:
        return pair[:, :, None]
    return np.asarray(pair[:, :-1, None] * (pair[:, -1, None, None] == np.arange(means.classes)))


def _bound(pair: list[Floats], event: tuple[int, int, float], alarm: float) -> float:
    """Return the logarithm of the minimum ratio of an event's probabilities."""
    swap, above, at = event
    likely, rare = (pair[1], pair[0]) if swap else (pair[0], pair[1])
    hits, others = (_count(each, above, at) for each in (likely, rare))
    if not hits:
        return -np.inf
    # Each of the two bounds has half of the error probability.
    low = proportion_bounds(np.array(hits), len(likely), alarm / 2).low
    high = proportion_bounds(np.array(others), len(rare), alarm / 2).high
    return float(np.log(low / high))


def _count(scores: Floats, above: int, at: float) -> int:
    return int((scores >= at if above else scores < at).sum())
