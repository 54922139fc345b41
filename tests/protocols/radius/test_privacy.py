"""The exact privacy loss of r-N and k-N over all small tables and their neighbours."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from papers.answers import batch_probabilities, greatest_loss
from tests.protocols.radius.tables import ROUNDING, Kind, all_tables, rows_of

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.privacy.selection import permute_and_flip_probabilities
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    candidate_qualities,
    candidate_radii,
    plan_conversion,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.nearest import BudgetParts, NearestParameters, plan_batch

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


CANDIDATES = ByCandidates(3)
KNN = NearestParameters(1, 2, BudgetParts(0.0, 0.4, 0.5), 3, CANDIDATES)


@pytest.mark.parametrize("parameters", [KNN, replace(KNN, k=2)])
def test_k_neighbours_cost_at_most_their_price(parameters: NearestParameters) -> None:
    """Radii and labels together, over all combinations of candidates and all small tables."""
    queries = np.array([[0.3], [0.6]])
    found = [
        nearest_loss(queries, (rows_of(table, 1), rows_of(more, 1)), parameters)
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
    assert nearest_loss(queries, tables, parameters) <= parameters.epsilon + ROUNDING
    apart = np.zeros((4, 4), dtype=np.bool_)
    monkeypatch.setitem(globals(), "plan_conversion", lambda *_, **__: allocate_budget(apart, 0.4))
    assert nearest_loss(queries, tables, parameters) > parameters.epsilon


def test_the_whole_budget_is_counted() -> None:
    """The parts of a k-N budget add up to the total, rounded up."""
    parameters = NearestParameters(1, 2, BudgetParts(0.3, 0.1, 0.2))
    assert parameters.epsilon >= 0.1 + 0.2 + 0.3


@pytest.mark.parametrize(("rows", "paid"), [(None, 0.0), (5, 0.1), (None, -1.0), (None, np.inf)])
def test_the_number_of_rows_is_public_or_charged(rows: int | None, paid: float) -> None:
    """It is never read from the data at no cost, and never charged without need."""
    with pytest.raises(InputError, match="counting is"):
        NearestParameters(1, 2, BudgetParts(paid, 0.5, 0.5), rows)


def test_touching_balls_are_neighbours() -> None:
    """A row on the edge of two balls is in both, and the two share the budget."""
    queries, radii = np.array([[0.25], [0.75]]), np.array([0.25, 0.25])
    assert overlap_graph(queries, radii)[0, 1]
    assert count_votes(queries, radii, rows_of((((0.5,), 0),), 1), 1).tolist() == [[1], [1]]


def nearest_loss(
    queries: Floats, tables: tuple[Rows, Rows], parameters: NearestParameters
) -> float:
    """Return the exact privacy loss of a k-N batch by candidates: of its radii and its labels.

    All combinations of radii are enumerated, and each has its own allocation of the vote.

    Args:
        queries: Shape (Q, f), in [0, 1]; few, since there are `number ** Q` combinations.
        tables: Two neighbours.
        parameters: With `rows` given and conversion by candidates.
    """
    how = parameters.conversion
    assert isinstance(how, ByCandidates)
    assert parameters.rows is not None
    plan = plan_conversion(
        queries, parameters.k, how, epsilon=parameters.parts.converting, known_rows=parameters.rows
    )
    r_unif = uniform_radius(parameters.k, parameters.rows, queries.shape[1])
    candidates = candidate_radii(r_unif, how.number)
    one, other = (
        np.log(
            permute_and_flip_probabilities(
                candidate_qualities(queries, candidates, rows, parameters.k), plan.epsilons
            )
        )
        for rows in tables
    )
    return max(
        _joint(candidates, np.array(chosen), sign * (one - other), queries, pair, parameters)
        for chosen in product(range(how.number), repeat=len(queries))
        for sign, pair in ((1, tables), (-1, tables[::-1]))
    )


def _joint(  # noqa: PLR0917  (one combination of radii, on two tables)
    candidates: Floats,
    chosen: Ints,
    ratios: Floats,
    queries: Floats,
    tables: tuple[Rows, Rows],
    parameters: NearestParameters,
) -> float:
    """Return the greatest log-ratio of these radii together with any labels."""
    radii = candidates[chosen]
    shares = plan_batch(queries, radii, parameters.parts.voting)
    one, other = (
        batch_probabilities(queries, radii, rows, parameters.classes, shares) for rows in tables
    )
    labels = (np.log(one) - np.log(other)).max(axis=1).sum()
    return float(ratios[np.arange(len(queries)), chosen].sum() + labels)
