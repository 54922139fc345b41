"""Random protocols with random topologies and faults have one outcome on all runtimes."""

import pytest
from tests.nodes.agreement import agree, agree_on, draw_triple, with_reset

QUICK = range(8)
# A difference that one triple in fifty shows is found with a probability of 95 %.
TRIPLES = 150
PARTS = 2


def test_the_simulation_agrees_with_memory_and_tls() -> None:
    """Random programs have the same results, transcripts, costs and errors."""
    agree([draw_triple(seed) for seed in QUICK])


def test_the_simulation_agrees_on_broken_connections() -> None:
    """Two parties that have lost each other continue, and so do all others with both of them."""
    agree([each for seed in QUICK for each in with_reset(draw_triple(seed))])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(PARTS))
def test_the_simulation_agrees_in_many_worlds(first: int) -> None:
    """All programs, topologies and faults of a long list have the same outcome everywhere."""
    agree_on(range(QUICK.stop + first, TRIPLES, PARTS))
