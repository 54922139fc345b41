"""Guarantees with missing noise shares, and the worst plans that bound all answers about k."""

import math
from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.noisyvotes.worlds import deal

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.privacy.divisible import polya_difference_pmf
from veilring.privacy.shares import count_loss
from veilring.protocols.noisyvotes.algorithm.parameters import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    protecting_shares,
    remaining_epsilon,
    worst_plans,
)
from veilring.protocols.noisyvotes.algorithm.releases import noisy_votes
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.ring.algorithm.sums import SumMethod, leaked_groups, walecki_cycles

RING, SHARES = SumMethod(), SumMethod("shares")
ONE = [Allocation(np.array([1]), np.array([1.0]), exact=True)]


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("exponent", [Fraction(1, 9), Fraction(1, 2), Fraction(9, 10)])
def test_the_loss_of_a_count_is_the_greatest_ratio(epsilon: float, exponent: Fraction) -> None:
    """Below exponent 1 the ratios fall from 0 on, and the first equals `count_loss`."""
    pmf = polya_difference_pmf(np.arange(int(30 / epsilon)), exponent, 1 / epsilon)
    ratios = np.log(pmf[:-1] / pmf[1:])
    # A ratio of sums of some thousand terms is right to 12 digits.
    assert (np.diff(ratios) < 1e-11).all()
    assert ratios[-1] > epsilon
    claim = count_loss(epsilon, exponent)
    assert ratios[0] <= claim + 1e-12
    assert claim == pytest.approx(ratios[0], rel=1e-9)


@settings(max_examples=60)
@given(
    st.floats(0.01, 20), st.fractions(Fraction(1, 50), 1, max_denominator=60), st.integers(1, 60)
)
def test_the_loss_is_bounded_and_monotone(epsilon: float, exponent: Fraction, crowd: int) -> None:
    """It is from epsilon to epsilon + ln(1 / A), rises with epsilon and falls with A.

    Below exponent 1 a larger clique of queries, which divides the same budget, loses more; both
    numbers are rounded up, by less than one part in 10**8.
    """
    loss = count_loss(epsilon, exponent)
    assert epsilon <= loss <= (epsilon - math.log(exponent)) * (1 + 1e-9)
    assert loss <= count_loss(epsilon * 1.01, exponent)
    assert loss <= count_loss(epsilon, exponent * Fraction(9, 10)) < count_loss(epsilon, Fraction())
    if exponent < Fraction(99, 100) and epsilon > crowd / 1000:
        fewer, more = (n * count_loss(epsilon / n, exponent) for n in (crowd, crowd + 1))
        assert fewer < more * (1 + 1e-8)


def test_the_guarantee_weakens_with_missing_shares() -> None:
    """Up to the tolerated number the loss stays ε; then it grows, but stays finite.

    If all others collude or add nothing, a victim's own share remains, with any method.
    """
    losses = [remaining_epsilon(ONE, 6, tolerated=2, missing=m) for m in range(6)]
    assert losses[:3] == pytest.approx([1.0] * 3, abs=1e-15)
    assert (np.diff(losses[2:]) > 0).all()
    assert losses[-1] < 1 + math.log(4)
    for method in methods(6):
        for coalition, missing in ((5, 0), (1, 5)):
            own = guarantee(ONE, 6, coalition, method, tolerated=2, missing=missing)
            assert own == losses[-1]
    assert guarantee(ONE, 5, 4, RING, tolerated=4) <= 1  # every share is enough by itself


def methods(parties: int) -> Iterator[SumMethod]:
    """Yield all methods that support the given number of parties."""
    yield from (RING, SHARES, SumMethod("masks"))
    yield from (SumMethod("cycles", s) for s in range(2, (parties - 1) // 2 + 1))


def in_ring(parties: int, members: Collection[int], method: SumMethod) -> float:
    """Return the epsilon that protects each honest party from a coalition at known positions."""
    smallest = parties - len(members)
    if method.goes_round:
        cycles = walecki_cycles(parties)[: method.cycles]
        if method.cycles == 1:
            cycles = (tuple(range(parties)),)
        smallest = min(map(len, leaked_groups(cycles, set(members))))
    return remaining_epsilon(ONE, parties, tolerated=1, missing=parties - max(1, smallest))


@pytest.mark.parametrize("parties", [3, 4, 5, 6, 7])
def test_the_worst_case_is_the_worst_of_all_positions(parties: int) -> None:
    """Over all positions of a coalition in the ring, the guarantee is the greatest loss."""
    for method, size in product(methods(parties), range(parties)):
        coalitions = combinations(range(parties), size)
        worst = max(in_ring(parties, members, method) for members in coalitions)
        assert guarantee(ONE, parties, size, method, tolerated=1) == worst


@pytest.mark.parametrize("parties", [5, 8, 11, 12, 16, 17])
def test_cycles_are_cut_only_by_all_neighbours(parties: int) -> None:
    """With s cycles a coalition smaller than 2s leaves all honest shares together."""
    for method, size in product(methods(parties), range(parties)):
        whole = not method.goes_round or size < 2 * method.cycles
        assert protecting_shares(parties, size, method) == (parties - size if whole else 1)


@pytest.mark.parametrize("parties", [3, 5, 10])
def test_an_observing_party_misses_its_own_share(parties: int) -> None:
    """A party that observes has one of the tolerated shares; an outsider has none."""
    for tolerated in range(1, parties - 1):
        by_party = [
            guarantee(ONE, parties, 1, SHARES, tolerated=tolerated, missing=others)
            for others in (tolerated - 1, tolerated)
        ]
        assert by_party[0] <= 1
        assert by_party[1] > 1.1
        outside = remaining_epsilon(ONE, parties, tolerated=tolerated, missing=tolerated)
        assert outside <= 1


def test_losses_of_releases_and_shared_rows_add_up_and_are_rounded_up() -> None:
    """A batch loses the maximum over cliques of its queries, and the stated sum is at least it."""
    for crowd in range(1, 60):
        sizes, budgets = np.array([crowd] * crowd + [1]), np.array([0.1] * crowd + [0.35])
        plan = Allocation(sizes, budgets, exact=True)
        for missing, spent in ((1, [plan]), (1, [plan, *ONE]), (2, [plan, *ONE])):
            exponent = Fraction(4 - missing, 3)
            losses = [Fraction(count_loss(each, exponent)) for each in (0.1, 0.35, 1.0)]
            exact = max(crowd * losses[0], losses[1]) + (len(spent) - 1) * losses[2]
            found = Fraction(remaining_epsilon(spent, 4, tolerated=1, missing=missing))
            assert exact <= found <= exact * (1 + Fraction(1, 2**52))


QUERIES = np.random.default_rng(1).random((30, 2))
SPREAD = Rows(np.random.default_rng(2).random((120, 2)), np.arange(120) % 2)
CLUSTERED = Rows(np.full((120, 2), 0.5), np.arange(120) % 2)
NEAREST = [
    NearestRows(20, 1.0, epsilon_count=0.3),
    NearestRows(20, 1.0, epsilon_count=0.3, conversion=ByAnnuli()),
    NearestRows(20, 1.0, rows=120, conversion=ByAnnuli()),
]
about_k = pytest.mark.parametrize("near", NEAREST, ids=["grid", "annuli", "annuli of known rows"])


def about(near: NearestRows | WithinRadius, epsilon: float = 1.0) -> NoisyVotesParameters:
    """Return parameters with which each missing noise share matters."""
    return NoisyVotesParameters(2, 2, epsilon, near, tolerated=0)


@about_k
@pytest.mark.parametrize("missing", [0, 1, 4])
def test_no_answer_loses_more_than_the_worst_plan(near: NearestRows, missing: int) -> None:
    """Separate rows and coinciding rows give different losses, all within one bound."""
    parameters = about(near)
    rng = np.random.default_rng(3)
    *losses, bound = (
        remaining_epsilon(spent, 5, tolerated=0, missing=missing)
        for spent in (
            noisy_votes(QUERIES, deal(SPREAD, 5), parameters, rng).spent,
            noisy_votes(QUERIES, deal(CLUSTERED, 5), parameters, rng).spent,
            worst_plans(parameters, len(QUERIES)),
        )
    )
    if missing:
        assert losses[0] != losses[1]
        assert max(losses) <= bound
    else:
        assert max(*losses, bound) <= parameters.epsilon


@pytest.mark.parametrize(
    "parameters",  # each budget in turn is too small for thirty queries, or for one count
    [
        about(NearestRows(5, 1.0, epsilon_count=0.3), 30 * 2.0**-15),
        about(NearestRows(5, 30 * 2.0**-15, rows=120, conversion=ByAnnuli())),
        about(NearestRows(5, 1.0, rows=120, conversion=ByAnnuli()), 20 * 2.0**-15),
    ],
    ids=["grid", "annuli", "vote"],
)
def test_a_batch_that_might_end_midway_is_refused(parameters: NoisyVotesParameters) -> None:
    """A batch whose worst plan leaves too little noise is refused before any draw or message."""
    rng = np.random.default_rng(4)
    before = rng.bit_generator.state
    with pytest.raises(InputError, match="30 queries are too many"):
        noisy_votes(QUERIES, deal(SPREAD, 3), parameters, rng)
    assert rng.bit_generator.state == before
    assert len(noisy_votes(QUERIES[:9], deal(SPREAD, 3), parameters, rng).labels) == 9
