"""The baselines: their sensitivities, their accounts and their accuracy."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from papers.accounting import subsampled_gaussian
from papers.baselines import (
    COUNTS_SENSITIVITY,
    SAMPLED_ORDERS,
    ClassMeans,
    NoisySGD,
    SampledKNN,
    answer_by_private_knn,
    best_class,
    clipped_gradient,
    kernel_vote,
    nearest_counts,
    release_sums,
    train_noisy_sgd,
)
from tests.protocols.prediction.serving import clustered

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm import directions
from veilring.protocols.prediction.algorithm.directions import LENGTH_MAX, Kernel, lengths

DELTA = 1e-5


def _rdp_epsilon(noise: float, rate: float, count: int) -> float:
    """Return dp-accounting's ε for the given number of subsampled Gaussian releases."""
    accountant = RdpAccountant(orders=tuple(map(int, SAMPLED_ORDERS)))
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    accountant.compose(SelfComposedDpEvent(event, count))
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize("epsilon", [2.0])
def test_private_knn_is_calibrated_for_a_sensitivity_of_root_two(epsilon: float) -> None:
    """At its noise, with sensitivity √2 and all queries, dp-accounting gives the target."""
    parameters = SampledKNN.calibrate(4, 100, 0.05, queries=1000, epsilon=epsilon, delta=DELTA)
    assert _rdp_epsilon(parameters.sigma / math.sqrt(2), 0.05, 1000) == pytest.approx(epsilon, 1e-6)
    assert parameters.account(1000).epsilon(DELTA) <= epsilon


def test_one_row_moves_one_vote_of_a_neighbour() -> None:
    """Over all small samples with ties, counts move by at most √2, and some do."""
    parameters, moved = SampledKNN(3, 2, 0.5, 1.0), set()
    for labels in product(range(3), repeat=4):
        for cosines in product((0.1, 0.5), repeat=4):
            whole = nearest_counts(parameters, np.array(cosines), np.array(labels))
            for gone in range(4):
                fewer = nearest_counts(
                    parameters, np.delete(cosines, gone), np.delete(labels, gone)
                )
                moved.add(float(np.linalg.norm(whole - fewer)))
    assert max(moved) == COUNTS_SENSITIVITY


@pytest.mark.parametrize("epsilon", [0.5])
def test_noisy_sgd_is_calibrated(epsilon: float) -> None:
    """At its noise dp-accounting gives the target by Rényi orders, and less by convolution."""
    parameters = NoisySGD(4, 200, 0.05, 200).calibrate(epsilon, DELTA)
    assert _rdp_epsilon(parameters.sigma, 0.05, 200) == pytest.approx(epsilon, 1e-6)
    every = subsampled_gaussian(parameters.sigma, 0.05).repeat(200)  # all orders up to 256
    assert every.epsilon(DELTA) > 0.998 * epsilon
    accountant = PLDAccountant()
    event = PoissonSampledDpEvent(0.05, GaussianDpEvent(parameters.sigma))
    accountant.compose(SelfComposedDpEvent(event, 200))
    assert accountant.get_epsilon(DELTA) <= parameters.account().epsilon(DELTA) <= epsilon


@given(st.integers(0, 2**32), st.floats(0.01, 3))
def test_a_row_moves_the_gradient_by_at_most_the_clip(seed: int, clip: float) -> None:
    """The sums with and without the row differ by at most `clip` in L2."""
    rng = np.random.default_rng(seed)
    unit, labels = rng.standard_normal((6, 5)), rng.integers(0, 3, 6)
    weights = 10 * rng.standard_normal((3, 5))
    whole = clipped_gradient(weights, unit, labels, clip)
    fewer = clipped_gradient(weights, unit[1:], labels[1:], clip)
    assert np.linalg.norm(whole - fewer) <= clip * (1 + 1e-9)


def test_the_gradient_is_that_of_the_cross_entropy() -> None:
    """Unclipped it agrees with finite differences; an empty sample gives 0."""
    rng = np.random.default_rng(1)
    unit, labels, weights = rng.standard_normal((9, 4)), rng.integers(0, 3, 9), np.ones((3, 4))

    def loss(at: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
        scores = unit @ at.T
        norms = np.log(np.exp(scores).sum(axis=1))
        return float((norms - scores[np.arange(9), labels]).sum())

    found = clipped_gradient(weights, unit, labels, 1e9)
    for place in np.ndindex(3, 4):
        step = np.zeros((3, 4))
        step[place] = 1e-6
        slope = (loss(weights + step) - loss(weights - step)) / 2e-6
        assert found[place] == pytest.approx(slope, abs=1e-6)
    assert not clipped_gradient(weights, unit[:0], labels[:0], 1.0).any()


def test_class_means_are_one_gaussian_release() -> None:
    """A row moves one sum by its length; at the noise dp-accounting gives the target."""
    rows = clustered(50, 7, 3, np.random.default_rng(2))
    assert (lengths(rows.features) <= LENGTH_MAX).all()
    parameters = ClassMeans.calibrate(3, 1.0, DELTA)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(parameters.sigma))
    # Google's discretisation of losses is pessimistic, by less than one of its steps.
    assert accountant.get_epsilon(DELTA) == pytest.approx(1.0, abs=2e-4)
    assert parameters.account().epsilon(DELTA) <= 1.0


def test_class_means_have_noise_of_the_stated_size() -> None:
    """Without rows the release is pure noise of length 1; with little noise it is the mean."""
    rng = np.random.default_rng(3)
    rows = clustered(300, 20, 3, rng)
    almost = release_sums(ClassMeans(3, 1e-6), rows.features, rows.labels, rng)
    for label in range(3):
        total = rows.features[rows.labels == label].sum(axis=0, dtype=np.float64)
        np.testing.assert_allclose(almost[label], total / np.linalg.norm(total), atol=1e-6)
    nobody = release_sums(ClassMeans(3, 5.0), rows.features[:0], rows.labels[:0], rng)
    np.testing.assert_allclose(np.linalg.norm(nobody, axis=1), 1.0)


def test_all_baselines_learn_an_easy_problem() -> None:
    """On well separated classes with moderate noise, each labels nine of ten queries correctly."""
    rng = np.random.default_rng(4)
    table = clustered(2200, 30, 3, rng)
    rows, labels = table.features[:2000], table.labels[:2000]
    queries, truth = table.features[2000:], table.labels[2000:]
    knn, sgd = SampledKNN(3, 60, 0.2, sigma=8.0), NoisySGD(3, 100, 0.1, 200, sigma=1.0)
    means = ClassMeans.calibrate(3, 4, DELTA)
    answers = (
        answer_by_private_knn(knn, rows, labels, queries, rng),
        best_class(queries, train_noisy_sgd(sgd, rows, labels, rng)),
        best_class(queries, release_sums(means, rows, labels, rng)),
        kernel_vote(rows, labels, queries, Kernel("cosine", 0.3), 3),
    )
    assert all((each == truth).mean() > 0.9 for each in answers)


def test_baselines_multiply_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels do not depend on the blocks, and no product is larger than a block."""
    rng = np.random.default_rng(31)
    rows, labels = clustered(200, 12, 3, rng)[:2]
    queries, knn = clustered(50, 12, 3, rng).features, SampledKNN(3, 10, 0.5, 1.0)

    def found() -> list[list[int]]:
        kernel = Kernel("cosine", 0.3)
        voted = kernel_vote(rows, labels, queries, kernel, 3)
        return [
            voted.tolist(),
            answer_by_private_knn(knn, rows, labels, queries, np.random.default_rng(1)).tolist(),
        ]

    at_once, sizes = found(), list[int]()

    def noted(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
        sizes.append(len(some))
        return some @ others.T

    monkeypatch.setattr(directions, "BLOCK", 7)
    monkeypatch.setattr(directions, "inner_products", noted)
    assert found() == at_once
    assert sizes == 2 * [7, 7, 7, 7, 7, 7, 7, 1]


def test_the_vote_without_privacy_is_its_formula() -> None:
    """It is the sum of cosines above τ, or the nearest row if none is above."""
    rng = np.random.default_rng(5)
    rows, queries = clustered(80, 6, 4, rng), clustered(40, 6, 4, rng).features
    found = kernel_vote(rows.features, rows.labels, queries, Kernel("cosine", 0.9), 4)
    alone = 0
    for query, label in zip(queries, found, strict=True):
        exact = rows.features.astype(float) @ query.astype(float)
        cosines = exact / (lengths(rows.features) * lengths(query[None])[0])
        sums = [cosines[(rows.labels == each) & (cosines >= 0.9)].sum() for each in range(4)]
        alone += not any(sums)
        assert label == (np.argmax(sums) if any(sums) else rows.labels[cosines.argmax()])
    assert 0 < alone < 40


@pytest.mark.parametrize(
    "make",
    [
        lambda: SampledKNN(0, 1, 0.5, 1.0),
        lambda: SampledKNN(1, 0, 0.5, 1.0),
        lambda: SampledKNN(1, 1, 0.0, 1.0),
        lambda: SampledKNN(1, 1, 0.5, 0.0),
        lambda: NoisySGD(1, 0, 0.5, 10),
        lambda: NoisySGD(1, 1, 1.5, 10),
        lambda: NoisySGD(1, 1, 0.5, 0),
        lambda: ClassMeans(0, 1.0),
        lambda: ClassMeans(2, math.inf),
    ],
)
def test_invalid_parameters_are_refused(make: "type[object]") -> None:
    """Each parameter is in its range, or an error names it."""
    with pytest.raises(InputError):
        make()
