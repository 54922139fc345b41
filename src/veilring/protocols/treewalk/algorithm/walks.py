"""Private walks down the tree, vectorised by level (Algorithms 11 and 13 to 17).

**A step** names one child of a node. Both utilities of the paper reduce to one form: a query wants
one child, and the exponential mechanism names the other child with a probability of at most one
half, the *slip*. The slip is an exact multiple of 2**-64, drawn exactly by a coin of 64 bits.

**A walk** consists of threads. All threads of a query take their steps at a level together, so a
level is one round for any number of threads.

**The spending** of a walk is the least of all valid bounds, given along with the paper's figure.
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

# With a greater ε the slip would be less than 2**-64, and the walk would not be private at all.
STEP_EPSILON_MAX: Final = 80.0
_COIN: Final = 2.0**64
# The relative error of a slip from the exponential function and other arithmetic is below this.
_ROUNDING: Final = 2.0**-48
# A node further from the query than this, in radii, is clipped to this distance. Otherwise its
# distances would be rounded by more than the radius, and a server that invents nodes could detect
# on which side of an edge a query lies. A map of the Earth supports radii of 4 cm and more.
_FAR: Final = 2.0**30
# The greatest effect of rounding on the loss of a step with a radius, as a share of its epsilon. A
# difference of coordinates, up to 2**30 radii, has an error of 2**-23 radii; a distance in 16
# dimensions 40 times as much; the difference of two distances 84 times as much. It counts half in
# the odds, for each of two queries: 84 * 2**-23, and 8 * 2**-23 for the product with epsilon.
_ROUNDED: Final = 2.0**-16
# The odds of this slip exceed any that matter, and as a multiple of 2**-64 it keeps 32 bits.
_LEAST_SLIP: Final = 2.0**-32
# Truncating a slip to a multiple of 2**-64 has a relative error of at most 2**-32. The error of the
# exponential function is far smaller.
_CUT: Final = 2.0**-31
# For radii in this range, squared distances neither overflow nor underflow.
_RADII: Final = (1e-100, 1e100)


class WalkStep(NamedTuple):
    """The preferred child and the slip of a step, for each walk.

    Attributes:
        right: Whether the query wants the right child, shape (walks,).
        slip: The slip in units of 2**-64, shape (walks,) or a single number.
    """

    right: NDArray[np.bool_]
    slip: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Utility(ABC):
    """The utility of a child for a query, with the ε of a step.

    Attributes:
        epsilon: ε_i of one step of the exponential mechanism, above 0 and up to `STEP_EPSILON_MAX`.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= STEP_EPSILON_MAX:
            allowed = f"a number above 0 and up to {STEP_EPSILON_MAX:g}"
            raise InputError("epsilon", self.epsilon, allowed)

    @staticmethod
    @abstractmethod
    def expose(tree: Tree, level: int, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the public values of nodes that a client needs for its step there.

        Args:
            level: The level of all the nodes, from 0 for the root.
            nodes: The nodes, shape (walks,).

        Returns:
            The values, shape (walks, `width`).
        """

    @staticmethod
    @abstractmethod
    def width(dimensions: int) -> int:
        """Return the number of values that a client receives for a step."""

    @abstractmethod
    def judge(
        self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int
    ) -> WalkStep:
        """Return the step of each walk.

        Args:
            queries: The query of each walk, shape (walks, dimensions).
        """

    @abstractmethod
    def loss(self, distance: float) -> float:
        """Return the privacy loss of one step between two queries at a distance, rounded up.

        Args:
            distance: The distance between the two queries, at least 0; infinite for any two.
        """

    @property
    @abstractmethod
    def step_loss(self) -> float:
        """The pure ε of one step for any two queries, rounded up; infinite if there is no bound."""


@dataclass(frozen=True, slots=True)
class Comparison(Utility):
    """CMP (Algorithm 14): utility 1 for the child on the query's side of the split, otherwise 0.

    This utility has sensitivity 1, so each step is exactly randomised response at ε_i / 2.

    Attributes:
        paper: Whether to slip as in the paper's plots, which use ε_i in place of ε_i / 2.
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
        # A `least-right` split is the coordinate of a point in the right half.
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
    """DIS (Algorithm 13): a child's utility is the query's distance to the other child's point.

    If `sensitivity` is at least the diameter of the domain, a step is ε_i / 2-LDP, because the
    utilities of the two children differ by at most the sensitivity for every query. If it is a
    smaller radius r, the step is metric private (geo-indistinguishability): the privacy loss
    between two queries at distance s is at most ε_i · s / r, plus rounding (see `loss`). That is
    not LDP.

    Attributes:
        sensitivity: Δ, or the radius r; from 1e-100 to 1e100, in the unit of the coordinates.
        diameter: The diameter of the domain of points and queries; infinite if unknown.
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
        """Return steps whose privacy loss between two queries a radius apart is at most epsilon.

        Args:
            epsilon: The greatest value of `loss(radius)`, above 2**-31.
            diameter: The diameter of the domain; infinite if unknown.
        """
        if not epsilon > _CUT * (1 + _ROUNDING):
            raise InputError(
                "epsilon", epsilon, "a number above 2**-31, the allowance for rounding"
            )
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
        with np.errstate(over="ignore"):  # only nodes of a malicious server overflow
            away = exposed - np.tile(queries, 2)
        # Clipping does not increase the difference between two queries' distances to a node.
        away = np.clip(away, -self._far, self._far)
        left, right = (np.sqrt(np.square(side).sum(axis=1)) for side in np.hsplit(away, 2))
        odds = np.abs(left - right) * (self.epsilon / (2 * self.sensitivity))
        # Clipping the odds does not increase their difference between queries: guarantees hold.
        slip = np.maximum(1.0 / (1.0 + np.exp(np.minimum(odds, 2 * STEP_EPSILON_MAX))), self._least)
        return WalkStep(right < left, np.minimum(slip * _COIN, _COIN / 2).astype(np.uint64))

    @override
    def loss(self, distance: float) -> float:
        """Return the privacy loss of one step between two queries at a distance, rounded up.

        With a radius, the loss is ε_i · (s / r + 2**-16) + 2**-31. The last terms cover rounding: a
        server that invents nodes can make it affect one query and not the other.

        Args:
            distance: s, the distance between the two queries, at least 0; infinite for any two.
        """
        if self.is_local:
            return self.step_loss
        apart = distance / self.sensitivity + _ROUNDED
        return (self.epsilon * apart + _CUT) * (1 + _ROUNDING)

    @property
    def _far(self) -> float:
        """The greatest distance of a node from a query in one coordinate, before clipping."""
        return min(self.diameter, _FAR * self.sensitivity)

    @property
    def _least(self) -> float:
        if not self.is_local:
            return _LEAST_SLIP
        return max(1.0 / (1.0 + exp(self.epsilon / 2)) * (1 + _ROUNDING), _LEAST_SLIP)

    @property
    def is_local(self) -> bool:
        """Whether the guarantee holds for any two queries, not only for near ones."""
        return self.sensitivity >= self.diameter

    @property
    @override
    def step_loss(self) -> float:
        return _loss_of(int(self._least * _COIN)) if self.is_local else float("inf")


def answer_bits(step: WalkStep, rng: Generator) -> NDArray[np.bool_]:
    """Return each walk's answer, true for the right child. The server sees nothing else.

    Args:
        rng: The client's secret randomness.
    """
    coins = rng.integers(0, 2**64, size=step.right.shape, dtype=np.uint64)
    return step.right ^ (coins < step.slip)


def _up(slip: float) -> int:
    """Return a slip in units of 2**-64, rounded up so that the noise is never too small."""
    return min(int(slip * (1 + _ROUNDING) * _COIN) + 1, 1 << 63)


def _loss_of(slip: int) -> float:
    """Return ln((1 - s) / s) for a slip of s = slip / 2**64, rounded up."""
    return log1p(((1 << 64) - 2 * slip) / slip) * (1 + _ROUNDING)


# A walk with 2**16 threads, or that many leaves, costs more than its privacy is worth.
WALK_SPLITS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """The way in which a walk splits into threads.

    Attributes:
        kind: `basic` is one thread from the root to a leaf (Algorithm 11). `parallel`, P, begins
            with one thread at each of the 2**splits nodes at that level (15). `early`, E, stops
            `splits` levels above the leaves, and all leaves below count as found (16). `greedy`,
            GS, sends a further thread down the other child at each level (17).
        splits: s, the number of levels above, for `parallel` and `early`.
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
        """Check that a tree has enough levels for the splits."""
        if self.splits > depth:
            raise InputError("splits", self.splits, f"at most {depth}, the depth of the tree")

    def levels(self, depth: int) -> range:
        """Return the levels at which steps are taken, each in one round."""
        first = self.splits if self.kind == "parallel" else 0
        last = depth - self.splits if self.kind == "early" else depth
        return range(first, last)

    def threads_at(self, level: int) -> int:
        """Return the number of threads that take a step at a level."""
        match self.kind:
            case "parallel":
                return 1 << self.splits
            case "greedy":
                return level + 1
            case _:
                return 1

    def compositions(self, depth: int) -> int:
        """Return c, the total number of steps of all threads, whose privacy losses compose.

        It is L, (L - s) · 2**s, L - s and L (L + 1) / 2 for the four kinds, whatever the query.
        """
        return sum(self.threads_at(level) for level in self.levels(depth))

    def found(self, depth: int) -> int:
        """Return the number of leaves that a walk finds; a leaf one level early counts twice."""
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
        found: The positions of the points found, shape (queries, found).
        bits: The server's view: the bits, ordered by level and then by thread, shape (queries,
            compositions).
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
    """Return the nodes of each walk's threads after the bits of a level.

    Client and server each compute this from the same bits.

    Args:
        nodes: The nodes of the threads, shape (walks, threads).
        bits: The client's answers, of the same shape.
    """
    children = 2 * nodes + bits
    if variant.kind != "greedy":
        return children
    return np.hstack([children, children[:, :1] ^ 1])


def leaves_below(tree: Tree, variant: Variant, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the positions of the points at or below the nodes where threads have stopped."""
    if variant.kind == "early":
        below = np.arange(1 << variant.splits)
        nodes = (nodes << variant.splits) + below
    return tree.starts[nodes]


def walk(
    tree: Tree, queries: NDArray[np.float64], utility: Utility, variant: Variant, rng: Generator
) -> Walks:
    """Walk once for each query.

    Args:
        queries: The clients' secret queries, shape (queries, dimensions).
        rng: The clients' secret randomness.
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


# The factor exceeds the relative rounding error of a few products and sums of floats.
_UP: Final = 1 + 2.0**-48


@dataclass(frozen=True, slots=True)
class Spending:
    """The privacy loss of one walk, which is equal for all queries.

    Attributes:
        epsilon: The least (ε, δ)-LDP bound; infinite for `Distance` with a radius.
        per_distance: For `Distance` with a radius, the ε per unit of distance between two queries,
            at δ = 0 and without `rounding`; otherwise infinite.
        rounding: For `Distance` with a radius, the additional loss due to the rounding of floats,
            however near two queries are; otherwise 0.
        printed: The value of the paper's formula: the sum of all ε_i, or bounded range composed as
            in Dong, Durfee and Rogers if that is less. For comparisons in `paper` mode it can be
            *less* than the actual loss.
    """

    steps: int
    epsilon: float
    per_distance: float
    printed: float
    rounding: float = 0.0

    def loss(self, distance: float) -> float:
        """Return the privacy loss of a walk between two queries at a distance, rounded up.

        The loss equals `epsilon` if that is finite.

        Args:
            distance: The distance between the two queries, at least 0; infinite for any two.
        """
        if self.epsilon < inf:
            return self.epsilon
        return (self.per_distance * distance + self.rounding) * _UP


def spending(utility: Utility, variant: Variant, depth: int, delta: float) -> Spending:
    """Return the privacy loss of one walk.

    A step of either utility is a randomised response with a loss of at most `step_loss`. The exact
    composition of Kairouz, Oh and Viswanath therefore bounds the walk, and is never worse than the
    sum of the steps' ε, bounded range or zCDP.

    Args:
        depth: L = ⌈log2 N⌉, the depth of the tree.
        delta: δ, from 0 (pure LDP) to below 1.
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
