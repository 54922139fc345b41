"""The figures and baselines of private prediction, and its parameter selection in two rounds."""

import math
from collections.abc import Mapping
from dataclasses import replace
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
from papers.claims import CurveKey, Measured, judge_claim
from papers.figure import ACCURACY
from papers.reproduce import find_figure
from papers.tuning import THRESHOLDS, PublicTable, best_tau, stream_accuracy, tune_parameters
from tests.protocols.prediction.serving import clustered
from tests.refusals import require_refused

from papers import prediction
from veilring.arrays import Floats
from veilring.data.sources import load
from veilring.protocols.prediction.algorithm import directions
from veilring.protocols.prediction.algorithm.directions import (
    LENGTH,
    LENGTH_MAX,
    Kernel,
    lengths,
    quantise,
)
from veilring.protocols.prediction.algorithm.filter import FilterParameters

DELTA = 1e-5


def _rdp_epsilon(noise: float, rate: float, count: int) -> float:
    """Return dp-accounting's ε for the given number of subsampled Gaussian releases."""
    accountant = RdpAccountant(orders=tuple(map(int, SAMPLED_ORDERS)))
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    accountant.compose(SelfComposedDpEvent(event, count))
    return float(accountant.get_epsilon(DELTA))


def test_private_knn_is_calibrated_for_a_sensitivity_of_root_two() -> None:
    """At its noise, with sensitivity √2 and all queries, dp-accounting gives the target."""
    parameters = SampledKNN.calibrate(4, 100, 0.05, queries=1000, epsilon=2.0, delta=DELTA)
    assert _rdp_epsilon(parameters.sigma / math.sqrt(2), 0.05, 1000) == pytest.approx(2.0, 1e-6)
    assert parameters.account(1000).epsilon(DELTA) <= 2.0


def test_one_row_moves_one_vote_of_a_neighbour() -> None:
    """Over all small samples with ties, counts move by at most √2, and some do."""
    parameters, moved = SampledKNN(3, 2, 0.5, 1.0), set()
    for labels in product(range(3), repeat=4):
        for cosines in product((0.1, 0.5), repeat=4):
            whole = nearest_counts(parameters, np.array(cosines), np.array(labels))
            for gone in range(4):
                rest = (np.delete(each, gone) for each in (cosines, labels))
                moved.add(float(np.linalg.norm(whole - nearest_counts(parameters, *rest))))
    assert max(moved) == COUNTS_SENSITIVITY


def test_noisy_sgd_is_calibrated() -> None:
    """At its noise dp-accounting gives the target by Rényi orders, and less by convolution."""
    parameters = NoisySGD(4, 200, 0.05, 200).calibrate(0.5, DELTA)
    assert _rdp_epsilon(parameters.sigma, 0.05, 200) == pytest.approx(0.5, 1e-6)
    every = subsampled_gaussian(parameters.sigma, 0.05).repeat(200)  # all orders up to 256
    assert every.epsilon(DELTA) > 0.998 * 0.5
    accountant = PLDAccountant()
    event = PoissonSampledDpEvent(0.05, GaussianDpEvent(parameters.sigma))
    accountant.compose(SelfComposedDpEvent(event, 200))
    assert accountant.get_epsilon(DELTA) <= parameters.account().epsilon(DELTA) <= 0.5


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

    def loss(at: Floats) -> float:
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
    """It is the means with noise, calibrated for a row's length as dp-accounting does."""
    rng = np.random.default_rng(3)
    rows = clustered(300, 20, 3, rng)
    assert (lengths(rows.features) <= LENGTH_MAX).all()
    parameters = ClassMeans.calibrate(3, 1.0, DELTA)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(parameters.sigma))
    # Google's discretisation of losses is pessimistic, by less than one of its steps.
    assert accountant.get_epsilon(DELTA) == pytest.approx(1.0, abs=2e-4)
    assert parameters.account().epsilon(DELTA) <= 1.0
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
        voted = kernel_vote(rows, labels, queries, Kernel("cosine", 0.3), 3)
        told = answer_by_private_knn(knn, rows, labels, queries, np.random.default_rng(1))
        return [voted.tolist(), told.tolist()]

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


def test_invalid_parameters_are_refused() -> None:
    """Each parameter is in its range, or an error names it."""
    require_refused("classes", SampledKNN, 0, 1, 0.5, 1.0)
    require_refused("k is 0", SampledKNN, 1, 0, 0.5, 1.0)
    require_refused("rate", SampledKNN, 1, 1, 0.0, 1.0)
    require_refused("sigma", SampledKNN, 1, 1, 0.5, 0.0)
    require_refused("steps is 0", NoisySGD, 1, 0, 0.5, 10)
    require_refused("rate", NoisySGD, 1, 1, 1.5, 10)
    require_refused("batch", NoisySGD, 1, 1, 0.5, 0)
    require_refused("classes", ClassMeans, 0, 1.0)
    require_refused("sigma", ClassMeans, 2, math.inf)


def _observe(name: str, x: tuple[float, ...]) -> Mapping[CurveKey, Floats]:
    """Measure one split of iris at these points."""
    figure, table = find_figure(f"prediction/{name}"), load("iris")
    found = figure.observe(figure.subject.prepare(table), x, np.random.default_rng(1))
    assert all(np.shape(curve) == (len(x),) for curve in found.values())
    return {key: np.asarray(curve) for key, curve in found.items()}


def test_each_figure_and_table_of_the_paper_has_a_grid() -> None:
    """The grids ascend, for large and small tables."""
    tables = map(load, ("iris", "digits"))
    for figure, table, quick in product(prediction.PREDICTION_FIGURES, tables, (False, True)):
        grid = figure.grid(table, quick)
        assert list(grid) == sorted(set(grid))


def test_a_split_has_private_rows_and_two_sets_of_queries() -> None:
    """All rows are partitioned once, as directions from the public queries' mean direction."""
    table = load("digits")
    rng = np.random.default_rng(2)
    order = rng.permutation(len(table))
    dealt = prediction.split_for_stream(table, np.random.default_rng(2))
    count = prediction.stream_queries(table)
    assert count == len(dealt.stream.queries) == len(dealt.validation.queries) == 1797 // 5
    assert prediction.private_rows(table) == len(dealt.rows)
    assert np.array_equal(dealt.stream.truth, table.y[order[:count]])
    tried = table.X[order[count : 2 * count]]
    origin = (tried / np.linalg.norm(tried, axis=1, keepdims=True)).mean(axis=0)
    assert np.array_equal(dealt.rows, quantise(table.X[order[2 * count :]], origin))
    assert dealt.repeated(3000).rows[2000].tobytes() == dealt.rows[2000 % len(dealt.rows)].tobytes()
    assert len(dealt.first(7).stream.truth) == len(dealt.first(7).validation.queries) == 7
    require_refused("table", prediction.split_for_stream, table.take(np.arange(19)), rng)


@pytest.mark.parametrize(("name", "x"), [("figure-1", 30), ("figure-2", 1), ("figure-5", 200)])
def test_all_methods_are_compared(name: str, x: float) -> None:
    """Each has a fraction of right answers; if the axis is a size, rows and queries are reused."""
    curves = _observe(name, (x,))
    names = {prediction.GDP, prediction.RDP, prediction.CLASS_MEANS}
    names |= {prediction.PRIVATE_KNN, prediction.NOISY_SGD, prediction.NO_PRIVACY}
    assert set(curves) == {CurveKey(ACCURACY, name) for name in names}
    assert all(((curve >= 0) & (curve <= 1)).all() for curve in curves.values())


def test_measures_are_those_of_the_split() -> None:
    """The vote without privacy, and the means with negligible noise, classify iris."""
    table = load("iris")
    dealt = prediction.split_for_stream(table, np.random.default_rng(3))
    assert prediction.open_vote_accuracy(dealt) > 0.8
    assert prediction.class_means_accuracy(dealt, 1e4, np.random.default_rng(0)) > 0.8
    centres = np.array([dealt.rows[dealt.labels == each].sum(axis=0) for each in range(3)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    nearest = (dealt.stream.queries @ centres.T / LENGTH).argmax(axis=1)
    exact = (nearest == dealt.stream.truth).mean()
    found = prediction.class_means_accuracy(dealt, 1e9, np.random.default_rng(0))
    assert found == pytest.approx(exact, abs=0.04)


def test_retraining_costs_epsilon_and_ind_knn_does_not() -> None:
    """The ε of NoisySGD is the composition of all its training runs, and times are positive."""
    curves = _observe("figure-3", (10.0, 30.0))
    assert curves[CurveKey(prediction.COST_EPSILON, prediction.IND_KNN)].tolist() == [1.0, 1.0]
    three, one = curves[CurveKey(prediction.COST_EPSILON, prediction.NOISY_SGD)]
    assert one <= 1.0 < three
    assert three < 3.0  # Rényi divergences add up, and epsilons less
    assert all((curve > 0).all() for curve in curves.values())
    assert CurveKey(prediction.SECONDS, prediction.NOISY_SGD) in curves


def test_the_cost_of_retraining_is_a_claim_that_can_fail() -> None:
    """The claim about retraining is refuted if all its training runs cost no more than one."""
    figure = find_figure("prediction/figure-3")
    for table, quick in product(map(load, ("iris", "digits")), (False, True)):
        assert 2 * max(figure.grid(table, quick)) <= prediction.stream_queries(table) + 1
    ones = np.ones((3, 2))
    names = (prediction.NOISY_SGD, prediction.IND_KNN)
    curves = {CurveKey(prediction.COST_EPSILON, name): ones for name in names}
    (claim,) = figure.claims
    assert judge_claim(claim, Measured("x", (2.0, 4.0), curves)).outcome == "does not hold"


def test_changes_cause_at_most_ten_trainings() -> None:
    """A stream that is not a multiple of ten costs no more than one that is."""
    epsilons = _observe("table-1", (18.0, 30.0))[
        CurveKey(prediction.COST_EPSILON, prediction.SGD_CHANGES)
    ]
    assert 1.0 < epsilons[0] <= epsilons[1]


@pytest.mark.parametrize(
    ("name", "x", "curves"), [("figure-4", 1, 2), ("table-1", 8, 10), ("table-3", 2, 2)]
)
def test_the_other_figures_are_measured(name: str, x: float, curves: int) -> None:
    """Every curve has a finite value."""
    found = _observe(name, (x,))
    assert len(found) == curves
    assert all(np.isfinite(curve).all() for curve in found.values())


def test_the_best_threshold_is_compared_split_by_split() -> None:
    """The growth is the difference of the positions of the two maxima."""
    low = np.array([[0.9, 0.5, 0.1], [0.1, 0.9, 0.5]])
    high = np.array([[0.1, 0.2, 0.9], [0.1, 0.9, 0.5]])
    curves = {CurveKey(ACCURACY, "low"): low, CurveKey(ACCURACY, "high"): high}
    evidence = prediction.best_tau_growth("low", "high")(Measured("x", (0.1, 0.2, 0.4), curves))
    assert evidence.values.ravel().tolist() == pytest.approx([0.3, 0.0])


PARAMETERS = FilterParameters(classes=3, queries=60, budget=0.1, sigma2=1.0)


def _public() -> PublicTable:
    table = clustered(460, 12, 3, np.random.default_rng(1))
    rows, queries = table.take(slice(0, 400)), table.take(slice(400, 460))
    return PublicTable(rows.features, rows.labels, queries.features, queries.labels)


def test_the_first_round_finds_the_best_threshold_without_noise() -> None:
    """No threshold gives a better vote, and no lower threshold an equally good one."""
    public = _public()

    def accuracy(tau: float) -> float:
        kernel = Kernel("cosine", tau)
        labels = kernel_vote(public.rows, public.labels, public.queries, kernel, classes=3)
        return float((labels == public.truth).mean())

    found = best_tau(public, Kernel(), 3)
    assert all(accuracy(tau) <= accuracy(found) for tau in THRESHOLDS)
    assert all(accuracy(tau) < accuracy(found) for tau in THRESHOLDS if tau < found)
    queries = public.queries, public.truth
    require_refused("rows", PublicTable, public.rows[:0], public.labels[:0], *queries)


@pytest.mark.parametrize("step", [0.05, 0.2])
def test_the_second_round_continues_while_it_improves(step: float) -> None:
    """It has tried one step beyond the best pair on each side, and measured every pair."""
    public = _public()
    found = tune_parameters(
        public, PARAMETERS, Kernel(), np.random.default_rng(2), sigmas=(0.3, 1.0), step=step
    )
    taus = {each.tau for each in found}
    start, best = best_tau(public, Kernel(), 3), found[0]
    assert start in taus
    assert best.accuracy == max(each.accuracy for each in found)
    for side in (-step, step):
        assert round(best.tau + side, 9) in taus or not 0 < best.tau + side <= 1
    rng = np.random.default_rng(np.random.default_rng(2).integers(2**62, size=1)[0])
    parameters, kernel = replace(PARAMETERS, sigma2=best.sigma2), replace(Kernel(), tau=best.tau)
    assert stream_accuracy(public, parameters, kernel, rng) == best.accuracy
