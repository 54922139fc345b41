"""Gaussian noise of votes: its exact loss, the choice between it and pure noise, and its draws."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import fft
from tests.privacy.generators import follows
from tests.privacy.test_shares import gaussian_sum
from tests.protocols.noisyvotes.worlds import deal, no_rows, runs_of, voting

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.privacy.noise import discrete_laplace_pmf
from veilring.protocols.noisyvotes.algorithm.noise import (
    GaussianPlan,
    choose_noise,
    deviations,
    gaussian_plan,
)
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    protecting_shares,
    worst_loss,
    worst_plans,
)
from veilring.protocols.noisyvotes.algorithm.releases import Release, noisy_votes
from veilring.protocols.noisyvotes.system import NoisyVotes, VotesSetup
from veilring.protocols.promise import Facts
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.ring.algorithm.sums import SumMethod

DELTA = 1e-5
PARTIES = 5
# Most balls contain 0.5, some only its neighbourhood, and one is alone: omega is 12, 8 or 1.
QUERIES = np.array([*np.linspace(0.4, 0.6, 12), 0.7, 0.72, 0.98])[:, None]
RADII = np.array([*[0.12] * 12, 0.1, 0.1, 0.01])
PLACES = np.array([0.3, 0.45, 0.5, 0.55, 0.62, 0.7, 0.8, 0.98])
STEP = 5e-5
# Of probabilities computed by Fourier transforms.
ROUNDING = 1e-12


def parameters(tolerated: int = 2, epsilon: float = 1.0) -> NoisyVotesParameters:
    """Return parameters whose noise is Gaussian for these queries."""
    return NoisyVotesParameters(1, 2, epsilon, tolerated=tolerated, delta=DELTA)


def gaussian(release: Release) -> GaussianPlan:
    """Return the plan of a release, whose noise is Gaussian."""
    assert isinstance(release.plan, GaussianPlan)
    return release.plan


def shared(parameters: NoisyVotesParameters) -> tuple[GaussianPlan, list[Floats]]:
    """Return the plan, and for each place the sigmas of the totals that a row there changes.

    Noise is independent of counts, so that two neighbouring tables differ as an empty one and one
    of a single row.
    """
    radii = RADII if isinstance(parameters.neighbours, WithinRadius) else None
    release = voting(parameters, QUERIES, radii, shares=parameters.shares(PARTIES))
    plan, found = gaussian(release), []
    for place in PLACES:
        counts = release.count(Rows(np.array([[place]]), np.array([1])))
        assert counts.max() == counts.sum(axis=1).max() == 1
        found.append(plan.sigmas[counts.any(axis=1)])
    return plan, found


@lru_cache
def losses(sigma: float, shares: int, *, up: bool) -> tuple[int, Floats]:
    """Return the first step and the distribution of a total's loss, rounded to whole steps.

    The loss is that of the total against the total with one row more. What is left out at either
    end has a probability below 1e-30.
    """
    one = gaussian_sum(sigma, shares)
    middle, reach = len(one) // 2, math.ceil(12 * sigma * math.sqrt(shares))
    inside = one[middle - reach : middle + reach + 1]
    steps = np.log(inside / one[middle - reach - 1 : middle + reach]) / STEP
    whole = (np.ceil(steps) if up else np.floor(steps)).astype(int)
    first = int(whole.min())
    return first, np.asarray(np.bincount(whole - first, weights=inside), np.float64)


def true_delta(sigmas: Floats, shares: int, epsilon: float, *, up: bool) -> float:
    """Return the delta of a row that changes totals of these shares, by their exact laws.

    Each loss is rounded up or down by less than a step.
    """
    counts = Counter(map(float, sigmas))
    each = [(*losses(sigma, shares, up=up), count) for sigma, count in counts.items()]
    first = sum(begins * count for begins, _, count in each)
    length = fft.next_fast_len(sum(len(one) * count for _, one, count in each), real=True)
    transforms = [fft.rfft(one, length) ** count for _, one, count in each]
    law = fft.irfft(np.prod(transforms, axis=0), length)
    loss = (first + np.arange(length)) * STEP
    above = loss > epsilon
    return float(-np.expm1(epsilon - loss[above]) @ law[above])


def worst(changed: Sequence[Floats], shares: int, epsilon: float, *, up: bool = True) -> float:
    """Return the greatest delta of a row at any place."""
    return max(true_delta(each, shares, epsilon, up=up) for each in changed)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("tolerated", [0, 2, 4])
def test_no_row_loses_more_than_the_budget(epsilon: float, tolerated: int) -> None:
    """With the tolerated colluders the exact delta of any row is at most δ, and near it.

    If all shares were 5 % smaller, that of some row would be above δ.
    """
    shares = PARTIES - tolerated
    plan, changed = shared(parameters(tolerated, epsilon))
    assert max(map(len, changed)) == plan.crowds.max() == 12
    assert 0.8 * DELTA < worst(changed, shares, epsilon) <= DELTA + ROUNDING
    assert worst([0.95 * each for each in changed], shares, epsilon, up=False) > 1.5 * DELTA


def test_no_row_loses_more_than_the_budget_of_annuli() -> None:
    """A row is in one annulus of each nearby query at most, and annuli may use half of δ."""
    near = NearestRows(40, 1.0, rows=200, conversion=ByAnnuli())
    plan, changed = shared(replace(parameters(), neighbours=near))
    assert plan.delta == DELTA / 2
    assert 0.4 * DELTA < worst(changed, PARTIES - 2, 1.0) <= DELTA / 2 + ROUNDING


@pytest.mark.parametrize(
    "method", [SumMethod("shares"), SumMethod("ring")], ids=lambda method: method.name
)
def test_the_stated_loss_holds_if_shares_are_missing(method: SumMethod) -> None:
    """For any size of a coalition, the exact delta at the stated epsilon is at most δ.

    Up to the tolerated size, epsilon is the budget unless the method leaves the victim alone. All
    runs of the release share the epsilon.
    """
    plan, _ = shared(parameters())
    plan = replace(plan, crowds=plan.crowds[:12], sigmas=plan.sigmas[:12])
    changed = [plan.sigmas]
    for coalition in range(PARTIES):
        there = protecting_shares(PARTIES, coalition, method)
        claim = guarantee([plan], PARTIES, coalition, method, tolerated=2)
        assert (claim == 1.0) == (there >= PARTIES - 2)
        assert worst(changed, there, claim) <= DELTA + ROUNDING
        if there < PARTIES - 2:
            assert worst(changed, there, 0.8 * claim) > DELTA


def plans(crowd: int, epsilon: float, shares: int) -> tuple[Allocation, GaussianPlan]:
    """Return pure and Gaussian noise of runs that all share an epsilon."""
    crowds = np.full(crowd, crowd)
    pure = Allocation(crowds, np.nextafter(epsilon / crowds, 0), exact=True)
    gaussian = gaussian_plan(crowds, epsilon, DELTA, shares)
    assert gaussian is not None
    return pure, gaussian


def size(plan: Allocation | GaussianPlan, shares: int) -> float:
    """Return the mean absolute value of a total's noise, by its exact law."""
    if isinstance(plan, GaussianPlan):
        law = gaussian_sum(float(plan.sigmas[0]), shares)
    else:
        reach = math.ceil(40 / plan.epsilons[0])
        law = discrete_laplace_pmf(np.arange(-reach, reach + 1), 1 / float(plan.epsilons[0]))
    return float(law @ np.abs(np.arange(len(law)) - len(law) // 2))


@pytest.mark.parametrize("shares", [1, 7])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_a_release_has_the_smaller_noise(epsilon: float, shares: int) -> None:
    """The mean absolute value of the chosen noise exceeds the smaller one by a thousandth at most.

    Noise is pure up to a number of queries that share an epsilon, and Gaussian from there on: from
    ten on at ε = 1.
    """
    chosen = []
    for crowd in range(1, 25):
        pure, gaussian = plans(crowd, epsilon, shares)
        found = choose_noise(pure, epsilon, DELTA, shares)
        chosen.append(isinstance(found, GaussianPlan))
        assert size(found, shares) <= 1.001 * min(size(gaussian, shares), size(pure, shares))
    assert chosen == sorted(chosen)
    if epsilon == 1:
        assert chosen.count(False) == 9


def test_noise_without_a_delta_is_pure() -> None:
    """With δ = 0, or an epsilon for which noise is 0, the noise is pure for any omega."""
    pure, _ = plans(1000, 1.0, 3)
    assert choose_noise(pure, 1.0, 0.0, 3) is pure
    assert choose_noise(pure, 1001.0, DELTA, 3) is pure


def test_totals_have_the_planned_noise() -> None:
    """Each total of the parties' steps passes a G-test against the sum of the planned shares."""
    tolerated, runs = 2, 20_000
    release = voting(parameters(tolerated), QUERIES, RADII, shares=PARTIES - tolerated)
    plan, parts = gaussian(release), [no_rows(1)] * PARTIES
    exponent = parameters(tolerated).exponent(PARTIES)
    totals = runs_of(release, parts, exponent, 0, runs, np.random.default_rng(3))
    spread = deviations(plan, PARTIES, PARTIES - tolerated)
    for query in (0, 12, 14):
        pmf = gaussian_sum(float(plan.sigmas[query]), PARTIES)
        middle = len(pmf) // 2
        assert math.sqrt(pmf @ (np.arange(len(pmf)) - middle) ** 2) == pytest.approx(spread[query])
        seen = np.bincount(totals[:, query].ravel() + middle, minlength=len(pmf))
        assert follows(seen, pmf, tests=3)


ROWS = Rows(np.random.default_rng(0).random((200, 1)), np.arange(200) % 2)
NEAREST = (
    NearestRows(80, 1.0, epsilon_count=0.3),
    NearestRows(80, 1.0, epsilon_count=0.3, conversion=ByAnnuli()),
    NearestRows(80, 1.0, rows=200, conversion=ByAnnuli()),
)


@pytest.mark.parametrize("near", [WithinRadius(0.3), *NEAREST])
@pytest.mark.parametrize("method", [SumMethod("shares"), SumMethod("ring")])
def test_releases_cost_their_budgets(near: WithinRadius | NearestRows, method: SumMethod) -> None:
    """The epsilons and deltas of a batch's releases add up to those of the batch at most.

    No plan loses more than the worst one, if a coalition leaves too little noise. Releases of one
    run are pure.
    """
    for tolerated in (0, 2):
        public = replace(parameters(tolerated), neighbours=near, sum=method)
        assert sum(each.delta for each in public.budgets) == DELTA
        answer = noisy_votes(QUERIES, deal(ROWS, PARTIES), public, np.random.default_rng(2))
        drawn = [plan for plan in answer.spent if isinstance(plan, GaussianPlan)]
        assert isinstance(answer.spent[-1], GaussianPlan)
        assert sum(plan.delta for plan in drawn) <= DELTA
        assert all(len(plan.crowds) > 1 for plan in drawn)
        most = worst_loss(public, PARTIES, len(QUERIES))
        coalition = max(1, tolerated)
        found = guarantee(answer.spent, PARTIES, coalition, method, tolerated=tolerated)
        assert found <= most
        alone = protecting_shares(PARTIES, coalition, method) < PARTIES - tolerated
        assert (most > public.epsilon) == alone
        pure = replace(public, delta=0.0)
        plans = worst_plans(pure, len(QUERIES))
        least = guarantee(plans, PARTIES, coalition, method, tolerated=tolerated)
        assert worst_loss(pure, PARTIES, len(QUERIES)) == least <= most


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_the_audited_noise_has_the_planned_variance(delta: float) -> None:
    """In units of its plan, the noise of votes has a mean square of 1, whatever omega is."""
    parts = {f"party-{n}": rows for n, rows in enumerate(deal(ROWS, PARTIES))}
    setup = NoisyVotes(radius=0.1, delta=delta).setup(parts, Facts(PARTIES, 1, 2, rows=200))
    assert isinstance(setup, VotesSetup)
    rng, values = np.random.default_rng(4), []
    for _ in range(200):
        answer = setup.answer(QUERIES, rng)
        planned = setup.noise(QUERIES, answer)
        assert planned is not None
        assert isinstance(answer.spent[0], GaussianPlan) == bool(delta)
        assert (planned.kurtosis == 3.0) == bool(delta)
        values.append(planned.values)
    squares = np.square(values).reshape(-1)
    # Five deviations: below 1e-6.
    assert abs(squares.mean() - 1) < 5 * squares.std() / math.sqrt(squares.size)
