"""The figures of private prediction, and its parameter selection in two rounds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from papers.baselines import kernel_vote
from papers.claims import CurveKey, Measured, judge_claim
from papers.figure import ACCURACY
from papers.prediction import (
    CLASS_MEANS,
    COST_EPSILON,
    GDP,
    IND_KNN,
    NO_PRIVACY,
    NOISY_SGD,
    PREDICTION_FIGURES,
    PRIVATE_KNN,
    RDP,
    SECONDS,
    SGD_CHANGES,
    best_tau_growth,
    class_means_accuracy,
    open_vote_accuracy,
    private_rows,
    split_for_stream,
    stream_queries,
)
from papers.reproduce import find_figure
from papers.tuning import THRESHOLDS, PublicTable, best_tau, stream_accuracy, tune_parameters
from tests.protocols.prediction.serving import clustered

from veilring.arrays import Floats
from veilring.data.sources import load
from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import LENGTH, Kernel, quantise
from veilring.protocols.prediction.algorithm.filter import FilterParameters


def _observe(name: str, x: tuple[float, ...]) -> Mapping[CurveKey, Floats]:
    """Measure one split of iris at these points."""
    figure, table = find_figure(f"prediction/{name}"), load("iris")
    found = figure.observe(figure.subject.prepare(table), x, np.random.default_rng(1))
    assert all(np.shape(curve) == (len(x),) for curve in found.values())
    return {key: np.asarray(curve) for key, curve in found.items()}


def test_each_figure_and_table_of_the_paper_has_a_grid() -> None:
    """The grids ascend, for large and small tables."""
    for figure in PREDICTION_FIGURES:
        for table in map(load, ("iris", "digits")):
            for quick in (False, True):
                grid = figure.grid(table, quick)
                assert list(grid) == sorted(set(grid))


def test_a_split_has_private_rows_and_two_sets_of_queries() -> None:
    """All rows are partitioned once, as directions from the public queries' mean direction."""
    table = load("digits")
    rng = np.random.default_rng(2)
    order = rng.permutation(len(table))
    dealt = split_for_stream(table, np.random.default_rng(2))
    count = stream_queries(table)
    assert count == len(dealt.stream.queries) == len(dealt.validation.queries) == 1797 // 5
    assert private_rows(table) == len(dealt.rows)
    assert np.array_equal(dealt.stream.truth, table.y[order[:count]])
    tried = table.X[order[count : 2 * count]]
    origin = (tried / np.linalg.norm(tried, axis=1, keepdims=True)).mean(axis=0)
    assert np.array_equal(dealt.rows, quantise(table.X[order[2 * count :]], origin))
    assert dealt.repeated(3000).rows[2000].tobytes() == dealt.rows[2000 % len(dealt.rows)].tobytes()
    assert len(dealt.first(7).stream.truth) == len(dealt.first(7).validation.queries) == 7
    with pytest.raises(InputError, match="table"):
        split_for_stream(table.take(np.arange(19)), rng)


def test_all_methods_are_compared() -> None:
    """Each has a fraction of right answers at each epsilon."""
    curves = _observe("figure-2", (1.0,))
    names = {GDP, RDP, PRIVATE_KNN, NOISY_SGD, CLASS_MEANS, NO_PRIVACY}
    assert set(curves) == {CurveKey(ACCURACY, name) for name in names}
    assert all(((curve >= 0) & (curve <= 1)).all() for curve in curves.values())


def test_measures_are_those_of_the_split() -> None:
    """The vote without privacy, and the means with negligible noise, classify iris."""
    table = load("iris")
    dealt = split_for_stream(table, np.random.default_rng(3))
    assert open_vote_accuracy(dealt) > 0.8
    assert class_means_accuracy(dealt, 1e4, np.random.default_rng(0)) > 0.8
    centres = np.array([dealt.rows[dealt.labels == each].sum(axis=0) for each in range(3)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    nearest = (dealt.stream.queries @ centres.T / LENGTH).argmax(axis=1)
    exact = (nearest == dealt.stream.truth).mean()
    assert class_means_accuracy(dealt, 1e9, np.random.default_rng(0)) == pytest.approx(
        exact, abs=0.04
    )


@pytest.mark.parametrize("name", ["figure-1", "figure-5"])
def test_streams_and_tables_have_the_sizes_of_the_axis(name: str) -> None:
    """All rows are reused, one per query, and all methods are measured."""
    curves = _observe(name, (200.0,) if name == "figure-5" else (30.0,))
    assert len(curves) == 6


def test_retraining_costs_epsilon_and_ind_knn_does_not() -> None:
    """The ε of NoisySGD is the composition of all its training runs, and times are positive."""
    curves = _observe("figure-3", (10.0, 30.0))
    assert curves[CurveKey(COST_EPSILON, IND_KNN)].tolist() == [1.0, 1.0]
    three, one = curves[CurveKey(COST_EPSILON, NOISY_SGD)]
    assert one <= 1.0 < three
    assert three < 3.0  # Rényi divergences add up, and epsilons less
    assert all((curve > 0).all() for curve in curves.values())
    assert CurveKey(SECONDS, NOISY_SGD) in curves


def test_the_cost_of_retraining_is_a_claim_that_can_fail() -> None:
    """The claim about retraining is refuted if all its training runs cost no more than one."""
    figure = find_figure("prediction/figure-3")
    for table in map(load, ("iris", "digits")):
        for quick in (False, True):
            assert 2 * max(figure.grid(table, quick)) <= stream_queries(table) + 1
    ones = np.ones((3, 2))
    curves = {CurveKey(COST_EPSILON, NOISY_SGD): ones, CurveKey(COST_EPSILON, IND_KNN): ones}
    (claim,) = figure.claims
    assert judge_claim(claim, Measured("x", (2.0, 4.0), curves)).outcome == "does not hold"


def test_changes_cause_at_most_ten_trainings() -> None:
    """A stream that is not a multiple of ten costs no more than one that is."""
    epsilons = _observe("table-1", (18.0, 30.0))[CurveKey(COST_EPSILON, SGD_CHANGES)]
    assert 1.0 < epsilons[0] <= epsilons[1]


@pytest.mark.parametrize(
    ("name", "x"), [("figure-4", (1.0,)), ("table-1", (8.0,)), ("table-3", (2.0,))]
)
def test_the_other_figures_are_measured(name: str, x: tuple[float, ...]) -> None:
    """Every curve has a finite value at every point."""
    curves = _observe(name, x)
    assert all(np.isfinite(curve).all() for curve in curves.values())


def test_the_best_threshold_is_compared_split_by_split() -> None:
    """The growth is the difference of the positions of the two maxima."""
    low = np.array([[0.9, 0.5, 0.1], [0.1, 0.9, 0.5]])
    high = np.array([[0.1, 0.2, 0.9], [0.1, 0.9, 0.5]])
    curves = {CurveKey(ACCURACY, "low"): low, CurveKey(ACCURACY, "high"): high}
    evidence = best_tau_growth("low", "high")(Measured("x", (0.1, 0.2, 0.4), curves))
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
        labels = kernel_vote(
            public.rows, public.labels, public.queries, Kernel("cosine", tau), classes=3
        )
        return float((labels == public.truth).mean())

    found = best_tau(public, Kernel(), 3)
    assert all(accuracy(tau) <= accuracy(found) for tau in THRESHOLDS)
    assert all(accuracy(tau) < accuracy(found) for tau in THRESHOLDS if tau < found)


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
    seed = np.random.default_rng(2).integers(2**62, size=1)[0]
    again = stream_accuracy(
        public,
        replace(PARAMETERS, sigma2=best.sigma2),
        replace(Kernel(), tau=best.tau),
        np.random.default_rng(seed),
    )
    assert again == best.accuracy


def test_tuning_needs_data() -> None:
    """There is at least one row and one query."""
    public = _public()
    with pytest.raises(InputError, match="rows"):
        PublicTable(public.rows[:0], public.labels[:0], public.queries, public.truth)
