"""Claims are decided by intervals over splits of correctly computed quantities."""

import numpy as np
import pytest
from papers.claims import (
    Claim,
    CurveKey,
    Evidence,
    Judgement,
    Measured,
    above,
    judge_claim,
    mean_intervals,
)
from papers.evidence import (
    LAST,
    changes,
    falls_after,
    falls_from_best,
    heights,
    ratios,
    slopes,
    up_to,
)
from scipy import stats

from veilring.arrays import Floats
from veilring.errors import InputError

X = (1.0, 2.0, 4.0)


def _measured(**curves: Floats) -> Measured:
    """Return the curves of a measure `y` by series."""
    return Measured("table", X, {CurveKey("y", name): curve for name, curve in curves.items()})


def _noisy(means: tuple[float, ...], splits: int = 50, spread: float = 0.01) -> Floats:
    """Return splits around the means."""
    return np.random.default_rng(1).normal(means, spread, (splits, len(means)))


def _judge(side: str, *means: float, spread: float = 0.01) -> Judgement:
    """Decide a claim that all means are above or below 0."""
    curve = _noisy(means, spread=spread)

    def take(_: Measured) -> Evidence:
        return Evidence(tuple(f"point {place}" for place in range(len(means))), curve)

    claim = Claim("it is so", "the quantity", "above" if side == "above" else "below", 0.0, take)
    return judge_claim(claim, _measured(a=curve))


@pytest.mark.parametrize(
    ("side", "means", "outcome", "met", "weakest"),
    [
        ("above", (0.1, 0.2), "holds", 2, "point 0"),
        ("above", (0.1, -0.2), "does not hold", 1, "point 1"),
        ("above", (0.1, 0.0), "is inconclusive", 1, "point 1"),
        ("below", (-0.1, -0.2), "holds", 2, "point 0"),
        ("below", (-0.1, 0.2), "does not hold", 1, "point 1"),
    ],
)
def test_a_claim_is_about_every_point(
    side: str, means: tuple[float, ...], outcome: str, met: int, weakest: str
) -> None:
    """It holds if all intervals are beyond the bound, and fails if one is on the other side."""
    verdict = _judge(side, *means)
    assert verdict.outcome == outcome
    assert verdict.met == met
    assert verdict.weakest == weakest
    assert f"table: {outcome}: it is so. Tested: the quantity {side} 0" in str(verdict)


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ("mushroom.csv", "holds"),
        ("openml:mushroom", "holds"),
        ("Chess", "holds"),
        ("wine", "is not tested"),
        ("mushrooms.csv", "is not tested"),
    ],
)
def test_a_claim_about_a_table_is_tested_on_it_alone(data: str, outcome: str) -> None:
    """For other tables the report names the claim's table and the way to test it."""
    curve = _noisy((0.1,))
    claim = above("it is so", "it", 0.0, lambda _: Evidence(("",), curve), ("Mushroom", "Chess"))
    verdict = judge_claim(claim, Measured(data, (1.0,), {CurveKey("a", ""): curve}))
    assert verdict.outcome == outcome
    assert str(verdict).startswith(f"{data}: {outcome}: it is so. ")
    about = str(verdict).endswith("It is about Mushroom or Chess: use --data.")
    assert about == (outcome == "is not tested")


def test_few_noisy_splits_decide_nothing() -> None:
    """A small mean with large noise neither holds nor fails."""
    assert _judge("above", 0.001, spread=1.0).outcome == "is inconclusive"


def test_without_spread_the_bound_itself_does_not_hold() -> None:
    """Values equal in all splits are compared exactly, and the bound is not above itself."""
    assert _judge("above", 0.0, spread=0.0).outcome == "does not hold"
    assert _judge("below", 0.0, spread=0.0).outcome == "does not hold"
    assert _judge("above", 1e-9, spread=0.0).outcome == "holds"


def test_intervals_are_students_and_joint() -> None:
    """Each is that of a t-test, and each of m intervals misses with probability 5 % / m."""
    values = _noisy((0.3, 0.5), splits=12)
    for simultaneous, confidence in ((False, 0.95), (True, 0.975)):
        for place, each in enumerate(mean_intervals(values, simultaneous=simultaneous)):
            tested = stats.ttest_1samp(values[:, place], 0.0).confidence_interval(confidence)
            assert (each.low, each.high) == pytest.approx((tested.low, tested.high), rel=1e-12)
            assert each.mean == pytest.approx(values[:, place].mean(), rel=1e-12)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Of 2,000 pairs of intervals at least 95 % hold jointly, as Bonferroni's do (alarm 1e-6)."""
    rng, covered = np.random.default_rng(2), 0
    for _ in range(2000):
        each = mean_intervals(rng.normal(0.0, 1.0, (10, 2)))
        covered += all(interval.low < 0 < interval.high for interval in each)
    assert stats.binom.cdf(covered, 2000, 0.95) > 1e-6


def test_one_split_is_refused() -> None:
    """One split has no standard error."""
    with pytest.raises(InputError, match="splits is 1"):
        mean_intervals(np.ones((1, 1)))


def test_a_ratio_is_that_of_the_means_with_the_error_of_the_delta_method() -> None:
    """The mean is the ratio of means, and the error agrees with a bootstrap."""
    rng = np.random.default_rng(3)
    other = rng.normal(0.8, 0.05, (400, 3))
    one = other * [0.9, 1.0, 1.1] + rng.normal(0.0, 0.01, (400, 3))
    taken = ratios("y", "one", over="other", x="k")(_measured(one=one, other=other))
    assert taken.labels == ("k = 1", "k = 2", "k = 4")
    np.testing.assert_allclose(taken.values.mean(axis=0), one.mean(axis=0) / other.mean(axis=0))
    drawn = rng.integers(400, size=(2000, 400))
    resampled = one[drawn].mean(axis=1) / other[drawn].mean(axis=1)
    error = taken.values.std(axis=0, ddof=1) / 20
    np.testing.assert_allclose(error, resampled.std(axis=0), rtol=0.15)  # its own error is 1.6 %


def test_slopes_are_least_squares_fits() -> None:
    """Slopes agree with NumPy's polynomial fit, split by split."""
    curve = _noisy((0.5, 0.4, 0.1), splits=5)
    taken = slopes("y")(_measured(a=curve, b=2 * curve))
    assert taken.labels == ("a", "b")
    fitted = np.polyfit(X, curve.T, 1)[0]
    np.testing.assert_allclose(taken.values, np.column_stack([fitted, 2 * fitted]))


def test_points_are_selected_as_stated() -> None:
    """These are the last point, the last up to a limit, the first ones, and differences."""
    curves = _measured(a=np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]]), b=np.zeros((2, 3)))
    assert heights("y", at=LAST)(curves).values.tolist() == [[4.0, 0.0], [9.0, 0.0]]
    assert changes("y")(curves).values.tolist() == [[3.0, 0.0], [8.0, 0.0]]
    lead = falls_after(3.0, "y", "a")(curves)
    assert (lead.labels, lead.values.tolist()) == (("a",), [[-2.0], [-6.0]])
    first = heights("y", at=up_to(2), x="k")(curves)
    assert first.labels == ("a, k = 1", "a, k = 2", "b, k = 1", "b, k = 2")
    assert first.values.tolist() == [[1.0, 2.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]]


def test_the_best_point_is_chosen_on_other_splits() -> None:
    """Even splits are measured at the best point of odd ones, and vice versa."""
    even, odd = [5.0, 1.0, 0.5], [2.0, 7.0, 0.25]
    taken = falls_from_best("y", "a")(_measured(a=np.array([even, odd, even])))
    assert taken.values.tolist() == [[0.5], [1.75], [0.5]]


def test_a_flat_curve_has_no_best_point() -> None:
    """Without a peak the best point of the other splits is no better than any (alarm 1e-6)."""
    curve = np.random.default_rng(4).normal(0.5, 0.1, (2000, 30))
    taken = falls_from_best("y", "a")(Measured("table", X * 10, {CurveKey("y", "a"): curve}))
    assert stats.ttest_1samp(taken.values[:, 0], 0.0).pvalue > 1e-6
