"""Small tables and streams of queries on them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import Kernel, quantise
from veilring.protocols.prediction.algorithm.filter import FilterParameters, PricedLabel
from veilring.protocols.prediction.algorithm.predictor import Predictor


class Table(NamedTuple):
    """Quantised rows with labels."""

    features: NDArray[np.float32]
    labels: Ints

    def take(self, rows: slice) -> "Table":
        """Return some of the rows."""
        return Table(self.features[rows], self.labels[rows])


def clustered(rows: int, features: int, classes: int, rng: Generator) -> Table:
    """Draw directions around one centre for each class."""
    labels = rng.integers(0, classes, rows)
    centres = rng.standard_normal((classes, features))
    return Table(quantise(centres[labels] + rng.standard_normal((rows, features))), labels)


def predictor(
    parameters: FilterParameters, kernel: Kernel, rows: Table, **options: Any
) -> Predictor:
    """Return a predictor whose records have full budgets, and the ids 100, 101, ..."""
    made = Predictor(parameters, kernel, rows.features.shape[1], **options)
    count = len(rows.labels)
    budgets = np.full(count, int(parameters.budget * UNITS))
    made.add(np.arange(100, 100 + count), rows.features, rows.labels, budgets)
    return made


def answers(
    made: Predictor, queries: NDArray[np.float32], block: int, seed: int
) -> list[PricedLabel]:
    """Answer queries in blocks of the given size."""
    rng, found = np.random.default_rng(seed), list[PricedLabel]()
    for first in range(0, len(queries), block):
        found += made.answer_block(queries[first : first + block], rng)
    return found


def same(one: list[PricedLabel], other: list[PricedLabel]) -> bool:
    """Return whether all labels, and each record's payments, are equal."""

    def paid(answer: PricedLabel) -> dict[int, int]:
        return dict(zip(answer.payers.tolist(), answer.units.tolist(), strict=True))

    return len(one) == len(other) and all(
        (a.label, paid(a)) == (b.label, paid(b)) for a, b in zip(one, other, strict=True)
    )
