"""Figures: their measures are the stated ones, and claims about them are decided by intervals."""

import csv
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.random import Generator
from papers.__main__ import reproduce
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
from papers.figure import ACCURACY, MAJORITY_CLASS, Axis, Figure, draw_hold_out, held_out_rows
from papers.reproduce import FIGURES, reproduce_figure
from papers.ring import ESTIMATORS, ORDINARY, PRIVATE, deal_rows
from scipy import stats
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.preprocessing import MinMaxScaler
from tests.papers.conftest import Program, measure
from tests.refusals import require_refused

from papers import ldp, radius
from veilring.arrays import Floats
from veilring.data.sources import load
from veilring.data.table import Categories, Table, scale_to_unit, split
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.ring.algorithm.classify import pooled_knn
from veilring.randomness import Streams


def test_ldp_figure_2_has_five_oracles_beside_scikit_learns_classifier() -> None:
    """The noiseless line is CategoricalNB on the same split, and the majority line is constant."""
    found = measure("ldp/figure-2")
    series = (*ldp.PAPER_ORACLES, ldp.PLAIN, MAJORITY_CLASS)
    parts = (ldp.ONE_QUESTION, ldp.ALL_QUESTIONS)
    assert [*found.curves] == [CurveKey(*each) for each in itertools.product(parts, series)]
    table = scale_to_unit(load("iris"))
    for number in range(2):
        rng = Streams(1).generator("figure", "ldp/figure-2", "iris", number)
        train, held_out = split(table, 0.2, rng)
        rows, queries = (ldp.number_values(part, ldp.NUMBER_BINS) for part in (train, held_out))
        reference = CategoricalNB(alpha=1e-10, min_categories=np.array(rows.domains))
        expected = reference.fit(rows.rows, train.y).score(queries.rows, held_out.y)
        for part in parts:
            assert (found.curves[CurveKey(part, ldp.PLAIN)][number] == expected).all()


def test_ldp_figure_4_has_all_features_and_one() -> None:
    """For each classifier there is a noiseless line; that of moments is GaussianNB with a floor."""
    moments = measure("ldp/figure-4")
    assert len(moments.curves) == 4 * 5
    table = scale_to_unit(load("iris"))
    for number in range(2):
        rng = Streams(1).generator("figure", "ldp/figure-4", "iris", number)
        train, held_out = split(table, 0.2, rng)
        clients, public = split(train, 0.1, rng)
        assert len(clients) + len(public) == len(train)
        scale = MinMaxScaler((-1, 1)).fit([[0.0] * 4, [1.0] * 4])
        reference = GaussianNB(var_smoothing=0).fit(scale.transform(clients.X), clients.y)
        # No variance of iris is below the floor but that of setosa's petals.
        reference.var_ = np.maximum(reference.var_, 0.01)
        expected = reference.score(scale.transform(held_out.X), held_out.y)
        plain = moments.curves[CurveKey("Gaussian, approach 1", ldp.PLAIN)][number]
        assert plain == pytest.approx(np.full(len(plain), expected))


def test_categories_and_numbers_are_numbered() -> None:
    """A category is numbered by its position, a number by its bin, and a constant by 0."""
    features = np.array([[0.0, 1, 0, 0, 0.2], [0.0, 0, 1, 0, 0.9], [0.0, 0, 0, 1, 1.0]])
    names, none = ("x=p", "y=a", "y=b", "y=c", "z"), np.zeros(3, dtype=np.int64)
    categories = Categories("x", 0, ("p",)), Categories("y", 1, ("a", "b", "c"))
    table = Table.of("made", features, none, names, ("only",), categories=categories)
    values = ldp.number_values(table, 4)
    assert values.rows.tolist() == [[0, 0, 0], [0, 1, 3], [0, 2, 3]]
    assert values.domains == (1, 3, 4)


PLAINS = (radius.DEFAULT, MAJORITY_CLASS)
SERIES = {
    "ldp/figure-3": 2 * [ldp.ALL_FEATURES, ldp.PCA, ldp.DCA, ldp.PLAIN, MAJORITY_CLASS],
    "radius/figure-7": [radius.NON_PRIVATE, radius.BASELINE, radius.PROPOSED, *PLAINS],
    "radius/figure-10": [radius.INTERACTIVE, radius.NON_INTERACTIVE, radius.ALLOCATED],
    "radius/figure-11": [radius.INTERACTIVE, radius.NON_INTERACTIVE, radius.ALLOCATED],
    "radius/figure-13": [
        *(radius.NON_PRIVATE, radius.BASELINE, radius.NON_INTERACTIVE),
        *(*PLAINS, radius.INTERACTIVE),
    ],
    "radius/figure-15": [radius.NON_PRIVATE, radius.NON_INTERACTIVE, *PLAINS],
    "ring/figure-3": ["k = 5", "k = 10", "k = 20"],
    "ring/figure-4": ["k = 5", "k = 10", "k = 20"],
}


@pytest.mark.parametrize("name", SERIES)
def test_a_figure_has_its_curves(name: str) -> None:
    """On 150 rows, all claims can be decided, and accuracies and gaps are fractions."""
    assert [key.series for key in measure(name).curves] == SERIES[name]


def test_the_proposed_classifier_is_more_accurate_than_the_baseline() -> None:
    """On wine at epsilon = 2, its mean over six splits is higher for each batch size."""
    found = measure("radius/figure-9", "wine", splits=6)
    proposed, baseline = (
        found.curves[CurveKey(ACCURACY, name)] for name in (radius.PROPOSED, radius.BASELINE)
    )
    assert (proposed.mean(axis=0) > baseline.mean(axis=0)).all()


def test_a_split_has_the_stated_number_of_rows_per_ball() -> None:
    """It holds on average over the held-out rows; or all rows, if there are fewer."""
    table = scale_to_unit(load("iris"))
    dealt = radius.split_for_owner(table, np.random.default_rng(0))
    assert len(dealt.split.held_out) == len(dealt.queries) == 30
    radii = dealt.radii(30)
    counts = count_votes(dealt.queries, radii, dealt.rows, dealt.classes)
    assert counts.sum(axis=1).mean() == pytest.approx(radius.PER_BALL, rel=0.01)
    few = radius.split_for_owner(table.take(np.arange(10)), np.random.default_rng(0))
    assert few.radius > 0
    assert few.split.majority(2) in {0.0, 0.5, 1.0}


def test_ring_figure_2_compares_both_classifiers() -> None:
    """Its ordinary classifier is the pooled one on the same split as the parties."""
    curves = measure("ring/figure-2").curves
    table = scale_to_unit(load("iris"))
    for number in range(2):
        rng = Streams(1).generator("figure", "ring/figure-2", "iris", number)
        train, held_out = deal_rows(table, rng).split
        labels = pooled_knn(held_out.X, train.X, train.y, 3, 5, weights="distance")
        ordinary = curves[CurveKey(ACCURACY, ORDINARY)][number, 1]
        assert ordinary == (labels == held_out.y).mean()
    assert curves[CurveKey(ACCURACY, PRIVATE)].mean() > 0.8  # of iris, where 1/3 is a guess


def test_ring_figure_5_ends_with_all_rows_voting() -> None:
    """If k is the number of rows, both classifiers give the same answer."""
    curves = measure("ring/figure-5", "wine").curves
    private, ordinary = (curves[CurveKey(ACCURACY, s)] for s in (PRIVATE, ORDINARY))
    assert private[:, -1].tolist() == ordinary[:, -1].tolist()


@pytest.mark.slow
def test_ring_figure_6_has_three_estimators_for_each_ring() -> None:
    """Two rounds with P0 = 1 and d = 1/2 expose a message with probability at most 1/4."""
    curves = measure("ring/figure-6").curves
    assert {key.measure for key in curves} == set(ESTIMATORS)
    exposures = [curve for key, curve in curves.items() if key.measure == "exposure"]
    # A run exposes at most half of its messages, as a party inserts once in two rounds: a mean
    # over 100 runs is 0.2 too high in 1e-14 of all cases (Hoeffding).
    assert all((curve < 0.25 + 0.2).all() for curve in exposures)


FAMILIES: dict[str, tuple[int, list[str]]] = {
    "ring": (100, [f"figure-{n}" for n in range(2, 7)]),
    "ldp": (100, [f"figure-{n}" for n in range(2, 5)]),
    "radius": (20, [f"figure-{n}" for n in range(7, 16)]),
    "prediction": (5, [*(f"figure-{n}" for n in range(1, 6)), "table-1", "table-3", "table-5"]),
    "treewalk": (8, [f"figure-6.{n}" for n in range(2, 32)]),
}


def test_a_family_has_the_figures_of_its_paper() -> None:
    """Each is found by name, and has claims and its number of splits."""
    names = [f"{family}/{name}" for family, (_, names) in FAMILIES.items() for name in names]
    assert [*FIGURES] == names
    for name, figure in FIGURES.items():
        family, _ = name.split("/")
        assert (figure.name, figure.splits) == (name, FAMILIES[family][0])
        assert figure.claims
        assert family != "treewalk" or figure.measurement == family


def test_held_out_rows_are_counted() -> None:
    """The number of queries assumed by grids is that of a split."""
    for rows in (4, 5, 6, 7, 150):
        table = load("iris").take(np.arange(rows))
        for share in (0.2, 0.25):
            split = draw_hold_out(table, share, np.random.default_rng(0))
            assert held_out_rows(table, share) == len(split.held_out)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """Register a figure with known numbers, the split's first uniform and 1; return its name."""

    def observe(_: Table, x: Sequence[float], rng: Generator) -> Mapping[CurveKey, Sequence[float]]:
        values = {"drawn": rng.random(), "one": 1.0}
        return {CurveKey("y", name): [value] * len(x) for name, value in values.items()}

    below = Claim("it is below two", "the last value", "below", 2.0, heights("y", at=LAST))
    above = Claim("it is above two", "the last value", "above", 2.0, heights("y", at=LAST))
    figure = Figure(
        "known/figure-1",
        "A figure of known numbers",
        "nowhere",
        "nothing is fixed",
        Axis("x", is_log=True),
        {"y": Axis("y")},
        lambda _table, quick: (1.0, 10.0) if quick else (1.0, 3.0, 10.0),
        observe,
        (below, above),
    )
    monkeypatch.setattr("papers.reproduce.FIGURES", {**FIGURES, figure.name: figure})
    return figure.name


def test_the_files_contain_the_measurements(tmp_path: Path, known: str) -> None:
    """There are equal numbers, verdicts and plots of all data sets for equal seeds."""
    told: list[tuple[int, int]] = []
    again = partial(reproduce_figure, known, ["iris", "wine"], quick=True, seed=5)
    done = again(tmp_path / "new", progress=lambda _, *counts: told.append(counts))
    assert told == [(number, 20) for number in range(1, 21)]
    for one, other in zip(done.files, again(tmp_path / "again").files, strict=True):
        assert one.read_bytes() == other.read_bytes()
    table, verdicts, png, svg = done.files
    assert [verdict.outcome for verdict in done.verdicts] == ["holds"] * 2 + ["does not hold"] * 2
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 10
    drawn = [r for r in rows if (r["data"], r["series"], r["x"]) == ("wine", "drawn", "10")]
    expected = [
        Streams(5).generator("figure", known, "wine", number).random() for number in range(10)
    ]
    assert [float(row["value"]) for row in drawn] == expected
    written = json.loads(verdicts.read_text(encoding="utf-8"))
    assert [claim["outcome"] for claim in written["claims"]] == [v.outcome for v in done.verdicts]
    assert written["seed"] == 5
    assert png.read_bytes().startswith(b"\x89PNG")
    texts = "".join(ET.parse(svg).getroot().itertext())
    for text in ("A figure of known numbers", "iris", "wine", "drawn", "10 random splits"):
        assert text in texts


def test_nothing_is_overwritten(tmp_path: Path, known: str) -> None:
    """An existing file, or a file in place of the folder, is refused before the measurement."""
    (tmp_path / "known-figure-1.svg").write_text("mine")
    draw = partial(reproduce_figure, known, ["iris"], quick=True)
    require_refused(r"without known-figure-1\.svg", draw, tmp_path)
    said = r"out is .*svg; allowed: a folder that can be made"
    require_refused(said, draw, tmp_path / "known-figure-1.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["known-figure-1.svg"]


def test_all_figures_are_listed(program: Program) -> None:
    """Without a figure, with an unknown one or with the list, nothing is measured."""
    code, out, _ = program(reproduce, "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*FIGURES]
    code, _, err = program(reproduce)
    assert (code, err) == (2, "papers: no figure is given; name at least one, or use --list\n")
    code, _, err = program(reproduce, "ring/figure-2", "ring/figure-9")
    assert code == 2
    assert "figure is 'ring/figure-9'; allowed: ring/figure-2" in err


def test_the_command_says_whether_claims_hold(tmp_path: Path, known: str, program: Program) -> None:
    """There is a line per claim and data set with the numbers; a failed claim is not an error."""
    code, out, _ = program(reproduce, known, "--quick", "--data", "iris", "--out", str(tmp_path))
    assert code == 0
    assert "iris: holds: it is below two. Tested: the last value below 2" in out
    assert "iris: does not hold: it is above two." in out


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
    found = Evidence(tuple(f"point {place}" for place in range(len(means))), curve)
    claim = Claim("it is so", "the quantity", side, 0.0, lambda _: found)
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
