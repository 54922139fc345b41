"""The audit of answers: they cost a record at most the claim, and more with a broken filter."""

import math
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
from tests.protocols.prediction.serving import clustered

from veilring.arrays import Ints
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

pytestmark = pytest.mark.slow

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


def _scores(make: MakePredictor, runs: int) -> tuple[Ints, Ints]:
    one, other = _labels(make, runs)
    return one.sum(axis=1), other.sum(axis=1)  # answers that are the canary's label


@pytest.mark.parametrize(("epsilon", "others"), [(1.0, 0), (6.0, 8)])
def test_answers_cost_a_record_at_most_the_claim(epsilon: float, others: int) -> None:
    """Neither bound exceeds its claim, except in one audit in a million."""
    one, other = _scores(_make(epsilon, others, sigma2=0.4), 300)
    assert audited_epsilon_of_scores(one, other, QUERIES, DELTA) <= epsilon
    assert audited_mu(one, other, QUERIES) <= GaussianDP.calibrate(epsilon, DELTA).mu


def test_a_vote_of_the_whole_budget_is_detected_and_costs_no_more() -> None:
    """With little noise a lone record spends all on the first answer; the audit detects some."""
    make = _make(6.0, others=0, sigma2=0.15)
    one, other = (labels[:, 0] for labels in _labels(make, 1600, asked=1))
    assert 0.2 < audited_mu(one, other, 1) <= GaussianDP.calibrate(6.0, DELTA).mu
    assert audited_epsilon_of_scores(one, other, 1, DELTA) <= 6.0


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


@pytest.mark.parametrize("broken", [_who_cannot_pay_votes, _nobody_draws_no_noise])
def test_a_broken_filter_is_caught(broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both bounds rise above the claim."""
    monkeypatch.setattr(FILTER, broken)
    one, other = _scores(_make(1.0, others=0, sigma2=0.1), 150)
    assert audited_epsilon_of_scores(one, other, QUERIES, DELTA) > 1.0
    assert audited_mu(one, other, QUERIES) > GaussianDP.calibrate(1.0, DELTA).mu


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
