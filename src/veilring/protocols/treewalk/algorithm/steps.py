"""One step of a walk: which child a query wants, and how often the answer lies about it.

Both utilities of the paper come to the same form. A query wants one child, and the exponential
mechanism names the other one with a probability of at most one half, here the *slip*. It is a
multiple of 2**-64 that is known exactly, and a coin of 64 bits has it exactly.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp, inf, log1p
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.tree import Tree

# Beyond, the slip is less than 2**-64 and the walk would be no private one at all.
EPSILON_MAX: Final = 80.0
_COIN: Final = 2.0**64
# The exponential function and the arithmetic around it err by less than this, relative to a slip.
_ROUNDING: Final = 2.0**-48
# Beyond so many radii from the query a node is brought nearer: or its distances would be rounded by
# more than the radius, and a server that makes up nodes would see on which side of an edge a query
# lies. A map of the whole Earth may have radii from 4 cm on.
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


class Step(NamedTuple):
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
        epsilon: ε_i of one step of the exponential mechanism, above 0 and up to `EPSILON_MAX`.

    Raises:
        InputError: If a parameter is not allowed.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= EPSILON_MAX:
            allowed = f"a number above 0 and up to {EPSILON_MAX:g}"
            raise InputError("epsilon", self.epsilon, allowed)

    @staticmethod
    @abstractmethod
    def expose(tree: Tree, level: int, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the client has to know of the nodes at which walks stand.

        Args:
            tree: The server's.
            level: Of all the nodes, from 0 for the root.
            nodes: Shape (walks,).

        Returns:
            Shape (walks, `width`).
        """

    @staticmethod
    @abstractmethod
    def width(dimensions: int) -> int:
        """Return how many numbers a client is sent for a step."""

    @abstractmethod
    def judge(self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int) -> Step:
        """Return the step of each walk.

        Args:
            exposed: From `expose`.
            queries: What each walk looks for, shape (walks, dimensions).
            level: Of all the nodes.
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
    def judge(self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int) -> Step:
        # A split of the kind `least-right` is a point's own coordinate: it lies to the right.
        right = exposed[:, 0] <= queries[:, level % queries.shape[1]]
        return Step(right, np.array(self._slip, dtype=np.uint64))

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
        diameter: Of the domain, if the points and all queries lie in one that is known.
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
            diameter: Of the domain, if one is known.

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
    def judge(self, exposed: NDArray[np.float64], queries: NDArray[np.float64], level: int) -> Step:
        with np.errstate(over="ignore"):  # of nodes that no honest server has
            away = exposed - np.tile(queries, 2)
        # It brings the distances to a node from two queries no further apart.
        away = np.clip(away, -self._far, self._far)
        left, right = (np.sqrt(np.square(side).sum(axis=1)) for side in np.hsplit(away, 2))
        odds = np.abs(left - right) * (self.epsilon / (2 * self.sensitivity))
        # Clipping odds brings no two queries further apart, so either guarantee outlives it.
        slip = np.maximum(1.0 / (1.0 + np.exp(np.minimum(odds, 2 * EPSILON_MAX))), self._least)
        return Step(right < left, np.minimum(slip * _COIN, _COIN / 2).astype(np.uint64))

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


def answer_bits(step: Step, rng: Generator) -> NDArray[np.bool_]:
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
