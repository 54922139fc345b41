"""One step of a walk: which child a query wants, and how often the answer lies about it.

Both utilities of the paper come to the same form. A query wants one child, and the exponential
mechanism names the other one with a probability of at most one half, here the *slip*. It is a
multiple of 2**-64 that is known exactly, and a coin of 64 bits has it exactly.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp, log1p
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.tree import Tree

__all__ = ("EPSILON_MAX", "Comparison", "Distance", "Step", "Utility", "answer_bits")

# Beyond, the slip is less than 2**-64 and the walk would be no private one at all.
EPSILON_MAX: Final = 80.0
_COIN: Final = 2.0**64
# The exponential function and the arithmetic around it err by less than this, relative to a slip.
_ROUNDING: Final = 2.0**-48
# Beyond so many radii a node is brought nearer: or its distances would be rounded by more than the
# radius, and a server that makes up nodes would see on which side of an edge a query lies.
_FAR: Final = 2.0**32
# In odds this is far beyond what any walk can tell apart, and its slips still have 32 good bits.
_LEAST_SLIP: Final = 2.0**-32


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
    is a radius r below that, the step is (ε_i / r)-metric private (geo-indistinguishability): two
    queries at distance s are told apart by at most ε_i · s / r. That is no LDP.

    Attributes:
        sensitivity: Δ, or the radius r; above 0, in the unit of the coordinates.
        diameter: Of the domain, if the points and all queries lie in one that is known.
    """

    sensitivity: float
    diameter: float = float("inf")

    def __post_init__(self) -> None:
        Utility.__post_init__(self)
        for name in ("sensitivity", "diameter"):
            if not getattr(self, name) > 0:
                raise InputError(name, getattr(self, name), "a number above 0")

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
        if not self.is_local:
            exposed = np.clip(exposed, -_FAR * self.sensitivity, _FAR * self.sensitivity)
        left, right = (
            np.sqrt(np.square(child - queries).sum(axis=1)) for child in np.hsplit(exposed, 2)
        )
        odds = np.abs(left - right) * (self.epsilon / (2 * self.sensitivity))
        # Clipping odds brings no two queries further apart, so either guarantee outlives it.
        slip = np.maximum(1.0 / (1.0 + np.exp(np.minimum(odds, 2 * EPSILON_MAX))), self._least)
        return Step(right < left, np.minimum(slip * _COIN, _COIN / 2).astype(np.uint64))

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
