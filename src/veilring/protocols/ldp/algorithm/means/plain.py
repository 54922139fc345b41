"""No noise at all: for the ceiling that private answers are compared with, and for tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.protocols.ldp.algorithm.means.law import Codes, Law


@dataclass(frozen=True)
class Plain(Law):
    """The number itself, to 36 bits behind the point. It hides nothing."""

    epsilon: float | Fraction = inf

    name: ClassVar[str] = "plain"
    levels: ClassVar[int] = 1 << 36
    covers_one_hot: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Take any epsilon: none is kept."""

    @property
    @override
    def exact_epsilon(self) -> float:
        return inf

    @property
    @override
    def codes(self) -> int:
        return 2 * self.levels + 1

    @property
    @override
    def public(self) -> Mapping[str, int]:
        return {"levels": self.levels}

    @override
    def sample(self, grid: NDArray[np.int64], rng: Generator) -> Codes:
        return grid + self.levels

    @override
    def probability(self, codes: Codes, grid: int) -> NDArray[np.float64]:
        return np.where(codes == grid + self.levels, 1.0, 0.0)

    @override
    def summed(self, codes: Codes) -> NDArray[np.int64]:
        return (codes - self.levels)[..., None]

    @override
    def total(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(sums[..., 0] / self.levels)

    @override
    def second_moment(self, x: float) -> float:
        return x * x

    @property
    @override
    def worst_variance(self) -> float:
        return 0.0
