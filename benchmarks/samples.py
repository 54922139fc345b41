"""Rows that benchmarks label: the wine table dealt, balls around clusters, and like embeddings."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Rows, pairwise_distances, partition, scale_to_unit
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.promise import Facts
from veilring.protocols.ring.roles import KNNParameters
from veilring.protocols.ring.system import PrivateKNN

_CENTRES = 6
_SPREAD = 0.12


def wine_parties(parties: int, rng: Generator) -> tuple[list[Rows], KNNParameters]:
    """Return each party's share of the 178 rows of wine, and the parameters that fit them."""
    table = scale_to_unit(load("wine"))
    shares = partition(table.y, parties, rng)
    rows = [Rows(table.X[share], table.y[share]) for share in shares]
    facts = Facts.of(parties, table.features, len(table.features.classes))
    return rows, PrivateKNN(rounds=6).bind(facts)


class Balls(NamedTuple):
    """Balls to be labelled, and the rows in them.

    Attributes:
        centres: Shape (queries, features).
        radii: All alike, shape (queries,).
        rows: Of two classes.
    """

    centres: Floats
    radii: Floats
    rows: Rows


def clustered_balls(
    queries: int, rows: int, features: int, *, per_ball: int, rng: Generator
) -> Balls:
    """Draw queries and rows around the same clusters; a ball has `per_ball` rows on average."""
    centres = rng.random((_CENTRES, features))
    near = centres[rng.integers(_CENTRES, size=rows + queries)]
    points = np.clip(near + rng.normal(0, _SPREAD, near.shape), 0, 1)
    held = Rows(points[queries:], rng.integers(2, size=rows))
    away = np.sort(pairwise_distances(points[:queries], held.features), axis=None)
    return Balls(points[:queries], np.full(queries, away[per_ball * queries]), held)


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Classes of directions, of whose rows some two in three are near others of their class.

    Attributes:
        centres: Shape (classes, features).
    """

    centres: NDArray[np.float32]

    @classmethod
    def draw(cls, classes: int, features: int, rng: Generator) -> Self:
        """Draw the centres."""
        return cls(rng.standard_normal((classes, features)).astype(np.float32))

    def rows(self, count: int, rng: Generator) -> tuple[NDArray[np.float32], Ints]:
        """Draw rows: quantised features, shape (count, features), and labels, shape (count,)."""
        classes, features = self.centres.shape
        labels = rng.integers(0, classes, count)
        spread = rng.uniform(1.0, 3.0, (count, 1)).astype(np.float32)
        drawn = rng.standard_normal((count, features), dtype=np.float32)
        drawn *= spread
        drawn += self.centres[labels]
        return quantise(drawn), labels
