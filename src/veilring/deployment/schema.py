"""A schema that all agree on: how a row of a CSV file is read. The base of terms."""

from logging import Logger
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.config import Agreed
from veilring.data import Table, bounds_of
from veilring.data.csv import read_cells
from veilring.deployment.columns import (
    FEATURES_ALLOWED,
    Cells,
    Features,
    FeatureTerms,
    Words,
    check_features,
    read_categories,
    read_labels,
    read_numbers,
    require_different,
)
from veilring.deployment.ranges import check_ranges
from veilring.protocols.rows import Rows


class Schema(Agreed):
    """How a row is read. Terms add what is run on it.

    Attributes:
        classes: The names of all classes.
        features: All columns but the label.
    """

    classes: Words = Field(min_length=1, description="a list of different names of classes")
    features: Features = Field(description=FEATURES_ALLOWED)

    @property
    def width(self) -> int:
        """How many features a row has once categories are several 0 and 1."""
        return sum(feature.width for feature in self.features)

    def checked(self) -> Self:
        """Return itself.

        Raises:
            ScenarioError: If columns or classes do not go together.
        """
        require_different("classes", self.classes)
        check_features(self.features)
        return self

    def read_rows(self, path: Path) -> Rows:
        """Read a party's own rows: all columns of the terms, and the label as the last column.

        Raises:
            InputError: If a column is missing or a cell does not fit; it names both, and no value
                but an unknown category's first characters.
        """
        return self.rows_of(path, read_cells(path))

    def rows_of(self, path: Path, cells: Cells) -> Rows:
        """Return rows from the cells of a file that was read; as `read_rows`."""
        labels = read_labels(path, cells, self.classes)
        return Rows(self._encode(path, cells), labels)

    def read_own_rows(self, path: Path, outside_max: float, log: Logger) -> Rows:
        """Read the rows that a party holds, and log how they fit the public ranges.

        Raises:
            InputError: As `read_rows` and `check_ranges`.
        """
        cells = read_cells(path)
        if check_ranges(path, self.features, cells, outside_max, log) == 1:
            log.warning("%s: 1 row; check that the file is complete", path.name)
        return self.rows_of(path, cells)

    def read_own_queries(self, path: Path, outside_max: float, log: Logger) -> NDArray[np.float64]:
        """Read queries as `read_queries`, and log how they fit the public ranges.

        Raises:
            InputError: As `read_rows` and `check_ranges`.
        """
        cells = read_cells(path)
        check_ranges(path, self.features, cells, outside_max, log)
        return self._encode(path, cells)

    def read_queries(self, path: Path) -> NDArray[np.float64]:
        """Read queries: all columns of the terms; others, such as a label, are passed over.

        Raises:
            InputError: As `read_rows`.
        """
        return self._encode(path, read_cells(path))

    def _encode(self, path: Path, cells: Cells) -> NDArray[np.float64]:
        return np.hstack([_encode(path, feature, cells) for feature in self.features])


def features_of_table(table: Table) -> tuple[FeatureTerms, ...]:
    """Return the columns of a table: for trials, where one holds all rows.

    The ranges are the table's own. In earnest they come from what a column *can* hold, since a
    range that was taken from private rows gives their extremes away. So do categories.
    """
    columns: dict[int, FeatureTerms] = {
        number: FeatureTerms(name=name, low=float(low), high=float(high))
        for number, (name, low, high) in enumerate(
            zip(table.feature_names, *bounds_of(table), strict=True)
        )
    }
    for each in table.categories:
        for number in range(each.features.start, each.features.stop):
            del columns[number]
        columns[each.first] = FeatureTerms(name=each.column, categories=each.values)
    return tuple(columns[number] for number in sorted(columns))


def _encode(path: Path, feature: FeatureTerms, cells: Cells) -> NDArray[np.float64]:
    """Return a column scaled into [0, 1], or as one of several 0 and 1."""
    if feature.categories:
        return np.eye(feature.width)[read_categories(path, feature, cells)]
    numbers = read_numbers(path, feature, cells)
    span = (feature.high - feature.low) or 1.0
    scaled: NDArray[np.float64] = (numbers - feature.low) / span
    return scaled[:, None]
