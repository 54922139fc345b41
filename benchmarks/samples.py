"""Tables and drawn rows that benchmarks label."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Rows, Table, pairwise_distances, partition, scale_to_unit
from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.promise import Facts
from veilring.protocols.ring.roles import KNNParameters
from veilring.protocols.ring.system import PrivateKNN

_CENTRES = 6
_SPREAD = 0.12


TEST_SHARE: Final = 0.25
"""The share of a table that is held out."""
LARGE: Final = 4000
"""Tables with more rows get half of the splits: their accuracy varies less."""
_SHIPPED: Final = ("wine", "breast-cancer", "digits", "iris")
_NEWS: Final = "agnews_minilm"
_OWN_FILES: Final = (
    "australian",
    "car",
    "mushroom",
    "banana",
    "banknote",
    "abalone",
    "glass",
    _NEWS,
)
TABLES: Final = (*_SHIPPED, *_OWN_FILES)
"""The names of all tables; abalone in three classes of age, and news by its embeddings."""
# Rings of an abalone up to which it is young, and up to which it is adult: thirds of the table.
_YOUNG, _ADULT = 8, 10


def at_hand(data: Path | None) -> list[str]:
    """Return the names of the tables that can be read."""
    return [name for name in TABLES if name in _SHIPPED or (data and _file(name, data).exists())]


def _file(name: str, data: Path) -> Path:
    return data / f"{name}.{'npz' if name == _NEWS else 'csv'}"


def read_table(name: str, data: Path | None) -> Table:
    """Return a table, scaled by its own ranges.

    Raises:
        InputError: If it is unknown, or its file cannot be read.
    """
    if name not in TABLES:
        raise InputError("--table", name, ", ".join(TABLES))
    if name in _SHIPPED:
        return scale_to_unit(load(name))
    if data is None:
        raise InputError.because(f"{name} is read from a file; give its folder by --data")
    table = load(str(_file(name, data)))
    return scale_to_unit(_ages(table) if name == "abalone" else table)


def _ages(table: Table) -> Table:
    rings = np.array([int(each) for each in table.features.classes])[table.y]
    ages = np.searchsorted((_YOUNG, _ADULT), rings).astype(np.int64)
    return replace(
        table, y=ages, features=replace(table.features, classes=("young", "adult", "old"))
    )


def wine_parties(parties: int, rng: Generator) -> tuple[list[Rows], KNNParameters]:
    """Return each party's share of the 178 rows of wine, and the parameters that fit them."""
    table = scale_to_unit(load("wine"))
    shares = partition(table.y, parties, rng)
    rows = [Rows(table.X[share], table.y[share]) for share in shares]
    facts = Facts.of(parties, table.features, len(table.features.classes))
    return rows, PrivateKNN(rounds=6).bind(facts)


class Balls(NamedTuple):
    """Balls of one radius to be labelled, and rows of two classes in them."""

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
