"""Real vectors as integers: rounding exceeds no bound."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.protocols.release.schemas import NUMERIC

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import (
    SCALE_MAX,
    Bound,
    apportion,
    cut_off,
    shorten,
)
from veilring.protocols.release.algorithm.tallies import ClassCounts

VECTORS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e300, 1e300, allow_subnormal=True),
)
WHOLE = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-400, 400)
)
NORMS: st.SearchStrategy[Norm] = st.sampled_from(("l1", "l2"))


def exact(vector: Ints, norm: Norm) -> int:
    """Return the L1 norm or the squared L2 norm, in Python integers."""
    return sum(abs(int(value)) if norm == "l1" else int(value) ** 2 for value in vector)


@given(VECTORS, st.integers(1, SCALE_MAX))
def test_parts_sum_to_the_scale_exactly(vectors: Floats, scale: int) -> None:
    """The absolute values of a row sum to the scale, each within a unit of its exact part."""
    found = apportion(vectors, scale)
    for row, whole in zip(vectors, found, strict=True):
        total = sum(Fraction(abs(value)) for value in row)
        assert exact(whole, "l1") == (scale if total else 0)
        for value, unit in zip(row, whole, strict=True):
            share = Fraction(abs(value)) * scale / total if total else Fraction(0)
            assert abs(abs(int(unit)) - share) < 1 + Fraction(scale, 10**12)
            assert value * float(unit) >= 0


def test_missing_units_go_to_the_largest_remainders() -> None:
    """For 0.5, 0.3 and 0.2 of 7, the first two have the largest remainders above 3, 2 and 1."""
    found = apportion(np.array([[0.5, -0.3, 0.2], [1.0, 1.0, 1.0]]), 7)
    assert found.tolist() == [[4, -2, 1], [3, 2, 2]]


@given(VECTORS, st.integers(1, SCALE_MAX), NORMS, st.fractions(Fraction(1, 4), 5))
def test_truncated_vectors_are_within_the_bound(
    vectors: Floats, scale: int, norm: Norm, value: Fraction
) -> None:
    """No vector exceeds the bound, for entries of any size or close to it."""
    bound = Bound.scaled(norm, scale, value)
    for row in cut_off(vectors, scale, bound):
        assert exact(row, norm) <= bound.most


@given(VECTORS, st.integers(1, SCALE_MAX))
def test_vectors_within_the_bound_are_only_truncated(vectors: Floats, scale: int) -> None:
    """A vector of at most half the bound loses less than a step per entry, toward zero."""
    lengths = np.linalg.norm(vectors / 1e301, axis=1, keepdims=True)
    halves = np.divide(vectors / 1e301, 2 * lengths, out=np.zeros_like(vectors), where=lengths > 0)
    found = cut_off(halves, scale, Bound.scaled("l2", scale, 1))
    assert np.array_equal(found, np.trunc(halves * scale))


@given(WHOLE, NORMS, st.integers(1, 100_000))
def test_shortening_keeps_vectors_within_and_stays_near_the_bound(
    vectors: Ints, norm: Norm, most: int
) -> None:
    """Vectors within stay unchanged; others end within rounding of the bound, with their signs."""
    bound = Bound(norm, most)
    for row, found in zip(vectors, shorten(vectors, bound), strict=True):
        if exact(row, norm) <= most:
            assert np.array_equal(found, row)
            continue
        assert exact(found, norm) <= most
        assert (row * found >= 0).all()
        assert (np.abs(found) <= np.abs(row)).all()
        # Cutting off loses less than a step of each entry.
        lost = len(row) if norm == "l1" else len(row) ** 0.5
        assert np.linalg.norm(found, 1 if norm == "l1" else 2) >= bound.value - lost - 1


def test_a_unit_vector_too_long_in_floats_is_shortened() -> None:
    """Some x / |x| has an exact square above 1; its integer vector stays within the bound."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(2000, 3))
    units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    too_long = [sum(Fraction(value) ** 2 for value in unit) > 1 for unit in units]
    assert any(too_long)
    bound = Bound.scaled("l2", SCALE_MAX, 1)
    found = cut_off(units, SCALE_MAX, bound)
    assert all(exact(row, "l2") <= SCALE_MAX**2 for row in found)
    # One unit more on the largest entry, as a scale that is rounded up would give.
    found[np.arange(len(found)), np.abs(found).argmax(axis=1)] += SCALE_MAX // 100
    assert all(exact(row, "l2") <= SCALE_MAX**2 for row in shorten(found, bound))


@pytest.mark.parametrize(
    ("norm", "value", "most"), [("l1", 2.5, 250), ("l2", Fraction(1, 4), 2500)]
)
def test_a_bound_is_scaled_in_integers(norm: Norm, value: float, most: int) -> None:
    """At a scale of 100, an L1 norm grows by 100, and the squared L2 norm by 10,000."""
    bound = Bound.scaled(norm, 100, value)
    assert bound.most == most
    assert bound.value == pytest.approx(250 if norm == "l1" else 50)


def test_numbers_out_of_range_are_refused() -> None:
    """A bound or a scale below 1 or above its limit is refused."""
    for most in (0, 2**62 + 1):
        with pytest.raises(InputError, match="most"):
            Bound("l1", most)
    for scale in (0, SCALE_MAX + 1):
        with pytest.raises(InputError, match="scale"):
            ClassCounts(NUMERIC, scale=scale)
