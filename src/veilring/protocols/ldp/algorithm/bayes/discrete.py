"""Discrete naive Bayes from estimated counts (Section 3.1)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes.evidence import counts_of, evidence
from veilring.protocols.ldp.algorithm.bayes.posterior import Posterior, log_of, log_shares
from veilring.protocols.ldp.algorithm.consistency import Consistency
from veilring.protocols.ldp.algorithm.randomiser import CONFIDENCE, Estimate
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.algorithm.surveys import DiscreteBayesSurvey

# What stands for a count of 0, as in scikit-learn: a value that no client has rules a class out
# beside one that some have, and decides nothing where no class has any.
SMOOTHING_MIN: Final = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class DiscreteBayes(Posterior):
    """A classifier of rows of values that are numbered from 0.

    Attributes:
        class_counts: After consistency, shape (classes,).
        feature_counts: After consistency, one a feature, of shape (values, classes).
        smoothing: Is added to each count of a feature's value.
        evidence: The raw estimates with their intervals: of the class, then of each feature with
            class (shares of the clients that were asked for it, values outermost).
    """

    class_counts: NDArray[np.float64]
    feature_counts: tuple[NDArray[np.float64], ...]
    smoothing: float
    evidence: tuple[Estimate, ...]

    @property
    def log_priors(self) -> NDArray[np.float64]:
        """The logarithm of `P(C_j) = E_j / sum(E)`, shape (classes,)."""
        return log_shares(self.class_counts)

    @property
    def log_conditionals(self) -> tuple[NDArray[np.float64], ...]:
        """The logarithms of `P(F_i = x | C_j) = E_xj / sum_h(E_hj)`, each (values, classes)."""
        return tuple(log_shares(counts + self.smoothing) for counts in self.feature_counts)

    def joint(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `log(P(C_j) prod_i P(F_i = x_i | C_j))`, shape (rows, classes).

        Raises:
            InputError: If a row has another number of features, values that are no integers, or a
                value that there is not.
        """
        sizes = [len(counts) for counts in self.feature_counts]
        if rows.ndim != 2 or rows.shape[1] != len(sizes):  # noqa: PLR2004  (rows by features)
            raise InputError("rows", f"of shape {rows.shape}", f"of shape (rows, {len(sizes)})")
        if rows.dtype.kind not in "iu":
            allowed = "numbered values; a model of binned numbers has the step that numbers them"
            raise InputError("rows", f"of {rows.dtype}", allowed)
        if not np.all((rows >= 0) & (rows < np.array(sizes))):
            raise InputError("rows", "out of range", "values of each feature, from 0")
        terms = zip(self.log_conditionals, rows.T, strict=True)
        return log_of(self.log_priors, (logs[values] for logs, values in terms))


def learn_discrete(
    survey: DiscreteBayesSurvey,
    tally: Tally,
    *,
    consistency: Consistency = "paper",
    smoothing: float | None = None,
    confidence: float = CONFIDENCE,
) -> DiscreteBayes:
    """Return the classifier that a tally says.

    Args:
        survey: What was asked.
        tally: What came of it.
        consistency: What becomes of negative counts.
        smoothing: Added to each count of a value; at least `SMOOTHING_MIN`, which stands for none.
            By default none with the paper's consistency, whose negative counts become 1 already,
            and else 1 (Laplace), since one count of 0 would rule out a class.
        confidence: Of the intervals in its evidence.

    Raises:
        InputError: If an argument is not allowed, or the tally is of another survey.
    """
    if smoothing is None:
        smoothing = SMOOTHING_MIN if consistency == "paper" else 1.0
    if not smoothing >= SMOOTHING_MIN:
        raise InputError("smoothing", smoothing, f"at least {SMOOTHING_MIN}")
    found = evidence(survey, tally, confidence=confidence)
    classes = survey.classes
    sizes = (classes, *(classes * values for values in survey.domains))
    counts = [counts_of(*pair, consistency) for pair in zip(found, sizes, strict=True)]
    features = tuple(each.reshape(-1, classes) for each in counts[1:])
    return DiscreteBayes(counts[0], features, smoothing, found)
