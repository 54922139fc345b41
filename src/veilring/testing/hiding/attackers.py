"""Attackers that learn from the coordinates of views to classify runs."""

import warnings
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from veilring.extras import name_missing_extras
from veilring.testing.hiding.places import Columns
from veilring.testing.hiding.twosample import cut_bins

with name_missing_extras():
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import QuantileTransformer
    from threadpoolctl import threadpool_limits

# The learning runs are cut into parts; attackers that learn from the others are judged on a part.
_PARTS: Final = 5
# Fewer judged runs often mistake which attacker is best. More parts are not worth their time: for
# each of them all attackers learn again. So a part has this size if the others are as large.
_JUDGED_MIN: Final = 400
# Rare outcomes reveal the most; scikit-learn's leaves of 20 runs would blur those of small audits.
_LEAF_RUNS: Final = 10
# Many small trees, each branch of which chooses among a few coordinates: most of these reveal
# nothing, and the best one alone would hide what others add.
_TREES: Final = 200
_STEP: Final = 0.05
_LEAVES: Final = 8
_EXAMINED: Final = 0.1
# The number of coordinates whose likelihoods the third attacker multiplies, as if independent.
_FACTORS: Final = 8
_RANKS: Final = 1_000
# Most of hundreds of coordinates reveal nothing: each must have little weight.
_SHRINKAGE: Final = 0.1

Labels = NDArray[np.int64]


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
        seed: The seed of the order of the runs.
    """
    with threadpool_limits(1):  # with busy cores, several threads take longer than one
        return _learn_best(columns, labels, seed)


def _learn_best(columns: Columns, labels: Labels, seed: int) -> Learned:
    order = np.random.default_rng(seed).permutation(len(labels))
    right = dict.fromkeys(_makers, 0)
    judged = 0
    full_parts = len(labels) // _JUDGED_MIN
    parts = min(full_parts, _PARTS) if full_parts > 1 else _PARTS
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


class _Ranks:
    """Replaces each coordinate by its rank among those of the learning runs, from 0 to 1."""

    def __init__(self, columns: Columns) -> None:
        self._transformer = QuantileTransformer(
            n_quantiles=min(_RANKS, len(columns)), random_state=0
        ).fit(_filled(columns))

    def __call__(self, columns: Columns) -> Columns:
        return np.asarray(self._transformer.transform(_filled(columns)))


class _Constant:
    def __init__(self, label: int) -> None:
        self._label = label

    def guess(self, columns: Columns) -> Labels:
        return np.full(len(columns), self._label)


def _learn_majority(_columns: Columns, labels: Labels, _seed: int) -> _Constant:
    return _Constant(int(np.bincount(labels).argmax()))


class _Fitted:
    """A classifier of scikit-learn, restricted to the coordinates that varied as it learned."""

    def __init__(
        self, model: _Model, columns: Columns, labels: Labels, *, by_ranks: bool = False
    ) -> None:
        self._varied = find_varied(columns)
        self._varied[0] |= not self._varied.any()  # scikit-learn refuses a table without columns
        seen = columns[:, self._varied]
        self._prepare = _Ranks(seen) if by_ranks else None
        self._model = model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # only its guesses are evaluated
            model.fit(self._prepared(seen), labels)

    def _prepared(self, seen: Columns) -> Columns:
        return seen if self._prepare is None else self._prepare(seen)

    def guess(self, columns: Columns) -> Labels:
        return np.asarray(self._model.predict(self._prepared(columns[:, self._varied])))


def find_varied(columns: Columns) -> NDArray[np.bool_]:
    """Return whether each coordinate differs between runs, shape (coordinates,)."""
    same = (columns == columns[:1]) | (np.isnan(columns) & np.isnan(columns[:1]))
    return np.asarray(~same.all(axis=0))


def _filled(columns: Columns) -> Columns:
    return np.nan_to_num(columns, nan=-1.0)


def _learn_trees(columns: Columns, labels: Labels, seed: int) -> Attacker:
    model = HistGradientBoostingClassifier(
        max_iter=_TREES,
        learning_rate=_STEP,
        max_features=_EXAMINED,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAF_RUNS,
        early_stopping=False,
        random_state=seed,
    )
    return _Fitted(model, columns, labels)


def _learn_logistic(columns: Columns, labels: Labels, _seed: int) -> Attacker:
    return _Fitted(LogisticRegression(C=_SHRINKAGE), columns, labels, by_ranks=True)


class Likelihood:
    """The Bayes rule for the coordinates that reveal most, as if they were independent.

    The distribution of each coordinate is estimated by counts in bins, with half a run added to
    each bin.

    Args:
        columns: The coordinates of the learning runs, shape (runs, coordinates).
        labels: The class of each run, from 0.
        factors: The number of coordinates whose likelihoods are multiplied.
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

    def log_likelihoods(self, columns: Columns) -> NDArray[np.float64]:
        """Return the logarithm of each class's likelihood, shape (runs, classes)."""
        log = np.repeat(self._prior[None], len(columns), axis=0)
        for _, at, bins, logs in self._tables:
            log += logs[:, bins.place(columns[:, at])].T
        return log


_Make = Callable[[Columns, Labels, int], Attacker]
_makers: Final[Mapping[str, _Make]] = {
    "majority class": _learn_majority,
    "trees": _learn_trees,
    "logistic": _learn_logistic,
    "likelihood": Likelihood,
}


def _information(table: NDArray[np.float64]) -> float:
    """Return the mutual information of classes and bins, in nats."""
    joint = table / table.sum()
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float((joint * np.log(joint / apart)).sum())
