"""Predicted numbers: R² of a release by peers and by an owner, and of others on the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.random import Generator
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor

import veilring as vr
from veilring.arrays import Floats
from veilring.data.columns import Target
from veilring.data.table import encode_columns, scale_to_unit
from veilring.errors import InputError
from veilring.protocols.system import NEIGHBOURS, PARTIES

DIABETES: Final = "diabetes"
LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {DIABETES: "", "drawn": "", "abalone": "label", "banknote": "entropy"}
)
"""The column of numbers of each table that is a file, such as the rings of abalone."""
STEPS: Final = 1000
DELTA: Final = 1e-5
_RHO: Final = 0.05  # the probability with which AdaSSP's ridge may be too small


class Found(NamedTuple):
    """The R² of one split."""

    peers: float
    owner: float
    adassp: float
    plain: float
    neighbours: float


def read_numbers(name: str, data: Path | None = None) -> vr.Table:
    """Return a table in [0, 1] whose label is a number, with the range of its rows."""
    if name not in LABELS:
        raise InputError("--table", name, ", ".join(LABELS))
    if not LABELS[name]:
        rows, values = load_diabetes(return_X_y=True) if name == DIABETES else _drawn()
        columns = {f"x{number}": column for number, column in enumerate(rows.T)}
        made = encode_columns(name, columns, values.astype(np.str_), _target(values))
    else:
        if data is None:
            raise InputError.because(f"{name} is read from a file; give its folder by --data")
        made = _predicted(vr.load(data / f"{name}.csv", label=LABELS[name]))
    return scale_to_unit(made)


def _drawn() -> tuple[Floats, Floats]:
    """Draw rows with a linear target."""
    rng = np.random.default_rng(1)
    rows = rng.beta(2, 5, (4000, 8))
    return rows, rows @ rng.normal(size=8) + rng.normal(0, 0.2, len(rows))


def _predicted(table: vr.Table) -> vr.Table:
    """Return a table with numbers as classes as one with a target."""
    if table.features.target is not None:
        return table
    values = np.array(table.features.classes, np.float64)[table.y]
    target = _target(values)
    features = replace(table.features, classes=(), target=target)
    return replace(table, y=target.labels_of(values), features=features)


def _target(values: Floats) -> Target:
    low, high = float(values.min()), float(values.max())
    return Target(low=low, high=high, resolution=(high - low) / STEPS)


def splits_of(table: vr.Table, epsilon: float, splits: int) -> Iterator[Found]:
    """Yield the R² of each split into three quarters of rows and a quarter held out."""
    target = cast("Target", table.features.target)
    for seed in range(splits):
        train, test = table.split(seed=seed)
        parts, truth = train.partition(PARTIES, seed=seed), target.values_of(test.y)
        labels = target.values_of(train.y)
        released = list[float]()
        for trusted in (False, True):
            run = vr.run(vr.Release(epsilon=epsilon, trusted=trusted), parts, test, seed=seed)
            released.append(r2_score(truth, run.labels))
        rng, centred = np.random.default_rng(seed), [_centred(each) for each in (train, test)]
        weights = adassp(centred[0], train.y / target.steps - 0.5, epsilon, DELTA, rng)
        guessed = target.low + (target.high - target.low) * (centred[1] @ weights + 0.5)
        guessed = np.clip(guessed, target.low, target.high)
        plain, neighbours = (
            r2_score(truth, each.fit(train.X, labels).predict(test.X))
            for each in (LinearRegression(), KNeighborsRegressor(NEIGHBOURS))
        )
        peers, owner = released
        yield Found(peers, owner, r2_score(truth, guessed), plain, neighbours)


def _centred(table: vr.Table) -> Floats:
    """Return rows around the middle of their ranges, with a constant."""
    return np.column_stack([table.X - 0.5, np.full(len(table), 0.5)])


def adassp(rows: Floats, labels: Floats, epsilon: float, delta: float, rng: Generator) -> Floats:
    """Return the weights of AdaSSP (Wang 2018, Algorithm 2), by an owner of all rows.

    Args:
        rows: Shape (rows, features), each entry from -1/2 to 1/2, so that the norm is bounded.
        labels: Shape (rows,), likewise.
    """
    width, third, bound = rows.shape[1], epsilon / 3, sqrt(rows.shape[1] / 4)
    spread, square = sqrt(log(6 / delta)), rows.T @ rows
    least = np.linalg.eigvalsh(square)[0] + bound**2 / third * (
        spread * rng.normal() - log(6 / delta)
    )
    upper = np.triu(rng.normal(size=(width, width)))
    noisy = square + spread * bound**2 / third * (upper + np.triu(upper, 1).T)
    product = rows.T @ labels + spread * bound / 2 / third * rng.normal(size=width)
    ridge = sqrt(width * log(6 / delta) * log(2 * width**2 / _RHO)) * bound**2 / third
    ridge = max(0.0, ridge - max(least, 0.0))
    return np.asarray(np.linalg.solve(noisy + ridge * np.eye(width), product))


def format_numbers(name: str, table: vr.Table, found: Sequence[Found]) -> str:
    """Return a line with the mean R² of each method, and its standard error."""
    each = np.array(found)
    errors = each.std(axis=0, ddof=1) / np.sqrt(len(each))
    cells = (f"{m:7.3f} ± {e:.3f}" for m, e in zip(each.mean(axis=0), errors, strict=True))
    return f"{name:<10}{len(table):>7,}  {'  '.join(cells)}"
