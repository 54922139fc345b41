"""Noisy votes in one process: the owner's noise, exact and audited losses, and refusals."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from papers.answers import audited_epsilon
from papers.owner import laplace_probabilities
from tests.privacy.generators import follows
from tests.protocols.noisyvotes.worlds import (
    QUERIES,
    RADII,
    deal,
    neighbours,
    no_rows,
    pure,
    runs_of,
    totals_loss,
    voting,
)

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.privacy.noise import discrete_laplace_pmf
from veilring.protocols.noisyvotes.algorithm.noise import plan_bytes
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    remaining_epsilon,
)
from veilring.protocols.noisyvotes.algorithm.releases import Release, batch_steps, noisy_votes
from veilring.protocols.radius.algorithm import conversion as conversions

TWO = NoisyVotesParameters(1, 2, 0.9, tolerated=0)
# A budget so large that noise is drawn only with probability below e**-200.
CERTAIN = 300.0
RUNS = 40_000
SIXTY = Rows(np.random.default_rng(0).random((60, 1)), np.arange(60) % 2)


def test_with_all_shares_the_noise_is_the_owners() -> None:
    """With a share of each of six parties, totals and labels are those of a trusted owner.

    Totals pass a G-test against counts plus discrete Laplace noise, and labels against the owner's
    distribution.
    """
    release, exponent = voting(TWO), TWO.exponent(6)
    totals = runs_of(release, deal(SIXTY, 6), exponent, 0, RUNS, np.random.default_rng(1))
    counts, epsilons = release.count(SIXTY), pure(release).epsilons
    owner = laplace_probabilities(counts, epsilons)
    for query, epsilon in enumerate(epsilons):
        noise = totals[:, query] - counts[query]
        pmf = discrete_laplace_pmf(np.arange(-300, 301), 1 / epsilon)
        seen = np.bincount(noise.ravel() + 300, minlength=601)
        assert follows(seen, pmf, tests=2 * len(QUERIES))
        labels = np.bincount(totals[:, query].argmax(axis=1), minlength=2)
        assert follows(labels, owner[query], tests=2 * len(QUERIES))


def test_tolerating_costs_noise() -> None:
    """Totals' variance is n / (n - c) times the owner's, within five deviations of its estimate."""
    parameters = replace(TWO, tolerated=2)
    release, parts = voting(parameters), [no_rows(1)] * 4
    totals = runs_of(release, parts, parameters.exponent(4), 0, RUNS, np.random.default_rng(4))
    for query, epsilon in enumerate(pure(release).epsilons):
        q = np.exp(-epsilon)
        expected = 2 * 2 * q / (1 - q) ** 2
        squares = totals[:, query].ravel().astype(float) ** 2
        # The chance to be further off is 6e-7 for each of five queries.
        assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(squares.size)


def test_annuli_find_the_first_candidate_with_k_rows() -> None:
    """Without noise the radius is the smallest candidate with k rows, or the largest candidate."""
    near = NearestRows(9, CERTAIN, len(SIXTY), conversion=ByAnnuli(6))
    parameters = replace(TWO, neighbours=near)
    answer = noisy_votes(QUERIES, deal(SIXTY, 3), parameters, np.random.default_rng(5))
    r_unif = conversions.uniform_radius(9, len(SIXTY), 1)
    candidates = conversions.candidate_radii(r_unif, 6)
    apart = np.abs(QUERIES - SIXTY.features.T)
    for found, distances in zip(answer.radii, apart, strict=True):
        enough = [r for r in candidates if (distances <= r).sum() >= 9]
        assert found == (enough[0] if enough else candidates[-1])


@pytest.mark.parametrize("features", [1, 2, 4])
def test_grids_find_the_radii_of_the_trusted_owner(features: int) -> None:
    """Without noise the radii equal those of one owner of all rows with its grid."""
    rng = np.random.default_rng(6)
    rows, queries = Rows(rng.random((300, features)), np.zeros(300, int)), rng.random((7, features))
    near = NearestRows(12, CERTAIN, epsilon_count=CERTAIN, conversion=conversions.ByGrid(1e-3))
    parameters = NoisyVotesParameters(features, 1, 1.0, near)
    answer = noisy_votes(queries, [*deal(rows, 3), no_rows(features)], parameters, rng)
    side = conversions.grid_side(300, features, CERTAIN)
    owner = conversions.noisy_grid(rows, side, CERTAIN, rng)
    assert answer.rows == 300
    assert answer.radii.tolist() == conversions.grid_radii(owner, queries, 12, 1e-3).tolist()
    assert answer.epsilon == 601.0
    assert len(answer.spent) == 3


def test_single_precision_divides_the_budget_like_double() -> None:
    """Balls that touch exactly overlap in float32 as in float64, despite rounding.

    Otherwise two queries would each spend the whole budget, and a row in both balls would lose
    double.
    """
    rng = np.random.default_rng(8)
    radii = (rng.random((200, 2)) / 4).astype(np.float32)
    reach = radii.astype(np.float64).sum(axis=1)
    assert (radii.sum(axis=1) < reach).sum() > 20
    for pair, apart in zip(radii, reach, strict=True):
        queries = np.array([[0.2], [0.2 + apart]])
        assert voting(TWO, queries, pair).plan.crowds.tolist() == [2, 2]
    fixed = replace(TWO, neighbours=WithinRadius(radii[0, 0]))
    queries = np.array([[0.2], [0.2 + 2 * float(radii[0, 0])]])
    assert voting(fixed, queries, None).plan.crowds.tolist() == [2, 2]


def test_within_the_greatest_radius_all_rows_vote() -> None:
    """A radius whose double is infinite contains all rows and intersects every other ball.

    Without rows all totals are 0, and the first class wins.
    """
    parameters = replace(TWO, neighbours=WithinRadius(1.7e308), epsilon_vote=5 * CERTAIN)
    answer = noisy_votes(QUERIES, deal(SIXTY, 3), parameters, np.random.default_rng(9))
    assert answer.totals.tolist() == [np.bincount(SIXTY.labels).tolist()] * 5
    assert answer.spent[0].crowds.tolist() == [5] * 5
    nobody = noisy_votes(QUERIES, [no_rows(1)] * 3, parameters, np.random.default_rng(7))
    assert (nobody.totals.tolist(), nobody.labels.tolist()) == ([[0, 0]] * 5, [0] * 5)


@pytest.mark.parametrize("conversion", [conversions.ByGrid(), ByAnnuli()], ids=["grid", "annuli"])
@pytest.mark.parametrize("features", [1, 6])
def test_the_greatest_k_and_numbers_of_rows_are_supported(conversion: Any, features: int) -> None:
    """At the bounds, k and numbers of rows still give radii, and budgets still give labels."""
    queries, most, parts = np.full((1, features), 0.5), 2**53, [no_rows(features)] * 3
    for k, rows in ((most, 0), (most, 1), (1, most), (most, most)):
        near = NearestRows(k, 1.0, rows, conversion=conversion)
        parameters = replace(TWO, features=features, neighbours=near)
        radii = noisy_votes(queries, parts, parameters, np.random.default_rng(10)).radii
        assert np.isfinite(radii).all()
    for budget in (2.0**-14, 2.0**20):
        parameters = NoisyVotesParameters(features, 2, budget, WithinRadius(0.1), tolerated=0)
        assert len(noisy_votes(queries, parts, parameters, np.random.default_rng(5)).labels) == 1


EPSILON = 0.7
PARTIES = 5
# Losses are sums of logarithms of sums of thousands of terms, each right to 13 digits.
ROUNDING = 1e-9
PAIR = NoisyVotesParameters(1, 2, EPSILON, tolerated=0)
ANNULI = NearestRows(2, EPSILON, rows=3, conversion=ByAnnuli(4))


def worst(release: Release, exponent: Fraction, classes: int = 2) -> float:
    """Return the greatest loss of the totals over all tables and their neighbours."""
    return max(totals_loss(release, pair, exponent) for pair in neighbours(classes))


@pytest.mark.parametrize(
    ("parties", "tolerated", "parameters", "radii"),
    [(5, 0, PAIR, RADII), (5, 2, PAIR, RADII), (3, 1, replace(PAIR, neighbours=ANNULI), None)],
)
def test_totals_cost_the_stated_guarantee(
    parties: int, tolerated: int, parameters: NoisyVotesParameters, radii: Floats | None
) -> None:
    """No table exceeds `remaining_epsilon`, and one attains it, for any number of missing shares.

    A row is in one annulus of each nearby query.
    """
    parameters = replace(parameters, tolerated=tolerated)
    release = voting(parameters, radii=radii)
    for missing in range(parties):
        exponent = (parties - missing) * parameters.exponent(parties)
        claim = remaining_epsilon([release.plan], parties, tolerated=tolerated, missing=missing)
        found = worst(release, exponent)
        assert found <= claim + ROUNDING
        if missing <= tolerated:
            assert claim <= EPSILON
        # With more noise than one owner's, the loss is reached in the limit of far totals only.
        assert found > claim * (1 - 1e-6 if missing >= tolerated else 0.95)


def test_careless_releases_are_caught() -> None:
    """Each of three mistakes lets a row lose more than epsilon.

    One share is missing if each is one of n; each query spends the whole budget, although a row is
    in three balls; or a row changes several counts, as whole balls in place of annuli.
    """
    release = voting(PAIR)
    assert worst(release, Fraction(1)) <= EPSILON + ROUNDING
    assert worst(release, Fraction(PARTIES - 1, PARTIES)) > EPSILON * 1.01
    careless = replace(
        release, plan=replace(pure(release), epsilons=np.full(len(QUERIES), EPSILON))
    )
    assert worst(careless, Fraction(1)) > 1.5 * EPSILON
    annuli = voting(replace(PAIR, neighbours=ANNULI), radii=None)
    balls = replace(annuli, count=lambda rows: np.cumsum(annuli.count(rows), axis=1))
    assert worst(balls, Fraction(1)) > 2 * EPSILON


@pytest.mark.parametrize("counted", [False, True])
def test_grids_and_numbers_of_rows_cost_their_budgets(counted: bool) -> None:
    """A row is in one cell and counted once: each release costs exactly its own budget."""
    near = NearestRows(2, 0.4, *((None, 0.3) if counted else (30, 0.0)))
    steps = batch_steps(QUERIES, replace(PAIR, neighbours=near), shares=1)
    release, budgets = next(steps), [0.3, 0.4] if counted else [0.4]
    for budget in budgets:
        assert worst(release, Fraction(1)) == pytest.approx(budget, rel=1e-9)
        release = steps.send(np.full((len(release.plan.crowds), release.entries), 30))


ALONE = Rows(np.array([[0.35]]), np.array([0]))
ONE = NoisyVotesParameters(1, 1, 1.0, WithinRadius(0.1), tolerated=0)
AUDITED = 60_000


def audited(release: Release, parties: int, exponent: Fraction, missing: int) -> float:
    """Return the loss that runs prove for the only row, which belongs to the first party.

    The first party always adds its noise. The events are totals near 0.
    """
    rng, counts = np.random.default_rng([parties, missing]), []
    for rows in (ALONE, no_rows(1)):
        parts = [rows, *(no_rows(1) for _ in range(parties - 1))]
        totals = runs_of(release, parts, exponent, missing, AUDITED, rng)[:, 0, 0]
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


@pytest.mark.parametrize(("missing", "least"), [(2, 1.5), (3, 7.0)], ids=["some", "all"])
def test_an_audit_detects_missing_noise(missing: int, least: float) -> None:
    """With shares of one third each, epsilon is disproved if two or all of them are missing."""
    assert audited(at_the_row(ONE), 3, Fraction(1, 3), missing) > least


def test_the_audited_code_is_the_deployed_code() -> None:
    """Labelling a batch once gives the totals of the repeated steps."""
    rng = np.random.default_rng(8)
    rows = Rows(rng.random((40, 1)), rng.integers(0, 2, 40))
    parts, parameters = deal(rows, 4), replace(PAIR, tolerated=1)
    once = noisy_votes(QUERIES, parts, parameters, np.random.default_rng(9), radii=RADII, missing=1)
    release, exponent = voting(parameters), parameters.exponent(4)
    again = runs_of(release, parts, exponent, 1, 1, np.random.default_rng(9))
    assert once.totals.tolist() == again[0].tolist()
    assert [once.epsilon, once.rows, len(once.spent)] == [EPSILON, None, 1]
    assert plan_bytes(once.spent[0]) == plan_bytes(release.plan)
