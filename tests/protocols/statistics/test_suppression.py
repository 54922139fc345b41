"""Small counts: hidden, and not to be computed from the other cells, margins and statistics."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import LinearConstraint, milp
from tests.protocols.statistics.tables import (
    AGE,
    AGES,
    DAYS,
    DIED,
    SEX,
    SITE,
    WEIGHT,
    Part,
    compute,
    draw_part,
    hear,
)

from veilring.errors import InputError
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Encoded, Number
from veilring.protocols.statistics.algorithm.counts import CrossTable, Histogram
from veilring.protocols.statistics.algorithm.moments import (
    Correlation,
    Count,
    GroupMeans,
    LeastSquares,
    Mean,
    Variance,
)
from veilring.protocols.statistics.algorithm.quantiles import Quantiles
from veilring.protocols.statistics.algorithm.suppression import find_hidden, merge_steps
from veilring.protocols.statistics.algorithm.survival import KaplanMeier
from veilring.protocols.statistics.plan import Plan

ROW: Final = Category("a", ("1", "2", "3"))
COLUMN: Final = Category("b", ("1", "2", "3"))
EMPTY: Part = {"a": np.array([], str), "b": np.array([], str)}


def rows_of(counts: Any) -> list[Part]:
    """Return the tables of three parties whose pooled cross table has these counts."""
    cells = [
        (str(row + 1), str(column + 1))
        for (row, column), count in np.ndenumerate(np.asarray(counts))
        for _ in range(count)
    ]
    first, second = np.array(cells, str).reshape(-1, 2).T
    return [{"a": first, "b": second}, EMPTY, EMPTY]


def cross(counts: Any, small: int) -> tuple[Any, Any, Any]:
    """Return a published cross table with the histograms of its columns."""
    plan = Plan((CrossTable(ROW, COLUMN), Histogram(ROW), Histogram(COLUMN)), 3, small=small)
    table, rows, columns = compute(plan, rows_of(counts))
    return table.rows, rows, columns


def is_possible(shown: Any, margins: tuple[Any, Any], cell: tuple[int, int], value: int) -> bool:
    """Return whether a table of whole numbers agrees with what is shown, and has a value there."""
    unknown = np.isnan(shown)
    unknown[cell] = False
    at = np.argwhere(unknown)
    known = np.where(np.isnan(shown), 0, shown)
    known[cell] = value
    sums = [*(margins[0] - known.sum(axis=1)), *(margins[1] - known.sum(axis=0))]
    members = [at[:, 0] == row for row in range(3)] + [at[:, 1] == column for column in range(3)]
    told = ~np.isnan(sums)
    if not len(at):
        return bool((np.array(sums)[told] == 0).all())
    rows, totals = np.array(members, float)[told], np.array(sums)[told]
    solved = milp(
        np.zeros(len(at)),
        constraints=LinearConstraint(rows, totals, totals),
        integrality=np.ones(len(at), np.int64),
    )
    return bool(solved.success)


def test_a_small_count_is_not_the_difference_of_a_margin_and_the_other_cells() -> None:
    """One small cell takes others of its row and column with it, and the margins stay."""
    table, rows, columns = cross([[3, 20, 30], [40, 50, 60], [70, 80, 90]], 5)
    assert np.isnan(table[0, 0])
    assert np.isnan(table).sum(axis=0)[0] >= 2
    assert np.isnan(table).sum(axis=1)[0] >= 2
    assert_array_equal(rows, [53, 150, 240])
    assert_array_equal(columns, [113, 150, 180])


@settings(max_examples=12)
@given(st.lists(st.integers(0, 9), min_size=9, max_size=9))
def test_nothing_shown_narrows_a_hidden_small_count(counts: list[int]) -> None:
    """The shown numbers permit each number from 1 to `small` in a small cell."""
    small = 3
    exact = np.array(counts).reshape(3, 3)
    shown, rows, columns = cross(exact, small)
    is_small = (exact > 0) & (exact < small)
    assert np.isnan(shown[is_small]).all()
    assert_array_equal(shown[~np.isnan(shown)], exact[~np.isnan(shown)])
    for cell in zip(*np.nonzero(is_small), strict=True):
        for value in range(1, small + 1):
            assert is_possible(shown, (rows, columns), cell, value)


def test_cells_that_are_shown_are_exact_and_nothing_is_hidden_without_need() -> None:
    """A table without small counts is published as it is, zeros included."""
    exact = [[5, 0, 30], [40, 50, 0], [0, 80, 90]]
    table, rows, columns = cross(exact, 5)
    assert_array_equal(table, exact)
    assert_array_equal(rows, np.sum(exact, axis=1))
    assert_array_equal(columns, np.sum(exact, axis=0))


def test_bridges_between_hidden_cells_are_hidden_too() -> None:
    """A cell with two hidden cells in its row and column may still follow from both: not here."""
    key = (ROW, COLUMN)
    counts = np.array([[2.0, 9, 8], [9, 2, 9], [8, 9, 50]])
    hidden = find_hidden({key: counts}, 4)[key]
    shown = np.where(hidden, np.nan, counts)
    margins = (counts.sum(axis=1), counts.sum(axis=0))
    for cell, value in product(((0, 0), (1, 1)), range(1, 5)):
        assert is_possible(shown, margins, cell, value)


def test_a_histogram_with_one_small_bin_hides_a_second() -> None:
    """Otherwise the number of all rows would tell it."""
    counted = [{"a": np.repeat(["1", "2", "3"], [2, 40, 9])}, *[{"a": np.array([], str)}] * 2]
    total, bins = compute(Plan((Count(), Histogram(ROW)), 3, small=5), counted)
    assert total == 51
    assert_array_equal(bins, [np.nan, 40, np.nan])


def test_a_group_too_small_has_no_mean() -> None:
    """Neither has a second one, whose sum would tell that of the first."""
    tables = [
        {"a": np.repeat(["1", "2", "3"], [2, 40, 9]), "age": np.arange(51) * 2},
        *[{"a": np.array([], str), "age": np.array([])}] * 2,
    ]
    mean, groups = compute(Plan((Mean(AGE), GroupMeans(AGE, ROW)), 3, small=5), tables)
    assert mean == 50
    assert_array_equal(np.isnan(groups.means), [True, False, True])
    assert_array_equal(np.isnan(groups.variances), [True, False, True])


def test_results_of_few_rows_are_hidden() -> None:
    """Fewer rows than may be shown have no count, mean, correlation or fit."""
    tables = [draw_part(n, np.random.default_rng(n)) for n in (2, 1, 1)]
    statistics = (Count(), Mean(AGE), Correlation((AGE, WEIGHT)), LeastSquares(AGE, (WEIGHT,)))
    count, mean, matrix, fit = compute(Plan(statistics, 3, small=5), tables)
    assert np.isnan([count, mean, fit.intercept, fit.rows]).all()
    assert np.isnan(matrix).all()


def test_a_curve_with_small_counts_merges_its_steps() -> None:
    """It is the exact curve of the times at the ends of its parts, none of which is small."""
    tables = [draw_part(n, np.random.default_rng(n)) for n in (90, 70, 80)]
    for small in (5, 12):
        plan = Plan((KaplanMeier(DAYS, DIED, SEX), KaplanMeier(DAYS, DIED), Histogram(SEX)), 3)
        grouped, whole, _ = compute(replace(plan, small=small), tables)
        left = grouped.at_risk - grouped.events
        ends = -np.diff(left, axis=1, append=0) - np.append(
            grouped.events[:, 1:], [[0]] * 2, axis=1
        )
        for counts in (grouped.events, ends):
            assert not ((counts > 0) & (counts < small)).any()
        steps = np.flatnonzero(
            grouped.at_risk.sum(axis=0) > np.append(grouped.at_risk.sum(axis=0)[1:], 0)
        )
        assert 1 < len(steps) < 13
        coarse = [{**each, "days": steps[np.searchsorted(steps, each["days"])]} for each in tables]
        assert repr(compute(plan, coarse)[:2]) == repr((grouped, whole))
        assert grouped.p_value > 0


def test_a_curve_of_too_few_rows_is_hidden_whole() -> None:
    """All of its steps together have a small count, in one of the groups."""
    tables: list[Any] = [dict(draw_part(n, np.random.default_rng(n))) for n in (30, 1, 0)]
    tables[0]["site"][:], tables[1]["site"][:] = "north", "south"
    curve, counts = compute(Plan((KaplanMeier(DAYS, DIED, SITE), Count()), 3, small=8), tables)
    assert np.isnan(curve.survival).all()
    assert np.isnan(curve.events).all()
    assert np.isnan(curve.p_value)
    assert counts == 31


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 6))
def test_parts_of_steps_have_no_small_count(counts: list[int], small: int) -> None:
    """No part is returned only if all steps together have a small count."""
    given = np.array(counts, float)[:, None]
    starts = merge_steps(given, small)
    if starts:
        sums = np.add.reduceat(given[:, 0], starts)
        assert starts[0] == 0
        assert not ((sums > 0) & (sums < small)).any()
    else:
        assert 0 < given.sum() < small


def test_a_quantile_needs_enough_rows_on_either_side() -> None:
    """The minimum and the maximum are the values of single rows."""
    tables = [draw_part(n, np.random.default_rng(n)) for n in (30, 30, 30)]
    (quantiles,) = compute(Plan((Quantiles(AGE, (0, 0.5, 1)),), 3, small=5), tables)
    assert_array_equal(np.isnan(quantiles), [True, False, True])


def test_quantiles_have_enough_rows_between_them() -> None:
    """A share for each row would otherwise show all rows; two searches of a column count as one."""
    table = {"age": np.arange(100), "days": np.arange(100) % 13}
    tables: list[Any] = [table, *[{"age": [], "days": []}] * 2]
    shares = tuple((np.arange(100) / 100).tolist())
    searches = (
        Quantiles(AGE, shares),
        Quantiles(AGE, (0.052, 0.5, 0.505)),
        Quantiles(DAYS, (0.5,)),
    )
    many, few, other = compute(Plan(searches, 3, small=5), tables)
    ranks = np.flatnonzero(~np.isnan(many))
    assert ranks[0] == 5
    assert np.diff(ranks).min() == 5
    assert len(ranks) == 19
    assert_array_equal(np.isnan(few), [True, False, True])
    assert not np.isnan(other).any()


def test_a_sum_that_bounds_a_hidden_interval_is_hidden() -> None:
    """The mean of an age is hidden with an interval of ages, but not with cells inside of one."""
    ages = np.repeat([10, 30, 50, 70], [2, 40, 30, 20])
    table = {"age": ages, "weight": np.zeros(92), "sex": np.where(np.arange(92) % 40, "f", "m")}
    tables: list[Any] = [table, *[{name: [] for name in table}] * 2]

    def shown(*statistics: Any) -> list[bool]:
        results = compute(Plan(statistics, 3, small=5), tables)
        return [not np.isnan(getattr(each, "means", each)).any() for each in results]

    assert shown(Mean(AGE), Mean(WEIGHT), Histogram(AGES)) == [False, True, False]
    tables[0] = {**table, "age": np.maximum(ages, 30)}
    cells = CrossTable(AGES, SEX)
    inside, inside_of_sex, _ = compute(
        Plan((Mean(AGE), GroupMeans(AGE, SEX), cells), 3, small=5), tables
    )
    assert not np.isnan(inside)
    assert np.isnan(inside_of_sex.means).all()
    assert shown(Mean(AGE), GroupMeans(AGE, AGES), Histogram(AGES))[0]


VALUE: Final = Number("x", 0, 11)
PARTS_OF_IT: Final = Bins(VALUE, (0, 4, 8, 11))
BESIDE: Final = (
    *(Count(), Histogram(ROW), Histogram(PARTS_OF_IT), CrossTable(PARTS_OF_IT, ROW)),
    *(Mean(VALUE), Variance(VALUE), GroupMeans(VALUE, ROW), GroupMeans(VALUE, PARTS_OF_IT)),
)


@pytest.mark.parametrize("seed", range(12))
def test_all_shown_counts_and_sums_permit_each_hidden_count(seed: int) -> None:
    """A linear program over all joint counts of a plan reaches 1 to `small` in each small cell."""
    rng, small = np.random.default_rng(seed), 2 + seed % 3
    rows = int(rng.choice([8, 20, 50]))
    table = {
        "x": rng.choice(12, rows, p=rng.dirichlet(np.full(12, 0.5))),
        "a": rng.choice(list(ROW.values), rows, p=rng.dirichlet(np.full(3, 0.7))),
    }
    statistics = tuple(each for each in BESIDE if rng.random() < 0.7) or BESIDE
    plan = Plan(statistics, 3, small=small)
    heard = hear(plan, [table, *[{name: column[:0] for name, column in table.items()}] * 2])
    every = {"x": np.repeat(np.arange(12), 3), "a": np.tile(ROW.values, 12)}
    joint = [
        Encoded(1, {n: c[k : k + 1] for n, c in encoded_columns(every).items()}) for k in range(36)
    ]
    known, values, small_cells = list[Any](), list[float](), list[Any]()
    for each, shown, totals in zip(statistics, plan.publish(heard), heard, strict=True):
        for line, numbers, exact in zip(each.lines(0), shown, totals[0], strict=True):
            weights = np.array([line.add_up(row) for row in joint]).T
            for weight, number, total in zip(weights, numbers, exact, strict=True):
                if not np.isnan(float(number)):
                    known.append(weight)
                    values.append(float(number))
                elif not line.moment and 0 < total < small:
                    small_cells.append(weight)
    for weight, wanted in product(small_cells, range(1, small + 1)):
        told = np.array([*values, wanted], np.float64)
        constraints = LinearConstraint(np.array([*known, weight], np.float64), told, told)
        assert milp(np.zeros(36), constraints=constraints).success


def encoded_columns(table: Part) -> Any:
    """Return all columns of a table as whole numbers."""
    return Plan((GroupMeans(VALUE, ROW),), 3).encode(table).columns


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        ((Mean(Number("flag", 0, 1)),), "3 values or fewer"),
        ((Mean(DAYS), KaplanMeier(DAYS, DIED)), "time of survival"),
    ],
)
def test_sums_that_are_counts_are_refused(statistics: tuple[Any, ...], message: str) -> None:
    """The sum of a number that is 0 or 1 is a count, and one of times is known beside a curve."""
    Plan(statistics, 3)
    with pytest.raises(InputError, match=message):
        Plan(statistics, 3, small=5)


def test_quantiles_of_a_column_that_forms_cells_are_refused() -> None:
    """A rank with its value bounds how many rows a hidden interval has."""
    with pytest.raises(InputError, match="'age' is divided in two ways"):
        Plan((Histogram(AGES), Quantiles(AGE)), 3, small=5)


def test_statistics_that_skip_different_rows_are_refused() -> None:
    """The difference of their numbers of rows is the number of gaps, which may be small."""
    age = replace(AGE, skip=True)
    Plan((Mean(age), Quantiles(age)), 3, small=5)
    with pytest.raises(InputError, match="leave out different rows"):
        Plan((Mean(age), Count()), 3, small=5)


def test_a_solver_that_fails_hides_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bounds on a small count, all that could bound it is hidden."""
    failed = SimpleNamespace(x=None, status=4)
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: failed)
    table, rows, columns = cross([[3, 20, 30], [40, 50, 60], [70, 80, 90]], 5)
    assert np.isnan(table).all()
    assert np.isnan([*rows, *columns]).all()


def test_two_divisions_of_a_column_are_refused() -> None:
    """Bins to 18 and bins to 19 differ by the rows of one age, however many there are."""
    other = Bins(AGE, (0, 19, 120))
    Plan((Histogram(AGES), Histogram(other)), 3)
    with pytest.raises(InputError, match="divided in two ways"):
        Plan((Histogram(AGES), CrossTable(other, SEX)), 3, small=5)


def test_tables_beyond_the_limit_are_refused_by_their_sizes() -> None:
    """Nothing is computed first, so the refusal tells nothing about rows."""
    fine = Bins.equal(Number("income", 0, 10_000), 3000)
    with pytest.raises(InputError, match="4,096"):
        Plan((CrossTable(fine, SEX),), 3, small=5)


def test_the_promise_says_whom_it_does_not_protect_from() -> None:
    """Readers, not parties; one plan, not two."""
    note = Plan((Count(),), 3, small=5).promise.note
    assert "counts from 1 to 4" in note
    assert "not for the parties" in note
    assert "not for the results of two plans" in note
