"""How own rows or queries fit the public ranges: counted, logged here only, and refused if badly.

A value outside of its range counts as the nearest bound, which no protocol notices: rows in another
unit only make labels wrong. So each role that reads a file of its own counts such values first.

The counts depend on private rows. They stand in the party's own log, and nothing of them is sent.
A refusal can be noticed, because the party does not start: peers may conclude that its rows do not
fit. `outside_max = 1` in the configuration starts the party whatever its rows are.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
from pydantic import Field

from veilring.deployment.columns import Cells, FeatureTerms, numbers_of
from veilring.errors import InputError, ScenarioError

# Ranges are meant to hold whatever a column can hold. Ranges of the percentiles 1 and 99, which
# are in use, leave out 2 %. With more than this the unit, the column or the range is wrong.
OUTSIDE_MAX: Final = 0.05
# One value may be an outlier or a slip, and one row may be all that a file has: a client's own
# report, or a record that is added. To refuse it would say something of that row alone.
OUTSIDE_SURE: Final = 2
# Where different values take up less of their range than this, distances hardly see the column:
# metres in a range of millimetres. Skewed columns look the same, so it is never refused.
NARROW: Final = 0.01
# A row of an image has hundreds of columns; the first are enough to find the mistake.
_COLUMNS_SHOWN: Final = 8

OutsideMax = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
"""The share of a column's values that may lie outside of its range."""


class _Fit(NamedTuple):
    """How the values of one column fit its range."""

    feature: FeatureTerms
    rows: int
    outside: int
    narrow: bool

    def __str__(self) -> str:
        found = f"{self.outside} of {self.rows} outside of its range"
        if not self.outside:
            found = f"all values lie in {NARROW:.0%} of its range; check their unit"
        return f"column {self.feature.name!r}: {found}"


def check_ranges(
    path: Path,
    features: Sequence[FeatureTerms],
    cells: Cells,
    outside_max: float,
    log: logging.Logger,
) -> int:
    """Count the values outside of their public ranges, and log the counts.

    Args:
        path: The file of the rows.
        features: The columns of the terms.
        cells: The cells of the file, by column.
        outside_max: The share of a column's values that may lie outside of its range.
        log: The party's own log.

    Returns:
        How many rows there are, at least one.

    Raises:
        InputError: If there is no row, a column is missing, or a cell is no finite number.
        ScenarioError: If more than `outside_max` of a column's values lie outside of its range, and
            at least `OUTSIDE_SURE` of them. It names all such columns and their counts.
    """
    rows = len(next(iter(cells.values()), ()))
    if not rows:
        raise InputError(path.name, "without rows", "at least one row below the header")
    fits = list(_fits(path, features, cells))
    counted = f"{path.name}: {rows} {'row' if rows == 1 else 'rows'}"
    if fits:
        shown = "; ".join(map(str, fits[:_COLUMNS_SHOWN]))
        more = len(fits) - _COLUMNS_SHOWN
        log.warning("%s; %s%s", counted, shown, f"; {more} more columns" if more > 0 else "")
    else:
        log.info("%s; all values lie in their ranges", counted)
    refused = [
        fit for fit in fits if fit.outside >= OUTSIDE_SURE and fit.outside > outside_max * rows
    ]
    if refused:
        first, *others = (_refusal(path, fit, outside_max) for fit in refused)
        raise ScenarioError(first.field, first.value, first.allowed, tuple(others))
    return rows


def _fits(path: Path, features: Sequence[FeatureTerms], cells: Cells) -> Iterator[_Fit]:
    """Yield the columns that do not fit their ranges well."""
    for feature in features:
        if feature.categories:
            continue
        numbers = numbers_of(path, feature, cells)
        outside = int(((numbers < feature.low) | (numbers > feature.high)).sum())
        narrow = 0 < float(np.ptp(numbers)) < NARROW * (feature.high - feature.low)
        if outside or narrow:
            yield _Fit(feature, len(numbers), outside, narrow)


def _refusal(path: Path, fit: _Fit, outside_max: float) -> ScenarioError:
    low, high = fit.feature.low, fit.feature.high
    return ScenarioError(
        f"{path.name}, column {fit.feature.name!r}",
        f"outside of its range ({low:g} to {high:g}) in {fit.outside} of {fit.rows} rows",
        f"at most {outside_max:.0%} of the rows; correct the unit or the column, or accept them by "
        "a larger outside_max in the configuration",
    )
