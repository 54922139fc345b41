"""The systems with random parameters have one outcome on all runtimes."""

import pytest
from tests.protocols.agreement import agree

QUICK = range(6)
# A difference that one triple in twenty shows is found with a probability of 95 %.
TRIPLES = 60
PARTS = 2


@pytest.mark.parametrize("seed", QUICK)
def test_the_simulation_agrees_with_other_runtimes(seed: int) -> None:
    """A system has the same results, transcript, cost and depth, whatever the links."""
    agree(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(PARTS))
def test_the_simulation_agrees_for_many_parameters(first: int) -> None:
    """All systems agree for a long list of parameters, topologies and delays."""
    for seed in range(QUICK.stop + first, TRIPLES, PARTS):
        agree(seed)
