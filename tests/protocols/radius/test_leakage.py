"""Attacks on batches, and an audit of the deployed code, on banana-shaped data."""

import math

import numpy as np
from numpy.random import Generator
from tests.protocols.radius.tables import banana

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.privacy.bounds import (
    advantage_bound,
    audited_epsilon,
    exact_advantage,
    guess_membership,
    membership_advantage,
)
from veilring.privacy.selection import permute_and_flip
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    label_within,
    plan_batch,
)
from veilring.protocols.radius.leakage import batch_probabilities

FALSE_ALARM = 1e-6
EPSILON = 1.0
QUERIES = 6


def case() -> tuple[Floats, Floats, tuple[Rows, Rows]]:
    """Return a batch around one row of a banana, and the tables with and without the row.

    The row is the only one of its class nearby, which leaks most.
    """
    places, labels = banana(400, np.random.default_rng(0))
    target = np.array([0.05, 0.95])
    absent = Rows(places, labels)
    present = Rows(np.vstack([places, target]), np.append(labels, 0))
    queries = target + np.random.default_rng(1).uniform(-0.02, 0.02, (QUERIES, 2))
    return queries, np.full(QUERIES, 0.05), (present, absent)


def answers_of(rows: Rows, epsilons: Floats, runs: int, rng: Generator) -> Ints:
    """Return the labels of a repeated batch, shape (runs, Q)."""
    queries, radii, _ = case()
    counts = np.tile(count_votes(queries, radii, rows, 2), (runs, 1))
    drawn = permute_and_flip(counts, np.tile(epsilons, runs), rng, monotone=True)
    return drawn.reshape(runs, QUERIES)


def codes(answers: Ints) -> Ints:
    """Return the count of each joint answer."""
    return np.bincount(answers @ (1 << np.arange(QUERIES)), minlength=1 << QUERIES)


def test_no_attack_beats_the_bound() -> None:
    """The best attack on a row, measured and exact, has at most the advantage of epsilon.

    If every query gets the whole budget, its advantage is greater.
    """
    queries, radii, tables = case()
    shares = plan_batch(queries, radii, EPSILON)
    assert shares.crowds.tolist() == [QUERIES] * QUERIES
    distributions = [batch_probabilities(queries, radii, rows, 2, shares) for rows in tables]
    exact = exact_advantage(*distributions)
    assert 0.05 < exact < advantage_bound(EPSILON)
    rng, runs = np.random.default_rng(2), 100_000
    guesses = [
        guess_membership(answers_of(rows, shares.epsilons, runs, rng), *distributions)
        for rows in tables
    ]
    # Two fractions, each within Hoeffding's bound of its probability except at half the alarm rate.
    reach = 2 * math.sqrt(math.log(4 / FALSE_ALARM) / (2 * runs))
    assert abs(membership_advantage(*guesses) - exact) < reach
    careless = allocate_budget(np.zeros((QUERIES, QUERIES), dtype=np.bool_), EPSILON)
    distributions = [batch_probabilities(queries, radii, rows, 2, careless) for rows in tables]
    assert exact_advantage(*distributions) > advantage_bound(EPSILON)


def test_an_audit_finds_a_fault_only_in_an_allocation_without_overlaps() -> None:
    """The lower bound from runs is positive but below epsilon, unless each query gets it all."""
    queries, radii, tables = case()
    shares = plan_batch(queries, radii, EPSILON).epsilons
    for epsilons, low, high in ((shares, 0.1, EPSILON), (np.full(QUERIES, EPSILON), EPSILON, 10)):
        rng = np.random.default_rng(3)
        one, other = (codes(answers_of(rows, epsilons, 50_000, rng)) for rows in tables)
        assert low < audited_epsilon(one, other) <= high


def test_an_audit_of_the_whole_classifier_stays_below_its_claim() -> None:
    """k-N as deployed, from table to labels, runs hundreds of times on both tables."""
    queries, _, tables = case()
    parameters = NearestParameters(3, 2, BudgetParts(0.0, 0.5, 0.5), rows=400)
    rng = np.random.default_rng(5)
    counts = []
    for rows in tables:
        runs = [label_nearest(queries, rows, parameters, rng).labels for _ in range(150)]
        counts.append(codes(np.array(runs)))
    assert audited_epsilon(counts[0], counts[1]) <= parameters.epsilon


def test_the_attacked_code_is_the_deployed_code() -> None:
    """Asking a batch once gives the same answers as the repeated counts."""
    queries, radii, (rows, _) = case()
    shares = plan_batch(queries, radii, EPSILON).epsilons
    rng = np.random.default_rng(6)
    once = label_within(queries, radii, rows, rng, epsilon=EPSILON, classes=2)
    assert once.tolist() == answers_of(rows, shares, 1, np.random.default_rng(6))[0].tolist()
