"""Attackers that learn from coordinates of views to classify runs, and two-sample tests.

The p-values of the two-sample tests are exact or bounded, and stay valid when they are very small.
Both samples have equally many runs, in random order. A test chooses a set of outcomes on runs other
than those on which it is evaluated. If the two distributions are equal, all assignments of the runs
to the two samples are equally likely: every p-value here is a probability over those assignments,
whatever the distribution is.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.extras import name_missing_extras
from veilring.privacy.bounds import ALARM
from veilring.testing.hiding.leaves import Columns

POWER: Final = 0.95
"""The probability of finding an advantage that is reported as the least one found."""
# The number of quantiles of one half that cut a coordinate: enough for the shape of a density, and
# few enough that a bin of 500 runs is not dominated by noise.
CUTS: Final = 32


class Split(NamedTuple):
    """The advantage of a set of outcomes, and its p-value if the two distributions are equal."""

    p: float
    """A bound on the p-value."""
    advantage: float
    """The share of the second sample in the set, minus the share of the first."""


def split_p(inside: float, of_second: float, runs: int) -> float:
    """Bound the probability that at least this many outcomes in a set are of the second sample.

    Given the number of outcomes in the set, that count is hypergeometric (Fisher's exact test). The
    ratio of successive terms decreases, so the tail is at most that of the geometric series that
    begins with the first two terms.

    Args:
        of_second: The number of these that belong to the second sample.
    """
    outside = runs - (inside - of_second)
    first = _log_choose(runs, of_second) + _log_choose(runs, inside - of_second)
    first -= _log_choose(2 * runs, inside)
    falls = (runs - of_second) * (inside - of_second) / ((of_second + 1) * (outside + 1))
    return 1.0 if falls >= 1 else min(1.0, float(np.exp(first)) / (1 - falls))


def order_p(gap: int, runs: int) -> float:
    """Bound the probability that two empirical distribution functions differ by `gap / runs`.

    `2 C(2n, n - h) / C(2n, n)` is the first term of the exact distribution of the
    Kolmogorov-Smirnov statistic (Gnedenko and Korolyuk 1951); the other terms can only reduce the
    sum. It is the bound of Dvoretzky, Kiefer and Wolfowitz for two samples, without a condition on
    n. Ties can only reduce the gap.
    """
    log = _log_choose(2 * runs, runs - gap) - _log_choose(2 * runs, runs)
    return min(1.0, 2 * float(np.exp(log)))


def _log_choose(n: float, k: float) -> float:
    from scipy.special import gammaln

    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def judge_set(inside: Bools, second: Bools) -> Split:
    """Test whether a set contains more outcomes of the second sample than of the first."""
    runs, total = int(second.sum()), int(inside.sum())
    of_second = int((inside & second).sum())
    return Split(split_p(total, of_second, runs), (2 * of_second - total) / runs)


def judge_order(values: NDArray[Any], second: Bools) -> Split:
    """Test whether values of one sample tend to be above those of the other.

    Args:
        values: One number for each run; NaN ranks above all others.
        second: Whether each belongs to the second sample; half of them do.
    """
    order = np.argsort(values, kind="stable")
    steps = np.cumsum(np.where(second[order], 1, -1))
    ordered = values[order]
    ends = np.append(ordered[1:] != ordered[:-1], True)
    ends[:-1] &= ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    runs, gap = int(second.sum()), int(np.abs(steps[ends]).max(initial=0))
    return Split(order_p(gap, runs), gap / runs)


class Bins(NamedTuple):
    """Intervals of a coordinate. A frequent value has a separate bin."""

    cuts: NDArray[Any]

    def place(self, values: NDArray[Any]) -> Ints:
        """Return the number of each value's bin, from 0 to `2 * len(cuts)`."""
        left = np.searchsorted(self.cuts, values, "left")
        return np.asarray(left + np.searchsorted(self.cuts, values, "right"))

    @property
    def number(self) -> int:
        """The number of bins."""
        return 2 * len(self.cuts) + 1


def cut_bins(values: NDArray[Any]) -> Bins:
    """Return bins with about equally many of the values in each."""
    ordered = np.sort(values)
    places = np.linspace(0, len(ordered) - 1, CUTS + 1).round().astype(np.int64)
    return Bins(np.unique(ordered[places]))


def choose_bins(placed: Ints, second: Bools, number: int) -> Bools:
    """Return the set of bins that best distinguishes two samples on these runs.

    Bins are added in decreasing order of their own difference, as long as the difference of the set
    grows relative to its standard deviation. The second sample has the larger share in the set.
    """
    ours = np.bincount(placed[second], minlength=number).astype(np.float64)
    theirs = np.bincount(placed[~second], minlength=number).astype(np.float64)
    more, more_score = _best_prefix(ours, theirs)
    fewer, fewer_score = _best_prefix(theirs, ours)
    return more if more_score >= fewer_score else ~fewer


def _best_prefix(ours: Floats, theirs: Floats) -> tuple[Bools, float]:
    total, more = ours + theirs, ours - theirs
    order = np.argsort(-more / np.sqrt(np.maximum(total, 1)), kind="stable")
    scores = np.cumsum(more[order]) / np.sqrt(np.maximum(np.cumsum(total[order]), 1))
    last = int(np.argmax(scores))
    chosen = np.zeros(len(ours), np.bool_)
    chosen[order[: last + 1]] = True
    return chosen, float(scores[last])


def reject_holm(p: Floats, alarm: float) -> Bools:
    """Return which hypotheses are rejected, with probability `alarm` at most of any false one.

    Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    order = np.argsort(p, kind="stable")
    passes = p[order] <= alarm / np.arange(len(p), 0, -1)
    rejected = np.zeros(len(p), np.bool_)
    rejected[order[: len(p) if passes.all() else int(np.argmin(passes))]] = True
    return rejected


def least_advantage(held_out: int, alarm: float = ALARM / 2) -> float:
    """Return the least advantage that a test finds with probability `POWER`."""
    from scipy.special import ndtri

    return float((ndtri(1 - alarm) + ndtri(POWER)) / np.sqrt(held_out))


with name_missing_extras():
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, QuantileTransformer
    from threadpoolctl import threadpool_limits

# The learning runs are cut into parts; attackers that learn from the others are judged on a part.
_PARTS: Final = 5
# Fewer judged runs often mistake which attacker is best. More parts are not worth their time: for
# each of them all attackers learn again. So a part has this size, or is half of a small audit's.
_JUDGED_MIN: Final = 400
# Rare outcomes reveal the most; scikit-learn's leaves of 20 runs would blur those of small audits.
_LEAF_RUNS: Final = 10
# Bins of half a leaf place a split as well as finer ones, which take small audits twice as long.
_BIN_RUNS: Final = _LEAF_RUNS // 2
_BINS_MAX: Final = 255
# Many small trees, each branch of which chooses among a few coordinates: most of these reveal
# nothing, and the best one alone would hide what others add. Twice as many trees with half of the
# step take twice as long, and gain at most 0.02 of a weak leak's advantage.
_TREES: Final = 100
_STEP: Final = 0.1
_LEAVES: Final = 8
_EXAMINED: Final = 0.1
# The number of coordinates whose likelihoods the third attacker multiplies, as if independent.
_FACTORS: Final = 8
_RANKS: Final = 1_000
# Most of hundreds of coordinates reveal nothing: each must have little weight.
_SHRINKAGE: Final = 0.1

Labels = Ints


class Attacker(Protocol):
    """An attacker that has finished learning."""

    def guess(self, columns: Columns) -> Labels:
        """Return the class of each run, shape (runs,)."""


class Learned(NamedTuple):
    """The best of several attackers."""

    name: str
    attacker: Attacker
    chosen_at: float
    """The share of the learning runs that it classified correctly when it had not seen them."""


def learn_best(columns: Columns, labels: Labels, seed: int) -> Learned:
    """Train several attackers, and return the one that performs best on runs it has not seen.

    Args:
        columns: The coordinates of the runs, shape (runs, coordinates).
        labels: The class of each run, from 0.
    """
    with threadpool_limits(1):  # with busy cores, several threads take longer than one
        return _learn_best(columns, labels, seed)


def _learn_best(columns: Columns, labels: Labels, seed: int) -> Learned:
    order = np.random.default_rng(seed).permutation(len(labels))
    right = dict.fromkeys(_makers, 0)
    judged = 0
    parts = min(max(len(labels) // _JUDGED_MIN, 2), _PARTS)
    for part in np.array_split(order, parts):
        if judged >= _JUDGED_MIN:
            break
        others = np.setdiff1d(order, part)
        for name, make in _makers.items():
            guessed = _learn(make, columns[others], labels[others], seed).guess(columns[part])
            right[name] += int((guessed == labels[part]).sum())
        judged += len(part)
    best = max(right, key=lambda name: right[name])
    attacker = _learn(_makers[best], columns, labels, seed)
    return Learned(best, attacker, right[best] / max(judged, 1))


def _learn(make: "_Make", columns: Columns, labels: Labels, seed: int) -> Attacker:
    """Train an attacker; if all runs have the same class, it is the one that always guesses it."""
    one = (labels == labels[:1]).all()
    return (_learn_majority if one else make)(columns, labels, seed)


class _Model(Protocol):
    """The part of scikit-learn's untyped interface that is used."""

    def fit(self, table: Columns, labels: Labels) -> object: ...

    def predict(self, table: Columns) -> Labels: ...


class _Fitted:
    """A classifier of scikit-learn, restricted to the coordinates that varied as it learned."""

    def __init__(self, model: _Model, columns: Columns, labels: Labels) -> None:
        self._varied = find_varied(columns)
        self._varied[0] |= not self._varied.any()  # scikit-learn refuses a table without columns
        self._model = model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # only its guesses are evaluated
            model.fit(columns[:, self._varied], labels)

    def guess(self, columns: Columns) -> Labels:
        return np.asarray(self._model.predict(columns[:, self._varied]))


def _learn_majority(columns: Columns, labels: Labels, _seed: int) -> Attacker:
    return _Fitted(DummyClassifier(), columns, labels)


def find_varied(columns: Columns) -> Bools:
    """Return whether each coordinate differs between runs, shape (coordinates,)."""
    same = (columns == columns[:1]) | (np.isnan(columns) & np.isnan(columns[:1]))
    return np.asarray(~same.all(axis=0))


def _learn_trees(columns: Columns, labels: Labels, seed: int) -> Attacker:
    model = HistGradientBoostingClassifier(
        max_iter=_TREES,
        learning_rate=_STEP,
        max_features=_EXAMINED,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAF_RUNS,
        max_bins=min(max(len(columns) // _BIN_RUNS, 2), _BINS_MAX),
        early_stopping=False,
        random_state=seed,
    )
    return _Fitted(model, columns, labels)


def _learn_logistic(columns: Columns, labels: Labels, _seed: int) -> Attacker:
    """Learn from the rank of each coordinate among the learning runs, from 0 to 1."""
    ranks = QuantileTransformer(n_quantiles=min(_RANKS, len(columns)), random_state=0)
    learner = LogisticRegression(C=_SHRINKAGE)
    filled = FunctionTransformer(np.nan_to_num, kw_args={"nan": -1.0})
    return _Fitted(make_pipeline(filled, ranks, learner), columns, labels)


class Likelihood:
    """The Bayes rule for the coordinates that reveal most, as if they were independent.

    The distribution of each coordinate is estimated by counts in bins, with half a run added to
    each bin.
    """

    def __init__(
        self, columns: Columns, labels: Labels, _seed: int = 0, *, factors: int = _FACTORS
    ) -> None:
        classes = int(labels.max()) + 1
        counts = np.bincount(labels, minlength=classes)
        self._prior = np.log((counts + 0.5) / (counts + 0.5).sum())
        tables = []
        for at in np.flatnonzero(find_varied(columns)):
            bins = cut_bins(columns[:, at])
            placed = bins.place(columns[:, at])
            table = np.full((classes, bins.number), 0.5)
            np.add.at(table, (labels, placed), 1)
            logs = np.log(table / table.sum(axis=1, keepdims=True))
            tables.append((_information(table), int(at), bins, logs))
        tables.sort(key=lambda each: -each[0])
        self._tables = tables[:factors]

    @property
    def most_informative(self) -> int | None:
        """The index of the coordinate that reveals most; None if no coordinate varies."""
        return self._tables[0][1] if self._tables else None

    def guess(self, columns: Columns) -> Labels:
        """Return the likeliest class of each run, shape (runs,)."""
        return np.asarray(self.log_likelihoods(columns).argmax(axis=1))

    def log_likelihoods(self, columns: Columns) -> Floats:
        """Return the logarithm of each class's likelihood, shape (runs, classes)."""
        log = np.repeat(self._prior[None], len(columns), axis=0)
        for _, at, bins, logs in self._tables:
            log += logs[:, bins.place(columns[:, at])].T
        return log


KEPT: Final = 16
"""The number of screened coordinates that are examined: a leak shows in many combinations at once,
each test takes a share of the false alarms, and attackers learn from more for longer."""


def screen(columns: Columns, labels: Labels, examined: int) -> Ints:
    """Return the coordinates to examine: the first ones, and of the others the most informative.

    They are chosen on the runs from which attackers learn, so that the runs on which these are
    judged are as independent of the choice as of an attacker, and the number of tests is fixed.

    Args:
        examined: The number of first coordinates, which are examined in any case.
    """
    classes, others = int(labels.max()) + 1, columns[:, examined:]
    told = np.full(others.shape[1], -np.inf)
    for at in np.flatnonzero(find_varied(others)):
        bins = cut_bins(others[:, at])
        table = np.zeros((classes, bins.number))
        np.add.at(table, (labels, bins.place(others[:, at])), 1)
        used = table[:, table.any(axis=0)]
        # Of independent samples, each further bin adds this much on average (Miller 1955).
        chance = (classes - 1) * (used.shape[1] - 1) / (2 * len(labels))
        told[at] = _information(used) - chance
    best = np.sort(np.argsort(-told, kind="stable")[:KEPT])
    return np.concatenate([np.arange(examined), examined + best])


_Make = Callable[[Columns, Labels, int], Attacker]
_makers: Final[Mapping[str, _Make]] = {
    "majority class": _learn_majority,
    "trees": _learn_trees,
    "logistic": _learn_logistic,
    "likelihood": Likelihood,
}


def _information(table: Floats) -> float:
    """Return the mutual information of classes and bins, in nats."""
    joint = table / table.sum()
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float(
        (joint * np.log(np.where(joint > 0, joint, 1) / np.where(joint > 0, apart, 1))).sum()
    )
