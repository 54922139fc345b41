"""What has been asked of a fitted classifier: kept apart, so that predicting changes no model."""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast
from veilring.randomness import keyed


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
        key: 32 secret bytes, of which the parties' randomness is made.
        last: What came of the batch that was asked last, if any was.
    """

    key: bytes
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
        batch = hashlib.sha256(b"".join(names_of(queries))).digest()
        if batch not in self._kept:
            self._kept[batch] = answer(queries, self.coins(batch))
        self.last = self._kept[batch]
        return self.last.labels

    def coins(self, batch: bytes) -> Generator:
        """Return the parties' randomness for a batch that was not asked before.

        It depends on all batches so far. A copy of a model that is asked the same answers the same;
        once they are asked different things, their coins have nothing to do with each other. From
        one stream both would draw equal noise for different questions, which cancels out.

        Args:
            batch: Its digest.
        """
        return keyed(hmac.digest(self.key, b"".join([*self._kept, batch]), "sha256"))


def names_of(queries: NDArray[np.float64]) -> list[bytes]:
    """Return a name for each query: equal queries have equal names."""
    # Adding zero turns the negative zero, which equals it, into zero.
    return [row.tobytes() for row in queries + 0.0]


def blocks(queries: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Yield queries in blocks of at most so many."""
    return (queries[first : first + size] for first in range(0, len(queries), size))


def in_all(*costs: Forecast) -> Forecast:
    """Return what runs cost that follow one another."""
    return reduce(_then, costs, Forecast(0, Traffic()))


def _then(one: Forecast, other: Forecast) -> Forecast:
    traffic, setup = one.traffic.plus(other.traffic), one.setup.plus(other.setup)
    return Forecast(one.rounds + other.rounds, traffic, setup)
