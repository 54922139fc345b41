"""The exact privacy loss of r-N and k-N over all small tables and their neighbours."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.protocols.radius import losses
from tests.protocols.radius.tables import ROUNDING, Kind, all_tables, rows_of

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.selection import permute_and_flip, permute_and_flip_probabilities
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.conversion import ByCandidates
from veilring.protocols.radius.algorithm.nearest import BudgetParts, NearestParameters, plan_batch
from veilring.protocols.radius.leakage import greatest_loss

EPSILON = 0.7
# Balls that overlap in pairs, in threes, and that touch in a single place; one is alone.
QUERIES = np.array([[0.1], [0.3], [0.35], [0.5], [0.95]])
RADII = np.array([0.1, 0.1, 0.2, 0.15, 0.02])
PLACES = ((0.2,), (0.35,), (0.4,), (0.95,), (0.7,))


def worst(classes: int, epsilons: Floats, most: int = 3) -> float:
    """Return the greatest loss over all tables and their neighbours."""

    @cache
    def probabilities(table: tuple[Kind, ...]) -> Floats:
        counts = count_votes(QUERIES, RADII, rows_of(table, 1), classes)
        return permute_and_flip_probabilities(counts, epsilons, monotone=True)

    pairs = all_tables(PLACES, classes, most)
    return max(greatest_loss(probabilities(table), probabilities(more)) for table, more in pairs)


@pytest.mark.parametrize(("classes", "most"), [(2, 2), (3, 1)])
def test_a_batch_costs_at_most_its_price(classes: int, most: int) -> None:
    """It holds for all small tables and one more row; labels of more classes are disjoint, too."""
    shares = plan_batch(QUERIES, RADII, EPSILON).epsilons
    assert worst(classes, shares, most) <= EPSILON + ROUNDING


def test_an_allocation_without_overlaps_is_caught() -> None:
    """If each query gets the whole budget, a row in three balls loses more than it."""
    assert worst(2, np.full(5, EPSILON)) > 1.5 * EPSILON


def test_the_factor_of_two_falls_for_counts() -> None:
    """The worst loss of a row comes close to the budget of a query and never exceeds it."""
    share, worst = np.array([1.0]), 0.0
    for counts in ([[300, 0]], [[0, 300]], [[5, 5]], [[0, 0]]):
        one_more = np.array(counts) + np.array([[0, 1]])
        pair = [
            permute_and_flip_probabilities(np.array(each), share, monotone=True)
            for each in (counts, one_more)
        ]
        worst = max(worst, greatest_loss(*pair))
    assert 0.99 < worst <= 1.0 + ROUNDING


CANDIDATES = ByCandidates(3)
KNN = NearestParameters(1, 2, BudgetParts(0.0, 0.4, 0.5), 3, CANDIDATES)


@pytest.mark.parametrize("parameters", [KNN, replace(KNN, k=2)])
def test_k_neighbours_cost_at_most_their_price(parameters: NearestParameters) -> None:
    """Radii and labels together, over all combinations of candidates and all small tables."""
    queries = np.array([[0.3], [0.6]])
    found = [
        losses.nearest_loss(queries, (rows_of(table, 1), rows_of(more, 1)), parameters)
        for table, more in all_tables(((0.2,), (0.45,), (0.9,)), 2, 1)
    ]
    assert max(found) <= parameters.epsilon + ROUNDING
    assert max(found) > parameters.epsilon / 4


def test_conversions_without_overlaps_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each conversion gets the whole budget, a row in both largest balls exceeds it."""
    parameters = replace(KNN, parts=BudgetParts(0.0, 0.4, 1e-6))
    queries = np.array([[0.4], [0.4], [0.41], [0.41]])
    near, far = ((0.4,), 0), ((0.6,), 0)
    tables = rows_of((near,), 1), rows_of((near, far), 1)
    assert losses.nearest_loss(queries, tables, parameters) <= parameters.epsilon + ROUNDING
    apart = np.zeros((4, 4), dtype=np.bool_)
    monkeypatch.setattr(losses, "plan_conversion", lambda *_, **__: allocate_budget(apart, 0.4))
    assert losses.nearest_loss(queries, tables, parameters) > parameters.epsilon


def test_the_whole_budget_is_counted() -> None:
    """The parts of a k-N budget add up to the total, rounded up."""
    parameters = NearestParameters(1, 2, BudgetParts(0.3, 0.1, 0.2))
    assert parameters.epsilon >= 0.1 + 0.2 + 0.3


@pytest.mark.parametrize(("rows", "paid"), [(None, 0.0), (5, 0.1), (None, -1.0), (None, np.inf)])
def test_the_number_of_rows_is_public_or_charged(rows: int | None, paid: float) -> None:
    """It is never read from the data at no cost, and never charged without need."""
    with pytest.raises(InputError, match="counting is"):
        NearestParameters(1, 2, BudgetParts(paid, 0.5, 0.5), rows)


def test_votes_are_drawn_from_their_distribution() -> None:
    """Each label's frequency in 200,000 draws is within Hoeffding's bound of its probability.

    Three labels give three tests with false-alarm rates of 1e-7 each.
    """
    counts, share, runs = np.array([[7, 5, 5]]), np.array([0.4]), 200_000
    reach = np.sqrt(np.log(2 / 1e-7) / (2 * runs))
    rng, many = np.random.default_rng(0), np.repeat(counts, runs, axis=0)
    labels = permute_and_flip(many, np.repeat(share, runs), rng, monotone=True)
    drawn = np.bincount(labels, minlength=3) / runs
    exact = permute_and_flip_probabilities(counts, share, monotone=True)[0]
    assert np.abs(drawn - exact).max() < reach


def test_touching_balls_are_neighbours() -> None:
    """A row on the edge of two balls is in both, and the two share the budget."""
    queries, radii = np.array([[0.25], [0.75]]), np.array([0.25, 0.25])
    assert overlap_graph(queries, radii)[0, 1]
    assert count_votes(queries, radii, rows_of((((0.5,), 0),), 1), 1).tolist() == [[1], [1]]
