"""Guarantees with missing noise shares, and the worst plans that bound all answers about k."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.noisyvotes.worlds import deal, guarantee_in_ring

from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.privacy.divisible import polya_difference_pmf
from veilring.privacy.shares import count_loss
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    guarantee,
    noisy_votes,
    private_votes,
    protecting_shares,
    remaining_epsilon,
    worst_plans,
)
from veilring.protocols.radius.algorithm.allocation import Allocation
from veilring.protocols.radius.algorithm.conversion import ByGrid
from veilring.protocols.ring import SumMethod

RING, SHARES = SumMethod(), SumMethod("shares")
ONE = [Allocation(np.array([1]), np.array([1.0]), exact=True)]


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("exponent", [Fraction(1, 9), Fraction(1, 2), Fraction(9, 10)])
def test_the_loss_of_a_count_is_the_greatest_ratio_of_neighbours(
    epsilon: float, exponent: Fraction
) -> None:
    """Below exponent 1 the ratios fall from 0 on, and the first equals `count_loss`."""
    pmf = polya_difference_pmf(np.arange(int(30 / epsilon)), exponent, 1 / epsilon)
    ratios = np.log(pmf[:-1] / pmf[1:])
    # A ratio of sums of some thousand terms is right to 12 digits.
    assert (np.diff(ratios) < 1e-11).all()
    assert ratios[-1] > epsilon
    claim = count_loss(epsilon, exponent)
    assert ratios[0] <= claim + 1e-12
    assert claim == pytest.approx(ratios[0], rel=1e-9)


@settings(max_examples=40)
@given(st.floats(0.01, 5), st.fractions(Fraction(1, 50), 1, max_denominator=60))
def test_the_loss_has_simple_bounds_and_is_monotone(epsilon: float, exponent: Fraction) -> None:
    """It is from epsilon to epsilon + ln(1 / A), rises with epsilon and falls with A."""
    loss = count_loss(epsilon, exponent)
    assert epsilon <= loss <= (epsilon - math.log(exponent)) * (1 + 1e-9)
    assert loss <= count_loss(epsilon * 1.01, exponent)
    assert loss <= count_loss(epsilon, exponent * Fraction(9, 10)) < count_loss(epsilon, Fraction())


def test_queries_that_share_rows_add_up() -> None:
    """A batch loses the maximum over cliques of its queries, and releases add up."""
    plan = Allocation(np.array([3, 3, 3, 1]), np.array([0.2, 0.2, 0.2, 0.6]), exact=True)
    half = Fraction(1, 2)
    worst = max(3 * count_loss(0.2, half), count_loss(0.6, half))
    found = remaining_epsilon([plan, *ONE], 4, tolerated=0, missing=2)
    assert found == pytest.approx(worst + count_loss(1.0, half), rel=1e-12)
    assert remaining_epsilon([plan, *ONE], 4, tolerated=2, missing=2) <= 1.6


def test_the_guarantee_weakens_with_missing_shares() -> None:
    """Up to the tolerated number the loss stays ε; then it grows, but stays finite."""
    losses = [remaining_epsilon(ONE, 6, tolerated=2, missing=m) for m in range(6)]
    assert losses[:3] == pytest.approx([1.0] * 3, abs=1e-15)
    assert (np.diff(losses[2:]) > 0).all()
    assert losses[-1] < 1 + math.log(4)


def methods(parties: int) -> Iterator[SumMethod]:
    """Yield all methods that support the given number of parties."""
    yield from (RING, SHARES, SumMethod("masks"))
    yield from (SumMethod("cycles", s) for s in range(2, (parties - 1) // 2 + 1))


@pytest.mark.parametrize("parties", [3, 4, 5, 6, 7])
def test_the_worst_case_is_the_worst_of_all_positions(parties: int) -> None:
    """Over all positions of a coalition in the ring, the guarantee is the greatest loss."""
    for method in methods(parties):
        for size in range(parties):
            losses = [
                guarantee_in_ring(ONE, parties, members, method, tolerated=1)
                for members in combinations(range(parties), size)
            ]
            assert guarantee(ONE, parties, size, method, tolerated=1) == max(losses)


@pytest.mark.parametrize("parties", [5, 8, 11, 12, 16, 17])
def test_cycles_are_cut_only_by_all_neighbours(parties: int) -> None:
    """With s cycles a coalition smaller than 2s leaves all honest shares together."""
    for method in methods(parties):
        for size in range(parties):
            whole = not method.goes_round or size < 2 * method.cycles
            expected = parties - size if whole else 1
            assert protecting_shares(parties, size, method) == expected


@pytest.mark.parametrize("parties", [3, 5, 10])
def test_an_observing_party_misses_its_own_share(parties: int) -> None:
    """A party that observes has one of the tolerated shares; an outsider has none.

    An outsider has none.
    """
    for tolerated in range(1, parties - 1):
        by_party = [
            guarantee(ONE, parties, 1, SHARES, tolerated=tolerated, missing=others)
            for others in (tolerated - 1, tolerated)
        ]
        assert by_party[0] <= 1
        assert by_party[1] > 1.1
        outside = remaining_epsilon(ONE, parties, tolerated=tolerated, missing=tolerated)
        assert outside <= 1


def test_sums_of_losses_are_rounded_up() -> None:
    """The stated guarantee is at least the exact sum of the losses of queries and releases."""
    for crowd in range(1, 60):
        plan = Allocation(np.full(crowd, crowd), np.full(crowd, 0.1), exact=True)
        for missing, spent in ((1, [plan]), (1, [plan, *ONE]), (2, [plan, *ONE])):
            exponent = Fraction(4 - missing, 3)
            exact = crowd * Fraction(count_loss(0.1, exponent))
            exact += (len(spent) - 1) * Fraction(count_loss(1.0, exponent))
            found = Fraction(remaining_epsilon(spent, 4, tolerated=1, missing=missing))
            assert exact <= found <= exact * (1 + Fraction(1, 2**52))


def test_each_party_protects_itself() -> None:
    """If all others collude or add nothing, the victim's own share remains, with any method."""
    own = remaining_epsilon(ONE, 5, tolerated=0, missing=4)
    for method in methods(5):
        assert guarantee(ONE, 5, 4, method, tolerated=0) == own
        assert guarantee(ONE, 5, 1, method, tolerated=0, missing=4) == own
    alone = guarantee(ONE, 5, 4, RING, tolerated=4)
    assert alone <= 1  # every share is enough by itself


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 3, SHARES, 0), "coalition is 3; allowed: 0 to 2"),
        ((3, -1, SHARES, 0), "coalition is -1"),
        ((2, 0, SHARES, 0), "parties is 2"),
        ((5, 0, SumMethod("cycles", 3), 0), "cycles is 3"),
        ((3, 0, SHARES, 3), "tolerated is 3"),
    ],
)
def test_inconsistent_numbers_are_refused(
    arguments: tuple[int, int, SumMethod, int], message: str
) -> None:
    """Inconsistent numbers of parties, colluders and tolerated shares are refused."""
    parties, coalition, method, tolerated = arguments
    with pytest.raises(InputError, match=message):
        guarantee(ONE, parties, coalition, method, tolerated=tolerated)
    with pytest.raises(InputError, match="missing is 3"):
        remaining_epsilon(ONE, 3, tolerated=0, missing=3)
    with pytest.raises(InputError, match="epsilon is"):
        count_loss(1e-9, Fraction(1))
    with pytest.raises(InputError, match="exponent is"):
        count_loss(1.0, Fraction(-1))


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


@settings(max_examples=60)
@given(
    st.floats(0.05, 20),
    st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=60),
    st.integers(1, 60),
)
def test_more_overlapping_queries_lose_more(epsilon: float, exponent: Fraction, crowd: int) -> None:
    """Below exponent 1 a larger clique, which divides the same budget, loses more.

    Both numbers are rounded up, by less than one part in 10**8.
    """
    fewer = crowd * count_loss(epsilon / crowd, exponent)
    more = (crowd + 1) * count_loss(epsilon / (crowd + 1), exponent)
    assert fewer < more * (1 + 1e-8)


@about_k
@pytest.mark.parametrize("missing", [0, 1, 4])
def test_no_answer_loses_more_than_the_worst_plan(near: NearestRows, missing: int) -> None:
    """Separate rows and coinciding rows give different losses, all within one bound."""
    parameters = about(near)
    rng = np.random.default_rng(3)
    losses = [
        remaining_epsilon(
            noisy_votes(QUERIES, deal(rows, 5), parameters, rng).spent,
            5,
            tolerated=0,
            missing=missing,
        )
        for rows in (SPREAD, CLUSTERED)
    ]
    plans = worst_plans(parameters, len(QUERIES))
    bound = remaining_epsilon(plans, 5, tolerated=0, missing=missing)
    if missing:
        assert losses[0] != losses[1]
        assert max(losses) <= bound
    else:
        assert max(*losses, bound) <= parameters.epsilon


# Each budget in turn is too small for thirty queries, or for one count.
TOO_SMALL = [
    about(NearestRows(5, 1.0, epsilon_count=0.3), 30 * 2.0**-15),
    about(NearestRows(5, 30 * 2.0**-15, rows=120, conversion=ByAnnuli())),
    about(NearestRows(5, 1.0, rows=120, conversion=ByAnnuli()), 20 * 2.0**-15),
]


@pytest.mark.parametrize("parameters", TOO_SMALL, ids=["grid", "annuli", "vote"])
def test_a_batch_that_might_be_abandoned_midway_is_refused(
    parameters: NoisyVotesParameters,
) -> None:
    """A batch whose worst plan leaves too little noise is refused before any draw or message."""
    rng = np.random.default_rng(4)
    before = rng.bit_generator.state
    with pytest.raises(InputError, match="30 queries are too many"):
        noisy_votes(QUERIES, deal(SPREAD, 3), parameters, rng)
    assert rng.bit_generator.state == before
    assert len(noisy_votes(QUERIES[:9], deal(SPREAD, 3), parameters, rng).labels) == 9


async def test_a_client_refuses_such_a_batch_before_sending() -> None:
    """A client refuses such a batch as its own mistake, before any message is sent."""
    async with Cluster(3, own=deal(SPREAD, 3)) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(
                private_votes,
                only={"party-1": {"queries": QUERIES}},
                client="party-1",
                parameters=TOO_SMALL[0],
            )
    found = {name for name, error in caught.value.errors.items() if isinstance(error, InputError)}
    assert found == {"party-1"}


@pytest.mark.parametrize("epsilon", [0.0, 2.0**-15, 2.0**-40, 2.0**21, 1e300, np.inf, np.nan])
def test_budgets_without_possible_noise_are_refused(epsilon: float) -> None:
    """They are refused when set, and not during a batch."""
    with pytest.raises(InputError, match="epsilon_vote is"):
        about(WithinRadius(0.1), epsilon)
    with pytest.raises(InputError, match="epsilon_conversion is"):
        NearestRows(5, epsilon, rows=3, conversion=ByGrid())
    with pytest.raises(InputError, match="epsilon_count is"):
        NearestRows(5, 1.0, epsilon_count=epsilon)
    for far in (2.0**-14, 2.0**20):
        answer = noisy_votes(
            QUERIES[:1],
            deal(SPREAD, 3),
            replace(TOO_SMALL[0], epsilon_vote=far, neighbours=WithinRadius(0.1)),
            np.random.default_rng(5),
        )
        assert len(answer.labels) == 1
