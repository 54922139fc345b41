"""The worst plan bounds all answers about k, and no such batch is abandoned midway."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.noisyvotes.worlds import deal

from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import Cluster
from veilring.privacy.shares import count_loss
from veilring.protocols.noisyvotes import (
    ByAnnuli,
    NearestRows,
    NoisyVotesParameters,
    WithinRadius,
    noisy_votes,
    private_votes,
    remaining_epsilon,
    worst_plans,
)
from veilring.protocols.radius.algorithm.conversion import ByGrid

QUERIES = np.random.default_rng(1).random((30, 2))
SPREAD = Rows(np.random.default_rng(2).random((120, 2)), np.arange(120) % 2)
CLUSTERED = Rows(np.full((120, 2), 0.5), np.arange(120) % 2)
NEAREST = [
    NearestRows(20, 1.0, epsilon_count=0.3),
    NearestRows(20, 1.0, epsilon_count=0.3, conversion=ByAnnuli()),
    NearestRows(20, 1.0, rows=120, conversion=ByAnnuli()),
]
about_k = pytest.mark.parametrize("near", NEAREST, ids=["grid", "annuli", "annuli of known rows"])


def voting(near: NearestRows | WithinRadius, epsilon: float = 1.0) -> NoisyVotesParameters:
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
    parameters = voting(near)
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
    voting(NearestRows(5, 1.0, epsilon_count=0.3), 30 * 2.0**-15),
    voting(NearestRows(5, 30 * 2.0**-15, rows=120, conversion=ByAnnuli())),
    voting(NearestRows(5, 1.0, rows=120, conversion=ByAnnuli()), 20 * 2.0**-15),
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


@pytest.mark.parametrize("epsilon", [2.0**-15, 2.0**-40, 2.0**21, 1e300, np.inf, np.nan])
def test_budgets_without_possible_noise_are_refused(epsilon: float) -> None:
    """They are refused when set, and not during a batch."""
    with pytest.raises(InputError, match="epsilon_vote is"):
        voting(WithinRadius(0.1), epsilon)
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
