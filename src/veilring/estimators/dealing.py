"""Dealing rows to parties, where a classifier has several."""

from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.partition import partition
from veilring.data.table import Rows

Dealing = Literal["iid", "dirichlet", "by-label"]
"""How rows are dealt to the parties: see `veilring.data.partition`."""

Dealt = tuple[tuple[NDArray[np.int64], ...], tuple[Rows, ...]]
"""Which rows each party was dealt, and the rows themselves."""


def deal(rows: Rows, parties: int, how: Dealing, alpha: float, rng: Generator) -> Dealt:
    """Deal each row to exactly one party; a party may have none.

    Args:
        rows: Of all.
        parties: How many.
        how: By which law.
        alpha: Of `dirichlet`.
        rng: Source of the shuffle and of the proportions.

    Raises:
        InputError: If an argument is not allowed.
    """
    parts = tuple(partition(rows.labels, parties, rng, kind=how, alpha=alpha))
    return parts, tuple(Rows(rows.features[part], rows.labels[part]) for part in parts)
