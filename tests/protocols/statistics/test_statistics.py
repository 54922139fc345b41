"""Exact statistics equal those of NumPy and SciPy on the pooled rows, everywhere, at their cost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from tests.protocols.statistics.tables import (
    AGE,
    AGES,
    ALL,
    DAYS,
    DIED,
    SEX,
    SHARES,
    SITE,
    WEIGHT,
    Part,
    compute,
    draw_part,
    hear,
    parts,
    pooled,
)

from veilring import simulation
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.protocols.statistics.algorithm.columns import Bins, Category, Number
from veilring.protocols.statistics.algorithm.counts import CrossTable, CrossTableResult, Histogram
from veilring.protocols.statistics.algorithm.moments import (
    Correlation,
    Count,
    FitResult,
    GroupMeans,
    LeastSquares,
    Mean,
    Sum,
    Variance,
)
from veilring.protocols.statistics.algorithm.quantiles import Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier, SurvivalResult
from veilring.protocols.statistics.plan import Plan
from veilring.protocols.statistics.roles import sum_statistics
from veilring.testing import ProtocolRunner, assert_cost

# Floats differ from exact fractions by some roundings; sums and counts do not.
CLOSE = 1e-9


def assert_same(found: tuple[Any, ...], rows: dict[str, Any]) -> None:
    """Fail unless the results of `ALL` are those of the pooled rows."""
    count, total, mean, variance, histogram, cross, correlation, groups, fit, survival, at = found
    n = len(rows["age"])
    assert count == n
    assert total == rows["weight"].sum()
    assert_array_equal(histogram, np.histogram(rows["age"], AGES.edges)[0])
    assert_allclose(mean, rows["age"].mean() if n else np.nan, rtol=CLOSE)
    assert_allclose(variance, rows["weight"].var(ddof=1) if n > 1 else np.nan, rtol=CLOSE)
    assert_cross(cross, rows)
    for place, site in enumerate(SITE.values):
        ages = rows["age"][rows["site"] == site]
        assert groups.rows[place] == len(ages)
        assert_allclose(groups.means[place], ages.mean() if ages.size else np.nan, rtol=CLOSE)
        spread = ages.var(ddof=1) if ages.size > 1 else np.nan
        assert_allclose(groups.variances[place], spread, rtol=CLOSE, atol=CLOSE)
    if n:
        quantiles = np.quantile(rows["weight"], SHARES, method="inverted_cdf")
        assert_array_equal(at, quantiles)
    else:
        assert np.isnan(at).all()
    assert_correlation(correlation, np.stack([rows[name] for name in ("age", "weight", "days")]))
    assert_fit(fit, rows["weight"], np.stack([rows["age"], rows["days"]], axis=1))
    assert_survival(survival, rows)


def assert_cross(found: CrossTableResult, rows: dict[str, Any]) -> None:
    """Fail unless a cross table has SciPy's counts and χ²."""
    counts = np.array(
        [
            [((rows["sex"] == sex) & (rows["site"] == site)).sum() for site in SITE.values]
            for sex in SEX.values
        ]
    )
    assert_array_equal(found.rows, counts)
    there = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if there.size:
        test = stats.chi2_contingency(there, correction=False)
        assert_allclose(found.chi_squared, test.statistic, rtol=CLOSE, atol=CLOSE)
        assert_allclose(found.p_value, test.pvalue, rtol=1e-6)
        assert found.freedom == test.dof


def assert_correlation(found: Any, numbers: Any) -> None:
    """Fail unless a matrix is NumPy's, with NaN for constant numbers."""
    constant = np.ptp(numbers, axis=1) == 0 if numbers.shape[1] else np.ones(len(numbers), bool)
    assert_array_equal(np.isnan(np.diag(found)), constant)
    varied = ~constant
    if varied.any():
        expected = np.corrcoef(numbers[varied]).reshape(varied.sum(), -1)
        assert_allclose(found[np.ix_(varied, varied)], expected, rtol=CLOSE, atol=CLOSE)


def assert_fit(found: FitResult, target: Any, on: Any) -> None:
    """Fail unless a fit has the coefficients and errors of the closed forms."""
    design = np.column_stack([np.ones(len(on)), on])
    if np.linalg.matrix_rank(design) < design.shape[1] or np.ptp(target) == 0:
        assert np.isnan(found.intercept)
        assert np.isnan(found.slopes).all()
        return
    solved, *_ = np.linalg.lstsq(design, target)
    assert_allclose([found.intercept, *found.slopes], solved, rtol=1e-7, atol=CLOSE)
    residuals = target - design @ solved
    freedom = len(target) - design.shape[1]
    explained = 1 - residuals @ residuals / ((target - target.mean()) ** 2).sum()
    assert_allclose(found.r_squared, explained, atol=1e-7)
    if freedom <= 0:
        assert np.isnan(found.errors).all()
    elif explained < 1 - 1e-7:  # otherwise all that is left is rounding
        covariance = residuals @ residuals / freedom * np.linalg.inv(design.T @ design)
        assert_allclose(found.errors, np.sqrt(np.diag(covariance)), rtol=1e-5)


def assert_survival(found: SurvivalResult, rows: dict[str, Any]) -> None:
    """Fail unless curves and test are those of SciPy; its test compares two samples."""
    samples = []
    for place, site in enumerate(SITE.values):
        days, died = (rows[name][rows["site"] == site] for name in ("days", "died"))
        if not days.size:
            assert np.isnan(found.survival[place]).all()
            continue
        samples.append(stats.CensoredData.right_censored(days, ~died))
        curve = stats.ecdf(samples[-1]).sf
        assert_allclose(found.survival[place], curve.evaluate(found.times), atol=CLOSE)
    if len(samples) == 2 and rows["died"].any():
        with np.errstate(invalid="ignore"):
            test = stats.logrank(samples[0], samples[1])
        if np.isfinite(test.statistic):
            assert_allclose(found.log_rank, test.statistic**2, rtol=1e-6, atol=CLOSE)
            assert_allclose(found.p_value, test.pvalue, rtol=1e-6)


@settings(max_examples=15)
@given(tables=parts())
def test_statistics_equal_those_of_the_pooled_rows(tables: list[Part]) -> None:
    """Any tables of any parties, some empty: as NumPy and SciPy compute it from all rows."""
    assert_same(compute(Plan(ALL, 3), tables), pooled(tables))


def test_all_runtimes_agree_at_the_forecast(run_everywhere: ProtocolRunner) -> None:
    """Every party has the results of the pooled rows, and the cost is the closed form."""
    rng = np.random.default_rng(5)
    tables = [draw_part(rows, rng) for rows in (40, 0, 25, 31, 1)]
    plan = Plan(ALL, 5)
    run = run_everywhere(sum_statistics, 5, own=tables, plan=plan)
    for result in run.results.values():
        assert_same(result, pooled(tables))
    forecast = plan.forecast
    assert_cost(
        run,
        messages=forecast.traffic.messages,
        bytes=forecast.traffic.bytes,
        rounds=forecast.rounds,
        setup_messages=forecast.setup.messages,
        setup_bytes=forecast.setup.bytes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["memory", "tls", "processes", "simulated"])
def test_twenty_tables_on_each_runtime(runtime: RuntimeName) -> None:
    """Each of twenty tables has the results of its pooled rows at the forecast."""
    plan = Plan(ALL, 4)

    async def main() -> None:
        async with Cluster(4, runtime=runtime, seed=1) as cluster:
            for seed in range(20):
                rng = np.random.default_rng(seed)
                tables = [draw_part(int(rng.integers(0, 60)), rng) for _ in range(4)]
                run = await cluster.run(sum_statistics, own=tables, plan=plan)
                assert_same(run.result, pooled(tables))
                traffic = (run.cost.messages, run.cost.bytes)
                assert (run.cost.rounds, *traffic) == (plan.forecast.rounds, *plan.forecast.traffic)

    (simulation.simulate if runtime == "simulated" else asyncio.run)(main())


@pytest.mark.parametrize("statistic", ALL, ids=lambda each: type(each).__name__)
def test_each_statistic_alone_costs_its_forecast(statistic: Any) -> None:
    """One sum and a confirmation; a search takes a sum for each of its rounds."""
    rng = np.random.default_rng(2)
    plan = Plan((statistic,), 3)
    run = ProtocolRunner("simulated")(
        sum_statistics, 3, own=[draw_part(9, rng) for _ in range(3)], plan=plan
    )
    assert run.cost.rounds == plan.forecast.rounds == statistic.rounds + 1
    assert (run.cost.messages, run.cost.bytes) == plan.forecast.traffic
    assert run.cost.setup == plan.forecast.setup


def test_equal_lines_are_added_up_once() -> None:
    """A mean costs as many bytes as a mean with its count, its sum and the number of rows."""
    alone, together = Plan((Mean(AGE),), 3), Plan((Mean(AGE), Sum(AGE), Count()), 3)
    assert alone.forecast == together.forecast


@pytest.mark.slow
def test_sums_larger_than_a_frame_cost_their_forecast() -> None:
    """A table of more cells than a frame holds takes further rounds, as forecast."""
    days = Number("days", 0, 2**16)
    plan = Plan((KaplanMeier(days, DIED),), 3)
    tables = [{"days": np.arange(5), "died": np.zeros(5, np.int64)} for _ in range(3)]
    run = ProtocolRunner("memory")(sum_statistics, 3, own=tables, plan=plan)
    assert plan.forecast.rounds == 3
    assert (run.cost.rounds, run.cost.bytes) == (3, plan.forecast.traffic.bytes)


@pytest.mark.slow
def test_a_million_rows_take_few_rounds() -> None:
    """Quantiles of a million rows in a million steps among five parties: at most 8 rounds."""
    income = Number("income", 0, 1_000_000)
    rng = np.random.default_rng(3)
    tables = [{"income": rng.integers(0, 1_000_001, 200_000)} for _ in range(5)]
    plan = Plan((Quantiles(income, (0.01, 0.5, 0.99)),), 5)
    run = ProtocolRunner("memory")(sum_statistics, 5, own=tables, plan=plan)
    expected = np.quantile(pooled(tables)["income"], (0.01, 0.5, 0.99), method="inverted_cdf")
    assert_array_equal(run.result[0], expected)
    assert run.cost.rounds == plan.forecast.rounds == 5


def test_values_are_rounded_to_the_resolution_and_clipped_if_declared() -> None:
    """A value counts as its nearest step, and beyond the range as its nearest end."""
    coarse = Number("age", 0, 10, 2.5, clip=True)
    values = np.array([-7.0, 1.2, 1.3, 9.0, 99.0])
    (total,) = compute(Plan((Sum(coarse),), 3), [{"age": values}, *[{"age": values[:0]}] * 2])
    assert total == 0 + 0 + 2.5 + 10 + 10


def test_decimal_steps_add_up_without_rounding() -> None:
    """A thousand tenths are a hundred, though no float is a tenth."""
    tenth = Number("age", 0, 1, 0.1)
    (total,) = compute(Plan((Sum(tenth),), 3), [{"age": np.full(1000, 0.1)}] * 3)
    assert total == 300.0


HOSTILE: list[tuple[str, Callable[[Part], dict[str, Any]], str]] = [
    ("out of range", lambda part: {**part, "age": part["age"] + 121}, "outside of its range"),
    ("NaN", lambda part: {**part, "weight": part["weight"] * np.nan}, "gaps"),
    ("infinite", lambda part: {**part, "weight": part["weight"] + np.inf}, "outside"),
    ("words", lambda part: {**part, "age": part["sex"]}, "must be numbers"),
    ("unknown category", lambda part: {**part, "sex": np.full(6, "secret")}, "not declared"),
    ("bytes", lambda part: {**part, "sex": np.full(6, b"\xff")}, "texts or numbers"),
    ("ragged", lambda part: {**part, "age": [[1, 2], [3]]}, "array of one axis"),
    ("masked", lambda part: {**part, "age": np.ma.masked_less(part["age"], 150)}, "gaps"),
    ("no value", lambda part: {**part, "sex": np.full(6, None)}, "not declared"),
    ("two axes", lambda part: {**part, "age": part["age"][:, None]}, "one shape"),
    ("short column", lambda part: {**part, "age": part["age"][:2]}, "one shape"),
    ("missing column", lambda part: {k: v for k, v in part.items() if k != "age"}, "lacks"),
    ("no column", lambda _: {}, "lacks"),
    ("many rows", lambda part: {k: np.repeat(v, 200) for k, v in part.items()}, "more rows"),
]


@pytest.mark.parametrize(
    ("spoil", "message"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE]
)
def test_hostile_tables_are_refused_where_they_are(
    spoil: Callable[[Part], dict[str, Any]], message: str
) -> None:
    """The party names the column and no value; the others learn only that it gave up."""
    rng = np.random.default_rng(8)
    tables: list[Any] = [draw_part(6, rng) for _ in range(3)]
    tables[1] = spoil(tables[1])
    plan = Plan(ALL, 3, rows_max=1000)
    with pytest.raises(RunFailed, match="party-1") as failed:
        ProtocolRunner("simulated")(sum_statistics, 3, own=tables, plan=plan)
    assert message in str(failed.value)
    assert "secret" not in str(failed.value).replace("party-1", "")


def test_parties_with_other_plans_open_nothing() -> None:
    """A party whose plan differs in a threshold makes the run fail at everyone."""
    rng = np.random.default_rng(8)
    tables = [draw_part(6, rng) for _ in range(3)]
    plan = Plan((Histogram(AGES),), 3)
    other = replace(plan, statistics=(Histogram(Bins(AGE, (0, 19, 40, 65, 120))),))
    with pytest.raises(RunFailed, match="public inputs"):
        ProtocolRunner("simulated")(
            sum_statistics, 3, own=tables, plan=plan, only={"party-2": {"plan": other}}
        )


REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("overflow", lambda: Plan((Variance(Number("x", 0, 2**24)),), 3), "word of 64 bits"),
    ("two parties", lambda: Plan((Count(),), 2), "parties"),
    ("nothing", lambda: Plan((), 3), "statistics"),
    ("two ranges", lambda: Plan((Sum(AGE), Mean(replace(AGE, high=99))), 3), "in two ways"),
    ("small and ε", lambda: Plan((Count(),), 3, small=5, epsilon=1.0), "only one"),
    ("enormous", lambda: Number("x", -1e200, 1e200, 1e195), "range within"),
    ("minute", lambda: Number("x", 0, 1e-200, 1e-204), "range within"),
    ("parts of rows", lambda: Plan((Count(),), 3, rows_max=cast("Any", 1.5)), "whole number"),
    ("parts of counts", lambda: Plan((Count(),), 3, small=cast("Any", 2.5)), "whole number"),
    ("fewer than none", lambda: Plan((Count(),), 3, tolerated=-5), "tolerated"),
    ("cells", lambda: Plan((KaplanMeier(Number("t", 0, 2**30), DIED),), 3), "1,048,576"),
    ("no range", lambda: Number("x", 1, 1), "above low"),
    ("no step", lambda: Number("x", 0, 1, 0), "step"),
    ("not a number", lambda: Number("x", 0, float("nan")), "finite"),
    ("too fine", lambda: Number("x", 0, 1, 1e-15), "range"),
    ("edges", lambda: Bins(AGE, (0, 60)), "increasing numbers"),
    ("equal values", lambda: Category("c", ("a", "a")), "different values"),
    ("one column twice", lambda: CrossTable(SEX, SEX), "different columns"),
    ("itself", lambda: LeastSquares(AGE, (AGE,)), "once only"),
    ("one number", lambda: Correlation((AGE,)), "at least two"),
    ("three events", lambda: KaplanMeier(DAYS, Category("e", ("a", "b", "c"))), "two"),
    ("share", lambda: Quantiles(AGE, (1.5,)), "from 0 to 1"),
    ("wide noise", lambda: Plan((Variance(AGE),), 3, epsilon=0.01, delta=0.0).noises, "scale"),
]


@pytest.mark.parametrize(
    ("make", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_terms_that_do_not_fit_are_refused(make: Callable[[], object], message: str) -> None:
    """Public terms are checked before any party starts, the modulus of the masks included."""
    with pytest.raises(InputError, match=message):
        make()


def test_means_of_groups_are_those_of_a_histogram_of_bins() -> None:
    """Groups may be intervals of a number, also of the number itself."""
    rng = np.random.default_rng(9)
    tables = [draw_part(30, rng) for _ in range(3)]
    groups, counts = compute(Plan((GroupMeans(WEIGHT, AGES), Histogram(AGES)), 3), tables)
    assert_array_equal(groups.rows, counts)


def test_fits_and_curves_equal_those_of_other_libraries() -> None:
    """They equal `OLS` of `statsmodels` 0.15, and lifelines 0.30, on the same rows."""
    rng = np.random.default_rng(4)
    tables = [draw_part(rows, rng) for rows in (50, 80, 70)]
    fit, curves = compute(Plan((LeastSquares(WEIGHT, (AGE, DAYS)), ALL[9]), 3), tables)
    assert_allclose([fit.intercept, *fit.slopes], [10.24523586, 0.07780697, -0.1447549], rtol=1e-6)
    assert_allclose(fit.errors, [1.57633955, 0.01782862, 0.17666483], rtol=1e-6)
    assert_allclose((curves.log_rank, curves.p_value), (1.6461663067, 0.6489678057), rtol=1e-9)
    assert curves.freedom == 3


def test_categories_are_compared_by_whole_numbers() -> None:
    """Numbers that a gap made floats, truth values and texts are the same categories."""
    flag = Category("flag", ("0", "1"), skip=True)
    given = (
        [0.0, 1.0, np.nan],
        [False, True, None],
        ["0", "1", ""],
        np.ma.masked_equal([0, 1, 7], 7),
    )
    for values in given:
        tables: list[Any] = [{"flag": values}, *[{"flag": []}] * 2]
        (counts,) = compute(Plan((Histogram(flag),), 3), tables)
        assert_array_equal(counts, [1, 1])


def test_each_statistic_skips_the_rows_that_lack_its_own_columns() -> None:
    """Results are those of the rows with all columns of the statistic, for all kinds."""
    rng = np.random.default_rng(5)
    age, weight, days = (replace(each, skip=True) for each in (AGE, WEIGHT, DAYS))
    sex, site, died = (replace(each, skip=True) for each in (SEX, SITE, DIED))
    statistics: list[Any] = [
        *(Count(), Sum(weight), Mean(age), Variance(weight), Histogram(replace(AGES, column=age))),
        *(CrossTable(sex, site), Correlation((age, weight, days)), GroupMeans(age, site)),
        *(LeastSquares(weight, (age, days)), KaplanMeier(days, died, site)),
        Quantiles(weight, SHARES, thresholds=8),
    ]
    tables: list[Any] = [dict(draw_part(rows, rng)) for rows in (60, 40, 50)]
    for table in tables:
        for name, values in table.items():
            gaps = rng.random(len(values)) < 0.2
            changed = values.astype(object if values.dtype.kind == "U" else float)
            changed[gaps] = None
            table[name] = changed
    for found, statistic in zip(compute(Plan((*statistics,), 3), tables), statistics, strict=True):
        complete = []
        for table in tables:
            keep = np.ones(len(table["age"]), np.bool_)
            for column in statistic.columns:
                keep &= [str(value) not in {"None", "nan"} for value in table[column.name]]
            complete.append({c.name: table[c.name][keep] for c in statistic.columns or (age,)})
        plain = Plan((statistic,), 3)
        assert repr(found) == repr(compute(plain, complete)[0])


def test_statistics_of_the_same_rows_share_their_sums() -> None:
    """Two statistics of columns with gaps add up equal lines once."""
    x, y = Number("x", 0, 9, skip=True), Number("y", 0, 9, skip=True)
    assert len(Plan((Correlation((x, y)), LeastSquares(x, (y,))), 3).lines) == 6
    assert len(Plan((Mean(x), Variance(x), Sum(y)), 3).lines) == 5


def test_equal_plans_have_equal_hashes() -> None:
    """Whatever types of numbers their fields had."""
    one = Plan((Quantiles(AGE, thresholds=cast("int", np.int64(64))),), 3)
    assert one.digest == Plan((Quantiles(replace(AGE, low=np.float64(0))),), 3).digest


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_published_numbers_survive_their_bytes_and_any_others_give_results(
    epsilon: float | None,
) -> None:
    """Members store what they publish exactly; numbers of a liar make no estimate fail."""
    plan = Plan(ALL, 3, epsilon=epsilon, rows_max=1000)
    shown = plan.publish(hear(plan, [draw_part(20, np.random.default_rng(n)) for n in range(3)]))
    packed = plan.pack(shown)
    assert len(packed) == plan.size
    assert repr(plan.estimate(plan.unpack(packed))) == repr(plan.estimate(shown))
    rng, words = np.random.default_rng(6), (plan.size - 32) // 8
    for low, high in ((-3, 3), (0, 2), (-(2**63), 2**63 - 1)):
        for _ in range(10):
            lies = rng.integers(low, high, words).astype("<i8").tobytes()
            assert len(plan.estimate(plan.unpack(packed[:32] + lies))) == len(ALL)
    for wrong in (packed[:-1], bytes(32) + packed[32:]):
        with pytest.raises(InputError, match="not the result"):
            plan.unpack(wrong)
