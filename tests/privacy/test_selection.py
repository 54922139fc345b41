"""Choices by scores, and randomised response: their distributions, losses and exact paths."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.owner import exponential_mechanism, exponential_probabilities
from tests.privacy.generators import GENERATORS, follows, scripted, seeded, spelling

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy import selection
from veilring.privacy.draws import bernoulli_exp
from veilring.privacy.exact import exp_ceil, exp_floor, loss

Draw = Callable[..., Ints]
Distribution = Callable[..., Floats]
MECHANISMS: dict[str, tuple[Draw, Distribution]] = {
    "exponential": (exponential_mechanism, exponential_probabilities),
    "permute and flip": (selection.permute_and_flip, selection.permute_and_flip_probabilities),
}
# One more count multiplies a candidate's probability by this: exact distributions cannot use exp.
BASE = Fraction(3, 2)


def flipped(scores: tuple[int, ...]) -> list[Fraction]:
    """Return permute-and-flip's distribution by McKenna and Sheldon's definition."""
    p = [BASE ** (score - max(scores)) for score in scores]
    distribution = [Fraction(0)] * len(p)
    for order in permutations(range(len(p))):
        reached = Fraction(1, math.factorial(len(p)))
        for candidate in order:
            distribution[candidate] += reached * p[candidate]
            reached *= 1 - p[candidate]
    return distribution


def weighted(scores: tuple[int, ...]) -> list[Fraction]:
    """Return the distribution of the exponential mechanism."""
    weights = [BASE**score for score in scores]
    return [weight / sum(weights) for weight in weights]


EXACT = {"exponential": weighted, "permute and flip": flipped}


@pytest.mark.parametrize("name", MECHANISMS)
@settings(max_examples=30)
@given(scores=st.lists(st.integers(-9, 9), min_size=1, max_size=6))
def test_probabilities_are_those_of_the_definition(name: str, scores: list[int]) -> None:
    """Closed forms agree with distributions summed as fractions, coin by coin."""
    epsilon = 2 * math.log(BASE)
    exact = np.array([[float(p) for p in EXACT[name](tuple(scores))]])
    distribution = MECHANISMS[name][1](np.array([scores]), epsilon)
    np.testing.assert_allclose(distribution, exact, rtol=1e-12)
    half = MECHANISMS[name][1](np.array([scores]), epsilon / 2, monotone=True)
    np.testing.assert_allclose(half, exact, rtol=1e-12)
    tripled = MECHANISMS[name][1](3 * np.array([scores]), epsilon, sensitivity=3)
    np.testing.assert_allclose(tripled, exact, rtol=1e-12)


@pytest.mark.parametrize("name", MECHANISMS)
def test_choosing_loses_no_more_than_it_claims(name: str) -> None:
    """One step of any scores costs epsilon, or half of it if all scores move the same way."""
    for scores in product(range(4), repeat=3):
        distribution = EXACT[name](scores)
        for step in product((-1, 0, 1), repeat=3):
            other = EXACT[name](tuple(map(sum, zip(scores, step, strict=True))))
            claim = BASE if min(step) >= 0 or max(step) <= 0 else BASE**2
            for p, q in zip(distribution, other, strict=True):
                assert p <= claim * q
                assert q <= claim * p


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("monotone", [False, True])
def test_choices_follow_their_distribution(
    name: str, generator: Callable[[], np.random.Generator], *, monotone: bool
) -> None:
    """150,000 choices in one call, of two budgets, pass a G-test against each distribution."""
    draw, distribution = MECHANISMS[name]
    scores = np.tile([5, 9, 9, 2, 8, 0, 7], (150_000, 1))
    epsilon = np.where(np.arange(len(scores)) % 3 == 0, 0.2, 0.9)
    chosen = draw(scores, epsilon, generator(), monotone=monotone)
    for budget in (0.2, 0.9):
        expected = distribution(scores[:1], budget, monotone=monotone)[0]
        counts = np.bincount(chosen[epsilon == budget], minlength=7)
        assert follows(counts, expected, tests=16)


@pytest.mark.parametrize("name", MECHANISMS)
def test_floats_decide_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random bits give the same choices on the exact path."""
    scores = seeded("scores").integers(-50, 50, (300, 8))
    choose = partial(MECHANISMS[name][0], scores, np.linspace(0.001, 3, 300), sensitivity=3)
    quick = choose(seeded("exact"))
    monkeypatch.setattr("papers.owner._SLACK", 1.0)
    trusting_none = partial(bernoulli_exp, slack=2.0)
    monkeypatch.setattr("veilring.privacy.selection.bernoulli_exp", trusting_none)
    assert np.array_equal(quick, choose(seeded("exact")))


@pytest.mark.parametrize("bits", [40, 53, 54, 85, 117, 150])
def test_a_number_next_to_a_boundary_is_decided_correctly(bits: int) -> None:
    """Numbers that differ from an interval's end beyond a float's last bit fall correctly."""
    first, second = exp_floor(-1), exp_ceil(Fraction(-5, 2))
    total = first + second + 1
    for candidate, boundary in ((0, first / total), (1, (first + second) / total)):
        for side in (-1, 1):
            rng = spelling(boundary + side * Fraction(1, 2**bits))
            chosen = exponential_mechanism(np.array([[3, 0, 5]]), 0.5, rng, monotone=True)
            assert chosen.tolist() == [candidate + (side > 0)]


@pytest.mark.parametrize("name", MECHANISMS)
def test_hopeless_candidates_do_no_harm(name: str) -> None:
    """Scores at the maximum distance choose the best; a single candidate is always chosen.

    8-bit scores with larger differences have the distribution of the same scores in 64 bits.
    """
    draw, distribution = MECHANISMS[name]
    scores = np.array([[2**52, -(2**52)]] * 50)
    assert not draw(scores, 5.0, seeded()).any()
    assert distribution(scores, 5.0)[0].tolist() == [1.0, 0.0]
    assert not draw(scores[:, :1], 5.0, seeded()).any()
    assert draw(np.zeros((0, 3), dtype=np.int64), 1.0, seeded()).shape == (0,)
    narrow = np.array([[100, -100, 0]], dtype=np.int8)
    assert np.array_equal(distribution(narrow, 0.01), distribution(narrow.astype(np.int64), 0.01))


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 9), st.data())
def test_reports_have_their_weight(domain: int, other: int, more: int, data: st.DataObject) -> None:
    """Over all draws, the true value is reported `own` times and each other `other` times."""
    distribution = selection.ResponseDistribution(domain, other + more, other)
    value = data.draw(st.integers(0, domain - 1))
    rng = scripted(np.arange(distribution.total))
    reports = selection.randomised_response(np.full(distribution.total, value), distribution, rng)
    expected = [distribution.own if x == value else distribution.other for x in range(domain)]
    assert np.bincount(reports, minlength=domain).tolist() == expected


@given(st.floats(0.001, 40), st.integers(2, 2**20))
def test_a_distribution_spends_at_most_its_budget(epsilon: float, domain: int) -> None:
    """The exact loss of any two values is at most epsilon, and close to it with 63 bits."""
    distribution = selection.ResponseDistribution.spending(epsilon, domain)
    assert Fraction(distribution.own, distribution.other) <= exp_floor(epsilon)
    assert distribution.epsilon <= epsilon
    # `own` has at least 63 - 1 - log2(domain) - 1 bits.
    assert epsilon - distribution.epsilon <= domain * 2.0**-60 + 1e-15 * epsilon
    assert distribution.p + (domain - 1) * distribution.q == 1
    assert distribution.total <= 2**63
    p, q, rest = distribution.p, distribution.q, [distribution.q] * min(domain - 2, 4)
    assert loss([p, q, *rest], [q, p, *rest]) == distribution.epsilon


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_reports_follow_their_distribution(generator: Callable[[], np.random.Generator]) -> None:
    """Reports of two values, in a two-dimensional array, pass a G-test."""
    distribution = selection.ResponseDistribution.spending(1.3, 12)
    values = np.tile(np.array([0, 7], dtype=np.uint8), (100_000, 1))
    reports = selection.randomised_response(values, distribution, generator())
    for column, value in enumerate((0, 7)):
        expected = np.full(12, float(distribution.q))
        expected[value] = float(distribution.p)
        assert follows(np.bincount(reports[:, column], minlength=12), expected, tests=4)


def test_distributions_at_the_ends_of_their_range() -> None:
    """Two values are Warner's coin, a tiny budget gives equal weights, and 2**63 values fit."""
    warner = selection.ResponseDistribution.spending(math.log(3), 2)
    assert float(warner.p) == pytest.approx(0.75, rel=1e-15)
    tiny = selection.ResponseDistribution.spending(1e-300, 4)
    assert (tiny.own, tiny.epsilon) == (tiny.other, 0.0)
    assert selection.ResponseDistribution.spending(1e-300, 2**63).total == 2**63


def test_values_outside_the_domain_are_refused_unseen() -> None:
    """A value outside the domain is refused, and the error does not show it."""
    distribution = selection.ResponseDistribution(4, 3, 1)
    for value in (-77, 4, 77):
        with pytest.raises(InputError, match="values must be from 0 to") as refusal:
            selection.randomised_response(np.array([0, value]), distribution, seeded())
        assert "77" not in str(refusal.value)
