"""What a CSV file may have by mistake, and may have on purpose: said once, and not refused."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from veilring.data.slips import CLASSES_SURE, numbers_in

if TYPE_CHECKING:
    import polars as pl

# Fewer rows say little about their column.
ROWS_MIN: Final = 10
# Scaled by the least and the greatest value, the middle half of the rows lies within a hundredth of
# the range: distances do not see the column.
FAR: Final = 100.0
# Free text and names: each value becomes a feature that hardly two rows share.
MANY_CATEGORIES: Final = 0.5

_LABELS: Final = frozenset({"label", "class", "target", "outcome", "diagnosis"})


def notes_of(frame: "pl.DataFrame", label: str, *, is_chosen: bool) -> tuple[str, ...]:
    """Return a sentence for each thing that may be a mistake.

    Args:
        frame: All cells, as text.
        label: The column that is taken as the label.
        is_chosen: Whether that was asked for. If not, it is the last one.
    """
    notes = [] if is_chosen else list(_on_label(frame, label))
    if frame[label].n_unique() == 1:
        notes.append(f"column {label!r}, the label, has one class: there is nothing to tell apart")
    for column in frame:
        if column.name != label and len(column) >= ROWS_MIN:
            notes += _on_feature(column)
    return tuple(notes)


def _on_label(frame: "pl.DataFrame", label: str) -> Iterator[str]:
    """Doubt that the last column is the label, unless it is called so."""
    if label.lower() in _LABELS:
        return
    taken = f"the last column, {label!r}, is taken as the label"
    called = [name for name in frame.columns if name.lower() in _LABELS]
    numbers, different = numbers_in(frame[label]), frame[label].n_unique()
    if called:
        there = f"though there is a column {called[0]!r}"
        yield f"{taken}, {there}: choose it by --label {called[0]}"
    elif not numbers.has_nulls() and different > CLASSES_SURE:
        yield f"{taken}: {different} classes, which are numbers; choose another by --label"


def _on_feature(column: "pl.Series") -> Iterator[str]:
    numbers = numbers_in(column)
    different, rows = column.n_unique(), len(column)
    if numbers.has_nulls():
        if different > max(CLASSES_SURE, MANY_CATEGORIES * rows):
            found = f"column {column.name!r} has {different} categories in {rows} rows"
            yield f"{found}, and each becomes a feature: leave the column out if they are names"
        return
    values = numbers.to_numpy()
    if np.array_equal(np.diff(values), np.ones(rows - 1)):
        yield f"column {column.name!r} numbers the rows, and is taken as a feature: leave it out"
    low, early, middle, late, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    spread = late - early or np.ptp(np.quantile(values, [0.05, 0.95]))
    if 0 < FAR * spread < high - low:
        line = int(np.argmax(np.abs(values - middle))) + 2
        found = f"column {column.name!r}, line {line}, is far from all other values"
        yield f"{found}: scaled with it, they hardly differ"
