"""Statistics from moments: sums, means, variances, correlations, groups and least squares."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import nan
from typing import Any

import numpy as np
from typing_extensions import override

from veilring.arrays import Floats
from veilring.privacy.checks import require, require_that
from veilring.protocols.statistics.algorithm.columns import Factor, Grouping, Number
from veilring.protocols.statistics.algorithm.tallies import (
    ROWS,
    Moment,
    Statistic,
    Totals,
    as_floats,
    ratio,
)


@dataclass(frozen=True)
class Count(Statistic[float]):
    """The number of rows."""

    @override
    def estimate(self, shown: Totals) -> float:
        return float(shown[0, 0])


@dataclass(frozen=True)
class _OfOne(Statistic[float]):
    column: Number

    @property
    @override
    def moments(self) -> tuple[Moment, ...]:
        return ROWS, (self.column,)


@dataclass(frozen=True)
class Sum(_OfOne):
    """The sum of a number over all rows."""

    @override
    def estimate(self, shown: Totals) -> float:
        rows, sums = shown[:, 0]
        return float(rows * self.column.origin + sums * self.column.unit)


@dataclass(frozen=True)
class Mean(_OfOne):
    """The mean of a number; NaN without rows."""

    @override
    def estimate(self, shown: Totals) -> float:
        rows, sums = shown[:, 0]
        return float(_mean(self.column, rows, sums))


@dataclass(frozen=True)
class Variance(_OfOne):
    """The variance of a number, divided by the number of rows less one; NaN below two rows."""

    @property
    @override
    def moments(self) -> tuple[Moment, ...]:
        return ROWS, (self.column,), (self.column, self.column)

    @override
    def estimate(self, shown: Totals) -> float:
        return float(_variance(self.column, *shown[:, 0]))


@dataclass(frozen=True)
class GroupsResult:
    """The numbers of each group, shape (groups,); NaN where a group is hidden or has no rows.

    Attributes:
        rows: The number of rows.
        means: The mean.
        variances: The variance, divided by the number of rows less one.
    """

    rows: Floats
    means: Floats
    variances: Floats


@dataclass(frozen=True)
class GroupMeans(Statistic[GroupsResult]):
    """The mean and variance of a number in each group of rows."""

    column: Number
    by: Grouping

    @property
    @override
    def factors(self) -> tuple[Factor, ...]:
        return (self.by,)

    @property
    @override
    def moments(self) -> tuple[Moment, ...]:
        return ROWS, (self.column,), (self.column, self.column)

    @override
    def estimate(self, shown: Totals) -> GroupsResult:
        groups = shown.T
        means = [float(_mean(self.column, rows, sums)) for rows, sums, _ in groups]
        variances = [float(_variance(self.column, *group)) for group in groups]
        return GroupsResult(as_floats(shown[0]), np.array(means), np.array(variances))


@dataclass(frozen=True)
class Correlation(Statistic[Floats]):
    """The matrix of Pearson's correlations; NaN for a constant number."""

    on: tuple[Number, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", tuple(self.on))
        require(len(self.on) > 1, "on", len(self.on), "at least two numbers")
        require_different(self.on)

    @property
    @override
    def moments(self) -> tuple[Moment, ...]:
        return _second_moments(self.on)

    @override
    def estimate(self, shown: Totals) -> Floats:
        _, _, scatter = _centred(shown, len(self.on))
        return _correlations(scatter)[0]


@dataclass(frozen=True)
class FitResult:
    """A linear model by least squares, in the units of the columns.

    Attributes:
        intercept: The constant term.
        slopes: The coefficient of each number, shape (numbers,).
        errors: The standard errors of the intercept and the slopes, shape (1 + numbers,).
        r_squared: The explained share of the variance.
        rows: The number of rows.
    """

    intercept: float
    slopes: Floats
    errors: Floats
    r_squared: float
    rows: float


@dataclass(frozen=True)
class LeastSquares(Statistic[FitResult]):
    """The linear model of a number on others with the least sum of squared errors.

    It is NaN if the numbers are linearly dependent, and the standard errors also if there are no
    more rows than coefficients. They are those of independent errors with one variance.
    """

    column: Number
    on: tuple[Number, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", tuple(self.on))
        require(len(self.on) > 0, "on", len(self.on), "at least one number")
        require_different((self.column, *self.on))

    @property
    @override
    def moments(self) -> tuple[Moment, ...]:
        return _second_moments((*self.on, self.column))

    @override
    def estimate(self, shown: Totals) -> FitResult:
        numbers, size = (*self.on, self.column), len(self.on)
        rows, means, scatter = _centred(shown, size + 1)
        # In standard deviations, so that rounding matters as little as the numbers allow.
        matrix, widths = _correlations(scatter)
        inner, cross = matrix[:size, :size], matrix[:size, size]
        if np.isnan(matrix).any() or np.linalg.matrix_rank(inner, hermitian=True) < size:
            none = np.full(size + 1, nan)
            return FitResult(nan, none[1:], none, nan, float(rows))
        inverse = np.linalg.pinv(inner, hermitian=True)  # which no noise makes fail
        weights = inverse @ cross
        r_squared = min(1.0, float(weights @ cross))
        spreads = widths * [float(each.unit) for each in numbers]
        slopes = weights * spreads[size] / spreads[:size]
        *at, target = [_value(*pair) for pair in zip(numbers, means, strict=True)]
        centre = np.array(at, np.float64)
        freedom = float(rows) - size - 1
        variance = (1 - r_squared) * spreads[size] ** 2 / freedom if freedom > 0 else nan
        covariance = variance * inverse / np.outer(spreads[:size], spreads[:size])
        squares = [variance / float(rows) + centre @ covariance @ centre, *np.diag(covariance)]
        errors = np.sqrt(np.maximum(squares, 0.0))
        return FitResult(
            float(target) - float(slopes @ centre), slopes, errors, r_squared, float(rows)
        )


def require_different(numbers: Sequence[Number]) -> None:
    """Refuse a number that is named twice."""
    names = [number.name for number in numbers]
    require_that(len(set(names)) == len(names), "on", "each number may be named once only")


def _second_moments(numbers: Sequence[Number]) -> tuple[Moment, ...]:
    """Return all moments up to products, in whose order equal ones of two statistics are equal."""
    products = combinations_with_replacement(numbers, 2)
    ordered = (tuple(sorted(pair, key=lambda number: number.name)) for pair in products)
    return ROWS, *((each,) for each in numbers), *ordered


def _value(column: Number, steps: Any) -> Any:  # noqa: ANN401  (a fraction, or NaN)
    """Return a number from its distance to the middle."""
    return column.origin + column.unit * steps


def _mean(column: Number, rows: Any, sums: Any) -> Any:  # noqa: ANN401  (as above)
    return _value(column, ratio(sums, rows))


def _variance(column: Number, rows: Any, sums: Any, squares: Any) -> Any:  # noqa: ANN401  (as above)
    if not rows > 1:
        return nan
    return max(ratio(squares - ratio(sums * sums, rows), rows - 1), 0) * column.unit**2


def _centred(totals: Totals, size: int) -> tuple[Any, list[Any], Totals]:
    """Return the number of rows, the means, and the scatter about them, in steps."""
    rows, sums, products = totals[0, 0], totals[1 : size + 1, 0], totals[size + 1 :, 0]
    means = [ratio(each, rows) for each in sums]
    scatter = np.empty((size, size), np.object_)
    pairs = combinations_with_replacement(range(size), 2)
    for (one, other), product in zip(pairs, products, strict=True):
        scatter[one, other] = scatter[other, one] = product - sums[one] * means[other]
    return rows, means, scatter


def _correlations(scatter: Totals) -> tuple[Floats, Floats]:
    """Return correlations, and the roots of the scatter of each number, NaN for a constant one."""
    diagonal = as_floats(np.diag(scatter))
    widths = np.sqrt(np.where(diagonal > 0, diagonal, nan))
    found = np.clip(as_floats(scatter) / np.outer(widths, widths), -1.0, 1.0)
    np.fill_diagonal(found, widths / widths)
    return found, widths
