"""Labels and conversions: close to the open answers for large budgets."""

import numpy as np
import pytest
from papers.owner import nearest_votes
from tests.protocols.radius.tables import banana, rows_of, some_rows

from veilring.data.table import Rows
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.conversion import ByCandidates, ByGrid, Conversion
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    label_within,
    release_row_count,
)


@pytest.mark.parametrize("conversion", [ByGrid(), ByCandidates()])
def test_a_large_budget_is_as_good_as_no_privacy(conversion: Conversion) -> None:
    """With epsilon in the millions, labels are nearly those without privacy."""
    places, labels = banana(2000, np.random.default_rng(9))
    rows, queries = Rows(places[200:], labels[200:]), places[:200]
    parameters = NearestParameters(30, 2, BudgetParts(0.0, 5e5, 5e5), len(rows), conversion)
    found = label_nearest(queries, rows, parameters, np.random.default_rng(10))
    votes = nearest_votes(queries, rows, 30, 2)
    clear = np.abs(votes[:, 0] - votes[:, 1]) >= 20
    assert clear.mean() > 0.6
    assert (found.labels == votes.argmax(axis=1))[clear].mean() > 0.97
    within = count_votes(queries, found.radii, rows, 2).sum(axis=1)
    assert 10 < np.median(within) < 60


def test_a_large_budget_finds_the_open_answer() -> None:
    """r-N without noise is the vote of the rows within the radius."""
    places, labels = banana(600, np.random.default_rng(11))
    rows, queries, radii = Rows(places[60:], labels[60:]), places[:60], np.full(60, 0.1)
    rng = np.random.default_rng(12)
    counts = count_votes(queries, radii, rows, 2)
    settled = counts[:, 0] != counts[:, 1]
    labels = label_within(queries, radii, rows, rng, epsilon=1e6, classes=2)
    assert (labels == counts.argmax(axis=1))[settled].all()


def test_a_noisy_number_of_rows_is_near_and_positive() -> None:
    """It is the public number, or the number with noise, and never below 1."""
    rows, rng = some_rows(100, 1, 14), np.random.default_rng(15)
    free = BudgetParts(0.0, 1.0, 1.0)
    assert release_row_count(rows, NearestParameters(1, 3, free, rows=7), rng) == 7
    assert release_row_count(rows, NearestParameters(1, 3, free, rows=0), rng) == 1
    paid = NearestParameters(1, 3, BudgetParts(1.0, 1.0, 1.0))
    drawn = [release_row_count(rows, paid, rng) for _ in range(50)]
    # Noise beyond 20 has probability 2 e^-20 each.
    assert len(set(drawn)) > 1
    assert all(80 <= number <= 120 for number in drawn)
    nobody = [release_row_count(rows_of((), 1), paid, rng) for _ in range(50)]
    assert min(nobody) == 1


def test_equal_generators_give_equal_answers() -> None:
    """Equal seeds label a batch equally."""
    rows, queries = some_rows(300, 2, 16), some_rows(50, 2, 17).features
    parameters = NearestParameters(10, 3, BudgetParts(0.0, 0.5, 0.5), 300)
    first, again = (
        label_nearest(queries, rows, parameters, np.random.default_rng(18)) for _ in range(2)
    )
    assert first.labels.tolist() == again.labels.tolist()
    assert first.radii.tolist() == again.radii.tolist()
