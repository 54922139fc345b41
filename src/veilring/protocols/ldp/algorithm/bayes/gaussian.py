"""Gaussian naive Bayes from estimated moments (Section 3.2)."""

from dataclasses import dataclass
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes.evidence import counts_of, evidence
from veilring.protocols.ldp.algorithm.bayes.posterior import Posterior, log_of, log_shares
from veilring.protocols.ldp.algorithm.consistency import Consistency
from veilring.protocols.ldp.algorithm.randomiser import CONFIDENCE, Estimate
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.algorithm.surveys import GaussianBayesSurvey

# Of features in [-1, 1]. A difference of two noisy numbers is often below 0; a class must not win
# or lose by that. A tenth of half the range is narrow for a feature, and wide enough for noise.
VARIANCE_FLOOR: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class GaussianBayes(Posterior):
    """A classifier of rows of features in [-1, 1]; what is outside is cut, as clients cut it.

    Attributes:
        class_counts: After consistency, shape (classes,).
        means: Of each feature within each class, in [-1, 1], shape (features, classes).
        variances: The same, in [floor, 1].
        evidence: The raw estimates with their intervals: of the class's shares, of
            `mean(x_i [class = c])` over all clients asked, and of the same of squares.
    """

    class_counts: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    evidence: tuple[Estimate, ...]

    def joint(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logarithm of each class's density with the row, shape (rows, classes).

        Raises:
            InputError: If a row has another number of features.
        """
        features = len(self.means)
        if rows.ndim != 2 or rows.shape[1] != features:  # noqa: PLR2004  (rows by features)
            raise InputError("rows", f"of shape {rows.shape}", f"of shape (rows, {features})")
        terms = zip(np.clip(rows, -1.0, 1.0).T, self.means, self.variances, strict=True)
        return log_of(
            log_shares(self.class_counts),
            (
                -0.5 * (np.log(2 * pi * variances) + (values[:, None] - means) ** 2 / variances)
                for values, means, variances in terms
            ),
        )


def learn_gaussian(
    survey: GaussianBayesSurvey,
    tally: Tally,
    *,
    consistency: Consistency = "paper",
    variance_floor: float = VARIANCE_FLOOR,
    confidence: float = CONFIDENCE,
) -> GaussianBayes:
    """Return the classifier that a tally says.

    What is estimated of a feature is its mean within a class times the share of that class, and
    so it is divided by the share. Means are cut to [-1, 1], squares to [0, 1].

    Args:
        survey: What was asked.
        tally: What came of it.
        consistency: What becomes of negative counts of classes.
        variance_floor: The least variance, above 0 and at most 1.
        confidence: Of the intervals in its evidence.

    Raises:
        InputError: If an argument is not allowed, or the tally is of another survey.
    """
    if not 0 < variance_floor <= 1:
        raise InputError("variance_floor", variance_floor, "in (0, 1]")
    found = evidence(survey, tally, confidence=confidence)
    shape = (survey.means.features, survey.means.classes)
    counts = counts_of(found[0], shape[1], consistency)
    shares = np.exp(log_shares(counts))
    firsts, seconds = (each.values.reshape(shape) / shares for each in found[1:])
    means = np.clip(firsts, -1.0, 1.0)
    variances = np.clip(np.clip(seconds, 0.0, 1.0) - means**2, variance_floor, 1.0)
    return GaussianBayes(counts, means, variances, found)
