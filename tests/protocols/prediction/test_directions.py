"""Quantised directions, their exact products, the allowed origins, and kernels."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.accounting import ZCDP
from veilring.privacy.budgets import to_units
from veilring.protocols.prediction.algorithm.directions import (
    LENGTH,
    LENGTH_MAX,
    WIDTH_MAX,
    Kernel,
    inner_products,
    lengths,
    private_mean,
    quantise,
)


def _rows(seed: int, rows: int, features: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return quantise(rng.standard_normal((rows, features)) * rng.exponential(1, (rows, 1)))


def _neighbours(
    kernel: Kernel, query: NDArray[np.float32], rows: NDArray[np.float32]
) -> tuple[list[int], list[float]]:
    products, length = inner_products(query, rows)[0], float(lengths(query)[0])
    near, kappa = kernel.neighbours(products, lengths(rows), length)
    return near.tolist(), kappa.tolist()


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


@pytest.mark.parametrize("width", [1.0, 1e3, WIDTH_MAX])
def test_no_neighbour_depends_on_other_rows(width: float) -> None:
    """Rows at the very edge are judged alone as among others, up to the widest kernel."""
    features, rng = 50, np.random.default_rng(0)
    query = quantise(rng.standard_normal((1, features)))
    unit = query / np.linalg.norm(query)
    aside = rng.standard_normal((1, features))
    aside -= (aside @ unit.T) * unit
    edge = 0.3 * unit + math.sqrt(1 - 0.3**2) * aside / np.linalg.norm(aside)
    rows = quantise(edge + rng.standard_normal((4000, features)) * 2e-4)
    kernel = Kernel("rbf", math.exp(2 * (0.3 - 1) / width), width)
    together, _ = _neighbours(kernel, query, rows)
    alone = [
        place for place in range(len(rows)) if _neighbours(kernel, query, rows[[place]])[0] == [0]
    ]
    assert together == alone
    assert 1000 < len(alone) < 3000


@given(
    st.integers(0, 2**32),
    st.integers(0, 80),
    st.integers(1, 6),
    st.builds(
        Kernel, st.sampled_from(["cosine", "rbf"]), st.floats(1e-6, 1.0), st.floats(0.05, 20)
    ),
)
def test_neighbours_are_all_rows_with_a_kernel_of_at_least_tau(
    seed: int, rows: int, features: int, kernel: Kernel
) -> None:
    """Sorting rows out beforehand neither omits nor adds a neighbour."""
    rng = np.random.default_rng(seed)
    table, query = (quantise(rng.standard_normal((count, features))) for count in (rows, 1))
    products = inner_products(query, table)[0].astype(np.float64)
    values = products / (lengths(table) * lengths(query)[0])
    if kernel.name == "rbf":  # exp(-|x - q|² / ν²) of unit vectors
        values = np.array([math.exp(2 * (each - 1) / kernel.width) for each in values.tolist()])
    near, kappa = _neighbours(kernel, query, table)
    assert near == np.flatnonzero(values >= kernel.tau).tolist()
    assert kappa == values[near].tolist()


def test_a_row_at_the_threshold_is_a_neighbour() -> None:
    """κ ≥ τ includes equality: a query with itself at τ = 1, and right angles in an RBF.

    The paper's ν² is e^1.5.
    """
    itself = quantise(np.array([[3.0, 4.0]]))
    assert _neighbours(Kernel("cosine", 1.0), itself, itself)[0] == [0]
    right = Kernel("rbf", math.exp(-2 / 3.0), 3.0)
    near, _ = right.neighbours(np.zeros(1, np.float32), np.array([4090.0]), 4090.0)
    assert near.tolist() == [0]
    assert Kernel("rbf").width == math.exp(1.5)


@pytest.mark.parametrize("width", [5e-324, 1e-20, 1e-15])
def test_a_narrow_kernel_is_at_most_one_for_rounded_cosines(width: float) -> None:
    """Rounding makes some cosines larger than 1; their kernels neither overflow nor exceed 1."""
    rows = quantise(np.random.default_rng(0).standard_normal((3000, 5)))
    long = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    kernel, products = Kernel("rbf", 0.5, width), np.square(rows).sum(axis=1)
    cosines = products / (long * long)
    assert (cosines > 1).any()
    for row, length in zip(products, long, strict=True):
        _, values = kernel.neighbours(np.array([row]), np.array([length]), float(length))
        assert values.max(initial=0.0) <= 1.0


ONES = np.ones((1, 2))
UNKNOWN: Any = "k"


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (partial(quantise, np.zeros((2, 3))), "features"),
        (partial(quantise, np.full((1, 3), np.nan)), "features"),
        (partial(quantise, np.zeros(3)), "features"),
        (partial(quantise, np.ones((2, 0))), "features"),
        (partial(quantise, np.array([["3", "secret"]], object)), "features must be numbers"),
        (partial(quantise, ONES, np.zeros(3)), "origin must be finite"),
        (partial(private_mean, ONES, 0.0, np.random.default_rng(0)), "sigma"),
        (partial(Kernel, tau=0.0), "tau"),
        (partial(Kernel, tau=1.1), "tau"),
        (partial(Kernel, width=0.0), "width"),
        (partial(Kernel, width=1e13), "width"),
        (partial(Kernel, UNKNOWN), "kernel"),
    ],
)
def test_invalid_arguments_are_refused(act: Callable[[], object], field: str) -> None:
    """The error names the field and shows no value, not even through NumPy's own error.

    τ is above 0, since a row that is not a neighbour must not vote; ν² is not too wide.
    """
    with pytest.raises(InputError, match=field) as refused:
        act()
    assert refused.value.__context__ is None
