"""The cycles that the shares of a secure sum go round, and whom a coalition exposes.

Sources: Clifton, Kantarcioglu, Vaidya, Lin and Zhu, "Tools for privacy preserving distributed data
mining", SIGKDD Explorations 2002, for the split over edge-disjoint cycles; Walecki's construction
as in Alspach, "The wonderful Walecki construction", Bulletin of the ICA 2008.

What a semi-honest coalition learns, exactly
    Party i splits its input `v_i` into uniform shares `x_ij`, one for each of s cycles (s = 1: the
    plain ring), and cycle j adds up the `x_ij` under a uniform mask of the starter. All learn the
    total. In cycle j the coalition sees the vector enter and leave every maximal run of honest
    parties, so it knows the sum of the shares of each run; a run that holds an honest starter is
    hidden by the mask, but the total gives the sum of these runs over all cycles. A linear
    combination of what it knows is free of the uniform shares only if each honest party has the
    same coefficient in all cycles, that is, if the coefficients are constant on every connected
    component of the honest parties in the union of the cycles. So the coalition learns the sum of
    the inputs of each such component (`leaked_groups`) and nothing more.

    It follows that a party is exposed exactly if it is alone in its component: its neighbours in
    *all* cycles are corrupt. Partial sums over larger components leak as well.

    The starter gains nothing from being the starter. If it is corrupt it knows the mask, but every
    difference that the mask would reveal is a difference of two messages that the coalition has
    seen. If it is honest and all its neighbours are corrupt, it is exposed as any other party is:
    the total less the runs of the others is its input.
"""

import math
from collections.abc import Collection, Iterable, Sequence

from veilring.protocols.ring.algorithm.checks import SMALLEST_RING, require


def walecki_cycles(n: int) -> tuple[tuple[int, ...], ...]:
    """Return `(n-1)//2` edge-disjoint Hamiltonian cycles of the complete graph on n vertices.

    With `M = (n-1)//2`, cycle i is vertex 0 followed by the zigzag `i, i+1, i-1, i+2, …, i+M` in
    Z_{2M}, whose elements are the vertices 1 to 2M. If n is even, the last vertex enters each
    cycle at the middle of its zigzag: the edges that it splits are disjoint, so its own edges are
    distinct, and a perfect matching is left over.

    Args:
        n: Number of vertices, at least 3.

    Returns:
        Each cycle once round, without repeating its first vertex 0; of the two directions, the one
        whose second vertex is smaller than its last.

    Raises:
        InputError: If `n` < 3.
    """
    _require_parties(n)
    half = (n - 1) // 2
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(2 * half)]
    extra = () if n % 2 else (n - 1,)
    cycles = []
    for turn in range(half):
        path = [1 + (turn + offset) % (2 * half) for offset in zigzag]
        cycles.append((0, *path[:half], *extra, *path[half:]))
    return tuple(cycles)


def exposure_probability(n: int, c: int) -> float:
    """Return the probability that a given honest party of a random ring is exposed.

    `c(c-1) / ((n-1)(n-2))`: `exposure_probability_split` with a single cycle.

    Args:
        n: Number of parties, at least 3.
        c: How many of the others are corrupt, 0 to n - 1.

    Raises:
        InputError: If an argument is outside its range.
    """
    return exposure_probability_split(n, c, 1)


def exposure_probability_split(n: int, c: int, s: int) -> float:
    """Return the probability that a given honest party is exposed under a split over s cycles.

    In edge-disjoint cycles a party has 2s distinct neighbours. Parties are placed at random, so
    the c corrupt ones are a uniform c-subset of the n - 1 others, and it contains the 2s
    neighbours with probability `C(n-1-2s, c-2s) / C(n-1, c)`. Written out, the factorials cancel
    to falling ones: `c(c-1)…(c-2s+1) / ((n-1)(n-2)…(n-2s))`. It holds for the starter, and with a
    corrupt starter, as for anyone else (see the top of this module).

    Args:
        n: Number of parties, at least 3.
        c: How many of the others are corrupt, 0 to n - 1.
        s: How many edge-disjoint cycles, 1 to `(n-1)//2`.

    Raises:
        InputError: If an argument is outside its range.
    """
    _require_parties(n)
    require(0 <= c < n, "c", c, f"an integer from 0 to n - 1 = {n - 1}")
    require(1 <= s <= (n - 1) // 2, "s", s, f"an integer from 1 to (n - 1)//2 = {(n - 1) // 2}")
    return math.perm(c, 2 * s) / math.perm(n - 1, 2 * s)


def exposed(cycles: Sequence[Sequence[int]], coalition: Collection[int], victim: int) -> bool:
    """Return whether a coalition learns exactly what an honest party put into the sum.

    It does if the victim's neighbours in every cycle belong to it: `out - in` of each cycle is one
    share, and the shares add up to the input.

    Args:
        cycles: The edge-disjoint cycles of parties, each once round; a plain ring is one cycle.
        coalition: The corrupt parties.
        victim: An honest party that is on every cycle.

    Raises:
        InputError: If there is no cycle, the victim is corrupt, or is missing from a cycle.
    """
    require(len(cycles) > 0, "cycles", "empty", "at least one cycle")
    require(victim not in coalition, "victim", victim, "a party outside the coalition")
    return all(party in coalition for cycle in cycles for party in _neighbours(cycle, victim))


def leaked_groups(
    cycles: Sequence[Sequence[int]], coalition: Collection[int]
) -> tuple[frozenset[int], ...]:
    """Return the groups of honest parties whose sums a coalition learns; each party is in one.

    They are the connected components of the honest parties in the union of the cycles; the
    argument is at the top of this module. An exposed party is a group of its own.

    Args:
        cycles: The edge-disjoint cycles of parties, each once round.
        coalition: The corrupt parties.

    Returns:
        The groups, by their smallest party.
    """
    import networkx as nx  # noqa: PLC0415  (it takes 0.3 s, and no party needs it)

    graph: nx.Graph[int] = nx.Graph()
    for cycle in cycles:
        nx.add_cycle(graph, cycle)
    graph.remove_nodes_from(coalition)
    components: Iterable[set[int]] = nx.connected_components(graph)
    return tuple(sorted((frozenset(group) for group in components), key=min))


def _neighbours(cycle: Sequence[int], party: int) -> tuple[int, int]:
    require(party in cycle, "victim", party, "a party on every cycle")
    place = cycle.index(party)
    return cycle[place - 1], cycle[(place + 1) % len(cycle)]


def _require_parties(n: int) -> None:
    require(n >= SMALLEST_RING, "n", n, f"an integer of at least {SMALLEST_RING}")
