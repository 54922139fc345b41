"""The individual filter: payments, the distribution of the label, and an audit of answers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from papers.answers import (
    MakePredictor,
    audited_epsilon_of_scores,
    audited_mu,
    canary_labels,
    gaussian_advantage_bound,
    guess_membership,
    label_probabilities,
    membership_advantage,
)
from scipy import integrate, stats
from tests.protocols.prediction.serving import clustered

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.privacy.accounting import GaussianDP, individual_budget
from veilring.privacy.bounds import ALARM
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import Kernel, quantise
from veilring.protocols.prediction.algorithm.filter import (
    FilterParameters,
    Neighbours,
    PricedLabel,
    answer_query,
)
from veilring.protocols.prediction.algorithm.predictor import Predictor

# 100,000 streams were run by hand, with `check_streams(0, 100_000)`; these are the first of them.
STREAMS = 250


# Votes are rounded down to these steps. One that lies on a step up to `_EITHER` could be rounded
# either way by the error of floats, and counts as the smaller here.
_STEPS = 2.0**24
_EITHER = 1e-4


def naive_answer(
    parameters: FilterParameters,
    near: Iterable[tuple[int, float, int]],
    left: Sequence[int],
    noise: Sequence[float],
) -> tuple[int, float, dict[int, float]]:
    """Answer a query.

    Args:
        parameters: The public parameters.
        near: The record, κ and label of each row with κ ≥ τ.
        left: The remaining budget of each record, in units.
        noise: Standard normal numbers: one for the count, and one for each class.

    Returns:
        The winner, a lower bound on its lead, and the cost of each participating record: its
        releases have a Rényi divergence of order α of at most α times this.
    """
    sigma2, entry = parameters.sigma2, 1 / (2 * parameters.sigma1**2)
    active = [each for each in near if left[each[0]] >= parameters.entry_units]
    K = max(len(active) + parameters.sigma1 * noise[0], 30.0)
    votes = [sigma2 * math.sqrt(K) * each for each in noise[1:]]
    costs = {}
    for record, kappa, label in active:
        z = (left[record] - parameters.entry_units) / UNITS
        f = math.floor(min(kappa, sigma2 * math.sqrt(2 * K * z)) * _STEPS - _EITHER) / _STEPS
        votes[label] += f
        costs[record] = entry + max(f, 0.0) ** 2 / (2 * sigma2**2 * K)
    first, *others = sorted(votes, reverse=True)
    return votes.index(first), first - max(others, default=-math.inf), costs


def check_streams(first: int, last: int) -> int:
    """Compare adaptive streams with the naive algorithm; return the number of exhausted records."""
    exhausted = 0
    for seed in range(first, last):
        rng = np.random.default_rng((7, seed))
        # Some records exhaust their budgets early, and others late.
        parameters = FilterParameters(
            classes=int(rng.integers(1, 5)),
            queries=int(rng.integers(4, 40)),
            budget=float(10 ** rng.uniform(-5, 1)),
            sigma2=float(10 ** rng.uniform(-2, 1)),
        )
        records = int(rng.integers(1, 12))
        remaining = np.full(records, int(parameters.budget * UNITS))
        labels = rng.integers(0, parameters.classes, records)
        spent = np.zeros(records)
        for _ in range(int(rng.integers(1, 30))):
            chosen = np.flatnonzero(rng.random(records) < rng.random())
            near = Neighbours(chosen, rng.uniform(1e-3, 1, len(chosen)), labels[chosen])
            before, state = remaining.tolist(), rng.bit_generator.state
            answer = answer_query(parameters, near, remaining, rng)
            rng.bit_generator.state = state
            noise = rng.standard_normal(1 + parameters.classes).tolist()
            rows = zip(*(column.tolist() for column in near), strict=True)
            label, lead, costs = naive_answer(parameters, rows, before, noise)
            assert label == answer.label or lead < records * 2.0**-23
            assert answer.payers.tolist() == list(costs)
            spent[answer.payers] += list(costs.values())
            charged = parameters.budget - remaining / UNITS
            assert (spent <= charged * (1 + 1e-12)).all()
            assert (remaining >= 0).all()
            if answer.label:  # the next query is another one, as an adversary would choose
                labels = rng.permutation(labels)
        assert (spent <= parameters.budget * (1 + 1e-12)).all()
        exhausted += int((remaining < parameters.entry_units).sum())
    return exhausted


def test_no_stream_of_queries_costs_a_record_more_than_its_budget() -> None:
    """The exact cost of each record's releases is at most its charges, which are at most B."""
    with np.errstate(all="raise"):
        assert check_streams(0, STREAMS) > STREAMS


def test_an_exhausted_budget_votes_nothing_without_a_warning() -> None:
    """With exactly the entry left, a record is counted, votes 0 and has nothing left.

    The text of the answer does not show who paid.
    """
    parameters = FilterParameters(classes=2, queries=4, budget=0.01, sigma2=0.4)
    left = np.array([parameters.entry_units, 0, int(0.01 * UNITS)])
    near = Neighbours(np.arange(3), np.ones(3), np.array([0, 1, 1]))
    with np.errstate(all="raise"):
        answer = answer_query(parameters, near, left, np.random.default_rng(0))
    assert answer.payers.tolist() == [0, 2]
    assert answer.units[0] == parameters.entry_units
    assert left[:2].tolist() == [0, 0]
    assert repr(answer) == f"PricedLabel(label={answer.label})"


def test_the_label_has_the_distribution_of_the_paper() -> None:
    """With two classes it is a probit of the vote difference, averaged over the noisy K."""
    parameters = FilterParameters(classes=2, queries=600, budget=2.0, sigma2=0.8)
    kappa = np.r_[np.full(30, 0.9), np.full(25, 0.8)]
    near = Neighbours(np.arange(55), kappa, np.r_[np.zeros(30, int), np.ones(25, int)])
    difference = 30 * 0.9 - 25 * 0.8

    def weighted(count: float) -> float:
        K = max(count, 30.0)
        wins = stats.norm.cdf(difference / (parameters.sigma2 * math.sqrt(2 * K)))
        return float(wins * stats.norm.pdf(count, 55, parameters.sigma1))

    reach = 10 * parameters.sigma1
    expected, _ = integrate.quad(weighted, 55 - reach, 55 + reach, points=[30], epsabs=1e-10)
    rng, runs = np.random.default_rng(3), 6_000
    budgets = np.full(55, int(2 * UNITS))
    zeros = sum(answer_query(parameters, near, budgets.copy(), rng).label == 0 for _ in range(runs))
    low, high = (stats.binom.isf(q, runs, expected) for q in (1 - ALARM / 2, ALARM / 2))
    assert low <= zeros <= high
    assert high / runs < 0.95  # or it would say little


def test_released_votes_are_free_and_count() -> None:
    """They add to the sums and K, draw no noise, and cost no record."""
    parameters = FilterParameters(classes=2, queries=10, budget=0.05, sigma2=0.01)
    near = Neighbours(np.arange(2), np.full(2, 0.5), np.zeros(2, np.int64))
    left = np.full(2, int(0.05 * UNITS))
    rng = np.random.default_rng(4)
    released = np.array([0.0, 500.0, 1000.0])
    answer = answer_query(parameters, near, left, rng, released=released)
    assert answer.label == 1
    # K is about 1,000 now, so that each vote costs that much less.
    assert (answer.units - parameters.entry_units < UNITS * 0.25 / (2 * 1e-4 * 900)).all()


def test_counting_takes_half_of_the_budget_over_all_queries() -> None:
    """σ1 is sqrt(T / 6B), so T entries cost 3 B, and records near a third of the queries pay B."""
    parameters = FilterParameters(classes=2, queries=600, budget=0.03, sigma2=1.0)
    assert parameters.sigma1 == math.sqrt(600 / (6 * 0.03))
    assert parameters.entry_units == math.ceil(3 * 0.03 / 600 * UNITS - 1e-3)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("classes", (0, 4, 1.0, 1.0)),
        ("queries", (1, 3, 1.0, 1.0)),
        ("budget", (1, 4, 0.0, 1.0)),
        ("budget", (2, 500, 1e7, 0.5)),
        ("sigma1", (2, 500, 1e-300, 0.5)),
        ("sigma2", (1, 4, 1.0, math.inf)),
    ],
)
def test_invalid_parameters_are_refused(field: str, values: tuple[int, int, float, float]) -> None:
    """No price could be rounded to units, and no noise would be infinite; the error names it."""
    with pytest.raises(InputError, match=f"{field} is"):
        FilterParameters(*values)


DELTA = 1e-5
QUERIES = 12
CANARY = quantise(np.array([[1.0, 0.0, 0.0]]))
FILTER = "veilring.protocols.prediction.algorithm.predictor.answer_query"


def _make(epsilon: float, others: int, sigma2: float) -> MakePredictor:
    """Return servers whose other rows are around the canary, or on its other side."""
    budget = individual_budget(epsilon, DELTA, "gdp")
    parameters = FilterParameters(classes=2, queries=QUERIES, budget=budget, sigma2=sigma2)
    rows = clustered(others, 3, 2, np.random.default_rng(1))
    units = np.full(others, int(budget * UNITS))

    def make(present: bool) -> Predictor:
        made = Predictor(parameters, Kernel("cosine", 0.1), 3)
        made.add(np.arange(others), rows.features, rows.labels, units)
        if present:
            made.add(np.array([99]), CANARY, np.array([1]), np.array([int(budget * UNITS)]))
        return made

    return make


def _labels(make: MakePredictor, runs: int, asked: int = QUERIES) -> tuple[Ints, Ints]:
    rng, queries = np.random.default_rng(2), np.repeat(CANARY, asked, axis=0)
    one = canary_labels(make, present=True, queries=queries, runs=runs, rng=rng)
    return one, canary_labels(make, present=False, queries=queries, runs=runs, rng=rng)


def _audited(make: MakePredictor, runs: int, asked: int = QUERIES) -> tuple[float, float]:
    """Return the epsilon and the mu that are proved by the answers with the canary's label."""
    one, other = (labels.sum(axis=1) for labels in _labels(make, runs, asked))
    return audited_epsilon_of_scores(one, other, asked, DELTA), audited_mu(one, other, asked)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "others"), [(1.0, 0), (6.0, 8)])
def test_answers_cost_a_record_at_most_the_claim(epsilon: float, others: int) -> None:
    """Neither bound exceeds its claim, except in one audit in a million."""
    found, mu = _audited(_make(epsilon, others, sigma2=0.4), 300)
    assert found <= epsilon
    assert mu <= GaussianDP.calibrate(epsilon, DELTA).mu


@pytest.mark.slow
def test_a_vote_of_the_whole_budget_is_detected_and_costs_no_more() -> None:
    """With little noise a lone record spends all on the first answer; the audit detects some."""
    found, mu = _audited(_make(6.0, others=0, sigma2=0.15), 1600, asked=1)
    assert found <= 6.0
    assert 0.2 < mu <= GaussianDP.calibrate(6.0, DELTA).mu


def _who_cannot_pay_votes(
    parameters: FilterParameters, near: Neighbours, remaining: Ints, rng: Generator, **options: Any
) -> PricedLabel:
    """A filter that counts records and lets them vote with any remaining budget."""
    plenty = np.maximum(remaining, 10**15)
    answer = answer_query(parameters, near, plenty, rng, **options)
    remaining[answer.payers] -= np.minimum(answer.units, remaining[answer.payers])
    return answer


def _nobody_draws_no_noise(*given: Any, **options: Any) -> PricedLabel:
    """A filter that answers the first class if no record is selected."""
    answer = answer_query(*given, **options)
    return answer if len(answer.payers) else replace(answer, label=0)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [_who_cannot_pay_votes, _nobody_draws_no_noise])
def test_a_broken_filter_is_caught(broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both bounds rise above the claim."""
    monkeypatch.setattr(FILTER, broken)
    found, mu = _audited(_make(1.0, others=0, sigma2=0.1), 150)
    assert found > 1.0
    assert mu > GaussianDP.calibrate(1.0, DELTA).mu


@pytest.mark.slow
def test_membership_inference_stays_within_its_bound() -> None:
    """An adversary that can run the server itself gains at most what Gaussian DP allows."""
    epsilon = 6.0
    make, runs = _make(epsilon, others=4, sigma2=0.4), 200
    one, other = _labels(make, 2 * runs)
    distributions = [label_probabilities(each[:runs], 2) for each in (one, other)]
    guesses = [guess_membership(each[runs:], *distributions) for each in (one, other)]
    # Hoeffding's bound for the difference of two means, each of `runs` coins.
    error = math.sqrt(math.log(1 / ALARM) / runs)
    bound = gaussian_advantage_bound(GaussianDP.calibrate(epsilon, DELTA).mu)
    assert membership_advantage(*guesses) - error <= bound


def test_label_probabilities_are_positive_fractions() -> None:
    """Half an answer is added to each label, so that no ratio is infinite."""
    distributions = label_probabilities(np.array([[0, 1], [0, 1], [0, 0]]), 2)
    assert distributions.tolist() == [[3.5 / 4, 0.5 / 4], [1.5 / 4, 2.5 / 4]]
    guessed = guess_membership(np.array([[0, 0], [1, 1]]), distributions, distributions[::-1])
    assert guessed.tolist() == [False, False]
