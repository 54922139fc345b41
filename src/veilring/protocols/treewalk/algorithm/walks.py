"""Walks down the tree, level by level and many at once (Algorithms 11 and 15 to 17).

A walk is a number of threads. All threads of a query take their steps at a level together, so that
a level is one round however many threads there are.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.steps import Utility, answer_bits
from veilring.protocols.treewalk.algorithm.tree import Tree

# A walk of 2**16 threads, or one that returns that many leaves, hides nothing worth its cost.
SPLITS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """How a walk splits into threads.

    Attributes:
        kind: `basic` is one thread from the root to a leaf (Algorithm 11). `parallel`, P, begins
            with one thread at each of the 2**splits nodes at that level (15). `early`, E, stops
            `splits` levels above the leaves, and all leaves below count as found (16). `greedy`,
            GS, sends a further thread down the other child at each level (17).
        splits: s, for `parallel` and `early`.

    Raises:
        InputError: If a parameter is not allowed.
    """

    kind: Literal["basic", "parallel", "early", "greedy"] = "basic"
    splits: int = 0

    def __post_init__(self) -> None:
        if self.kind not in {"basic", "parallel", "early", "greedy"}:
            raise InputError("kind", self.kind, "basic, parallel, early or greedy")
        most = SPLITS_MAX if self.kind in {"parallel", "early"} else 0
        if not 0 <= self.splits <= most:
            raise InputError("splits", self.splits, f"0 to {most} for a {self.kind} walk")

    def check(self, depth: int) -> None:
        """Refuse a variant that splits more often than a tree has levels.

        Raises:
            InputError: If so.
        """
        if self.splits > depth:
            raise InputError("splits", self.splits, f"at most {depth}, the depth of the tree")

    def levels(self, depth: int) -> range:
        """Return the levels at which steps are taken: each of them is a round."""
        first = self.splits if self.kind == "parallel" else 0
        last = depth - self.splits if self.kind == "early" else depth
        return range(first, last)

    def threads_at(self, level: int) -> int:
        """Return how many threads take a step at a level."""
        match self.kind:
            case "parallel":
                return 1 << self.splits
            case "greedy":
                return level + 1
            case _:
                return 1

    def compositions(self, depth: int) -> int:
        """Return c, the steps of all threads: a walk spends the privacy of that many steps.

        It is L, (L - s) · 2**s, L - s and L (L + 1) / 2 for the four kinds, for any query.
        """
        return sum(self.threads_at(level) for level in self.levels(depth))

    def found(self, depth: int) -> int:
        """Return how many leaves a walk finds; one that stands early in the tree counts twice."""
        match self.kind:
            case "parallel" | "early":
                return 1 << self.splits
            case "greedy":
                return depth + 1
            case _:
                return 1


BASIC: Final = Variant()


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """What came of walks.

    Attributes:
        found: The positions of the points that were found, shape (queries, found).
        bits: All that the server saw, in the order of the levels and at each of them of the
            threads, shape (queries, compositions).
    """

    found: NDArray[np.int32]
    bits: NDArray[np.bool_]


def begin(variant: Variant, walks: int) -> NDArray[np.int64]:
    """Return the nodes at which the threads of each walk begin, shape (walks, threads)."""
    first = variant.levels(variant.splits).start
    return np.tile(np.arange(1 << first, 2 << first), (walks, 1))


def proceed(
    variant: Variant, nodes: NDArray[np.int64], bits: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return where the threads of each walk stand after a level's bits.

    Client and server both do this, each for itself.

    Args:
        variant: How they split.
        nodes: Where they stood, shape (walks, threads).
        bits: What the client answered, of the same shape.
    """
    children = 2 * nodes + bits
    if variant.kind != "greedy":
        return children
    return np.hstack([children, children[:, :1] ^ 1])


def leaves_below(tree: Tree, variant: Variant, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the positions of the points at or below the nodes at which threads have stopped."""
    if variant.kind == "early":
        below = np.arange(1 << variant.splits)
        nodes = (nodes << variant.splits) + below
    return tree.starts[nodes]


def walk(
    tree: Tree, queries: NDArray[np.float64], utility: Utility, variant: Variant, rng: Generator
) -> Walks:
    """Walk once for each query.

    Args:
        tree: The server's; public to the client.
        queries: The clients' secrets, shape (queries, dimensions).
        utility: Of a child.
        variant: How a walk splits.
        rng: The clients' secret randomness.

    Raises:
        InputError: If queries or variant do not fit the tree.
    """
    check_queries(tree, queries)
    variant.check(tree.depth)
    nodes, seen = begin(variant, len(queries)), []
    for level in variant.levels(tree.depth):
        threads = nodes.shape[1]
        asked = queries if threads == 1 else np.repeat(queries, threads, axis=0)
        step = utility.judge(utility.expose(tree, level, nodes.ravel()), asked, level)
        bits = answer_bits(step, rng).reshape(nodes.shape)
        nodes = proceed(variant, nodes, bits)
        seen.append(bits)
    nothing = np.zeros((len(queries), 0), dtype=np.bool_)
    return Walks(leaves_below(tree, variant, nodes), np.hstack([nothing, *seen]))


def check_queries(tree: Tree, queries: NDArray[np.float64]) -> None:
    """Refuse queries that are not points as the tree's are.

    Raises:
        InputError: If so; it names their shape and nothing of their values.
    """
    if queries.ndim != 2 or queries.shape[1] != tree.dimensions:  # noqa: PLR2004 (a table has two axes)
        allowed = f"shape (queries, {tree.dimensions})"
        raise InputError("queries", f"of shape {queries.shape}", allowed)
    if not np.isfinite(queries).all():
        raise InputError("queries", "not all finite", "finite coordinates")
