"""The share of the budget that each query of a batch may spend.

If a row is added or removed, only the answers to queries whose balls contain it change their
distribution. Let S be those queries. Any two of their balls share the row, so S is a clique of the
overlap graph. Let omega(i) be the size of the largest clique that contains query i. Every i in S
has `omega(i) >= |S|`, and so::

    sum of epsilon / omega(i) over S  <=  |S| * epsilon / |S|  =  epsilon

Any upper bound on omega preserves this, for each query separately; a lower bound does not.

Largest cliques are found by branch and bound over bitsets. A set of vertices is one integer, bit v
for vertex v, so intersecting two sets of a thousand is one operation. A branch is pruned if a
greedy colouring of its remaining candidates has too few colours (Tomita and Seki 2003; San Segundo
et al. 2011), since a clique needs a different colour for each member.

The analyst chooses the graph, and finding a largest clique is NP-hard. The work is therefore
limited, and counted in coloured vertices instead of seconds, so that a batch gets the same answer
on any machine. If the work is used up, the number of colours is the result: an *upper* bound, which
preserves privacy. A heuristic that finds large cliques gives a *lower* bound and would be unsafe.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import is_table
from veilring.privacy.checks import require, require_that

# The number of coloured vertices for one batch, about a second. Batches on ordinary data sets, 800
# queries with some 15 rows in a ball, need a tenth of it.
WORK_MAX: Final = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """The ε of each query of a batch, which is public: it depends on the queries alone.

    Attributes:
        crowds: The divisors of the budget, shape (Q,): for each ball an upper bound on the number
            of queries that a row in it can affect.
        epsilons: The share of each query, shape (Q,), rounded down, so that the shares of any
            clique add up to at most the budget in exact arithmetic.
        exact: Whether every clique was found. Otherwise some are bounded by colours, and the noise
            is larger than necessary.
    """

    crowds: Ints
    epsilons: Floats
    exact: bool


def allocate_budget(graph: Bools, epsilon: float, *, work: int = WORK_MAX) -> Allocation:
    """Divide a budget among the queries of a batch: each gets its share of its largest clique."""
    require(0 < epsilon < np.inf, "epsilon", epsilon, "a finite number above 0")
    bounds = largest_cliques(graph, work=work)
    return Allocation(
        bounds.sizes, np.nextafter(epsilon / bounds.sizes, 0), bool(bounds.exact.all())
    )


@dataclass(frozen=True, slots=True, eq=False)
class CliqueBounds:
    """Upper bounds on the largest clique that contains each vertex.

    Attributes:
        sizes: The size of the largest clique that contains the vertex, or an upper bound on it,
            shape (V,); at least 1.
        exact: Whether the bound is known to be the exact size, shape (V,).
    """

    sizes: Ints
    exact: Bools


def largest_cliques(graph: Bools, *, work: int = WORK_MAX) -> CliqueBounds:
    """Bound the largest clique through each vertex: omega(i) of vertex i.

    Each search is restricted to a vertex and its neighbours. Vertices with a small bound come
    first, so that a few hard ones do not use up the work, and the bounds found exclude these
    vertices from searches for larger cliques.

    Args:
        work: The approximate number of vertices that may be coloured. With 0, the bounds follow
            from a single colouring of the whole graph.
    """
    _require_graph(graph)
    require(work >= 0, "work", work, "a whole number of at least 0")
    order = _smallest_last(graph)
    search = _Search(graph[np.ix_(order, order)], work)
    search.run()
    sizes = np.empty(len(graph), dtype=np.int64)
    sizes[order] = search.upper
    exact = np.empty(len(graph), dtype=np.bool_)
    exact[order] = np.equal(search.upper, search.lower)
    return CliqueBounds(sizes, exact)


class _Search:
    """The bounds on all vertices, from below by cliques found and from above by colours."""

    def __init__(self, graph: Bools, work: int) -> None:
        self.near = _bitsets(graph)
        everyone = (1 << len(graph)) - 1
        self.far = [everyone & ~near & ~(1 << v) for v, near in enumerate(self.near)]
        self.work = work
        self.lower = [1] * len(graph)
        self.upper = _colours_around(graph, self._colour(everyone, 0)[:2])

    def run(self) -> None:
        """Tighten the bounds until they meet or the work is used up."""
        for v, neighbours in enumerate(self.near):
            if self.work <= 0:
                return
            self.upper[v] = min(self.upper[v], 1 + self._colour(neighbours, len(self.near))[2])
        for v in sorted(range(len(self.near)), key=self.upper.__getitem__):
            if self.lower[v] < self.upper[v] and not self._settle(v):
                return

    def _settle(self, v: int) -> bool:
        """Find the largest clique through a vertex; return whether the work sufficed."""
        neighbours = self.near[v]
        for other in _members(neighbours):
            if self.upper[other] <= self.lower[v]:
                neighbours &= ~(1 << other)
        clique = self._largest(neighbours, self.lower[v] - 1)
        if clique is None:
            return False
        found = [v, *_members(clique)] if clique else []
        for member in found:
            self.lower[member] = max(self.lower[member], len(found))
        self.upper[v] = self.lower[v]
        return True

    def _largest(self, candidates: int, best: int) -> int | None:
        """Return a largest clique of more than `best` candidates, 0 if none, or None if too hard.

        The search keeps its own stack, because a clique can exceed Python's recursion limit.
        """
        found = 0
        stack = [(0, 0, candidates, *self._colour(candidates, best)[:2])]
        while stack:
            size, clique, candidates, vertices, colours = stack.pop()
            if not vertices or size + colours[-1] <= best:
                continue
            v = vertices.pop()
            colours.pop()
            stack.append((size, clique, candidates & ~(1 << v), vertices, colours))
            joining = candidates & self.near[v]
            if joining:
                if self.work <= 0:
                    return None
                bounds = self._colour(joining, best - size - 1)[:2]
                stack.append((size + 1, clique | 1 << v, joining, *bounds))
            elif size + 1 > best:
                best, found = size + 1, clique | 1 << v
        return found

    def _colour(self, candidates: int, needless: int) -> tuple[list[int], list[int], int]:
        """Colour greedily; return vertices above colour `needless`, their colours and the count.

        Both lists ascend by colour. A branch that adds a vertex of colour c and then only vertices
        of lower colours grows by at most c.
        """
        vertices: list[int] = []
        colours: list[int] = []
        colour = 0
        while candidates:
            colour += 1
            free = candidates
            while free:
                lowest = free & -free
                v = lowest.bit_length() - 1
                candidates ^= lowest
                free &= self.far[v]
                self.work -= 1
                if colour > needless:
                    vertices.append(v)
                    colours.append(colour)
        return vertices, colours, colour


def _colours_around(graph: Bools, coloured: tuple[list[int], list[int]]) -> list[int]:
    """Return the number of colours among each vertex and its neighbours, in one colouring."""
    vertices, colours = coloured
    has_colour = np.zeros((len(graph), max(colours, default=0)), dtype=np.float32)
    has_colour[vertices, np.array(colours, dtype=np.int64) - 1] = 1
    seen = graph.astype(np.float32) @ has_colour > 0
    return [int(count) for count in 1 + seen.sum(axis=1)]


def _smallest_last(graph: Bools) -> Ints:
    """Return the vertices in smallest-last order: each has the fewest neighbours up to itself."""
    degrees = graph.sum(axis=1, dtype=np.int64)
    order = np.empty(len(graph), dtype=np.int64)
    for place in reversed(range(len(graph))):
        v = int(degrees.argmin())
        order[place] = v
        degrees[graph[v]] -= 1
        degrees[v] = 2 * len(graph)  # stays above all remaining degrees
    return order


def _bitsets(graph: Bools) -> list[int]:
    packed = np.packbits(graph, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _members(vertices: int) -> list[int]:
    members = []
    while vertices:
        lowest = vertices & -vertices
        members.append(lowest.bit_length() - 1)
        vertices ^= lowest
    return members


def _require_graph(graph: Bools) -> None:
    square = is_table(graph) and graph.shape[0] == graph.shape[1]
    require_that(
        square and graph.dtype == np.bool_,
        "graph",
        f"the graph is {graph.dtype} of the shape {graph.shape}; it must be bool of the "
        "shape (V, V)",
    )
    plain = not graph.diagonal().any() and bool((graph == graph.T).all())
    require_that(plain, "graph", "the graph must be undirected and without loops")
