"""Preprocessing of rows before reports: ranges, bins and projections."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from tests.privacy.generators import seeded

from veilring.arrays import Floats, Ints
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.steps import (
    Bins,
    LinearProjection,
    Scaling,
    apply_steps,
    discriminant_components,
    principal_components,
)

Blobs = tuple[Floats, Ints]


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Return rows of five features in three classes, and their labels."""
    rng = seeded("blobs")
    labels = rng.integers(0, 3, 400)
    mixed = rng.normal(size=(5, 5))
    return (rng.normal(size=(400, 5)) + 2 * rng.normal(size=(3, 5))[labels]) @ mixed, labels


def test_ranges_reach_from_minus_one_to_one() -> None:
    """Ends and middle become -1, 1 and 0; outside values are clipped; a constant becomes 0."""
    scaling = Scaling(Ranges((0.0, 5.0), (4.0, 5.0)))
    rows = np.array([[0.0, 5.0], [2.0, 1.0], [4.0, 9.0], [-7.0, 5.0], [70.0, 5.0]])
    assert scaling(rows)[:, 0].tolist() == [-1.0, 0.0, 1.0, -1.0, 1.0]
    assert scaling(rows)[:, 1].tolist() == [0.0] * 5


@given(
    value=st.floats(-10, 10), count=st.integers(1, 20), low=st.floats(-5, 0), high=st.floats(1, 5)
)
def test_a_bin_contains_its_values(value: float, count: int, low: float, high: float) -> None:
    """Inside the range a value is between its bin's edges; outside it is in the last bin."""
    number = int(Bins(Ranges((low,), (high,)), (count,))(np.array([[value]]))[0, 0])
    width = (high - low) / count
    inside = min(max(value, low), high)
    assert 0 <= number < count
    assert low + number * width <= inside + 1e-9
    assert inside <= low + (number + 1) * width + 1e-9


def test_principal_components_are_scikit_learns(blobs: Blobs) -> None:
    """The projected rows are those of PCA."""
    rows, _ = blobs
    ours = principal_components(rows, 2, origin="blobs made for this test")
    assert ours(rows) == pytest.approx(PCA(2, svd_solver="full").fit_transform(rows), abs=1e-9)


def test_discriminant_components_span_fishers(blobs: Blobs) -> None:
    """With almost no ridge the first k - 1 directions span those of linear discriminants."""
    rows, labels = blobs
    ours = discriminant_components(rows, labels, 2, origin="blobs", ridge=1e-9)
    fisher = LinearDiscriminantAnalysis(solver="eigen").fit(rows, labels).scalings_[:, :2]
    both = np.hstack((np.array(ours.axes).T, fisher / np.linalg.norm(fisher, axis=0)))
    singular = np.linalg.svd(both, compute_uv=False)
    assert singular[2] < 1e-6 < singular[1]


def test_discriminant_components_solve_their_eigenproblem(blobs: Blobs) -> None:
    """Each direction is a generalised eigenvector of length 1, with decreasing eigenvalues."""
    rows, labels = blobs
    axes = np.array(discriminant_components(rows, labels, 5, origin="blobs", ridge=0.1).axes)
    around = (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
    within = sum(np.cov(rows[labels == c].T, bias=True) * (labels == c).sum() for c in range(3))
    ridged = within + 0.1 * np.trace(within) / 5 * np.eye(5)
    expected = eigh(around, ridged, eigvals_only=True)[::-1]
    quotients = [(w @ around @ w) / (w @ ridged @ w) for w in axes]
    assert quotients == pytest.approx(expected.tolist(), rel=1e-9)
    for value, w in zip(expected, axes, strict=True):
        assert around @ w == pytest.approx(value * ridged @ w, rel=1e-6, abs=1e-6)
    assert np.linalg.norm(axes, axis=1) == pytest.approx(np.ones(5))


def test_steps_are_chained_and_are_plain_data(blobs: Blobs) -> None:
    """A projection then bins: each lists its numbers, and a projection also their origin."""
    rows, labels = blobs
    first = discriminant_components(rows, labels, 2, origin="blobs made for this test")
    second = Bins(Ranges.of(first(rows)), (4, 3))
    numbers = apply_steps((first, second), rows)
    assert (numbers.max(axis=0) == [3, 2]).all()
    assert json.loads(json.dumps(first.public)) == first.public
    assert first.public["origin"] == "blobs made for this test"
    assert json.loads(json.dumps(second.public)) == second.public


def test_an_invalid_step_is_refused(blobs: Blobs) -> None:
    """Ranges, bins, components, classes, ridges, axes and origins are checked."""
    (rows, labels), unit = blobs, Ranges((0.0,), (1.0,))
    with pytest.raises(InputError, match="ranges"):
        Ranges((1.0,), (0.0,))
    with pytest.raises(InputError, match="highs"):
        Ranges((1.0,), (2.0, 3.0))
    with pytest.raises(InputError, match="counts"):
        Bins(unit, (2, 2))
    with pytest.raises(InputError, match="counts"):
        Bins(unit, (0,))
    with pytest.raises(InputError, match="rows"):
        Scaling(unit)(rows)
    with pytest.raises(InputError, match="must hold only numbers"):
        Scaling(unit)(np.array([[np.nan]]))
    with pytest.raises(InputError, match="components"):
        principal_components(rows, 6, origin="blobs")
    with pytest.raises(InputError, match="components"):
        discriminant_components(rows, labels, 0, origin="blobs")
    with pytest.raises(InputError, match="labels"):
        discriminant_components(rows, labels * 0, 1, origin="blobs")
    with pytest.raises(InputError, match="ridge"):
        discriminant_components(rows, labels, 1, origin="blobs", ridge=0.0)
    with pytest.raises(InputError, match="each axis"):
        LinearProjection((0.0,), ((1.0, 2.0),), "nowhere")
    with pytest.raises(InputError, match="the public rows or the private release"):
        LinearProjection((0.0,), ((1.0,),), "")
