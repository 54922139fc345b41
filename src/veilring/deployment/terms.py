"""The terms: what all parties of a deployment have agreed to run, and on which schema."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import Field

from veilring.data import Bounds, Table, bounds_of
from veilring.data.csv import read_cells
from veilring.deployment.files import read_toml
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ring import KNNParameters
from veilring.protocols.rows import Rows
from veilring.scenarios.prepare import knn_parameters
from veilring.scenarios.schema import ProtocolSection, Section

__all__ = ("FeatureTerms", "Terms", "load_terms", "terms_of_table")

_Words = Annotated[tuple[str, ...], Field(strict=False)]
_UNKNOWN_SHOWN: Final = 40  # enough of a cell to find it in its file


class FeatureTerms(Section):
    """One column of everybody's rows: a number in a public range, or one of public categories.

    Attributes:
        name: Its header.
        low: The least value; a lower one counts as this one.
        high: The greatest value; a higher one counts as this one.
        categories: Instead of a range, all that a cell may hold.
    """

    name: str = Field(description="the header of a column")
    low: float = Field(0.0, description="a number")
    high: float = Field(1.0, description="a number, at least low")
    categories: _Words = Field((), description="a list of different words, or none")

    @property
    def width(self) -> int:
        """How many features the column becomes."""
        return len(self.categories) or 1


class Terms(Section):
    """What is run, and how a row is read.

    Attributes:
        protocol: As in a scenario.
        classes: The names of all classes.
        features: All columns but the label.
    """

    protocol: ProtocolSection = ProtocolSection()
    classes: _Words = Field(min_length=1, description="a list of different names of classes")
    features: Annotated[tuple[FeatureTerms, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of tables with the keys name, and low and high or categories"
    )

    @cached_property
    def parameters(self) -> KNNParameters:
        """The protocol's public parameters."""
        width = sum(feature.width for feature in self.features)
        return knn_parameters(self.protocol, width, len(self.classes))

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it: parties that differ in anything refuse each other."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def read_rows(self, path: Path) -> Rows:
        """Read a party's own rows: all columns of the terms, and the label as the last column.

        Raises:
            InputError: If a column is missing or a cell does not fit; it names both, and no value
                but an unknown category's first characters.
        """
        cells = read_cells(path)
        label = list(cells)[-1]
        numbers = {name: number for number, name in enumerate(self.classes)}
        labels = _look_up(path, label, cells[label], numbers)
        return Rows(self._encode(path, cells), labels)

    def read_queries(self, path: Path) -> NDArray[np.float64]:
        """Read queries: all columns of the terms; others, such as a label, are passed over.

        Raises:
            InputError: As `read_rows`.
        """
        return self._encode(path, read_cells(path))

    def _encode(self, path: Path, cells: Mapping[str, NDArray[np.str_]]) -> NDArray[np.float64]:
        blocks = []
        for feature in self.features:
            if feature.name not in cells:
                raise InputError(
                    f"{path.name}", f"without {feature.name!r}", "all columns of the terms"
                )
            column = cells[feature.name]
            if feature.categories:
                numbers = {name: number for number, name in enumerate(feature.categories)}
                blocks.append(np.eye(feature.width)[_look_up(path, feature.name, column, numbers)])
            else:
                blocks.append(_scale(path, feature, column)[:, None])
        return np.hstack(blocks)

    def to_toml(self) -> str:
        """Return the text of the file."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_defaults=True))


def _look_up(
    path: Path, column: str, cells: NDArray[np.str_], numbers: Mapping[str, int]
) -> NDArray[np.int64]:
    found = np.array([numbers.get(cell, -1) for cell in cells.tolist()], dtype=np.int64)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        where = f"{path.name}, column {column!r}, row {row + 1}"
        cell = str(cells[row])[:_UNKNOWN_SHOWN]
        raise InputError(where, repr(cell), f"one of {', '.join(numbers)}")
    return found


def _scale(path: Path, feature: FeatureTerms, cells: NDArray[np.str_]) -> NDArray[np.float64]:
    numbers = np.array([_number(cell) for cell in cells.tolist()])
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        where = f"{path.name}, column {feature.name!r}, row {row + 1}"
        raise InputError(
            where, "not a finite number", f"a number ({feature.low} to {feature.high})"
        )
    span = (feature.high - feature.low) or 1.0
    scaled: NDArray[np.float64] = np.clip(numbers, feature.low, feature.high) - feature.low
    return scaled / span


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def load_terms(path: Path) -> Terms:
    """Read a file of terms and check it.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    terms = read_toml(path, Terms)
    _require_different("classes", terms.classes)
    _require_different("features", tuple(feature.name for feature in terms.features))
    for feature in terms.features:
        _require_different(f"features.{feature.name}.categories", feature.categories)
        if feature.low > feature.high:
            raise ScenarioError(f"features.{feature.name}.high", feature.high, "at least low")
    try:
        terms.parameters.sum.check(3)
    except InputError as error:
        raise ScenarioError(f"protocol.{error.field}", error.value, error.allowed) from error
    return terms


def _require_different(key: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise ScenarioError(key, list(names), "each once")


def terms_of_table(table: Table, protocol: ProtocolSection) -> Terms:
    """Return terms that fit a table: for trials, where one holds all rows.

    The ranges are the table's own. In earnest they come from what a column *can* hold, since a
    range that was taken from private rows gives their extremes away.
    """
    bounds: Bounds = bounds_of(table)
    features = tuple(
        FeatureTerms(name=name, low=float(low), high=float(high))
        for name, low, high in zip(table.feature_names, *bounds, strict=True)
    )
    return Terms(protocol=protocol, classes=table.class_names, features=features)
