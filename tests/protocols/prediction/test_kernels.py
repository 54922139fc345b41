"""Kernels: their values, and the choice of neighbours."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import (
    PAPER_WIDTH,
    WIDTH_MAX,
    Kernel,
    inner_products,
    lengths,
    quantise,
)


def _products(seed: int, rows: int, features: int) -> tuple[NDArray[np.float32], Floats, float]:
    rng = np.random.default_rng(seed)
    table = quantise(rng.standard_normal((rows, features)))
    query = quantise(rng.standard_normal((1, features)))
    return inner_products(query, table)[0], lengths(table), float(lengths(query)[0])


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
    sizes, products = lengths(rows), inner_products(query, rows)[0]
    size = float(lengths(query)[0])
    together = kernel.neighbours(products, sizes, size)[0].tolist()
    alone = [
        place
        for place in range(len(rows))
        if len(kernel.neighbours(products[[place]], sizes[[place]], size)[0])
    ]
    assert together == alone
    assert 1000 < len(alone) < 3000


def test_a_kernel_is_no_wider_than_floats_allow() -> None:
    """For wider kernels, being a neighbour would depend on other rows."""
    with pytest.raises(InputError, match=r"width is .*; allowed: a number above 0 and up to 1e"):
        Kernel("rbf", 0.5, 1e13)


def test_the_rbf_kernel_is_its_formula() -> None:
    """It is exp(-|x - q|² / ν²) of the unit vectors, and the paper's ν² is e^1.5."""
    assert math.exp(1.5) == PAPER_WIDTH
    rng = np.random.default_rng(1)
    rows, query = quantise(rng.standard_normal((300, 20))), quantise(rng.standard_normal((1, 20)))
    kernel = Kernel("rbf", tau=1e-3)
    near, kappa = kernel.neighbours(
        inner_products(query, rows)[0], lengths(rows), float(lengths(query)[0])
    )
    units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, query)]
    squares = ((units[0].astype(np.float64) - units[1]) ** 2).sum(axis=1)
    assert np.array_equal(near, np.arange(300))  # the least that is possible is exp(-4 / ν²) = 0.41
    np.testing.assert_allclose(kappa, np.exp(-squares / PAPER_WIDTH), rtol=1e-6)


def _kernel(kernel: Kernel, cosine: float) -> float:
    return cosine if kernel.name == "cosine" else math.exp(2 * (cosine - 1) / kernel.width)


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
    products, long, length = _products(seed, rows, features)
    near, kappa = kernel.neighbours(products, long, length)
    cosines = products.astype(np.float64) / (long * length)
    values = [_kernel(kernel, cosine) for cosine in cosines.tolist()]
    expected = [place for place, value in enumerate(values) if value >= kernel.tau]
    assert near.tolist() == expected
    assert kappa.tolist() == [values[place] for place in expected]


def test_a_row_at_the_threshold_is_a_neighbour() -> None:
    """κ ≥ τ includes equality: a query with itself at τ = 1, and right angles in an RBF."""
    itself = quantise(np.array([[3.0, 4.0]]))
    square = inner_products(itself, itself)[0]
    near, _ = Kernel("cosine", 1.0).neighbours(square, lengths(itself), float(lengths(itself)[0]))
    assert near.tolist() == [0]
    right = Kernel("rbf", math.exp(-2 / 3.0), 3.0)
    near, _ = right.neighbours(np.zeros(1, np.float32), np.array([4090.0]), 4090.0)
    assert near.tolist() == [0]


@pytest.mark.parametrize(
    ("field", "given_"),
    [
        ("tau", {"tau": 0.0}),
        ("tau", {"tau": 1.1}),
        ("width", {"width": 0.0}),
        ("kernel", {"name": "k"}),
    ],
)
def test_invalid_kernels_are_refused(field: str, given_: dict[str, Any]) -> None:
    """τ is above 0, since a row that is not a neighbour must not vote."""
    with pytest.raises(InputError, match=field):
        Kernel(**given_)
