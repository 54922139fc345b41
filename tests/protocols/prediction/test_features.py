"""Quantised features, their exact products, and the allowed origins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.accounting import ZCDP
from veilring.privacy.budgets import to_units
from veilring.protocols.prediction.algorithm.directions import (
    LENGTH,
    LENGTH_MAX,
    inner_products,
    lengths,
    private_mean,
    quantise,
)


def _rows(seed: int, rows: int, features: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return quantise(rng.standard_normal((rows, features)) * rng.exponential(1, (rows, 1)))


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 400))
def test_every_partial_sum_fits_single_precision(seed: int, rows: int, features: int) -> None:
    """Rows are integers of bounded length, so no subset of terms exceeds 2**24."""
    whole = _rows(seed, rows, features)
    assert np.array_equal(whole, np.rint(whole))
    assert (lengths(whole) <= LENGTH_MAX).all()
    terms = whole.astype(np.int64)[:, None] * whole.astype(np.int64)[None]
    assert max(terms.clip(min=0).sum(axis=2).max(), -terms.clip(max=0).sum(axis=2).min()) <= 2**24


def test_a_row_too_long_after_rounding_is_shortened() -> None:
    """Entries of 7.505 rounded to 8 would make a row of length 4360, and become 7."""
    assert LENGTH_MAX < 8 * 297_000**0.5
    assert np.array_equal(quantise(np.ones((1, 297_000))), np.full((1, 297_000), 7))


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_products_are_exact_for_any_block(seed: int, rows: int) -> None:
    """One query, a block, some rows only, and 64-bit integers give equal bits."""
    whole, queries = _rows(seed, rows, 129), _rows(seed + 1, 9, 129)
    exact = queries.astype(np.int64) @ whole.astype(np.int64).T
    block = inner_products(queries, whole)
    assert block.dtype == np.float32
    assert np.array_equal(block, exact)
    single = np.vstack([inner_products(query[None], whole) for query in queries])
    assert block.tobytes() == single.tobytes()
    assert np.array_equal(inner_products(queries, whole[::2]), exact[:, ::2])


def test_directions_are_kept_to_a_step() -> None:
    """A quantised row is within half a step of the scaled row, in every feature."""
    rows = np.random.default_rng(3).standard_normal((500, 64))
    scaled = rows * (LENGTH / np.linalg.norm(rows, axis=1, keepdims=True))
    assert np.abs(quantise(rows) - scaled).max() <= 0.5
    assert np.array_equal(quantise(rows), quantise(rows.astype(np.float64) * 7))


def test_an_origin_is_subtracted_from_unit_rows() -> None:
    """Directions are those from the origin, which is in the unit of directions."""
    rows, origin = np.array([[3.0, 4.0], [10.0, 0.0]]), np.array([0.6, 0.0])
    assert np.array_equal(quantise(rows, origin), [[0, LENGTH], [LENGTH, 0]])
    with pytest.raises(InputError, match="origin must be finite"):
        quantise(rows, np.zeros(3))


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 3)), np.full((1, 3), np.nan), np.zeros(3), np.ones((2, 0))]
)
def test_an_invalid_direction_is_refused(rows: Floats) -> None:
    """Zero, infinite and wrongly shaped rows raise an error that shows no value."""
    with pytest.raises(InputError, match="features"):
        quantise(rows)


def test_a_row_moves_the_mean_by_at_most_its_sensitivity() -> None:
    """The sum of directions and the count change by √2 in L2, up to the longest quantised row."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((200, 17))
    for left_out in range(20):
        fewer = np.delete(rows, left_out, axis=0)
        sums = [np.append(quantise(each).sum(axis=0) / LENGTH, len(each)) for each in (rows, fewer)]
        # The noise is scaled by LENGTH_MAX / LENGTH, which is more than this ever exceeds √2.
        assert np.linalg.norm(sums[0] - sums[1]) <= np.sqrt(2) * LENGTH_MAX / LENGTH


def test_the_mean_is_charged_and_unbiased() -> None:
    """Its price is that of a Gaussian of its sensitivity, and its error that of the noise."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((4000, 50)) + 2
    released = private_mean(rows, 20.0, rng)
    assert released.units == to_units(ZCDP.of_gaussian(20.0, np.sqrt(2)).rho)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    error = released.mean - unit.mean(axis=0)
    # Noise alone: 50 coordinates of 20 / 4000, and the count's; Laurent and Massart 2000 bound a
    # chi-square of 51 by 51 + 2 sqrt(51 x) + 2 x, except with probability e**-x, at x = 14 (1e-6).
    limit = (LENGTH_MAX / LENGTH * 20 / 4000) * np.sqrt(51 + 2 * np.sqrt(51 * 14) + 28)
    assert np.linalg.norm(error) <= limit + 50**0.5 / LENGTH
    assert np.linalg.norm(error) > 0
    with pytest.raises(InputError, match="sigma"):
        private_mean(rows, 0.0, rng)


def test_no_error_quotes_a_cell() -> None:
    """Rows that are not numbers are refused by name, without NumPy's error text."""
    with pytest.raises(InputError, match="features must be numbers") as refused:
        quantise(np.array([["3", "secret"]], object))
    assert refused.value.__context__ is None
