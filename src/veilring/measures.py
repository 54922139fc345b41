"""Measures of labels and scores, each with its 95 % confidence interval.

An interval is about further queries to the same parties, drawn like those that were asked. Another
split, another partition or another release changes more than that; a comparison repeats these.

All intervals use one remedy against empty or too narrow ones, at 0 and 1 and in small classes: `Z²`
imaginary queries, shared by the classes and as good as a coin, are added before the variance is
computed. For a proportion this gives the centre of Wilson's interval (Agresti and Coull 1998), and
for a mean of recalls the interval of Price and Bonett (2004). The variance of the macro F1 is from
the delta method (Takahashi, Yamamoto, Kuchiba and Koyama 2022), and that of the AUC from DeLong,
DeLong and Clarke-Pearson (1988). Values are computed without imaginary queries. A class with fewer
than about five queries can make an interval too narrow.

A class without a query has no recall and no AUC: it is left out of their means, and named.

The measures of numbers are means of errors, whose intervals are from the delta method; those of the
RMSE and of R² are symmetric about the logarithm of a mean square, which cannot become negative.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require_that

CONFIDENCE: Final = 0.95
"""The confidence of all intervals."""
Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""The standard deviations of a normal distribution that `CONFIDENCE` reaches to both sides."""
BINS: Final = 5
"""The number of equal bins of a reliability table: so few that most contain enough queries."""
CONFUSION: Final = "confusion"
"""The name of the confusion matrix among the measures."""
NUMBERS: Final[Mapping[str, str]] = {
    "accuracy": "of the queries got their true class",
    "balanced-accuracy": "mean recall of the classes",
    "macro-f1": "mean F1 of the classes",
    "auc": "chance that a query of a class scores higher for it than another query",
    "calibration": "mean probability of the labels, minus the share that is right",
}
"""The measures that are numbers, each with its meaning."""
# Above these, a matrix does not fit into a line of a terminal.
_CLASSES_SHOWN: Final = 10
_LETTERS_SHOWN: Final = 12
_BINARY: Final = 2
# Sums of a thousand probabilities that were rounded differ from 1 by less.
_SUM_ERROR: Final = 1e-6

NO_SCORES: Final = "only labels are revealed, so there are no scores"
_NO_PROBABILITIES: Final = "the scores are not probabilities"
_ONE_CLASS: Final = "all queries have the same class"


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {self.high:.1%})"


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The labels whose probability lies between two bounds.

    Attributes:
        probability: Their mean probability.
        right: The share of them that is right.
    """

    low: float
    high: float
    queries: int
    probability: float
    right: Measured


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures of the labels of queries.

    Attributes:
        classes: The names of the classes.
        confusion: The number of queries of each true class (row) that got each label (column).
        recalls: The recall of each class; none for a class without a query.
        auc: The area under the curve: of the second class if there are two, otherwise the mean of
            each class against the others; none if there is a reason in `missing`.
        calibration: The mean probability of the labels minus the accuracy, from -1 to 1: above 0,
            probabilities are too high. None as for `auc`.
        reliability: The labels by their probability, without empty bins; empty without
            `calibration`.
        missing: The reason for each measure that does not exist.
    """

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    recalls: tuple[Measured | None, ...]
    accuracy: Measured
    balanced_accuracy: Measured
    macro_f1: Measured
    auc: Measured | None
    calibration: Measured | None
    reliability: tuple[ReliabilityBin, ...]
    missing: Mapping[str, str]

    def __str__(self) -> str:
        lines = list(self.lines((*NUMBERS, CONFUSION)))
        first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(
            f"{label:<{first}}  {value:>{second}}  {meaning}" for label, value, meaning in lines
        )

    @property
    def absent(self) -> tuple[str, ...]:
        """The classes without a query."""
        pairs = zip(self.classes, self.recalls, strict=True)
        return tuple(name for name, recall in pairs if recall is None)

    def number(self, name: str) -> Measured | None:
        """Return a measure by its name in `NUMBERS`."""
        found: Measured | None = getattr(self, name.replace("-", "_"))
        return found

    def lines(self, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield some measures in words: the label, the value and the meaning of each line."""
        for name in names:
            label = name.replace("-", " ").replace("f1", "F1").replace("auc", "AUC")
            if name == CONFUSION:
                yield from self._matrix()
            elif (found := self.number(name)) is None:
                yield label, "none", self.missing[name]
            else:
                yield label, str(found), f"{NUMBERS[name]}{self._left_out(name)}"

    def _left_out(self, name: str) -> str:
        if not self.absent or name not in {"balanced-accuracy", "auc"}:
            return ""
        return f"; without {', '.join(self.absent)}, which no query belongs to"

    def _matrix(self) -> Iterator[tuple[str, str, str]]:
        if len(self.classes) > _CLASSES_SHOWN:
            yield CONFUSION, "", f"the matrix of {len(self.classes):,} classes is in the JSON"
            return
        names = [name[:_LETTERS_SHOWN] for name in self.classes]
        widths = [
            max(len(name), *(len(f"{n:,}") for n in column))
            for name, column in zip(names, zip(*self.confusion, strict=True), strict=True)
        ]
        head = "  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        yield "true class", head, "labels from left to right; recall"
        for name, row, recall in zip(self.classes, self.confusion, self.recalls, strict=True):
            counts = "  ".join(f"{n:>{width},}" for n, width in zip(row, widths, strict=True))
            yield name, counts, "no query" if recall is None else str(recall)


def measure(
    truth: Ints, labels: Ints, classes: Sequence[str], scores: Floats | None = None
) -> Measures:
    """Return all measures of the labels of queries.

    Args:
        truth: The true class of each query as a position among the classes, shape (queries,).
        labels: The label of each query, same shape.
        scores: A score of each class for each query, shape (queries, classes), the higher the more
            likely; probabilities if all are at least 0 and each row adds up to 1. None if only
            labels are known.

    Raises:
        InputError: If there is no query, or the shapes do not fit.
    """
    _require_fitting(truth, labels, len(classes), scores)
    confusion, right = confusion_matrix(truth, labels, len(classes)), truth == labels
    counts = zip(np.diag(confusion).tolist(), confusion.sum(axis=1).tolist(), strict=True)
    area, gap, missing = None, None, dict[str, str]()
    bins: tuple[ReliabilityBin, ...] = ()
    if scores is None:
        missing = dict.fromkeys(("auc", "calibration"), NO_SCORES)
    else:
        area = auc(truth, scores)
        if area is None:
            missing["auc"] = _ONE_CLASS
        if _are_probabilities(scores):
            chances = scores[np.arange(len(labels)), labels]
            gap, bins = overconfidence(right, chances), reliability(right, chances)
        else:
            missing["calibration"] = _NO_PROBABILITIES
    return Measures(
        classes=tuple(classes),
        confusion=tuple(map(tuple, confusion.tolist())),
        recalls=tuple(proportion(hits, total) if total else None for hits, total in counts),
        accuracy=proportion(int(right.sum()), len(right)),
        balanced_accuracy=balanced_accuracy(confusion),
        macro_f1=macro_f1(confusion),
        auc=area,
        calibration=gap,
        reliability=bins,
        missing=missing,
    )


@dataclass(frozen=True, slots=True)
class NumberMeasures:
    """All measures of predicted numbers, in their unit.

    Attributes:
        rmse: The root of the mean squared error.
        mae: The mean absolute error.
        r2: The share of the variance of the true numbers that is explained, at most 1; none if they
            are all equal.
    """

    rmse: Measured
    mae: Measured
    r2: Measured | None

    def __str__(self) -> str:
        return "\n".join(
            f"{label:<4}  {value}  {meaning}" for label, value, meaning in self.lines()
        )

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yield all measures in words: the label, the value and the meaning of each line."""
        yield "RMSE", _in_units(self.rmse), "root of the mean squared error"
        yield "MAE", _in_units(self.mae), "mean absolute error"
        if self.r2 is None:
            yield "R²", "none", "all true numbers are equal"
        else:
            yield "R²", _in_units(self.r2), "share of the variance that is explained"


def _in_units(each: Measured) -> str:
    return f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})"


def measure_numbers(truth: Floats, predicted: Floats) -> NumberMeasures:
    """Return all measures of predicted numbers.

    Args:
        truth: The true number of each query, shape (queries,).
        predicted: The predicted number of each query, same shape.

    Raises:
        InputError: If there is no query, or the shapes do not fit.
    """
    require_that(len(truth) > 0, "truth", "there is no query to measure; give at least one")
    require_that(
        truth.shape == predicted.shape,
        "predicted",
        f"predicted has the shape {predicted.shape}; with {len(truth):,} true numbers it must be"
        f" ({len(truth)},)",
    )
    errors, spread = np.abs(predicted - truth), np.square(truth - truth.mean())
    squares, mean = np.square(errors), errors.mean()
    reach = _reach(errors - mean)
    root = _mean_square(squares, squares.mean())
    r2 = None
    if spread.any():
        lost = _mean_square(squares / spread.mean(), squares.mean() / spread.mean() ** 2 * spread)
        r2 = Measured(1 - lost.value, 1 - lost.high, 1 - lost.low)
    return NumberMeasures(
        Measured(*(float(np.sqrt(each)) for each in (root.value, root.low, root.high))),
        Measured(float(mean), max(0.0, float(mean - reach)), float(mean + reach)),
        r2,
    )


def _mean_square(squares: Floats, expected: Floats) -> Measured:
    """Return the mean of squares, with an interval that is symmetric in its logarithm.

    Args:
        expected: What is subtracted from each square before its variance is computed: the mean, or
            the part of a ratio that follows from its denominator.
    """
    mean = float(squares.mean())
    if not mean:
        return Measured(mean, mean, mean)
    factor = np.exp(_reach(squares - expected) / mean)
    return Measured(mean, float(mean / factor), float(mean * factor))


def _reach(apart: Floats) -> float:
    """Return how far the interval of a mean of a few numbers reaches, by Student's t.

    Args:
        apart: The differences to the mean, shape (queries,); of a single query, 0.
    """
    from scipy.special import stdtrit

    more = max(len(apart) - 1, 1)
    quantile = stdtrit(more, (1 + CONFIDENCE) / 2)
    return float(quantile * np.sqrt(np.square(apart).sum() / more / len(apart)))


def require_names(names: Sequence[str], known: Sequence[str] = (*NUMBERS, CONFUSION)) -> None:
    """Refuse a name of `--measure` that is not known."""
    for name in names:
        if name not in known:
            raise InputError("--measure", name, ", ".join(known))


def confusion_matrix(truth: Ints, labels: Ints, classes: int) -> Ints:
    """Return how many queries of each true class (row) got each label (column)."""
    cells = np.bincount(truth * classes + labels, minlength=classes * classes)
    return np.asarray(cells.reshape(classes, classes), dtype=np.int64)


def proportion(hits: int, trials: int) -> Measured:
    """Return a proportion of at least one trial with the interval of Wilson (1927)."""
    share, more = hits / trials, Z * Z / trials
    centre = (share + more / 2) / (1 + more)
    reach = Z / (1 + more) * np.sqrt(share * (1 - share) / trials + more / (4 * trials))
    return _around(share, centre, reach)


def balanced_accuracy(confusion: Ints) -> Measured:
    """Return the mean recall of the classes that have queries (Price and Bonett 2004)."""
    rows, hits = confusion.sum(axis=1), np.diag(confusion)
    rows, hits = rows[rows > 0], hits[rows > 0]
    more = Z * Z / len(rows)
    recalls = (hits + more / 2) / (rows + more)
    variance = (recalls * (1 - recalls) / (rows + more)).sum() / len(rows) ** 2
    return _around((hits / rows).mean(), recalls.mean(), Z * np.sqrt(variance))


def macro_f1(confusion: Ints) -> Measured:
    """Return the mean F1 of the classes that are the true class or the label of some query.

    The F1 of a class with T queries, P labels and H hits is 2 H / (T + P). Its variance is that of
    Takahashi et al. (2022).
    """
    known, classes = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0, len(confusion)
    value = _f1(confusion)[known].mean()
    if classes == 1:  # no label can be wrong
        return Measured(float(value), float(value), float(value))
    more = Z * Z / known.sum()
    guessed = np.full((classes, classes), more / 2 / (classes - 1))
    np.fill_diagonal(guessed, more / 2)
    cells = confusion + np.where(known[:, None], guessed, 0.0)
    shares = _f1(cells)
    # The change of each F1 per query of a cell: queries off the diagonal count for two classes.
    per = np.divide(1.0, _marks(cells), out=np.zeros(classes), where=known)
    lost = shares * per
    covariance = (cells + cells.T) * np.outer(lost, lost)
    hits = np.diag(cells)
    own = hits * (2 * per - 2 * lost) ** 2 + (_marks(cells) - 2 * hits) * lost**2
    np.fill_diagonal(covariance, own)
    variance = covariance[np.ix_(known, known)].sum() / known.sum() ** 2
    return _around(value, shares[known].mean(), Z * np.sqrt(variance))


def _marks(cells: Floats | Ints) -> Floats:
    """Return the queries of each class plus its labels."""
    return np.asarray(cells.sum(axis=0) + cells.sum(axis=1), dtype=np.float64)


def _f1(cells: Floats | Ints) -> Floats:
    """Return the F1 of each class; 0 if it is neither true nor a label."""
    marks = _marks(cells)
    none = np.zeros(len(cells))
    return np.asarray(np.divide(2.0 * np.diag(cells), marks, out=none, where=marks > 0))


def auc(truth: Ints, scores: Floats) -> Measured | None:
    """Return the area under the ROC curve; none if all queries have the same class.

    With two classes it is that of the second one, by the difference of their scores, and otherwise
    the mean of each class with queries against all others. Ties count as one half. A placement is
    the share of the queries of the other side that a query is on the right side of (DeLong et al.
    1988); those of imaginary queries are uniform on [0, 1].
    """
    classes = scores.shape[1]
    if classes == _BINARY:
        # rounding errors of a difference would break ties between probabilities
        odds = scores[:, 1] - (0.0 if _are_probabilities(scores) else scores[:, 0])
        sides = [(truth == 1, odds)]
    else:
        sides = [(truth == number, column) for number, column in enumerate(scores.T)]
    more, areas, centres = Z * Z / classes / 2, list[float](), list[float]()
    changes, imagined = np.zeros(len(truth)), 0.0
    for inside, column in sides:
        if not 0 < inside.sum() < len(inside):
            continue
        above, below = _placements(column[inside], column[~inside])
        areas.append(float(above.mean()))
        centre = -areas[-1]
        for side, placed in ((inside, above), (~inside, below)):
            count = len(placed) + more
            mean = (placed.sum() + more / 2) / count
            changes[side] += (placed - mean) / count
            imagined += more * (1 / 12 + (mean - 1 / 2) ** 2) / count**2
            centre += mean
        centres.append(centre)
    if not areas:
        return None
    reach = Z * np.sqrt(np.square(changes).sum() + imagined) / len(areas)
    return _around(float(np.mean(areas)), float(np.mean(centres)), reach)


def _placements(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Return the placements of both sides, shapes (inside,) and (outside,)."""
    below = np.sort(outside)
    above = np.sort(inside)
    lower = [np.searchsorted(below, inside, side) for side in ("left", "right")]
    upper = [len(above) - np.searchsorted(above, outside, side) for side in ("left", "right")]
    return (lower[0] + lower[1]) / 2 / len(below), (upper[0] + upper[1]) / 2 / len(above)


def overconfidence(right: Bools, chances: Floats) -> Measured:
    """Return the mean of the probabilities of labels minus the share of the labels that is right.

    Args:
        right: Whether each label is right, shape (queries,).
        chances: The probability of each label, same shape.
    """
    gaps, count = chances - right, len(right) + Z * Z
    centre = gaps.sum() / count
    # imaginary queries are right or wrong with a probability of 1/2
    variance = (np.square(gaps).sum() + Z * Z / 4) / count - centre**2
    return _around(float(gaps.mean()), centre, Z * np.sqrt(variance / count), lowest=-1.0)


def reliability(right: Bools, chances: Floats) -> tuple[ReliabilityBin, ...]:
    """Return the labels by their probability in equal bins; see `overconfidence`."""
    places, found = np.minimum((chances * BINS).astype(np.int64), BINS - 1), []
    for place in range(BINS):
        inside = places == place
        if count := int(inside.sum()):
            share = proportion(int(right[inside].sum()), count)
            mean = float(chances[inside].mean())
            found.append(ReliabilityBin(place / BINS, (place + 1) / BINS, count, mean, share))
    return tuple(found)


def vote_shares(votes: Floats) -> Floats:
    """Return each class's share of the votes on a query, shape (queries, classes).

    A noisy vote below 0 counts as 0. If no vote is above 0, votes are taken as distances above the
    lowest one, so that the class with the most votes keeps the largest share.
    """
    lowest = votes.min(axis=1, keepdims=True)
    kept = np.where(votes.max(axis=1, keepdims=True) > 0, np.maximum(votes, 0.0), votes - lowest)
    totals = kept.sum(axis=1, keepdims=True)
    equal = np.full(kept.shape, 1 / kept.shape[1])
    return np.asarray(np.divide(kept, totals, out=equal, where=totals > 0))


def _around(value: float, centre: float, reach: float, lowest: float = 0.0) -> Measured:
    """Return a value with the part of an interval that is possible, and contains the value."""
    low, high = max(lowest, float(centre - reach)), min(1.0, float(centre + reach))
    return Measured(float(value), min(low, float(value)), max(high, float(value)))


def _are_probabilities(scores: Floats) -> bool:
    sums = scores.sum(axis=1)
    return bool((scores >= 0).all() and (np.abs(sums - 1) <= _SUM_ERROR).all())


def _require_fitting(truth: Ints, labels: Ints, classes: int, scores: Floats | None) -> None:
    shape = (len(truth), classes)
    require_that(len(truth) > 0, "truth", "there is no query to measure; give at least one")
    require_that(
        truth.shape == labels.shape and (scores is None or scores.shape == shape),
        "labels",
        f"labels has the shape {labels.shape}"
        f"{'' if scores is None else f' and scores {scores.shape}'}; with {len(truth):,} true"
        f" classes they must be ({len(truth)},) and {shape}",
    )
    for field, each in (("truth", truth), ("labels", labels)):
        inside = bool(((each >= 0) & (each < classes)).all())
        require_that(inside, field, f"{field} must be whole numbers from 0 to {classes - 1}")
