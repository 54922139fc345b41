"""What all figures begin with: private rows, validation queries that are public, and a stream.

The paper has 800 or 1,000 queries and as many for validation. Chosen here: 800, or a fifth of a
smaller table. Features are directions from the mean of the validation queries, which is public. As
in the paper, every method is tuned by asking the validation queries of the private rows; what that
choice gives away is not in any account.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data import Table
from veilring.errors import InputError
from veilring.protocols.prediction.algorithm import quantise
from veilring.protocols.prediction.tuning import Public

DELTA: Final = 1e-5
QUERIES_MAX: Final = 800  # as for two of the paper's tables
_ROWS_MIN: Final = 20  # or a fifth of them is fewer than the 4 queries that Ind-KNN needs


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """One random split; all features are quantised.

    Attributes:
        validation: The private rows, and the queries to tune on.
        stream: The same rows, and the queries that count.
        classes: How many there are.
    """

    validation: Public
    stream: Public
    classes: int

    @property
    def rows(self) -> NDArray[np.float32]:
        """The private rows, shape (rows, features)."""
        return self.stream.rows

    @property
    def labels(self) -> NDArray[np.int64]:
        """Theirs, shape (rows,)."""
        return self.stream.labels

    def first(self, queries: int) -> "Dealt":
        """Return the same with the first so many queries of either kind."""
        few = [
            Public(each.rows, each.labels, each.queries[:queries], each.truth[:queries])
            for each in (self.validation, self.stream)
        ]
        return Dealt(few[0], few[1], self.classes)

    def repeated(self, rows: int) -> "Dealt":
        """Return the same with so many rows: the first ones, or all over and over."""
        places = np.arange(rows) % len(self.rows)
        few = [
            Public(each.rows[places], each.labels[places], each.queries, each.truth)
            for each in (self.validation, self.stream)
        ]
        return Dealt(few[0], few[1], self.classes)


def queries_dealt(table: Table) -> int:
    """Return how many queries a split has, and for validation as many again."""
    return min(QUERIES_MAX, len(table) // 5)


def rows_dealt(table: Table) -> int:
    """Return how many private rows a split has."""
    return len(table) - 2 * queries_dealt(table)


def deal(table: Table, rng: Generator) -> Dealt:
    """Split a table at random.

    Raises:
        InputError: If it is too small.
    """
    if len(table) < _ROWS_MIN:
        raise InputError("table", f"of {len(table)} rows", f"at least {_ROWS_MIN} rows")
    order, queries = rng.permutation(len(table)), queries_dealt(table)
    asked, tried, kept = np.split(order, [queries, 2 * queries])
    lengths = np.linalg.norm(table.features[tried], axis=1, keepdims=True)
    origin = (table.features[tried] / lengths).mean(axis=0)
    rows, known = quantise(table.features[kept], origin), table.labels[kept]
    validation, stream = (
        Public(rows, known, quantise(table.features[some], origin), table.labels[some])
        for some in (tried, asked)
    )
    return Dealt(validation, stream, len(table.class_names))
