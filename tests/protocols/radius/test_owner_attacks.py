"""Attacks of analysts on a data owner's real answers."""

from functools import partial

import numpy as np
import pytest
from tests.protocols.radius.tables import Crafted, broken_by_plain_test, collinear

from veilring.arrays import Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.service import run_inline
from veilring.privacy.bounds import (
    ALARM,
    advantage_bound,
    audited_epsilon,
    guess_membership,
    membership_advantage,
)
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.privacy.selection import permute_and_flip_probabilities
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm import nearest as radius
from veilring.protocols.radius.algorithm.balls import overlap_graph
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.radius.system import DataOwner

EPSILON = 1.0
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
