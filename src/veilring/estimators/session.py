"""What has been asked of a fitted classifier: kept apart, so that predicting changes no model."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.measure.cost import Traffic
from veilring.protocols.forecast import Forecast

__all__ = ("Answered", "Session", "blocks", "in_all")


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What came of one batch.

    Attributes:
        labels: Class numbers, shape (queries,).
        cost: What the batch costs on a network.
    """

    labels: NDArray[np.int64]
    cost: Forecast


Answer: TypeAlias = Callable[[NDArray[np.float64], Generator], Answered]


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """All batches since `fit`, each of which was asked once.

    Who asks the same batch again has its labels already. So they come from here: no noise is drawn
    twice for one question, and nothing more is spent.

    Attributes:
        rng: The parties' secret randomness.
        last: What came of the batch that was asked last, if any was.
    """

    rng: Generator
    last: Answered | None = None
    _kept: dict[bytes, Answered] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._kept)

    def ask(self, queries: NDArray[np.float64], answer: Answer) -> NDArray[np.int64]:
        """Return the labels of a batch, shape (queries,).

        Args:
            queries: Shape (queries, features).
            answer: Answers a batch that was not asked before; what it refuses is not counted.
        """
        # Adding zero turns the negative zero, which equals it, into zero.
        key = hashlib.sha256((queries + 0.0).tobytes()).digest()
        if key not in self._kept:
            self._kept[key] = answer(queries, self.rng)
        self.last = self._kept[key]
        return self.last.labels


def blocks(queries: NDArray[np.float64], size: int) -> Iterator[NDArray[np.float64]]:
    """Yield queries in blocks of at most so many."""
    return (queries[first : first + size] for first in range(0, len(queries), size))


def in_all(*costs: Forecast) -> Forecast:
    """Return what runs cost that follow one another."""
    return reduce(_then, costs, Forecast(0, Traffic()))


def _then(one: Forecast, other: Forecast) -> Forecast:
    traffic, setup = one.traffic.plus(other.traffic), one.setup.plus(other.setup)
    return Forecast(one.rounds + other.rounds, traffic, setup)
