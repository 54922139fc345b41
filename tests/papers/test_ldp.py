"""The figures of LDP naive Bayes: their measures are the stated ones."""

import numpy as np
import pytest
from papers.claims import CurveKey, Measured
from papers.evidence import heights, in_measure, leads, near, ratios, since, up_to
from papers.figure import MAJORITY_CLASS
from papers.ldp import (
    ALL_FEATURES,
    ALL_QUESTIONS,
    DCA,
    NUMBER_BINS,
    ONE_QUESTION,
    PAPER_ORACLES,
    PCA,
    PLAIN,
    number_values,
)
from papers.reproduce import find_figure
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.preprocessing import MinMaxScaler
from tests.papers.measuring import measure

from veilring.data.sources import load
from veilring.data.table import Categories, Table, scale_to_unit, split
from veilring.randomness import Streams

SPLITS = 2


def measured(name: str) -> Measured:
    """Measure a figure on iris at few points, and check the properties of every figure."""
    found = measure(name, splits=SPLITS)
    assert {key.measure for key in found.curves} == set(find_figure(name).measures)
    for curve in found.curves.values():
        assert ((curve >= 0) & (curve <= 1)).all()
    for claim in find_figure(name).claims:
        evidence = claim.take(found)
        assert evidence.values.shape == (SPLITS, len(evidence.labels))
        assert np.isfinite(evidence.values).all()
        assert len(set(evidence.labels)) == len(evidence.labels)
    return found


def test_figure_2_has_five_oracles_beside_scikit_learns_classifier() -> None:
    """The noiseless line is CategoricalNB on the same split, and the majority line is constant."""
    found = measured("ldp/figure-2")
    series = [*PAPER_ORACLES, PLAIN, MAJORITY_CLASS]
    assert list(found.curves) == [
        CurveKey(part, name) for part in (ONE_QUESTION, ALL_QUESTIONS) for name in series
    ]
    table = scale_to_unit(load("iris"))
    for number in range(SPLITS):
        rng = Streams(1).generator("figure", "ldp/figure-2", "iris", number)
        train, held_out = split(table, 0.2, rng)
        rows, queries = number_values(train, NUMBER_BINS), number_values(held_out, NUMBER_BINS)
        reference = CategoricalNB(alpha=1e-10, min_categories=np.array(rows.domains))
        expected = reference.fit(rows.rows, train.y).score(queries.rows, held_out.y)
        for part in (ONE_QUESTION, ALL_QUESTIONS):
            assert (found.curves[CurveKey(part, PLAIN)][number] == expected).all()


def test_figure_3_and_4_have_all_features_and_one() -> None:
    """For each classifier there is a noiseless line; that of moments is GaussianNB with a floor."""
    bins = measured("ldp/figure-3")
    assert [key.series for key in bins.curves] == [
        ALL_FEATURES,
        PCA,
        DCA,
        PLAIN,
        MAJORITY_CLASS,
    ] * 2
    moments = measured("ldp/figure-4")
    assert len(moments.curves) == 4 * 5
    table = scale_to_unit(load("iris"))
    for number in range(SPLITS):
        rng = Streams(1).generator("figure", "ldp/figure-4", "iris", number)
        train, held_out = split(table, 0.2, rng)
        clients, public = split(train, 0.1, rng)
        assert len(clients) + len(public) == len(train)
        scale = MinMaxScaler((-1, 1)).fit([[0.0] * 4, [1.0] * 4])
        reference = GaussianNB(var_smoothing=0).fit(scale.transform(clients.X), clients.y)
        # No variance of iris is below the floor but that of setosa's petals.
        reference.var_ = np.maximum(reference.var_, 0.01)
        expected = reference.score(scale.transform(held_out.X), held_out.y)
        plain = moments.curves[CurveKey("Gaussian, approach 1", PLAIN)][number]
        assert plain == pytest.approx(np.full(len(plain), expected))


def test_categories_and_numbers_are_numbered() -> None:
    """A category is numbered by its position, a number by its bin, and a constant by 0."""
    features = np.array([[0.0, 1, 0, 0, 0.2], [0.0, 0, 1, 0, 0.9], [0.0, 0, 0, 1, 1.0]])
    table = Table.of(
        "made",
        features,
        np.zeros(3, dtype=np.int64),
        ("x=p", "y=a", "y=b", "y=c", "z"),
        ("only",),
        categories=(Categories("x", 0, ("p",)), Categories("y", 1, ("a", "b", "c"))),
    )
    values = number_values(table, 4)
    assert values.rows.tolist() == [[0, 0, 0], [0, 1, 3], [0, 2, 3]]
    assert values.domains == (1, 3, 4)


def test_evidence_is_measured_at_the_claimed_points() -> None:
    """Differences and ratios are those of the curves at the requested points."""
    one, other = CurveKey("m", "one"), CurveKey("m", "other")
    curves = {one: np.array([[1.0, 2.0], [3.0, 6.0]]), other: np.array([[1.0, 4.0], [1.0, 4.0]])}
    curves[CurveKey("n", "one")] = curves[other]
    found = Measured("made", (0.5, 2.0), curves)
    lead = leads(in_measure("m", ("one", "other")), at=up_to(1.0), x="epsilon")(found)
    assert lead.labels == ("epsilon = 0.5",)
    assert lead.values.tolist() == [[0.0], [2.0]]
    assert heights("m", "one", at=near(2.1))(found).values.tolist() == [[2.0], [6.0]]
    share = ratios("m", "one", over="other", at=since(2.0), x="epsilon")(found)
    assert share.values.mean(axis=0).tolist() == [1.0]  # (2 + 6) / (4 + 4)
    across = leads([(one, other), (one, CurveKey("n", "one"))], at=near(0.5))(found)
    assert across.labels == ("m: one over other", "one: m over n")
