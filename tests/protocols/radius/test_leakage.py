"""The privacy of r-N and k-N: exact losses over all small tables, attacks, and audits."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, product

import networkx as nx
import numpy as np
import pytest
from numpy.random import Generator
from papers.answers import (
    advantage_bound,
    audited_epsilon,
    batch_probabilities,
    exact_advantage,
    greatest_loss,
    guess_membership,
    membership_advantage,
)
from tests.protocols.radius.tables import ROUNDING, Kind, banana, rows_of

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.errors import InputError
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.privacy.selection import permute_and_flip, permute_and_flip_probabilities
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.allocation import Allocation, allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    candidate_qualities,
    candidate_radii,
    plan_conversion,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    plan_batch,
)
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.radius.system import DataOwner

EPSILON = 0.7
# Balls that overlap in pairs, in threes, and that touch in a single place; one is alone.
QUERIES = np.array([[0.1], [0.3], [0.35], [0.5], [0.95]])
RADII = np.array([0.1, 0.1, 0.2, 0.15, 0.02])
PLACES = ((0.2,), (0.35,), (0.4,), (0.95,), (0.7,))


def all_tables(
    places: tuple[tuple[float, ...], ...], classes: int, most: int
) -> Iterator[tuple[tuple[Kind, ...], tuple[Kind, ...]]]:
    """Yield each table of at most `most` rows with each table of one more row."""
    kinds = [(place, label) for place in places for label in range(classes)]
    for size in range(most + 1):
        for table in combinations_with_replacement(kinds, size):
            for one in kinds:
                yield table, tuple(sorted((*table, one)))


def worst(classes: int, epsilons: Floats, most: int) -> float:
    """Return the greatest loss over all tables and their neighbours."""

    @cache
    def probabilities(table: tuple[Kind, ...]) -> Floats:
        counts = count_votes(QUERIES, RADII, rows_of(table, 1), classes)
        return permute_and_flip_probabilities(counts, epsilons, monotone=True)

    pairs = all_tables(PLACES, classes, most)
    return max(greatest_loss(probabilities(table), probabilities(more)) for table, more in pairs)


@pytest.mark.parametrize(("classes", "most"), [(2, 2), (3, 1)])
def test_a_batch_costs_at_most_its_price(classes: int, most: int) -> None:
    """It holds for all small tables and one more row; labels of more classes are disjoint, too.

    If each query got the whole budget, a row in three balls would lose more than it.
    """
    shares = plan_batch(QUERIES, RADII, EPSILON).epsilons
    assert worst(classes, shares, most) <= EPSILON + ROUNDING
    assert worst(classes, np.full(5, EPSILON), most) > 1.5 * EPSILON


KNN = NearestParameters(1, 2, BudgetParts(0.0, 0.4, 0.5), 3, ByCandidates(3))


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
    how, classes = parameters.conversion, parameters.classes
    assert isinstance(how, ByCandidates)
    assert parameters.rows is not None
    plan = plan_conversion(
        queries, parameters.k, how, epsilon=parameters.parts.converting, known_rows=parameters.rows
    )
    r_unif = uniform_radius(parameters.k, parameters.rows, queries.shape[1])
    candidates = candidate_radii(r_unif, how.number)

    def logs(rows: Rows) -> Floats:
        qualities = candidate_qualities(queries, candidates, rows, parameters.k)
        return np.log(permute_and_flip_probabilities(qualities, plan.epsilons))

    ratios, greatest = logs(tables[0]) - logs(tables[1]), 0.0
    for chosen in product(range(how.number), repeat=len(queries)):
        radii = candidates[np.array(chosen)]
        shares = plan_batch(queries, radii, parameters.parts.voting)
        one, other = (
            np.log(batch_probabilities(queries, radii, rows, classes, shares)) for rows in tables
        )
        converting, voting = ratios[np.arange(len(queries)), chosen].sum(), one - other
        for sign in (1, -1):
            greatest = max(greatest, sign * converting + (sign * voting).max(axis=1).sum())
    return float(greatest)


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


@pytest.mark.parametrize(("rows", "paid"), [(None, 0.0), (5, 0.1), (None, -1.0), (None, np.inf)])
def test_the_number_of_rows_is_public_or_charged(rows: int | None, paid: float) -> None:
    """It is never read from the data at no cost, and never charged without need."""
    with pytest.raises(InputError, match="counting is"):
        NearestParameters(1, 2, BudgetParts(paid, 0.5, 0.5), rows)
    # The parts of a budget add up to the total, rounded up.
    assert NearestParameters(1, 2, BudgetParts(0.3, 0.1, 0.2)).epsilon >= 0.1 + 0.2 + 0.3


def batch_loss(
    queries: Floats, radii: Floats, tables: tuple[Rows, Rows], allocation: Allocation
) -> float:
    """Return the exact privacy loss of an r-N batch of two classes between two tables."""
    return greatest_loss(
        *(batch_probabilities(queries, radii, rows, 2, allocation) for rows in tables)
    )


def test_crafted_queries_break_a_plain_test_but_not_the_real_one() -> None:
    """On lines, a plain float test misses more than one edge in eight; with slack, it misses none.

    If an edge is missed, two queries each get the whole budget, and the loss of the batch exceeds
    the budget by more than 20 %.
    """
    rng, pairs = np.random.default_rng(0), 2000
    ends, share = rng.random((pairs, 2, 2)), rng.random((pairs, 1))
    targets = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
    broken = 0
    for queries, target in zip(ends, targets, strict=True):
        radii = pairwise_distances(queries, target[None])[:, 0]
        assert overlap_graph(queries, radii)[0, 1]
        missed = bool(pairwise_distances(queries[:1], queries[1:])[0, 0] > radii.sum())
        broken += missed
        if missed and broken <= 20:
            row = Rows(target[None], np.zeros(1, dtype=np.int64))
            assert count_votes(queries, radii, row, 2).tolist() == [[1, 0], [1, 0]]
            plain = overlap_graph(queries, radii, relative_slack=0.0, absolute_slack=0.0)
            careless = allocate_budget(plain, 1.0)
            assert batch_loss(queries, radii, (rows_of((), 2), row), careless) > 1.2
            shares = plan_batch(queries, radii, 1.0)
            assert batch_loss(queries, radii, (rows_of((), 2), row), shares) <= 1.0 + ROUNDING
    assert broken > pairs / 8


def test_a_heuristic_clique_breaks_the_promise() -> None:
    """With a clique of networkx's heuristic, the loss exceeds ε; with the exact one it does not.

    The heuristic finds six of seven balls that share a place.
    """
    rng = np.random.default_rng(2)
    queries, radii = rng.random((14, 2)), rng.uniform(0.15, 0.35, 14)
    graph = overlap_graph(queries, radii)
    heuristic = nx.algorithms.approximation.max_clique(nx.from_numpy_array(graph))
    places = rng.random((4000, 2))
    deepest = (pairwise_distances(queries, places) <= radii[:, None]).sum(axis=0)
    assert deepest.max() == 7 > len(heuristic) == 6
    crowds = np.full(14, 6)
    careless = Allocation(crowds, np.nextafter(1 / crowds, 0), exact=True)
    shared = places[[deepest.argmax()]]
    # The loss of a monotone mechanism tends to its epsilon if no other row votes for the label.
    others = Rows(np.repeat(shared, 400, axis=0), np.ones(400, dtype=np.int64))
    one_more = Rows(np.vstack([others.features, shared]), np.append(others.labels, 0))
    exact = plan_batch(queries, radii, 1.0)
    assert batch_loss(queries, radii, (others, one_more), careless) > 1.0
    assert batch_loss(queries, radii, (others, one_more), exact) <= 1.0 + ROUNDING
    assert exact.crowds.max() == 7


ALARM = 1e-6
PRICE = 1.0
# A batch around a row that is the only one of its class nearby, which leaks most.
TARGET, CROWD = np.array([0.05, 0.95]), 6
AROUND = TARGET + np.random.default_rng(1).uniform(-0.02, 0.02, (CROWD, 2))
NEAR = np.full(CROWD, 0.05)
ABSENT = Rows(*banana(400, np.random.default_rng(0)))
PRESENT = Rows(np.vstack([ABSENT.features, TARGET]), np.append(ABSENT.labels, 0))
SHARES = plan_batch(AROUND, NEAR, PRICE)


def answers_of(rows: Rows, epsilons: Floats, runs: int, rng: Generator) -> Ints:
    """Return the labels of a repeated batch, shape (runs, Q)."""
    counts = np.tile(count_votes(AROUND, NEAR, rows, 2), (runs, 1))
    drawn = permute_and_flip(counts, np.tile(epsilons, runs), rng, monotone=True)
    return drawn.reshape(runs, CROWD)


def codes(answers: Ints) -> Ints:
    """Return the count of each joint answer."""
    return np.bincount(answers @ (1 << np.arange(CROWD)), minlength=1 << CROWD)


def test_no_attack_beats_the_bound() -> None:
    """The best attack on a row, measured and exact, has at most the advantage of epsilon.

    If every query gets the whole budget, its advantage is greater.
    """
    assert SHARES.crowds.tolist() == [CROWD] * CROWD
    careless = allocate_budget(np.zeros((CROWD, CROWD), dtype=np.bool_), PRICE)
    true, broken = (
        [batch_probabilities(AROUND, NEAR, rows, 2, shares) for rows in (PRESENT, ABSENT)]
        for shares in (SHARES, careless)
    )
    exact = exact_advantage(*true)
    assert 0.05 < exact < advantage_bound(PRICE) < exact_advantage(*broken)
    rng, runs = np.random.default_rng(2), 100_000
    guesses = [
        guess_membership(answers_of(rows, SHARES.epsilons, runs, rng), *true)
        for rows in (PRESENT, ABSENT)
    ]
    # Two fractions, each within Hoeffding's bound of its probability except at half the alarm rate.
    reach = 2 * math.sqrt(math.log(4 / ALARM) / (2 * runs))
    assert abs(membership_advantage(*guesses) - exact) < reach


def test_an_audit_finds_a_fault_only_in_an_allocation_without_overlaps() -> None:
    """The lower bound from runs is positive but below epsilon, unless each query gets it all."""
    whole = np.full(CROWD, PRICE)
    for epsilons, low, high in ((SHARES.epsilons, 0.1, PRICE), (whole, PRICE, 10)):
        rng = np.random.default_rng(3)
        one, other = (codes(answers_of(rows, epsilons, 50_000, rng)) for rows in (PRESENT, ABSENT))
        assert low < audited_epsilon(one, other) <= high


def test_an_audit_of_the_whole_classifier_stays_below_its_claim() -> None:
    """k-N as deployed, from table to labels, runs hundreds of times on both tables."""
    parameters = NearestParameters(3, 2, BudgetParts(0.0, 0.5, 0.5), rows=400)
    rng = np.random.default_rng(5)
    one, other = (
        codes(np.array([label_nearest(AROUND, rows, parameters, rng).labels for _ in range(150)]))
        for rows in (PRESENT, ABSENT)
    )
    assert audited_epsilon(one, other) <= parameters.epsilon


def test_the_attacked_code_is_the_deployed_code() -> None:
    """An owner draws its answers as the attacked batch is drawn, at the price of the request."""
    with open_ledger(None, Budgets()) as ledger:
        owner = Owner(PRESENT, DataOwner().bind(Facts(1, 2, 2)), ledger, run_inline)
        for seed in range(100):
            one, other = np.random.default_rng(seed), np.random.default_rng(seed)
            request = ask_within(AROUND, NEAR, PRICE, name=f"{seed}")
            expected = answers_of(PRESENT, SHARES.epsilons, 1, one)[0]
            assert owner.answer_once("ann", request, other).labels.tolist() == expected.tolist()
