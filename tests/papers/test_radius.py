"""The figures of the radius family: their measures are the stated ones."""

import numpy as np
import pytest
from papers.claims import CurveKey, judge_claim
from papers.figure import ACCURACY, MAJORITY_CLASS
from papers.radius import (
    ALLOCATED,
    BASELINE,
    DEFAULT,
    INTERACTIVE,
    NON_INTERACTIVE,
    NON_PRIVATE,
    PER_BALL,
    PROPOSED,
    split_for_owner,
)
from papers.reproduce import find_figure
from tests.papers.measuring import measure

from veilring.data.sources import load
from veilring.data.table import scale_to_unit
from veilring.protocols.radius.algorithm.balls import count_votes


@pytest.mark.parametrize(
    ("number", "series"),
    [
        (7, {NON_PRIVATE, BASELINE, PROPOSED, DEFAULT, MAJORITY_CLASS}),
        (10, {INTERACTIVE, NON_INTERACTIVE, ALLOCATED}),
        (11, {INTERACTIVE, NON_INTERACTIVE, ALLOCATED}),
        (13, {NON_PRIVATE, BASELINE, INTERACTIVE, NON_INTERACTIVE, DEFAULT, MAJORITY_CLASS}),
        (15, {NON_PRIVATE, NON_INTERACTIVE, DEFAULT, MAJORITY_CLASS}),
    ],
)
def test_each_figure_has_its_curves(number: int, series: set[str]) -> None:
    """On 150 rows, all claims can be decided, and accuracies are fractions."""
    found = measure(f"radius/figure-{number}")
    assert {key.series for key in found.curves} == series
    for claim in find_figure(f"radius/figure-{number}").claims:
        assert judge_claim(claim, found).intervals
    for key, curve in found.curves.items():
        assert key.measure != ACCURACY or ((curve >= 0) & (curve <= 1)).all()


def test_the_proposed_classifier_is_more_accurate_than_the_baseline() -> None:
    """On wine at epsilon = 2, its mean over six splits is higher for each batch size."""
    found = measure("radius/figure-9", "wine", splits=6)
    proposed, baseline = (found.curves[CurveKey(ACCURACY, name)] for name in (PROPOSED, BASELINE))
    assert (proposed.mean(axis=0) > baseline.mean(axis=0)).all()


def test_a_split_has_the_stated_number_of_rows_per_ball() -> None:
    """It holds on average over the held-out rows; or all rows, if there are fewer."""
    table = scale_to_unit(load("iris"))
    dealt = split_for_owner(table, np.random.default_rng(0))
    assert len(dealt.split.held_out) == len(dealt.queries) == 30
    radii = dealt.radii(30)
    counts = count_votes(dealt.queries, radii, dealt.rows, dealt.classes)
    assert counts.sum(axis=1).mean() == pytest.approx(PER_BALL, rel=0.01)
    few = split_for_owner(table.take(np.arange(10)), np.random.default_rng(0))
    assert few.radius > 0
    assert few.split.majority(2) in {0.0, 0.5, 1.0}
