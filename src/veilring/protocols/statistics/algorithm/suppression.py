"""Small counts hidden in published tables, together with enough others that none can be computed.

A count from 1 to `small - 1` is small, and is hidden. Anyone could compute a hidden count that is
alone in its row, from the row's total and its other cells. So all tables of a plan are taken
together, with all of their margins up to the number of all rows. These are linear equations: an
axis of a table adds up to the margin without it. Linear programming then bounds each small count
from everything that is shown. While the bounds of one exclude a number from 1 to `small`, another
count that bounds it is hidden.

Source for the method: Willenborg and de Waal, "Elements of statistical disclosure control" (2001),
chapter 4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require_that
from veilring.protocols.statistics.algorithm.columns import Factor, cells_of

CELLS_MAX: Final = 4096
"""Tables of a plan with this many cells, margins included, are protected within minutes."""
# Bounds are whole numbers, but for the rounding of the solver.
_ROUNDING: Final = 1e-6

Key: TypeAlias = tuple[Factor, ...]
"""The factors of a table in the order of their columns' names; none for the number of all rows."""


def key_of(factors: Iterable[Factor]) -> Key:
    """Return factors in the order of a key."""
    return tuple(sorted(factors, key=lambda factor: factor.column.name))


def require_protectable(tables: Sequence[Sequence[Factor]]) -> None:
    """Refuse tables whose hidden counts could not be protected, by their public sizes alone."""
    cells = sum(map(cells_of, _margins(tables)))
    require_that(
        cells <= CELLS_MAX,
        "small",
        f"the tables of the plan have {cells:,} cells with their margins, and small counts can be"
        f" hidden in up to {CELLS_MAX:,}; ask for fewer, or for coarser ones",
    )
    divisions: dict[str, Factor] = {}
    for factor in (factor for table in tables for factor in table):
        name = factor.column.name
        require_that(
            divisions.setdefault(name, factor) == factor,
            "small",
            f"the column {name!r} is divided in two ways, and their difference could show a small"
            " count; divide it in one way, or ask in two plans",
        )


def find_hidden(tables: Mapping[Key, Floats], small: int) -> dict[Key, Bools]:
    """Return which counts of each table are hidden, in the shapes of the tables.

    Args:
        tables: The exact counts, with an axis for each factor. Secret as long as they are not
            hidden.
        small: The smallest count that may be shown, apart from 0.
    """
    joint = _Joint.of(tables)
    hidden = (joint.counts > 0) & (joint.counts < small)
    lows, highs = joint.counts.copy(), joint.counts.copy()
    for cell in np.flatnonzero(hidden).tolist():
        while not (lows[cell] <= 1 and highs[cell] >= small):
            for sign in (1, -1):
                solution = joint.extreme(cell, sign, hidden)
                lows, highs = np.fmin(lows, solution), np.fmax(highs, solution)
            if lows[cell] <= 1 and highs[cell] >= small:
                break
            more = joint.next_to_hide(cell, hidden)
            if more is None:  # everything that could bound it is hidden
                break
            hidden[more] = True
    return {key: hidden[where].reshape(tables[key].shape) for key, where in joint.places(tables)}


def _margins(tables: Iterable[Sequence[Factor]]) -> list[Key]:
    """Return the keys of all tables and of all their margins."""
    return [
        *dict.fromkeys(
            key
            for table in tables
            for size in range(len(table) + 1)
            for key in combinations(key_of(table), size)
        )
    ]


@dataclass(frozen=True)
class _Joint:
    """The counts of all tables and margins as one vector, and the equations between them.

    Attributes:
        starts: The position of each table's first count.
        counts: Shape (counts,).
        axes: The number of factors of each count's table, shape (counts,).
        equations: A sparse matrix, shape (equations, counts), whose product with the counts is 0.
    """

    starts: Mapping[Key, int]
    counts: Floats
    axes: Ints
    equations: Any

    @classmethod
    def of(cls, tables: Mapping[Key, Floats]) -> "_Joint":
        found = dict[Key, Floats]()
        for key, counts in tables.items():
            for margin in _margins([key]):
                away = tuple(axis for axis, factor in enumerate(key) if factor not in margin)
                found[margin] = counts.sum(axis=away)
        sizes = [counts.size for counts in found.values()]
        starts = dict(zip(found, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        vector = np.concatenate([counts.ravel() for counts in found.values()])
        axes = np.repeat([len(key) for key in found], sizes)
        return cls(starts, vector, axes, _equations(found, starts, len(vector)))

    def places(self, tables: Mapping[Key, Floats]) -> Iterator[tuple[Key, slice]]:
        """Yield the positions of each table."""
        for key, counts in tables.items():
            yield key, slice(self.starts[key], self.starts[key] + counts.size)

    def extreme(self, cell: int, sign: int, hidden: Bools) -> Floats:
        """Return counts that agree with all shown ones, with the least or the greatest in a cell.

        Args:
            sign: 1 for the least, -1 for the greatest. An unbounded one is infinite.
        """
        from scipy.optimize import linprog

        goal = sign * (np.flatnonzero(hidden) == cell).astype(np.float64)
        solved = linprog(
            goal,
            A_eq=self.equations[:, hidden],
            b_eq=-(self.equations[:, ~hidden] @ self.counts[~hidden]),
            bounds=(0, None),
            method="highs",
        )
        solution = self.counts.copy()
        if solved.x is None:  # the true counts are a solution, so there is no limit
            solution[cell] = np.inf
            return solution
        nearest = np.rint(solved.x)
        solution[hidden] = np.where(np.abs(solved.x - nearest) < _ROUNDING, nearest, solved.x)
        return solution

    def next_to_hide(self, cell: int, hidden: Bools) -> int | None:
        """Return the next count to hide so that a cell is less bounded, if there is one left.

        An equation with only one hidden count determines it. So it is a count of such an equation,
        of one with the cell if there is one, and of a table rather than of its margins; among
        these, it is the smallest one above 0. A count of 0 is hidden only if all others are.
        """
        present = abs(self.equations)
        hidden_in = present @ hidden
        with_cell = present[:, [cell]].toarray()[:, 0] > 0
        tight, linked = hidden_in == 1, hidden_in > 0
        for positive in (True, False):
            for equations in (tight & with_cell, tight, linked):
                there = (present.T @ equations > 0) & ~hidden & ((self.counts > 0) == positive)
                if there.any():
                    where = np.flatnonzero(there)
                    order = np.lexsort((self.counts[where], -self.axes[where]))
                    return int(where[order[0]])
        return None


def _equations(found: Mapping[Key, Floats], starts: Mapping[Key, int], size: int) -> Any:  # noqa: ANN401  (a sparse matrix)
    from scipy.sparse import csc_array

    parts, wholes = list[Ints](), list[Ints]()
    for key, counts in found.items():
        positions = starts[key] + np.arange(counts.size).reshape(counts.shape)
        for axis in range(len(key)):
            margin = key[:axis] + key[axis + 1 :]
            lines = np.moveaxis(positions, axis, -1).reshape(-1, counts.shape[axis])
            parts += [*lines]
            wholes += [starts[margin] + np.arange(len(lines))]
    whole = np.concatenate([*wholes, np.zeros(0, np.int64)])
    part = np.concatenate([*parts, np.zeros(0, np.int64)])
    rows = np.repeat(np.arange(len(parts)), [len(line) for line in parts])
    values = np.concatenate([np.ones(len(part)), np.full(len(whole), -1.0)])
    where = np.concatenate([rows, np.arange(len(whole))]), np.concatenate([part, whole])
    return csc_array((values, where), shape=(len(whole), size))
