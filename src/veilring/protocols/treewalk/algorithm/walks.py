"""Private walks down the tree, level by level and many at once (Algorithms 11 and 13 to 17).

**A step** names one child of a node. Both utilities of the paper come to the same form: a query
wants one child, and the exponential mechanism names the other child with a probability of at most
one half, here the *slip*. It is a multiple of 2**-64 that is known exactly, and a coin of 64 bits
has it exactly.

**A walk** is a number of threads. All threads of a query take their steps at a level together, so
that a level is one round however many threads there are.

**Its spending** is the least of all bounds that are valid for it, beside what the paper printed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp, inf, log1p
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.accounting import BoundedRange, PureSteps
from veilring.protocols.treewalk.algorithm.tree import Tree, check_queries

# Beyond, the slip is less than 2**-64 and the walk would be no private one at all.
STEP_EPSILON_MAX: Final = 80.0
_COIN: Final = 2.0**64
# The exponential function and the arithmetic around it err by less than this, relative to a slip.
_ROUNDING: Final = 2.0**-48
# Beyond this many radii from the query a node is brought nearer. Otherwise its distances would be
# rounded by more than the radius, and a server that makes up nodes would see on which side of an
# edge a query lies. A map of the whole Earth may have radii from 4 cm on.
_FAR: Final = 2.0**30
# What floats add to the loss of a step with a radius, as a share of its epsilon. A difference of
# coordinates, up to 2**30 radii, errs by 2**-23 of one; a distance in 16 dimensions by 40 times as
# much; the difference of two distances by 84 times. It counts half in the odds, and there are two
# queries: 84 * 2**-23, and 8 * 2**-23 for the product with epsilon.
_ROUNDED: Final = 2.0**-16
# In odds this is far beyond what any walk can tell apart, and its slips still have 32 good bits.
_LEAST_SLIP: Final = 2.0**-32
# A slip is cut to a whole number of 2**-64: by 2**-32 of itself at most. What the exponential
# function errs by is far less.
_CUT: Final = 2.0**-31
# Squares of distances neither overflow nor vanish beside that of a radius in this range.
_RADII: Final = (1e-100, 1e100)


class WalkStep(NamedTuple):
    """What the step at one node is made of, for each walk.

    Attributes:
        right: Whether the query wants the right child, shape (walks,).
        slip: How many of 2**64 coins name the other child, shape (walks,) or a single number.
    """

    right: NDArray[np.bool_]
    slip: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Utility(ABC):
    """What makes a child useful to a query, and the privacy that a step is given.

    Attributes:
        epsilon: ε_i of one step of the exponential mechanism, above 0 and up to `STEP_EPSILON_MAX`.

    Raises:
        InputError: If a parameter is not allowed.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= STEP_EPSILON_MAX:
            allowed = f"a number above 0 and up to {STEP_EPSILON_MAX:g}"
            raise InputError("epsilon", self.epsilon, allowed)

    @staticmethod
    @abstractmethod
    def expose(tree: Tree, level: int, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the client has to know of the nodes at which walks stand.

        Args:
            tree: The server's tree.
            level: The level of all the nodes, from 0 for the root.
            nodes: Shape (walks,).

        Returns:
            Shape (walks, `width`).
        """

    @staticmethod
    @abstractmethod
    def width(dimensions: int) -> int:
        """Return how many numbers a client is sent for a step."""

    @abstractmethod
    def judge(
        self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int
    ) -> WalkStep:
        """Return the step of each walk.

        Args:
            exposed: From `expose`.
            queries: What each walk looks for, shape (walks, dimensions).
            level: The level of all the nodes.
        """

    @abstractmethod
    def loss(self, distance: float) -> float:
        """Return the most by which one step tells two queries at a distance apart, rounded up.

        Args:
            distance: Between the two queries, at least 0; infinite for any two.
        """

    @property
    @abstractmethod
    def step_loss(self) -> float:
        """The pure ε that one step really spends, rounded up; infinite if it has no such bound."""


@dataclass(frozen=True, slots=True)
class Comparison(Utility):
    """CMP (Algorithm 14): the child on the query's side of the split is worth 1, the other one 0.

    That has sensitivity 1, so each step is randomised response at ε_i / 2, exactly.

    Attributes:
        paper: Whether to slip as in the paper's plots, which were made at ε_i and not ε_i / 2.
    """

    paper: bool = False

    @staticmethod
    @override
    def width(dimensions: int) -> int:
        return 1

    @staticmethod
    @override
    def expose(tree: Tree, level: int, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        return tree.splits[nodes, None]

    @override
    def judge(
        self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int
    ) -> WalkStep:
        # A split of the kind `least-right` is a point's own coordinate: it lies to the right.
        right = exposed[:, 0] <= queries[:, level % queries.shape[1]]
        return WalkStep(right, np.array(self._slip, dtype=np.uint64))

    @override
    def loss(self, distance: float) -> float:
        return self.step_loss

    @property
    def _odds(self) -> float:
        return self.epsilon if self.paper else self.epsilon / 2

    @property
    def _slip(self) -> int:
        return _up(1.0 / (1.0 + exp(self._odds)))

    @property
    @override
    def step_loss(self) -> float:
        return _loss_of(self._slip)


@dataclass(frozen=True, slots=True)
class Distance(Utility):
    """DIS (Algorithm 13): a child is worth the distance of the other one's point to the query.

    Where `sensitivity` is at least the diameter of the domain, a step is ε_i / 2-LDP: the utilities
    of two children then differ by at most the sensitivity either way, whatever the query. Where it
    is a radius r below that, the step is metric private (geo-indistinguishability): two queries at
    distance s are told apart by at most ε_i · s / r, and by what floats round: see `loss`. That is
    no LDP.

    Attributes:
        sensitivity: Δ, or the radius r; from 1e-100 to 1e100, in the unit of the coordinates.
        diameter: The diameter of the domain, if the points and all queries lie in a known one.
    """

    sensitivity: float
    diameter: float = float("inf")

    def __post_init__(self) -> None:
        Utility.__post_init__(self)
        least, most = _RADII
        if not least <= self.sensitivity <= most:
            raise InputError("sensitivity", self.sensitivity, f"{least:g} to {most:g}")
        if not self.diameter > 0:
            raise InputError("diameter", self.diameter, "a number above 0")

    @classmethod
    def hiding(cls, epsilon: float, radius: float, diameter: float = inf) -> Self:
        """Return steps of which each tells two queries a radius apart by at most epsilon.

        Args:
            epsilon: What `loss(radius)` may be, above 2**-31.
            radius: Below the diameter.
            diameter: The diameter of the domain, if it is known.

        Raises:
            InputError: If a number is out of range.
        """
        if not epsilon > _CUT * (1 + _ROUNDING):
            raise InputError("epsilon", epsilon, "a number above 2**-31, which rounding takes")
        return cls((epsilon * (1 - _ROUNDING) - _CUT) / (1 + _ROUNDED), radius, diameter)

    @staticmethod
    @override
    def width(dimensions: int) -> int:
        return 2 * dimensions

    @staticmethod
    @override
    def expose(tree: Tree, level: int, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        children = 2 * nodes[:, None] + np.arange(2)
        points: NDArray[np.float64] = tree.points[tree.pivots[children]]
        return points.reshape(len(nodes), -1)

    @override
    def judge(
        self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int
    ) -> WalkStep:
        with np.errstate(over="ignore"):  # of nodes that no honest server has
            away = exposed - np.tile(queries, 2)
        # It brings the distances to a node from two queries no further apart.
        away = np.clip(away, -self._far, self._far)
        left, right = (np.sqrt(np.square(side).sum(axis=1)) for side in np.hsplit(away, 2))
        odds = np.abs(left - right) * (self.epsilon / (2 * self.sensitivity))
        # Clipping odds brings no two queries further apart, so either guarantee outlives it.
        slip = np.maximum(1.0 / (1.0 + np.exp(np.minimum(odds, 2 * STEP_EPSILON_MAX))), self._least)
        return WalkStep(right < left, np.minimum(slip * _COIN, _COIN / 2).astype(np.uint64))

    @override
    def loss(self, distance: float) -> float:
        """Return the most by which one step tells two queries at a distance apart, rounded up.

        With a radius it is ε_i · (s / r + 2**-16) + 2**-31: floats round, and a server that makes
        up nodes can have them round for one query and not for the other.

        Args:
            distance: s, between the two queries, at least 0; infinite for any two.
        """
        if self.is_local:
            return self.step_loss
        apart = distance / self.sensitivity + _ROUNDED
        return (self.epsilon * apart + _CUT) * (1 + _ROUNDING)

    @property
    def _far(self) -> float:
        """How far a node may be from a query in one coordinate before it is brought nearer."""
        return min(self.diameter, _FAR * self.sensitivity)

    @property
    def _least(self) -> float:
        if not self.is_local:
            return _LEAST_SLIP
        return max(1.0 / (1.0 + exp(self.epsilon / 2)) * (1 + _ROUNDING), _LEAST_SLIP)

    @property
    def is_local(self) -> bool:
        """Whether the guarantee holds for any two queries, and not only for near ones."""
        return self.sensitivity >= self.diameter

    @property
    @override
    def step_loss(self) -> float:
        return _loss_of(int(self._least * _COIN)) if self.is_local else float("inf")


def answer_bits(step: WalkStep, rng: Generator) -> NDArray[np.bool_]:
    """Return each walk's answer, true for the right child: what the server sees, and all of it.

    Args:
        step: What each query wants, and how often it slips.
        rng: The client's secret randomness.
    """
    coins = rng.integers(0, 2**64, size=step.right.shape, dtype=np.uint64)
    return step.right ^ (coins < step.slip)


def _up(slip: float) -> int:
    """Return a slip in 2**-64ths, rounded up: more noise than was asked for, never less."""
    return min(int(slip * (1 + _ROUNDING) * _COIN) + 1, 1 << 63)


def _loss_of(slip: int) -> float:
    """Return ln((1 - s) / s) for a slip of s = slip / 2**64, rounded up."""
    return log1p(((1 << 64) - 2 * slip) / slip) * (1 + _ROUNDING)


# A walk of 2**16 threads, or one that returns that many leaves, hides nothing worth its cost.
WALK_SPLITS_MAX: Final = 16


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
        most = WALK_SPLITS_MAX if self.kind in {"parallel", "early"} else 0
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
    """The result of walks.

    Attributes:
        found: The positions of the points that were found, shape (queries, found).
        bits: All that the server saw, in the order of the levels and at each of them of the
            threads, shape (queries, compositions).
    """

    found: NDArray[np.int32]
    bits: NDArray[np.bool_]


def start_threads(variant: Variant, walks: int) -> NDArray[np.int64]:
    """Return the nodes at which the threads of each walk begin, shape (walks, threads)."""
    first = variant.levels(variant.splits).start
    return np.tile(np.arange(1 << first, 2 << first), (walks, 1))


def advance_threads(
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
        utility: What makes a child useful.
        variant: How a walk splits.
        rng: The clients' secret randomness.

    Raises:
        InputError: If queries or variant do not fit the tree.
    """
    check_queries(tree, queries)
    variant.check(tree.depth)
    nodes, seen = start_threads(variant, len(queries)), []
    for level in variant.levels(tree.depth):
        threads = nodes.shape[1]
        asked = queries if threads == 1 else np.repeat(queries, threads, axis=0)
        step = utility.judge(utility.expose(tree, level, nodes.ravel()), asked, level)
        bits = answer_bits(step, rng).reshape(nodes.shape)
        nodes = advance_threads(variant, nodes, bits)
        seen.append(bits)
    nothing = np.zeros((len(queries), 0), dtype=np.bool_)
    return Walks(leaves_below(tree, variant, nodes), np.hstack([nothing, *seen]))


# More than a few products and sums of floats are rounded down by.
_UP: Final = 1 + 2.0**-48


@dataclass(frozen=True, slots=True)
class Spending:
    """What one walk spends. It is the same for any query, since each walk takes as many steps.

    Attributes:
        steps: c, the compositions.
        epsilon: The least (ε, δ)-LDP bound; infinite where distances hide near queries only.
        per_distance: For distances with a radius: ε per unit of distance between two queries, for
            δ = 0, beside `rounding`; otherwise infinite.
        rounding: For distances with a radius: what the rounding of floats may add to that, however
            near two queries are; otherwise 0.
        printed: What the paper's formula gives: the sum of all ε_i, or bounded range composed as
            in Dong, Durfee and Rogers if that is less. For comparisons in `paper` mode it can be
            *less* than what is spent.
    """

    steps: int
    epsilon: float
    per_distance: float
    printed: float
    rounding: float = 0.0

    def loss(self, distance: float) -> float:
        """Return the most by which a walk tells two queries at a distance apart, rounded up.

        It is `epsilon` where that is finite.

        Args:
            distance: Between the two queries, at least 0; infinite for any two.
        """
        if self.epsilon < inf:
            return self.epsilon
        return (self.per_distance * distance + self.rounding) * _UP


def spending(utility: Utility, variant: Variant, depth: int, delta: float) -> Spending:
    """Account for one walk.

    A step of either utility is a randomised response of at most its `step_loss`, so that the exact
    composition of Kairouz, Oh and Viswanath bounds all of them together; neither the sum of the
    steps' ε nor bounded range nor zCDP is ever less.

    Args:
        utility: What makes a child useful, and what a step spends.
        variant: How the walk splits.
        depth: ⌈log2 N⌉, whatever the paths.
        delta: From 0, for pure LDP, to below 1.

    Raises:
        InputError: If delta is outside its range.
    """
    steps = variant.compositions(depth)
    local = utility.step_loss < inf
    together = PureSteps(utility.step_loss, steps).epsilon(delta) if local else inf
    ranged = BoundedRange.step(utility.epsilon).repeat(steps)
    per_distance, rounding = inf, 0.0
    if isinstance(utility, Distance) and not local:
        per_distance = steps * utility.epsilon / utility.sensitivity
        rounding = steps * utility.loss(0.0)
    printed = min(ranged.linear, ranged.epsilon_2020(delta)) if delta > 0 else ranged.linear
    return Spending(steps, together, per_distance, printed, rounding)
