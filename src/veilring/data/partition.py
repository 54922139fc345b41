"""Dealing the rows of a table to parties: each row to exactly one."""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError

PartitionKind = Literal["iid", "dirichlet", "by-label", "sizes"]
PARTITIONS: Final[tuple[PartitionKind, ...]] = ("iid", "dirichlet", "by-label", "sizes")

# Below, one party has all rows of a class but for rounding errors; above, all have equal shares.
ALPHA_MIN: Final = 1e-3
ALPHA_MAX: Final = 1e6


def partition(
    labels: NDArray[np.int64],
    parties: int,
    rng: np.random.Generator,
    *,
    kind: PartitionKind = "iid",
    alpha: float = 1.0,
    sizes: Sequence[int] = (),
) -> list[NDArray[np.int64]]:
    """Return each party's rows as ascending positions; a party may have none.

    `iid` shuffles all rows and gives equal numbers, but for one row. `dirichlet` shares out each
    class on its own, by proportions drawn from a symmetric Dirichlet law (Hsu, Qi and Brown,
    "Measuring the effects of non-identical data distribution", 2019): the smaller `alpha`, the
    fewer parties hold most of a class. `by-label` gives equal numbers too, but of rows in the order
    of their labels, so that a party has as few classes as can be. `sizes` shuffles all rows and
    gives the numbers that were asked for.

    Args:
        labels: Shape (rows,).
        parties: How many, at least 1.
        rng: Source of the shuffle and of the proportions.
        kind: How to deal.
        alpha: For `dirichlet`: from `ALPHA_MIN` to `ALPHA_MAX`.
        sizes: For `sizes`: the number of rows of each party, which sum to all rows.

    Raises:
        InputError: If an argument is not allowed.
    """
    if parties < 1:
        raise InputError("parties", parties, "at least 1")
    shuffled = rng.permutation(len(labels))
    match kind:
        case "iid":
            dealt = np.array_split(shuffled, parties)
        case "by-label":
            by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
            dealt = np.array_split(by_label, parties)
        case "sizes":
            _check_sizes(sizes, parties, len(labels))
            dealt = np.split(shuffled, np.cumsum(sizes)[:-1])
        case "dirichlet":
            dealt = _by_dirichlet(labels, shuffled, parties, alpha, rng)
        case _:
            raise InputError("kind", kind, ", ".join(PARTITIONS))
    return [np.sort(rows) for rows in dealt]


def _check_sizes(sizes: Sequence[int], parties: int, rows: int) -> None:
    if len(sizes) != parties or min(sizes) < 0 or sum(sizes) != rows:
        allowed = f"{parties} whole numbers from 0 that sum to {rows}, the rows to deal"
        raise InputError("sizes", list(sizes), allowed)


def _by_dirichlet(
    labels: NDArray[np.int64],
    shuffled: NDArray[np.int64],
    parties: int,
    alpha: float,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    if not ALPHA_MIN <= alpha <= ALPHA_MAX:
        raise InputError("alpha", alpha, f"a number from {ALPHA_MIN:g} to {ALPHA_MAX:g}")
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        shares = rng.dirichlet(np.full(parties, alpha))
        counts = rng.multinomial(len(rows), shares)
        owner[rows] = np.repeat(np.arange(parties), counts)
    return [np.flatnonzero(owner == party) for party in range(parties)]
