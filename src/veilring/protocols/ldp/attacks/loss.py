"""How much a mechanism gives away at least, from what it does alone: a lower bound of its epsilon.

Two clients with different values report many times. On one half of the reports an adversary looks
for the event that tells the two apart best; on the other half its probabilities are bounded. A
mechanism whose bound exceeds its claim is broken, or the sample was one in a million.
"""

from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.audits import ALARM
from veilring.privacy.proportions import proportion_bounds
from veilring.protocols.ldp.algorithm.means import Means, SampledFeature, SignVector
from veilring.protocols.ldp.algorithm.oracles import FrequencyOracle
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.attacks.single import single_sums

_EVENTS: Final = 256  # thresholds that are tried; a finer choice finds hardly more


def loss_of(
    randomiser: LocalRandomiser,
    pair: NDArray[Any],
    weights: NDArray[np.float64],
    trials: int,
    rng: Generator,
    *,
    alarm: float = ALARM,
) -> float:
    """Return a lower bound of a randomiser's epsilon, found by playing it.

    Args:
        randomiser: What to examine.
        pair: Two values as `perturb` takes them, shape (2, ...).
        weights: Of each sum in the score by which reports are told apart; see `weights_of`.
        trials: Reports of each value, at least 4.
        rng: Source of the reports.
        alarm: How often the bound may be wrong.

    Raises:
        InputError: If there are too few trials.
    """
    reports = (randomiser.perturb(np.repeat(each[None], trials, axis=0), rng) for each in pair)
    scores = (single_sums(randomiser, each) @ weights for each in reports)
    return epsilon_at_least(*scores, alarm=alarm)


def weights_of(randomiser: LocalRandomiser, pair: NDArray[Any]) -> NDArray[np.float64]:
    """Return weights by which a report's score grows with what speaks for the first of a pair.

    They are the difference of the two values, as the randomiser's estimate sees them.

    Raises:
        InputError: If the randomiser is neither a frequency oracle nor a mean mechanism.
    """
    match randomiser:
        case FrequencyOracle():
            one_hot = np.eye(randomiser.cells)[pair]
            return np.asarray(one_hot[0] - one_hot[1])
        case SignVector():
            return np.asarray(pair[0] - pair[1], dtype=np.float64)
        case Means():
            vectors = _vectors(randomiser, pair)
            parts = randomiser.law.total(np.eye(randomiser.law.parts, dtype=np.int64))
            weights = ((vectors[0] - vectors[1])[..., None] * parts).reshape(len(vectors[0]), -1)
            if isinstance(randomiser, SampledFeature):
                weights = np.hstack((np.zeros((len(weights), 1)), weights))
            return np.asarray(weights.ravel(), dtype=np.float64)
        case _:
            name = type(randomiser).__name__
            raise InputError("randomiser", name, "a frequency oracle or a mean mechanism")


def _vectors(means: Means, pair: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the two values with their classes as places, shape (2, features, classes)."""
    if means.classes == 1:
        return pair[:, :, None]
    return np.asarray(pair[:, :-1, None] * (pair[:, -1, None, None] == np.arange(means.classes)))


def epsilon_at_least(
    first: NDArray[np.float64], second: NDArray[np.float64], *, alarm: float = ALARM
) -> float:
    """Return a number that two laws' loss exceeds, but for one sample in `1 / alarm`.

    Events are scores above or below a threshold. The best on the first halves is judged on the
    second halves, by Clopper and Pearson's bounds of both probabilities.

    Args:
        first: Independent scores under one value, at least 4.
        second: The same under another.
        alarm: How often the bound may be wrong.

    Returns:
        At least 0.

    Raises:
        InputError: If there are too few scores.
    """
    if min(len(first), len(second)) < 4:  # noqa: PLR2004  (two a half)
        raise InputError("scores", f"{len(first)} and {len(second)}", "at least 4 each")
    halves = [np.array_split(scores, 2) for scores in (first, second)]
    seen, judged = ([half[place] for half in halves] for place in (0, 1))
    thresholds = np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, _EVENTS)))
    events = [(swap, above, at) for swap in (0, 1) for above in (0, 1) for at in thresholds]
    best = max(events, key=lambda event: _bound(seen, event, alarm))
    return max(0.0, _bound(judged, best, alarm))


def _bound(pair: list[NDArray[np.float64]], event: tuple[int, int, float], alarm: float) -> float:
    """Return the logarithm of the least ratio of an event's probabilities."""
    swap, above, at = event
    likely, rare = (pair[1], pair[0]) if swap else (pair[0], pair[1])
    hits, others = (_count(each, above, at) for each in (likely, rare))
    if not hits:
        return -np.inf
    # Each of the two bounds is wrong in half of the alarms.
    low = proportion_bounds(np.array(hits), len(likely), alarm / 2).low
    high = proportion_bounds(np.array(others), len(rare), alarm / 2).high
    return float(np.log(low / high))


def _count(scores: NDArray[np.float64], above: int, at: float) -> int:
    return int((scores >= at if above else scores < at).sum())
