"""Small counts hidden in published tables, together with enough others that none can be computed.

A count from 1 to `small - 1` is small, and is hidden. Anyone could compute a hidden count that is
alone in its row, from the row's total and its other cells. So all tables of a plan are taken
together, with all of their margins up to the number of all rows. These are linear equations: an
axis of a table adds up to the margin without it. Linear programming then bounds each small count
from everything that is shown. While the bounds of one exclude a number from 1 to `small`, another
count that bounds it is hidden.

A survival curve has few rows at each time. So successive times are merged, in all groups alike,
until each count of a part is 0 or large enough. Quantiles are shown if at least `small` rows lie
between them, and on either side. Sums of a number are hidden if they bound a hidden count of its
own intervals, by the ends of these.

Source for the method: Willenborg and de Waal, "Elements of statistical disclosure control" (2001),
chapter 4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan, prod
from typing import Any, Final, TypeAlias

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.privacy.checks import require_that
from veilring.protocols.statistics.algorithm.columns import Factor, Number, cells_of
from veilring.protocols.statistics.algorithm.quantiles import Quantiles
from veilring.protocols.statistics.algorithm.survival import KaplanMeier
from veilring.protocols.statistics.algorithm.tallies import Statistic, Totals, as_floats

CELLS_MAX: Final = 4096
"""Tables of a plan with this many cells, margins included, are protected within minutes."""
FEW_VALUES: Final = 3
"""With the number of rows, sums and squares determine how often each of so few values occurs."""
# Bounds are whole numbers, but for the rounding of the solver.
_ROUNDING: Final = 1e-6
_UNBOUNDED: Final = 3  # a status of `linprog`

Key: TypeAlias = tuple[Factor, ...]
"""The factors of a table in the order of their columns' names; none for the number of all rows."""


def key_of(factors: Iterable[Factor]) -> Key:
    """Return factors in the order of a key."""
    return tuple(sorted(factors, key=lambda factor: factor.column.name))


def require_protectable(statistics: Sequence[Statistic[Any]]) -> None:
    """Refuse statistics whose hidden counts could not be protected, by public terms alone."""
    cells = sum(map(cells_of, _margins([each.factors for each in statistics])))
    require_that(
        cells <= CELLS_MAX,
        "small",
        f"the tables of the plan have {cells:,} cells with their margins, and small counts can be"
        f" hidden in up to {CELLS_MAX:,}; ask for fewer, or for coarser ones",
    )
    require_that(
        len({each.skips for each in statistics}) == 1,
        "small",
        "statistics that leave out different rows differ by a few rows, which could show a small"
        " count; fill in missing values, or ask in several plans",
    )
    divisions: dict[str, Factor | Number] = {}
    for each in statistics:
        for division in (each.column,) if isinstance(each, Quantiles) else each.factors:
            name = division.name if isinstance(division, Number) else division.column.name
            require_that(
                divisions.setdefault(name, division) == division,
                "small",
                f"the column {name!r} is divided in two ways, and their difference could show a"
                " small count; divide it in one way, or ask in two plans",
            )
    times = {each.time.name for each in statistics if isinstance(each, KaplanMeier)}
    for number in {number for each in statistics for number in each.numbers}:
        require_that(
            number.steps >= FEW_VALUES and number.name not in times,
            "small",
            f"sums of the column {number.name!r} could show a small count, because it is a time of"
            f" survival, or has {FEW_VALUES} values or fewer; declare categories, or ask in two"
            " plans",
        )


def publish(
    statistics: Sequence[Statistic[Any]], heard: Sequence[Sequence[Totals]], small: int
) -> tuple[Totals, ...]:
    """Return the published numbers of each statistic, with NaN for each that `small` hides.

    Args:
        heard: The totals of all rounds of each statistic.
        small: As in `find_hidden`; 0 hides nothing.
    """
    shown = [each.publish(totals).copy() for each, totals in zip(statistics, heard, strict=True)]
    if small:
        _hide_quantiles(statistics, heard, shown, small)
        _hide_tables(statistics, shown, small)
    return tuple(shown)


def _hide_quantiles(
    statistics: Sequence[Statistic[Any]],
    heard: Sequence[Sequence[Totals]],
    shown: Sequence[Totals],
    small: int,
) -> None:
    """Hide quantiles of a column with few rows between them, or on one of their sides."""
    searches = [(place, s) for place, s in enumerate(statistics) if isinstance(s, Quantiles)]
    rows = {place: sum(heard[place][0][0]) for place, _ in searches}
    ranked = [
        (rank, place, at, search.column.name)
        for place, search in searches
        for at, rank in enumerate(search.ranks(rows[place]))
    ]
    last = dict[str, int]()
    for rank, place, at, column in sorted(ranked):
        before = last.get(column, 0)
        if rank == before or min(rank - before, rows[place] - rank + 1) >= small:
            last[column] = rank
        else:
            shown[place][0, at] = nan


def _hide_tables(statistics: Sequence[Statistic[Any]], shown: Sequence[Totals], small: int) -> None:
    """Hide small counts, and what is computed from them; a survival curve is hidden as a whole."""
    counted = {place: s for place, s in enumerate(statistics) if not isinstance(s, Quantiles)}
    counts = {p: shown[p][0].reshape([*map(len, s.factors)]) for p, s in counted.items()}
    curves = {p: s.time.name for p, s in counted.items() if isinstance(s, KaplanMeier)}
    for time in {*curves.values()}:
        _merge_curves(counts, [p for p, name in curves.items() if name == time], small)
    keys = {place: key_of(each.factors) for place, each in counted.items()}
    orders = {p: [counted[p].factors.index(factor) for factor in key] for p, key in keys.items()}
    tables = {keys[p]: as_floats(each).transpose(orders[p]) for p, each in counts.items()}
    hidden = find_hidden(tables, small) if tables else {}
    for place, key in keys.items():
        is_hidden_curve = place not in counts or (place in curves and hidden[key].any())
        if is_hidden_curve or _bounds_hidden(counted[place], hidden):
            shown[place][:] = nan
        elif place not in curves:
            shown[place][:, hidden[key].transpose(np.argsort(orders[place])).ravel()] = nan


def _bounds_hidden(statistic: Statistic[Any], hidden: Mapping[Key, Bools]) -> bool:
    """Return whether sums of a number bound a hidden count of its own intervals."""
    for key, cells in hidden.items():
        own = {each for each in key if each.column in statistic.numbers} - {*statistic.factors}
        if own and {*key} <= own.union(statistic.factors) and cells.any():
            return True
    return False


def _merge_curves(counts: dict[int, Totals], places: Sequence[int], small: int) -> None:
    """Replace counts by those of merged steps, equal ones for some curves; remove them if none fit.

    The arrays are views of what is shown, in which counts move to the last steps of their parts.
    """
    by_step = [np.moveaxis(counts[place], -2, 0) for place in places]
    together = [as_floats(each).reshape(len(each), -1) for each in by_step]
    starts = merge_steps(np.concatenate(together, axis=1), small)
    for place in places:
        whole = counts.pop(place)
        if starts:
            counts[place] = np.add.reduceat(whole, starts, axis=-2)
            whole[:] = 0
            whole[..., [*(start - 1 for start in starts[1:]), -1], :] = counts[place]


def merge_steps(counts: Floats, small: int) -> list[int]:
    """Return the first steps of successive parts, as short as possible, without a small count.

    Args:
        counts: The counts of each step, shape (steps, cells).

    Returns:
        The first step of each part, from 0 on; none if all steps together have a small count.
    """
    starts, sums = list[int](), list[Floats]()
    start, held = 0, np.zeros(counts.shape[1])
    for step, count in enumerate(counts):
        held = held + count
        if not _is_small(held, small).any():
            starts.append(start)
            sums.append(held)
            start, held = step + 1, np.zeros_like(held)
    while starts and _is_small(held, small).any():
        start, held = starts.pop(), held + sums.pop()
    if start == len(counts):
        return starts
    return [] if _is_small(held, small).any() else [*starts, start]


def _is_small(counts: Floats, small: int) -> Bools:
    return (counts > 0) & (counts < small)


def find_hidden(tables: Mapping[Key, Floats], small: int) -> dict[Key, Bools]:
    """Return which counts of each table and of its margins are hidden, in their shapes.

    Args:
        tables: The exact counts, with an axis for each factor. Secret as long as they are not
            hidden.
        small: The smallest count that may be shown, apart from 0.
    """
    joint = _Joint.of(tables)
    hidden = _is_small(joint.counts, small)
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
    return {key: hidden[where].reshape(shape) for key, where, shape in joint.places()}


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
        shapes: The shape of each table.
        counts: Shape (counts,).
        axes: The number of factors of each count's table, shape (counts,).
        equations: A sparse matrix, shape (equations, counts), whose product with the counts is 0.
    """

    shapes: Mapping[Key, tuple[int, ...]]
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
        shapes = {key: counts.shape for key, counts in found.items()}
        return cls(shapes, vector, axes, _equations(found, starts, len(vector)))

    def places(self) -> Iterator[tuple[Key, slice, tuple[int, ...]]]:
        """Yield the positions of each table and margin, and its shape."""
        start = 0
        for key, shape in self.shapes.items():
            yield key, slice(start, start := start + prod(shape)), shape

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
        if solved.x is None:  # without a limit, or a solver that failed, which bounds nothing
            solution[cell] = np.inf if solved.status == _UNBOUNDED else solution[cell]
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
