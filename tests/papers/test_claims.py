"""Claims are decided by intervals over splits of correctly computed quantities."""

from typing import Literal

import numpy as np
import pytest
from papers.claims import Claim, CurveKey, Evidence, Measured, above, judge_claim, mean_intervals
from papers.evidence import (
    LAST,
    changes,
    falls_after,
    falls_from_best,
    heights,
    in_measure,
    leads,
    near,
    ratios,
    since,
    slopes,
    up_to,
)
from scipy import stats
from tests.refusals import require_refused

from veilring.arrays import Floats

X = (1.0, 2.0, 4.0)


def _measured(**curves: Floats) -> Measured:
    """Return the curves of a measure `y` by series."""
    return Measured("table", X, {CurveKey("y", name): curve for name, curve in curves.items()})


def _noisy(means: tuple[float, ...], splits: int = 50, spread: float = 0.01) -> Floats:
    """Return splits around the means."""
    return np.random.default_rng(1).normal(means, spread, (splits, len(means)))


VERDICTS: list[tuple[Literal["above", "below"], tuple[float, ...], float, object]] = [
    ("above", (0.1, 0.2), 0.01, ("holds", 2, "point 0")),
    ("above", (0.1, -0.2), 0.01, ("does not hold", 1, "point 1")),
    ("above", (0.1, 0.0), 0.01, ("is inconclusive", 1, "point 1")),
    ("below", (-0.1, -0.2), 0.01, ("holds", 2, "point 0")),
    ("below", (-0.1, 0.2), 0.01, ("does not hold", 1, "point 1")),
    # a small mean with large noise neither holds nor fails
    ("above", (0.001,), 1.0, ("is inconclusive", 0, "point 0")),
    # values equal in all splits are compared exactly, and the bound is not above itself
    ("above", (0.0,), 0.0, ("does not hold", 0, "point 0")),
    ("below", (0.0,), 0.0, ("does not hold", 0, "point 0")),
    ("above", (1e-9,), 0.0, ("holds", 1, "point 0")),
]


@pytest.mark.parametrize(("side", "means", "spread", "expected"), VERDICTS)
def test_a_claim_is_about_every_point(
    side: Literal["above", "below"], means: tuple[float, ...], spread: float, expected: object
) -> None:
    """It holds if all intervals are beyond the bound, and fails if one is on the other side."""
    curve = _noisy(means, spread=spread)
    evidence = Evidence(tuple(f"point {place}" for place in range(len(means))), curve)
    claim = Claim("it is so", "the quantity", side, 0.0, lambda _: evidence)
    verdict = judge_claim(claim, _measured(a=curve))
    assert (verdict.outcome, verdict.met, verdict.weakest) == expected
    said = f"table: {verdict.outcome}: it is so. Tested: the quantity {side} 0"
    assert said in str(verdict)


@pytest.mark.parametrize(
    "data", ["mushroom.csv", "openml:mushroom", "Chess", "wine", "mushrooms.csv"]
)
def test_a_claim_about_a_table_is_tested_on_it_alone(data: str) -> None:
    """For other tables the report names the claim's table and the way to test it."""
    outcome = "is not tested" if data in {"wine", "mushrooms.csv"} else "holds"
    curve = _noisy((0.1,))
    claim = above("it is so", "it", 0.0, lambda _: Evidence(("",), curve), ("Mushroom", "Chess"))
    verdict = judge_claim(claim, Measured(data, (1.0,), {CurveKey("a", ""): curve}))
    assert verdict.outcome == outcome
    assert str(verdict).startswith(f"{data}: {outcome}: it is so. ")
    about = str(verdict).endswith("It is about Mushroom or Chess: use --data.")
    assert about == (outcome == "is not tested")


def test_intervals_are_students_and_joint() -> None:
    """Each is that of a t-test, and m of them share 5 %; one split has no standard error."""
    require_refused("splits is 1", mean_intervals, np.ones((1, 1)))
    values = _noisy((0.3, 0.5), splits=12)
    for simultaneous, confidence in ((False, 0.95), (True, 0.975)):
        for place, each in enumerate(mean_intervals(values, simultaneous=simultaneous)):
            tested = stats.ttest_1samp(values[:, place], 0.0).confidence_interval(confidence)
            assert (each.low, each.high) == pytest.approx((tested.low, tested.high), rel=1e-12)
            assert each.mean == pytest.approx(values[:, place].mean(), rel=1e-12)


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
    """Heights, changes, leads and ratios are those of the curves at the requested points."""
    curves = _measured(a=np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]]), b=np.zeros((2, 3)))
    assert heights("y", at=LAST)(curves).values.tolist() == [[4.0, 0.0], [9.0, 0.0]]
    assert changes("y")(curves).values.tolist() == [[3.0, 0.0], [8.0, 0.0]]
    lead = falls_after(3.0, "y", "a")(curves)
    assert (lead.labels, lead.values.tolist()) == (("a",), [[-2.0], [-6.0]])
    first = heights("y", at=up_to(2), x="k")(curves)
    assert first.labels == ("a, k = 1", "a, k = 2", "b, k = 1", "b, k = 2")
    assert first.values.tolist() == [[1.0, 2.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]]
    one, other, third = (CurveKey(*key) for key in (("m", "one"), ("m", "other"), ("n", "one")))
    still = np.array([[1.0, 4.0], [1.0, 4.0]])
    known = {one: np.array([[1.0, 2.0], [3.0, 6.0]]), other: still, third: still}
    found = Measured("made", (0.5, 2.0), known)
    lead = leads(in_measure("m", ("one", "other")), at=up_to(1.0), x="epsilon")(found)
    assert (lead.labels, lead.values.tolist()) == (("epsilon = 0.5",), [[0.0], [2.0]])
    assert heights("m", "one", at=near(2.1))(found).values.tolist() == [[2.0], [6.0]]
    share = ratios("m", "one", over="other", at=since(2.0), x="epsilon")(found)
    assert share.values.mean(axis=0).tolist() == [1.0]  # (2 + 6) / (4 + 4)
    across = leads([(one, other), (one, third)], at=near(0.5))(found)
    assert across.labels == ("m: one over other", "one: m over n")


def test_the_best_point_is_chosen_on_other_splits() -> None:
    """Even splits are measured at the best point of odd ones, and vice versa."""
    even, odd = [5.0, 1.0, 0.5], [2.0, 7.0, 0.25]
    taken = falls_from_best("y", "a")(_measured(a=np.array([even, odd, even])))
    assert taken.values.tolist() == [[0.5], [1.75], [0.5]]
