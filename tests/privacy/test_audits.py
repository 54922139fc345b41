"""Audits: closed forms of advantages, and lower bounds that are proven and near the truth."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from veilring.privacy.bounds import (
    advantage_bound,
    audited_epsilon,
    audited_epsilon_of_scores,
    audited_mu,
    exact_advantage,
    gaussian_advantage_bound,
    guess_membership,
    membership_advantage,
)

RUNS = 10**6


def counts(p: float) -> np.ndarray:
    """Return the expected counts of a coin."""
    return np.array([round(p * RUNS), RUNS - round(p * RUNS)])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_reaches_the_advantage_bound(epsilon: float) -> None:
    """A coin of `e^epsilon / (1 + e^epsilon)` has the greatest advantage that epsilon-DP allows."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    distribution = np.array([[p, 1 - p]])
    assert exact_advantage(distribution, distribution[:, ::-1]) == pytest.approx(
        advantage_bound(epsilon), rel=1e-12
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_a_gaussian_advantage_is_that_of_a_threshold_in_the_middle(mu: float) -> None:
    """The bound of mu-GDP is the advantage of the test that compares an answer with mu / 2."""
    rate = math.erfc(-mu / 2 / math.sqrt(2)) / 2  # that N(mu, 1) exceeds mu / 2
    assert gaussian_advantage_bound(mu) == pytest.approx(rate - (1 - rate), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_an_audit_proves_nearly_the_true_epsilon(epsilon: float) -> None:
    """From the expected counts of a coin, the bound is below its epsilon by at most 0.02."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert epsilon - 0.02 < audited_epsilon(counts(p), counts(1 - p)) < epsilon


def test_an_audit_shares_its_alarm_among_all_bounds() -> None:
    """Each of eight bounds is Clopper and Pearson's at an eighth of the alarm."""
    one, other = np.array([700, 300]), np.array([400, 600])
    low = beta.ppf(1e-3 / 8, 600, 401)
    high = beta.ppf(1 - 1e-3 / 8, 301, 700)
    assert audited_epsilon(one, other, 1e-3) == pytest.approx(math.log(low / high), rel=1e-9)


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_an_audit_of_scores_subtracts_delta(delta: float) -> None:
    """A score of 0 or 1 proves ln((p - delta) / q) of two coins, less at most 0.02."""
    p, q = 0.6, 0.2
    present, absent = (np.repeat([1, 0], counts(each)) for each in (p, q))
    proven = audited_epsilon_of_scores(present, absent, 1, delta)
    truth = math.log((p - delta) / q)
    assert truth - 0.02 < proven < truth
    assert audited_epsilon_of_scores(present, absent, 1, delta, alarm=1e-3) > proven


def test_an_audit_of_mu_proves_the_difference_of_quantiles() -> None:
    """Rates of 0.975 and 0.5 differ by 1.96 standard deviations, less at most 0.03."""
    present, absent = (np.repeat([1, 0], counts(each)) for each in (0.975, 0.5))
    assert 1.93 < audited_mu(present, absent, 1) < 1.96
    assert audited_mu(absent, absent, 1) == 0


def test_an_audit_of_equal_mechanisms_proves_nothing() -> None:
    """Equal counts have a bound of 0; counts without an overlap have a finite one."""
    assert audited_epsilon(counts(0.3), counts(0.3)) == 0
    certain = np.array([1000, 0])
    assert 4 < audited_epsilon(certain, certain[::-1]) < math.inf


def test_the_likelier_answers_are_guessed() -> None:
    """Labels that are likelier with the record are taken for it, and rates are subtracted."""
    present, absent = np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([[0.4, 0.6], [0.5, 0.5]])
    guesses = guess_membership(np.array([[0, 1], [1, 0], [0, 0], [1, 1]]), present, absent)
    assert guesses.tolist() == [True, False, True, False]
    assert membership_advantage(np.array([True, True, False, True]), guesses) == 0.25
