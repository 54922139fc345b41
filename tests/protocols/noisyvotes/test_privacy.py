"""The privacy loss of noisy votes: exact on all small tables, and estimated from runs."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.protocols.noisyvotes.worlds import (
    QUERIES,
    RADII,
    deal,
    guarantee_in_ring,
    label_probabilities,
    neighbours,
    no_rows,
    runs_of,
    totals_loss,
    voting,
)

from veilring.data.table import Rows
from veilring.privacy.bounds import audited_epsilon
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    noisy_votes,
    remaining_epsilon,
)
from veilring.protocols.noisyvotes.algorithm.releases import Release, batch_steps
from veilring.protocols.radius.leakage import greatest_loss
from veilring.protocols.ring import SumMethod

EPSILON = 0.7
PARTIES = 5
# Losses are sums of logarithms of sums of thousands of terms, each right to 13 digits.
ROUNDING = 1e-9
TWO = NoisyVotesParameters(1, 2, EPSILON, tolerated=0)


def worst(release: Release, exponent: Fraction, classes: int = 2) -> float:
    """Return the greatest loss of the totals over all tables and their neighbours."""
    return max(totals_loss(release, pair, exponent) for pair in neighbours(classes))


@pytest.mark.parametrize("tolerated", [0, 2])
@pytest.mark.parametrize("missing", range(PARTIES))
def test_totals_cost_the_stated_guarantee(tolerated: int, missing: int) -> None:
    """No table exceeds `remaining_epsilon`, and one attains it."""
    parameters = replace(TWO, tolerated=tolerated)
    release = voting(parameters)
    exponent = (PARTIES - missing) * parameters.exponent(PARTIES)
    claim = remaining_epsilon([release.plan], PARTIES, tolerated=tolerated, missing=missing)
    found = worst(release, exponent)
    assert found <= claim + ROUNDING
    if missing <= tolerated:
        assert claim <= EPSILON
    # With more noise than one owner's, the loss is reached in the limit of far totals only.
    assert found > claim * (1 - 1e-6 if missing >= tolerated else 0.95)


@pytest.mark.parametrize("missing", range(4))
def test_labels_cost_no_more_than_totals(missing: int) -> None:
    """Labels follow from totals: on no table does their loss exceed the guarantee."""
    release = voting(TWO)
    exponent = Fraction(4 - missing, 4)
    claim = remaining_epsilon([release.plan], 4, tolerated=0, missing=missing)
    tables = list(neighbours(2))[:40]
    for pair in tables:
        distributions = [
            label_probabilities(release.count(rows), release.plan.epsilons, exponent)
            for rows in pair
        ]
        assert greatest_loss(*distributions) <= claim + ROUNDING


def test_shares_of_n_do_not_replace_a_missing_one() -> None:
    """If each share is one of n and one is missing, a row loses more than epsilon."""
    release = voting(TWO)
    assert worst(release, Fraction(PARTIES - 1, PARTIES)) > EPSILON * 1.01
    assert worst(release, Fraction(1)) <= EPSILON + ROUNDING


def test_an_allocation_without_overlaps_is_caught() -> None:
    """If each query spends the whole budget, a row in three balls exceeds it."""
    release = voting(TWO)
    careless = replace(release, plan=replace(release.plan, epsilons=np.full(len(QUERIES), EPSILON)))
    assert worst(careless, Fraction(1)) > 1.5 * EPSILON


@pytest.mark.parametrize("missing", range(3))
def test_annuli_cost_the_stated_guarantee(missing: int) -> None:
    """A row is in one annulus of each nearby query, and costs at most the guarantee."""
    near = NearestRows(2, EPSILON, rows=3, conversion=ByAnnuli(4))
    release = voting(replace(TWO, neighbours=near), radii=None)
    claim = remaining_epsilon([release.plan], 3, tolerated=1, missing=missing)
    found = worst(release, Fraction(3 - missing, 2))
    assert found <= claim + ROUNDING
    assert missing > 1 or claim <= EPSILON
    assert found > claim * (1 - 1e-6 if missing else 0.95)


def test_whole_balls_would_cost_more_than_annuli() -> None:
    """With whole balls in place of annuli a row changes several counts, and loses more."""
    near = NearestRows(2, EPSILON, rows=3, conversion=ByAnnuli(4))
    release = voting(replace(TWO, neighbours=near), radii=None)
    balls = replace(release, count=lambda rows: np.cumsum(release.count(rows), axis=1))
    assert worst(balls, Fraction(1)) > 2 * EPSILON


@pytest.mark.parametrize("counted", [False, True])
def test_grids_and_numbers_of_rows_cost_their_budgets(counted: bool) -> None:
    """A row is in one cell and counted once: each release costs exactly its own budget."""
    near = NearestRows(2, 0.4, *((None, 0.3) if counted else (30, 0.0)))
    steps = batch_steps(QUERIES, replace(TWO, neighbours=near))
    release, budgets = next(steps), [0.3, 0.4] if counted else [0.4]
    for budget in budgets:
        assert worst(release, Fraction(1)) == pytest.approx(budget, rel=1e-9)
        release = steps.send(np.full((len(release.plan.epsilons), release.entries), 30))


ALONE = Rows(np.array([[0.35]]), np.array([0]))
ONE = NoisyVotesParameters(1, 1, 1.0, WithinRadius(0.1), tolerated=0)
RUNS = 60_000


def audited(release: Release, parties: int, exponent: Fraction, missing: int) -> float:
    """Return the loss that runs prove for the only row, which belongs to the first party.

    The first party always adds its noise. The events are totals near 0.
    """
    rng, counts = np.random.default_rng([parties, missing]), []
    for rows in (ALONE, no_rows(1)):
        parts = [rows, *(no_rows(1) for _ in range(parties - 1))]
        totals = runs_of(release, parts, exponent, missing, RUNS, rng)[:, 0, 0]
        counts.append(np.bincount(np.clip(totals, -2, 3) + 2, minlength=6))
    return audited_epsilon(counts[0], counts[1])


def at_the_row(parameters: NoisyVotesParameters) -> Release:
    """Return the release of a single query at the row."""
    return voting(parameters, ALONE.features, None)


@pytest.mark.parametrize("tolerated", [0, 1, 2])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_audit_of_the_parties_steps_stays_below_the_claim(tolerated: int, missing: int) -> None:
    """With any missing shares, runs prove a good part of the guarantee, and never more."""
    parameters = replace(ONE, tolerated=tolerated)
    release = at_the_row(parameters)
    claim = remaining_epsilon([release.plan], 3, tolerated=tolerated, missing=missing)
    found = audited(release, 3, parameters.exponent(3), missing)
    assert (0.6 if missing >= tolerated else 0.4) * claim < found <= claim
    if missing <= tolerated:
        assert claim <= 1.0


def test_an_audit_detects_missing_shares() -> None:
    """With shares of one third each and two missing, epsilon is disproved."""
    assert audited(at_the_row(ONE), 3, Fraction(1, 3), missing=2) > 1.5


def test_an_audit_detects_forgotten_noise() -> None:
    """If no party adds noise, runs prove more than any promised epsilon."""
    assert audited(at_the_row(ONE), 3, Fraction(1, 3), missing=3) > 7


def test_an_audit_detects_a_party_between_two_colluders() -> None:
    """On a single ring, a victim's neighbours lack only its own share."""
    release, method = at_the_row(ONE), SumMethod()
    alone = audited(release, 1, ONE.exponent(5), missing=0)
    assert alone > 1.5
    assert alone <= guarantee_in_ring([release.plan], 5, {1, 4}, method, tolerated=0)
    assert guarantee_in_ring([release.plan], 5, {1}, method, tolerated=0) > 1
    assert guarantee_in_ring([release.plan], 5, {1}, method, tolerated=1) <= 1


def test_the_audited_code_is_the_deployed_code() -> None:
    """Labelling a batch once gives the totals of the repeated steps."""
    rng = np.random.default_rng(8)
    rows = Rows(rng.random((40, 1)), rng.integers(0, 2, 40))
    parts, parameters = deal(rows, 4), replace(TWO, tolerated=1)
    once = noisy_votes(QUERIES, parts, parameters, np.random.default_rng(9), radii=RADII, missing=1)
    release, exponent = voting(parameters), parameters.exponent(4)
    again = runs_of(release, parts, exponent, 1, 1, np.random.default_rng(9))
    assert once.totals.tolist() == again[0].tolist()
    assert [once.epsilon, once.rows, len(once.spent)] == [EPSILON, None, 1]
    assert once.spent[0].epsilons.tolist() == release.plan.epsilons.tolist()
