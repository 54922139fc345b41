"""Who gets how much of the budget: how many queries of a batch one row can touch.

If a row is added or removed, only the queries whose balls hold it answer by another law. Let S be
those queries. Any two of their balls share the row, so S is a clique of the overlap graph. With
omega(i) the size of the largest clique that contains query i, every i in S has `omega(i) >= |S|`,
and so

    sum of epsilon / omega(i) over S  <=  |S| * epsilon / |S|  =  epsilon

Any upper bound of omega will do, query by query; a lower one will not. Components need no thought
of their own: a clique lies in one of them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require
from veilring.protocols.radius.algorithm.cliques import WORK_MAX, largest_cliques

AllocationRule = Literal["clique", "component", "batch"]
"""By what a query's share is divided: the largest clique that contains it; the largest one of its
component (the paper's Algorithm 3); or the size of the batch (the paper's baseline)."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """What each query of a batch may spend. Public: it depends on the queries alone.

    Attributes:
        crowds: Shape (Q,): the number that the budget is divided by, an upper bound of how many
            queries a row in this ball can touch.
        epsilons: Shape (Q,): the share of each query, rounded down, so that the shares of any
            clique add up to at most the budget in exact arithmetic.
        exact: Whether every clique was found; else colours stand in for some, and more noise is
            added than would be needed.
    """

    crowds: NDArray[np.int64]
    epsilons: NDArray[np.float64]
    exact: bool


def allocate(
    graph: NDArray[np.bool_],
    epsilon: float,
    rule: AllocationRule = "clique",
    *,
    work: int = WORK_MAX,
) -> Allocation:
    """Divide a budget among the queries of a batch.

    Args:
        graph: The overlap graph, shape (Q, Q), as `overlaps` gives it.
        epsilon: The budget of the batch, above 0.
        rule: By what it is divided.
        work: As `largest_cliques` takes it.

    Raises:
        InputError: If `epsilon` is not above 0 and finite, `rule` is unknown, or as
            `largest_cliques` does.
    """
    require(0 < epsilon < np.inf, "epsilon", epsilon, "a finite number above 0")
    require_rule(rule)
    if rule == "batch":
        crowds, exact = np.full(len(graph), len(graph), dtype=np.int64), True
    else:
        bounds = largest_cliques(graph, work=work)
        crowds = bounds.sizes if rule == "clique" else _by_component(graph, bounds.sizes)
        exact = bool(bounds.exact.all())
    return Allocation(crowds, np.nextafter(epsilon / crowds, 0), exact)


def require_rule(rule: AllocationRule) -> None:
    """Refuse a rule that there is not."""
    require(rule in get_args(AllocationRule), "rule", rule, ", ".join(get_args(AllocationRule)))


def _by_component(graph: NDArray[np.bool_], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each vertex the greatest size of its connected component."""
    from scipy.sparse import csgraph  # noqa: PLC0415  (as scipy.spatial: who launches needs none)

    count, component = csgraph.connected_components(graph, directed=False)
    greatest = np.zeros(count, dtype=np.int64)
    np.maximum.at(greatest, component, sizes)
    return greatest[component]
