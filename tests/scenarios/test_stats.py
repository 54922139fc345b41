"""`veilring.stats`: each function, with data frames, named parties, and errors that name them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.protocols.statistics.tables import (
    AGE,
    AGES,
    DAYS,
    DIED,
    SEX,
    SITE,
    WEIGHT,
    compute,
    draw_part,
)

import veilring as vr
from veilring.protocols.statistics.plan import Plan

PARTS = [draw_part(rows, np.random.default_rng(rows)) for rows in (20, 0, 33)]
stats = vr.stats
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
    (stats.count, (), stats.Count()),
    (stats.sum, (AGE,), stats.Sum(AGE)),
    (stats.mean, (AGE,), stats.Mean(AGE)),
    (stats.variance, (AGE,), stats.Variance(AGE)),
    (stats.histogram, (AGES,), stats.Histogram(AGES)),
    (stats.cross_table, (SEX, AGES), stats.CrossTable(SEX, AGES)),
    (stats.quantiles, (WEIGHT, (0.5,)), stats.Quantiles(WEIGHT, (0.5,))),
    (stats.correlation, ((AGE, DAYS),), stats.Correlation((AGE, DAYS))),
    (stats.group_means, (AGE, SITE), stats.GroupMeans(AGE, SITE)),
    (stats.least_squares, (AGE, [DAYS]), stats.LeastSquares(AGE, (DAYS,))),
    (stats.kaplan_meier, (DAYS, DIED, SEX), stats.KaplanMeier(DAYS, DIED, SEX)),
]


@pytest.mark.parametrize(("function", "given", "statistic"), CALLS)
def test_each_function_asks_its_statistic(
    function: Callable[..., Any], given: tuple[Any, ...], statistic: Any
) -> None:
    """One call returns the result of its statistic, with a promise, at the forecast cost."""
    answer = function(PARTS, *given, runtime="simulated")
    (expected,) = compute(Plan((statistic,), 3), PARTS)
    assert repr(answer.value) == repr(expected)
    assert answer.cost == answer.forecast
    assert answer.promise.epsilon is None
    assert "equal" in str(answer)


def test_data_frames_of_named_parties() -> None:
    """Frames and mappings are tables; the parties have the names of the mapping."""
    frames = {
        name: pl.DataFrame(dict(part))
        for name, part in zip(("ada", "bob", "cy"), PARTS, strict=True)
    }
    assert stats.mean(frames, AGE).value == stats.mean(PARTS, AGE).value
    spoiled = {**frames, "bob": pl.DataFrame({"age": [121]})}
    with pytest.raises(vr.InputError, match="bob: the column 'age' has values outside"):
        stats.mean(spoiled, AGE)


def test_data_frames_may_have_nulls_where_columns_skip_them() -> None:
    """A null of a number or of a category leaves its row out, or is refused."""
    frames = [pl.DataFrame({"n": [1, None, 3], "c": ["a", "b", None]})] * 3
    number, words = stats.Number("n", 0, 9, skip=True), stats.Category("c", ("a", "b"), skip=True)
    asked = (stats.Mean(number), stats.GroupMeans(number, words))
    mean, groups = stats.ask(frames, *asked, runtime="simulated").value
    assert mean == 2
    assert groups.rows.tolist() == [3, 0]
    for by in (stats.Bins(stats.Number("n", 0, 9), (0, 9)), stats.Category("c", ("a", "b"))):
        with pytest.raises(vr.InputError, match=f"party-0: the column '{by.column.name}'"):
            stats.histogram(frames, by)


def test_seeded_noise_promises_no_epsilon() -> None:
    """With a seed, results are reproducible and no ε holds; without one, it does."""
    one, two = (stats.mean(PARTS, AGE, epsilon=1.0, seed=3) for _ in range(2))
    assert (one.value, one.transcript) == (two.value, two.transcript)
    assert one.promise.epsilon is None
    assert stats.mean(PARTS, AGE, epsilon=1.0).promise.epsilon == 1.0
