"""Attacks on batches, on an owner's real answers, and an audit of the deployed code."""

import math
from functools import partial

import numpy as np
import pytest
from numpy.random import Generator
from papers.answers import (
    advantage_bound,
    audited_epsilon,
    batch_probabilities,
    exact_advantage,
    guess_membership,
    membership_advantage,
)
from tests.protocols.radius.tables import Crafted, banana, broken_by_plain_test, collinear

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.service import run_inline
from veilring.privacy.bounds import ALARM
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.privacy.selection import permute_and_flip, permute_and_flip_probabilities
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm import nearest as radius
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.radius.algorithm.nearest import (
    BudgetParts,
    NearestParameters,
    label_nearest,
    label_within,
    plan_batch,
)
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.radius.system import DataOwner

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


BATCHES = 5
CELLS = 8  # a side
CELL_TRIES = 20  # one of six will do
NOBODY = Rows(np.zeros((0, 3)), np.zeros(0, dtype=np.int64))


def _broken_pairs() -> Crafted:
    """Return pairs for which a plain float test sees no edge, far enough apart not to meet."""
    cells = np.indices((CELLS,) * 3).reshape(3, -1).T
    drawn = collinear(CELL_TRIES * len(cells), 3, np.random.default_rng(0))
    corners = (np.repeat(cells, CELL_TRIES, axis=0) + 0.4) / CELLS
    first, second, target = (corners + 0.02 * each for each in drawn[:3])
    pairs = zip(first, second, target, strict=True)
    radii = np.array([pairwise_distances(np.stack([a, b]), c[None])[:, 0] for a, b, c in pairs])
    crafted = Crafted(first, second, target, radii)
    broken = broken_by_plain_test(crafted).reshape(len(cells), CELL_TRIES)
    chosen = np.flatnonzero(broken.any(axis=1)) * CELL_TRIES + broken.argmax(axis=1)[broken.any(1)]
    return Crafted(*(each[chosen] for each in crafted))


def _crafted_answers() -> tuple[Ints, Ints]:
    """Attack rows on the lines between two queries: with all of the rows, and with none.

    Returns:
        The labels of each pair of queries, shape (runs, 2), for both tables.
    """
    pairs = _broken_pairs()
    everybody = Rows(pairs.target, np.zeros(len(pairs.target), dtype=np.int64))
    queries, radii = np.stack(pairs[:2], axis=1).reshape(-1, 3), pairs.radii.ravel()
    asked = [ask_within(queries, radii, EPSILON, name=f"{batch}") for batch in range(BATCHES)]
    answers = []
    for seed, rows in enumerate((everybody, NOBODY)):
        rng = np.random.default_rng(seed)
        with open_ledger(None, Budgets(total=BATCHES * EPSILON)) as ledger:
            owner = Owner(rows, DataOwner().bind(Facts(1, 3, 2)), ledger, run_inline)
            labels = [owner.answer_once("ann", each, rng).labels for each in asked]
        answers.append(np.concatenate(labels).astype(np.int64).reshape(-1, 2))
    return answers[0], answers[1]


def _audited(present: Ints, absent: Ints) -> float:
    """Return an epsilon proved by the answers, too high in one case of a million."""
    one, other = (np.bincount(answers @ [2, 1], minlength=4) for answers in (present, absent))
    return audited_epsilon(one, other)


def test_crafted_collinear_queries_cost_no_row_more_than_the_price() -> None:
    """The answers prove at most the price, and give no greater advantage.

    False-alarm rates are one in a million, for the audit and, by Hoeffding's inequality, for the
    advantage.
    """
    present, absent = _crafted_answers()
    assert _audited(present, absent) <= EPSILON
    distributions = [
        permute_and_flip_probabilities(
            np.tile(counts, (2, 1)), np.full(2, EPSILON / 2), monotone=True
        )
        for counts in (np.array([1, 0]), np.array([0, 0]))
    ]
    guesses = [guess_membership(answers, *distributions) for answers in (present, absent)]
    slack = np.sqrt(np.log(1 / ALARM) / len(present))
    assert membership_advantage(*guesses) <= advantage_bound(EPSILON) + slack


def test_the_same_attack_breaks_a_plain_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slack in the overlap graph, the same answers prove that a row paid double."""
    plain = partial(overlap_graph, relative_slack=0.0, absolute_slack=0.0)
    monkeypatch.setattr(radius, "overlap_graph", plain)
    assert _audited(*_crafted_answers()) > EPSILON
