"""Clique bounds: compared with networkx, on known graphs, and with exhausted work."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.arrays import Bools
from veilring.errors import InputError
from veilring.protocols.radius.algorithm.allocation import largest_cliques
from veilring.protocols.radius.algorithm.balls import overlap_graph
from veilring.protocols.radius.leakage import hostile_batch


def random_graph(vertices: int, density: float, seed: int) -> Bools:
    """Return a random graph without loops."""
    upper = np.triu(np.random.default_rng(seed).random((vertices, vertices)) < density, 1)
    return np.asarray(upper | upper.T)


def enumerated(graph: Bools) -> list[int]:
    """Return the largest clique through each vertex, from networkx's maximal cliques."""
    sizes = [1] * len(graph)
    for clique in nx.find_cliques(nx.from_numpy_array(graph)):
        for v in clique:
            sizes[v] = max(sizes[v], len(clique))
    return sizes


@given(st.integers(1, 16), st.floats(0, 1), st.integers(0, 2**32))
def test_every_largest_clique_is_found(vertices: int, density: float, seed: int) -> None:
    """With enough work, each vertex gets the size enumerated by networkx."""
    graph = random_graph(vertices, density, seed)
    bounds = largest_cliques(graph)
    assert bounds.exact.all()
    assert bounds.sizes.tolist() == enumerated(graph)


@given(st.integers(1, 16), st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 60))
def test_with_too_little_work_bounds_are_upper(
    vertices: int, density: float, seed: int, work: int
) -> None:
    """For any amount of work, no bound is below the size, and exact bounds equal it."""
    graph = random_graph(vertices, density, seed)
    bounds, sizes = largest_cliques(graph, work=work), np.array(enumerated(graph))
    assert (bounds.sizes >= sizes).all()
    assert (bounds.sizes[bounds.exact] == sizes[bounds.exact]).all()


def test_larger_graphs_agree_with_networkx() -> None:
    """Random graphs of 80 vertices, from sparse to dense."""
    for seed, density in enumerate((0.05, 0.3, 0.6)):
        graph = random_graph(80, density, seed)
        assert largest_cliques(graph).sizes.tolist() == enumerated(graph)


def test_a_clique_may_be_deeper_than_pythons_stack() -> None:
    """If all or none of 1,100 balls meet, the answer is immediate."""
    everyone = ~np.eye(1100, dtype=np.bool_)
    assert set(largest_cliques(everyone).sizes.tolist()) == {1100}
    assert set(largest_cliques(np.zeros((1100, 1100), dtype=np.bool_)).sizes.tolist()) == {1}
    assert largest_cliques(np.zeros((0, 0), dtype=np.bool_)).sizes.tolist() == []


def test_a_hostile_batch_ends_with_colours() -> None:
    """For a thousand balls in fifty dimensions, the search gives up deterministically."""
    graph = overlap_graph(*hostile_batch(1000, 50, 0.9, np.random.default_rng(0)))
    first, again = (largest_cliques(graph, work=300_000) for _ in range(2))
    assert not first.exact.all()
    assert first.sizes.tolist() == again.sizes.tolist()
    found = nx.algorithms.approximation.max_clique(nx.from_numpy_array(graph[:60, :60]))
    assert (first.sizes[sorted(found)] >= len(found)).all()


@pytest.mark.parametrize(
    "graph",
    [
        np.eye(2, dtype=np.bool_),
        np.array([[False, True], [False, False]]),
        np.zeros((2, 3), dtype=np.bool_),
    ],
)
def test_an_invalid_graph_is_refused(graph: Bools) -> None:
    """Loops, directed edges, non-square matrices and negative work are refused."""
    with pytest.raises(InputError, match=r"graph (is|must be)"):
        largest_cliques(graph)
    with pytest.raises(InputError, match="work is -1"):
        largest_cliques(np.zeros((1, 1), dtype=np.bool_), work=-1)
