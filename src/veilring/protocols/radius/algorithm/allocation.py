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
from itertools import accumulate, chain
from math import ceil
from operator import or_
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import is_table
from veilring.privacy.checks import require, require_that

# The number of coloured vertices for one batch, about a second. Batches on ordinary data sets, 800
# queries with some 15 rows in a ball, need a fiftieth of it.
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

    Each search is restricted to a vertex and its neighbours. Vertices with few neighbours come
    first, and their bounds exclude them from searches for larger cliques. Each search may use an
    equal share of the work that is left, so that a few hard ones do not use up all of it.

    Args:
        work: The approximate number of vertices that may be coloured. With 0, the bounds follow
            from a single colouring of the whole graph.
    """
    _require_graph(graph)
    require(work >= 0, "work", work, "a whole number of at least 0")
    order = _smallest_first(graph)
    search = _Search(graph[order].take(order, axis=1), work)
    search.run()
    sizes = np.empty(len(graph), dtype=np.int64)
    sizes[order] = search.upper
    exact = np.empty(len(graph), dtype=np.bool_)
    exact[order] = np.equal(search.upper, search.lower)
    return CliqueBounds(sizes, exact)


class _Search:
    """The bounds on all vertices, from below by cliques found and from above by colours.

    In whatever is done with a set, the highest vertices come first. They have the most neighbours,
    so that cliques that grow from them are large.
    """

    def __init__(self, graph: Bools, work: int) -> None:
        self.work = work
        self.near = _bitsets(graph)
        self.bit = [1 << v for v in range(len(graph))]
        everyone = (1 << len(graph)) - 1
        self.far = [everyone ^ (near | own) for near, own in zip(self.near, self.bit, strict=True)]
        self.lower = [1] * len(graph)
        self.upper = _colours_around(graph, self._colour(everyone, 0))
        # Entry k has the vertices that may be in a clique of more than k.
        self.above = [0] * (len(graph) + 1)
        for own, upper in zip(self.bit, self.upper, strict=True):
            self.above[upper - 1] |= own
        self.above = list(accumulate(reversed(self.above), or_))[::-1]

    def run(self) -> None:
        """Tighten the bounds until they meet or the work is used up."""
        while self.work > 0 and (hard := self._unsettled()):
            for waiting, v in zip(range(len(hard), 0, -1), hard, strict=True):
                self._settle(v, self.work - ceil(self.work / waiting))

    def _unsettled(self) -> list[int]:
        return [v for v, lower in enumerate(self.lower) if lower < self.upper[v]]

    def _settle(self, v: int, least: int) -> None:
        """Tighten the bounds on a vertex until they meet or no more than `least` work is left."""
        best, clique, most = self._largest(v, least)
        for member in clique:
            self.lower[member] = max(self.lower[member], best)
        for size in range(most, self.upper[v]):
            self.above[size] ^= self.bit[v]
        self.upper[v] = min(self.upper[v], most)

    def _largest(self, v: int, least: int) -> tuple[int, list[int], int]:
        """Search for a clique through a vertex that is larger than those known.

        The search keeps its own stack, because a clique can exceed Python's recursion limit. An
        entry is a clique, its size, the vertices that may join it, and a bound on what it becomes.

        Returns:
            The size of the largest clique found or known, the members of one that was found, and
            an upper bound on the size.
        """
        near, bit = self.near, self.bit
        best, found, most = self.lower[v], list[int](), self.upper[v]
        stack = [(bit[v], 1, near[v] & self.above[best], most)]
        while stack:
            clique, size, joining, bound = stack.pop()
            if bound <= best or size + joining.bit_count() <= best:
                continue
            if self.work <= least:
                return best, found, most
            classes = self._colour(joining, best - size)
            if size == 1:
                most = min(most, best + len(classes))
            if not classes:  # nothing new: its parent has grown at least as far
                continue
            grown = self._grow(joining)
            if (gain := size + len(grown) - best) > 0:
                best, found = best + gain, [*_members(clique), *grown]
                classes = classes[gain:]
            rest = joining ^ sum(classes)
            for bound, colour_class in enumerate(classes, best + 1):
                for u in _members(colour_class):
                    stack.append((clique | bit[u], size + 1, rest & near[u], bound))
                    rest |= bit[u]
        return best, found, best

    def _grow(self, candidates: int) -> list[int]:
        """Return a clique of candidates that no other candidate can join."""
        near, clique = self.near, list[int]()
        while candidates:
            v = candidates.bit_length() - 1
            clique.append(v)
            candidates &= near[v]
        return clique

    def _colour(self, vertices: int, needless: int) -> list[int]:
        """Colour vertices greedily; return the classes after the first `needless` ones.

        A clique has at most one vertex of each class. If it has more than `needless`, the last is
        in a class that is returned; and if that is class c, from 1, it has at most `needless + c`.
        """
        far, bit, classes = self.far, self.bit, list[int]()
        self.work -= vertices.bit_count()
        while vertices:
            needless -= 1
            free = before = vertices
            while free:
                v = free.bit_length() - 1
                vertices ^= bit[v]
                free &= far[v]
            if needless < 0:
                classes.append(before ^ vertices)
        return classes


def _colours_around(graph: Bools, classes: list[int]) -> list[int]:
    """Return the number of colours among each vertex and its neighbours, in one colouring."""
    members = [_members(each) for each in classes]
    firsts = np.cumsum([0, *map(len, members)])[:-1]
    seen = np.logical_or.reduceat(graph[[*chain(*members)]], firsts, axis=0)
    return [int(count) for count in 1 + np.count_nonzero(seen, axis=0)]


def _smallest_first(graph: Bools) -> Ints:
    """Return the vertices in the order in which those with the fewest neighbours are removed."""
    degrees = graph.sum(axis=1, dtype=np.int64)
    order = np.empty(0, dtype=np.int64)
    while order.size < len(graph):
        fewest = np.flatnonzero(degrees == degrees.min())
        order = np.concatenate([order, fewest])
        degrees -= graph[fewest].sum(axis=0)
        degrees[fewest] = 2 * len(graph)  # stays above all remaining degrees
    return order


def _bitsets(graph: Bools) -> list[int]:
    packed = np.packbits(graph, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _members(vertices: int) -> list[int]:
    members = []
    while vertices:
        v = vertices.bit_length() - 1
        members.append(v)
        vertices ^= 1 << v
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
