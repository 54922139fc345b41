"""Monte Carlo estimates and how far they can be trusted."""

from dataclasses import dataclass
from typing import Final

from veilring.protocols.ring.algorithm.checks import require

CONFIDENCE: Final = 0.99


@dataclass(frozen=True, slots=True)
class MonteCarloEstimate:
    """A Monte Carlo estimate and its standard error.

    The error is a delete-one-group jackknife over independent trials, so that the dependence among
    the hops of a trial is in it. An event that was never seen has standard error 0; then look at
    `proportion_interval`.
    """

    value: float
    standard_error: float


def proportion_interval(
    proportion: float, trials: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) two-sided confidence interval of a proportion.

    Args:
        proportion: Estimated from independent trials, in [0, 1].
        trials: How many, at least 1.
        confidence: In (0, 1).

    Raises:
        InputError: If an argument is outside its range.
    """
    require(trials >= 1, "trials", trials, "an integer of at least 1")
    require(0 <= proportion <= 1, "proportion", proportion, "a number in [0, 1]")
    require(0 < confidence < 1, "confidence", confidence, "a number in (0, 1)")
    from scipy import stats  # noqa: PLC0415  (0.8 s, and the estimators do not need it)

    test = stats.binomtest(round(proportion * trials), trials)
    interval = test.proportion_ci(confidence_level=confidence, method="exact")
    return float(interval.low), float(interval.high)
