"""The charges of a walk."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    Comparison,
    Distance,
    Variant,
    spending,
)

VARIANTS = st.sampled_from([BASIC, Variant("parallel", 3), Variant("early", 4), Variant("greedy")])


def test_the_papers_example() -> None:
    """For 17 comparisons at epsilon 1 and delta 1e-6, the paper gives 12.93, and ours is 8.50."""
    spent = spending(Comparison(1.0), BASIC, 17, 1e-6)
    assert spent.printed == pytest.approx(12.93, abs=0.005)
    assert spent.epsilon == pytest.approx(8.50, abs=0.005)
    assert spending(Comparison(1.0), BASIC, 17, 0.0).epsilon == pytest.approx(8.5, abs=1e-9)


def test_the_papers_plots_claim_less_than_they_spend() -> None:
    """With the slips of its plots, the paper's number for these 17 steps is not a bound."""
    spent = spending(Comparison(1.0, paper=True), BASIC, 17, 1e-6)
    assert spent.epsilon > 16.9 > spent.printed


def test_the_papers_formula_is_at_most_the_sum_of_the_steps() -> None:
    """Nine comparisons at epsilon 5.5 give 49.5, whereas bounded range alone gives 69."""
    spent = spending(Comparison(5.5, paper=True), Variant("early", 8), 17, 1e-6)
    assert spent.printed == pytest.approx(49.5, rel=1e-9)


@given(st.floats(0.01, 10), VARIANTS, st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]))
def test_a_walks_charge_is_the_least_of_all_bounds(
    epsilon: float, variant: Variant, delta: float
) -> None:
    """Neither the sum of all steps nor bounded range is less than a walk's charge."""
    spent = spending(Comparison(epsilon), variant, 17, delta)
    assert spent.steps == variant.compositions(17)
    assert spent.epsilon <= spent.steps * epsilon / 2 * (1 + 1e-9)
    assert spent.epsilon <= spent.printed * (1 + 1e-9)
    assert spent.printed <= spent.steps * epsilon * (1 + 1e-9)


def test_a_radius_gives_no_local_guarantee() -> None:
    """Distances with a radius below the diameter have only an epsilon per distance."""
    near = spending(Distance(1.0, 0.5, 2.0), BASIC, 10, 1e-6)
    assert near.epsilon == inf
    assert near.per_distance == 20.0
    assert near.loss(0.25) == pytest.approx(5.0 + near.rounding)
    assert near.rounding == pytest.approx(10 * (2**-16 + 2**-31))
    assert near.loss(inf) == inf
    wide = spending(Distance(1.0, 2.0, 2.0), BASIC, 10, 0.0)
    assert wide.epsilon == pytest.approx(5.0, abs=1e-9)
    assert wide.per_distance == inf
    assert wide.loss(0.0) == wide.loss(inf) == wide.epsilon
