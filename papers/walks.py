"""The walks of the thesis that the package leaves out, and blurred queries.

Walks may have several threads (Algorithms 13 and 15 to 17) and steps by distance. All threads of a
query take their steps at a level together. `blur` moves a query by planar Laplace noise, as
geo-indistinguishability does. Neither a walk by distance with a radius nor blur has an ε that holds
for every pair of queries.

**Planar Laplace** is for geo-indistinguishability. On the points of a square grid, `P[v]` is
proportional to `e**(-|v| / scale)`, where `|v|` is the Euclidean length. The probabilities for two
inputs at a distance of s steps differ by a factor of at most `e**(s / scale)`, because all inputs
have the same normalising constant. With steps that are small compared with the scale it is the
planar Laplace distribution of Andrés et al. (CCS 2013), without the leak of float noise and without
its special cases.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, inf
from typing import Final, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from papers.accounting import BoundedRange
from papers.overheard import Overheard
from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.accounting import PureSteps
from veilring.privacy.checks import require, require_positive
from veilring.privacy.draws import bernoulli_exp, require_scale
from veilring.privacy.exact import float_ceil
from veilring.privacy.noise import discrete_laplace
from veilring.protocols.treewalk.algorithm.mechanisms import (
    SPLITS_MAX,
    STEP_EPSILON_MAX,
    Walks,
    WalkStep,
    answer_bits,
    loss_of,
)
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison as Steps
from veilring.protocols.treewalk.algorithm.tree import Tree, check_queries

_COIN_BITS: Final = 64
_COIN: Final = 2.0**_COIN_BITS
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


_PLANE: Final = 2
# The greatest scale in steps of the grid for which planar noise can be drawn exactly.
_SCALE_MAX: Final = 1 << 39
# The greatest distance of a domain's border from 0, in steps. Up to here, rounding to the grid and
# sums with noise are exact.
_STEPS_MAX: Final = 1 << 50


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
    def expose(tree: Tree, level: int, nodes: Ints) -> Floats:
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
    def judge(self, exposed: Floats, queries: Floats, level: int) -> WalkStep:
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
    """The package's steps by comparison, or those of the thesis' plots.

    Attributes:
        paper: Whether to slip as in the plots, which use ε_i in place of ε_i / 2.
    """

    paper: bool = False

    @staticmethod
    @override
    def width(dimensions: int) -> int:
        return 1

    @staticmethod
    @override
    def expose(tree: Tree, level: int, nodes: Ints) -> Floats:
        return tree.splits[nodes, None]

    @override
    def judge(self, exposed: Floats, queries: Floats, level: int) -> WalkStep:
        return self._steps.judge(exposed[:, 0], queries, level)

    @override
    def loss(self, distance: float) -> float:
        return self.step_loss

    @property
    def _steps(self) -> Steps:
        return (_Plotted if self.paper else Steps)(self.epsilon)

    @property
    @override
    def step_loss(self) -> float:
        return self._steps.step_loss


class _Plotted(Steps):
    @property
    @override
    def odds(self) -> float:
        return self.epsilon


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
    def expose(tree: Tree, level: int, nodes: Ints) -> Floats:
        children = 2 * nodes[:, None] + np.arange(2)
        points: Floats = tree.points[tree.pivots[children]]
        return points.reshape(len(nodes), -1)

    @override
    def judge(self, exposed: Floats, queries: Floats, level: int) -> WalkStep:
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
        return loss_of(int(self._least * _COIN)) if self.is_local else float("inf")


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
        most = SPLITS_MAX if self.kind in {"parallel", "early"} else 0
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


def start_threads(variant: Variant, walks: int) -> Ints:
    """Return the nodes at which the threads of each walk begin, shape (walks, threads)."""
    first = variant.levels(variant.splits).start
    return np.tile(np.arange(1 << first, 2 << first), (walks, 1))


def advance_threads(variant: Variant, nodes: Ints, bits: Bools) -> Ints:
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


def leaves_below(tree: Tree, variant: Variant, nodes: Ints) -> NDArray[np.int32]:
    """Return the positions of the points at or below the nodes where threads have stopped."""
    if variant.kind == "early":
        below = np.arange(1 << variant.splits)
        nodes = (nodes << variant.splits) + below
    return tree.starts[nodes]


def walk(tree: Tree, queries: Floats, utility: Utility, variant: Variant, rng: Generator) -> Walks:
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


def walk_log_likelihood(
    tree: Tree, utility: Utility, variant: Variant, bits: Bools, candidates: Floats
) -> Floats:
    """Return ln P(bits | query) for each walk and each candidate query.

    Args:
        bits: The client's bits, shape (walks, compositions).
        candidates: The candidate queries, shape (candidates, dimensions).

    Returns:
        The log-likelihoods, shape (walks, candidates). Sum those of several walks for one query.
    """
    check_queries(tree, candidates)
    variant.check(tree.depth)
    if bits.shape[1] != variant.compositions(tree.depth):
        raise InputError.because(
            f"bits has {bits.shape[1]} bits for each walk; its steps take "
            f"{variant.compositions(tree.depth)}",
            field="bits",
        )
    total = np.zeros((len(bits), len(candidates)))
    nodes, first = start_threads(variant, len(bits)), 0
    for level in variant.levels(tree.depth):
        seen = bits[:, first : first + nodes.shape[1]]
        for thread, went_right in zip(nodes.T, seen.T, strict=True):
            stops, which = np.unique(thread, return_inverse=True)
            left, right = _of_answers(tree, utility, level, stops, candidates)
            total += np.where(went_right[:, None], right[which], left[which])
        nodes, first = advance_threads(variant, nodes, seen), first + nodes.shape[1]
    return total


def _of_answers(
    tree: Tree, utility: Utility, level: int, nodes: Ints, candidates: Floats
) -> tuple[Floats, Floats]:
    """Return ln P of either answer at each node for each query, shape (nodes, candidates)."""
    asked = np.tile(candidates, (len(nodes), 1))
    exposed = utility.expose(tree, level, nodes).repeat(len(candidates), axis=0)
    step = utility.judge(exposed, asked, level)
    slip = np.ldexp(np.broadcast_to(step.slip, step.right.shape).astype(np.float64), -_COIN_BITS)
    lies, obeys = np.log(slip), np.log1p(-slip)
    left, right = np.where(step.right, (lies, obeys), (obeys, lies))
    shape = (len(nodes), len(candidates))
    return left.reshape(shape), right.reshape(shape)


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


# A length to this many digits decides all but one draw in 10**30, for which any decision will do.
_PLANAR_DIGITS: Final = 60
# proposals must be wider than the target distribution
ROOT_OF_TWO: Final = Fraction(math.isqrt(2 << 128) + 1, 1 << 64)
"""The square root of 2, rounded up by less than 2**-64."""


def planar_laplace(scale: float | Fraction, size: int, rng: np.random.Generator) -> Ints:
    """Draw planar Laplace noise by thinning two discrete Laplace coordinates.

    At least about 3 in 4 proposals are accepted, whatever the scale (π / 4 for many steps).

    Args:
        scale: 1 / epsilon in steps of the grid, from 2**-20 to 2**39.

    Returns:
        Shape (size, 2), in steps.
    """
    exact = require_scale("scale", scale)
    kept = np.zeros((0, 2), dtype=np.int64)
    while len(kept) < size:
        missing = size - len(kept)
        proposals = discrete_laplace(exact * ROOT_OF_TWO, (missing, 2), rng)
        kept = np.vstack([kept, proposals[_keep_planar(proposals, exact, rng)]])
    return kept


def _keep_planar(proposals: Ints, scale: Fraction, rng: np.random.Generator) -> Bools:
    """Accept each proposal with the ratio of the target distribution to the proposal's."""
    along = np.abs(proposals).sum(axis=1) / float(ROOT_OF_TWO)
    # Equal coordinates make the difference zero, which floats may miss on either side.
    surplus = np.maximum(np.hypot(*proposals.T.astype(np.float64)) - along, 0.0)

    def exact(index: int) -> Fraction:
        x, y = (int(part) for part in proposals[index])
        with localcontext(prec=_PLANAR_DIGITS):
            length = Fraction(Decimal(x * x + y * y).sqrt())
        return max(length - (abs(x) + abs(y)) / ROOT_OF_TWO, Fraction(0)) / scale

    return bernoulli_exp(surplus / float(scale), exact, rng)


@dataclass(frozen=True, slots=True)
class Blur:
    """Planar Laplace noise (in one dimension, Laplace noise) on a grid over the domain.

    The privacy loss of the noise between two queries at distance s is exactly `epsilon * s`.
    Rounding queries to the grid can increase their distance by the diagonal of a cell: see `loss`.

    Attributes:
        epsilon: The privacy loss per unit of distance, above 0.
        step: The step of the grid; at most 1 / epsilon, because a coarser grid would reveal more
            than the noise hides.
    """

    epsilon: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    step: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.low) == len(self.high) <= _PLANE:
            raise InputError("low", self.low, "one or two coordinates, as for high")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise InputError("high", self.high, "above low in each coordinate")
        epsilon = require_positive("epsilon", self.epsilon)
        require_positive("step", self.step)
        drawn = 1 <= 1 / (epsilon * Fraction(self.step)) <= _SCALE_MAX
        allowed = f"from 1 / ({_SCALE_MAX} epsilon) to 1 / epsilon"
        require(drawn, "step", self.step, allowed)
        for name, corner in (("low", self.low), ("high", self.high)):
            fits = all(abs(each) <= _STEPS_MAX * self.step for each in corner)
            require(
                fits, name, corner, f"a corner at most {_STEPS_MAX:.0e} steps of the grid from 0"
            )

    @property
    def scale(self) -> Fraction:
        """The exact scale of the noise in steps of the grid; a float could underflow."""
        return 1 / (Fraction(self.epsilon) * Fraction(self.step))

    def loss(self, distance: float) -> float:
        """Return the greatest privacy loss between two queries: ε · (s + √dimensions · step).

        It is the greatest log of the ratio of two probabilities of the same released point, rounded
        up. Some queries that are as close as floats can be reach √dimensions · step · ε.

        Args:
            distance: s, between the two queries, at least 0.
        """
        require(distance >= 0, "distance", distance, "a number of at least 0")
        if distance == inf:
            return inf
        diagonal = Fraction(self.step) * (ROOT_OF_TWO if len(self.low) == _PLANE else 1)
        return float_ceil(Fraction(self.epsilon) * (Fraction(distance) + diagonal))


def on_grid(queries: Floats, by: Blur) -> Ints:
    """Return the point of the grid that is nearest to each query, in steps, without noise.

    A query outside of the domain is moved to its border first, which brings no two further apart.
    Nearest is exact: a quotient of floats may be rounded to the middle between two points.

    Args:
        queries: Finite, shape (queries, dimensions).
        by: The noise; only its grid and its domain are used.
    """
    inside = np.clip(queries, by.low, by.high)
    rest = np.fmod(inside, by.step)
    below = np.rint((inside - rest) / by.step)
    nearest: Floats = below + np.sign(rest) * (2 * np.abs(rest) > by.step)
    return nearest.astype(np.int64)


def blur(queries: Floats, by: Blur, rng: Generator) -> Floats:
    """Round each query to the grid, add noise and clip the result to the domain.

    Clipping is post-processing and free. Rounding is not: see `Blur.loss`.

    Args:
        queries: The queries, finite, shape (queries, dimensions).
        rng: The client's secret randomness.
    """
    dimensions = len(by.low)
    if queries.shape[1:] != (dimensions,):
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be (queries, {dimensions})",
            field="queries",
        )
    if not np.isfinite(queries).all():
        raise InputError.because("queries must be finite", field="queries")
    if dimensions == _PLANE:
        noise = planar_laplace(by.scale, len(queries), rng)
    else:
        noise = discrete_laplace(by.scale, queries.shape, rng)
    # Integers are added: the rounding of a float sum could reveal more than its value.
    return np.clip((on_grid(queries, by) + noise) * by.step, by.low, by.high)


def overheard_blur(by: Blur) -> Overheard:
    """Return the simulation of a blurred query, whose view is the noisy query.

    The likelihood is the distribution of the noise on its grid. It is exact unless a query was
    clipped to the border of the domain, so choose a wide domain.
    """

    def ask(queries: Floats, candidates: Floats, rng: Generator) -> Floats:
        moved = blur(queries, by, rng)
        snapped = on_grid(candidates, by) * by.step
        apart = np.sqrt(np.square(moved[:, None] - snapped[None]).sum(axis=2))
        return np.asarray(-by.epsilon * apart)

    return ask
