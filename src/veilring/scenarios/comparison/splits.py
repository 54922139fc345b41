"""The rows of a comparison: reading, scaling, and the splits shared by all systems."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from veilring.config import read_tables, require_key, scenario_error
from veilring.data.schema import RowSchema
from veilring.data.sources import load
from veilring.data.table import (
    TEST_SHARE,
    Ranges,
    Rows,
    Table,
    partition,
    scale_to_unit,
    split,
)
from veilring.errors import InputError, ScenarioError
from veilring.protocols.promise import Facts
from veilring.randomness import Streams
from veilring.scenarios.comparison.question import QUERIES_MIN, Question


def require_rows(question: Question, train: int, held_out: int) -> None:
    """Refuse a question that does not fit the data.

    Args:
        question: The inputs.
        train: The number of rows of all parties together.
        held_out: The number of rows that could be asked.

    Raises:
        ScenarioError: If there are more parties or more neighbours than rows, or too few queries.
    """
    most = f"at most {train}, the rows of all parties together"
    require_key(question.parties <= train, "parties", question.parties, most)
    require_key(question.k <= train, "k", question.k, most)
    if held_out < QUERIES_MIN:
        allowed = f"a table of which at least {QUERIES_MIN} rows can be held out"
        raise ScenarioError.because(
            f"{question.data} has {train + held_out} rows; at least {QUERIES_MIN} must be "
            "left to hold out",
            field="data",
        )
    others = question.parties - 1
    allowed = f"at most {others}, or no party would be left to protect"
    require_key(question.colluding <= others, "tolerated", question.colluding, allowed)


_OWN_BOUNDS: Final = (
    "the smallest and the largest value of each column of the file, held-out rows included, in"
    " place of public ranges. They are not public: scaling by the extremes of private rows reveals"
    " them. In production, use ranges that are known without the rows, such as those of a form"
    " or a sensor"
)
_BUILTIN_BOUNDS: Final = (
    "the smallest and the largest value of each feature of the whole table, held-out rows included;"
    " the table is public, and so are they. Private rows need ranges that are known without them"
)
_GIVEN_BOUNDS: Final = (
    "the given ones; they reveal nothing about the rows, unless somebody looked at the"
    " rows to choose them"
)
_FILES: Final = {".csv", ".npz"}
_SCHEMA_KEYS: Final = ("classes", "features")
# More batches make intervals narrower, until the overlap of the splits dominates.
BATCHES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The public facts about the data.

    Attributes:
        name: The source.
        rows: The number of rows.
        features: The number of features of a row.
        classes: The number of classes.
        categorical: Whether all columns are categories.
        train: The number of rows that the parties hold together in each split.
        held_out: The number of held-out rows.
        queries: The number of held-out rows in a batch.
        batches: The number of batches in each split, each of fresh parties.
        bounds: The origin of the features' ranges, and its consequences.
    """

    name: str
    rows: int
    features: int
    classes: int
    categorical: bool
    train: int
    held_out: int
    queries: int
    batches: int
    bounds: str


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DealtSplit:
    """One split, with the features scaled into [0, 1] by public ranges.

    Attributes:
        number: Its number, from 0.
        train: The rows that the parties hold together.
        held_out: The held-out rows, in random order.
        parts: The rows of each party, by its name.
    """

    number: int
    train: Table
    held_out: Table
    parts: Mapping[str, Rows]

    def batches(self, size: int) -> list[Table]:
        """Return held-out rows in equal batches; each batch is asked once, among fresh parties.

        Rows that would make a smaller batch are not asked, nor those beyond `BATCHES_MAX` batches.

        Args:
            size: The number of rows of a batch, or less if fewer are held out.
        """
        size = min(size, len(self.held_out))
        count = min(BATCHES_MAX, len(self.held_out) // size)
        return [
            self.held_out.take(np.arange(number * size, (number + 1) * size))
            for number in range(count)
        ]

    @property
    def facts(self) -> Facts:
        """Return the public facts, except for the number of queries."""
        features = self.train.features
        return Facts(
            parties=len(self.parts),
            features=len(features),
            classes=len(features.classes),
            rows=len(self.train),
            schema=features,
        )


def load_facts(question: Question, given: Table | None = None) -> tuple[Table, TableFacts]:
    """Load a table, scaled into [0, 1], with its public facts.

    Args:
        question: The inputs.
        given: A table to use instead of the one that the question names.

    Raises:
        InputError: If there is no such data set, it has too few rows for the question, or does not
            fit the ranges or the terms.
    """
    table, bounds = _load(question) if given is None else (scale_to_unit(given), _GIVEN_BOUNDS)
    first = next(draw_splits(table, question))
    held_out = len(table) - len(first.train)
    require_rows(question, len(first.train), held_out)
    batches = first.batches(question.queries)
    facts = TableFacts(
        name=Path(question.data).stem if _is_file(question) else question.data,
        rows=len(table),
        features=len(table.features),
        classes=len(table.features.classes),
        categorical=table.features.is_categorical,
        train=len(first.train),
        held_out=held_out,
        queries=len(batches[0]),
        batches=len(batches),
        bounds=bounds,
    )
    return table, facts


def _is_file(question: Question) -> bool:
    return Path(question.data).suffix.lower() in _FILES


def _load(question: Question) -> tuple[Table, str]:
    """Return a table, scaled into [0, 1], and the origin of its ranges."""
    agreed = read_tables(Path(question.terms), "terms") if question.terms else {}
    if agreed.get("features") and _is_file(question):
        return _by_terms(Path(question.data), agreed), _GIVEN_BOUNDS
    is_embedded = bool(agreed.get("dimensions"))
    ranges = None if is_embedded or not question.ranges else Path(question.ranges)
    try:
        table = load(
            question.data,
            label=question.label or None,
            separator=question.separator,
            ranges=ranges,
        )
    except InputError as error:
        if error.field != "source":
            raise
        raise InputError.of(error, "data") from error
    if is_embedded:
        return scale_to_unit(table, _about_origin(table, agreed)), _GIVEN_BOUNDS
    if ranges is not None:
        return scale_to_unit(table), _GIVEN_BOUNDS
    return scale_to_unit(table), _OWN_BOUNDS if _is_file(question) else _BUILTIN_BOUNDS


def _by_terms(path: Path, agreed: Mapping[str, Any]) -> Table:
    """Return the rows of a file read by the terms of a deployment, scaled into [0, 1]."""
    try:
        schema = RowSchema.model_validate({name: agreed.get(name) for name in _SCHEMA_KEYS})
    except ValidationError as error:
        raise scenario_error(error, RowSchema) from None
    schema.require_sound()
    rows = schema.read_rows(path)
    features = replace(schema.encoded, ranges=Ranges.unit(schema.width))
    return Table(path.stem, rows.features, rows.labels, features)


def _about_origin(table: Table, agreed: Mapping[str, Any]) -> Ranges:
    """Return equal ranges around the origin of embeddings, which preserve directions from it."""
    count = len(table.features)
    origin = np.array(agreed.get("origin") or np.zeros(count), np.float64)
    if origin.shape != (count,):
        raise InputError.because(
            f"the origin has {len(origin)} numbers; it must have {count}, as the rows have",
            field="terms",
        )
    reach = float(np.abs(table.X - origin).max()) or 1.0
    return Ranges(tuple((origin - reach).tolist()), tuple((origin + reach).tolist()))


def draw_splits(table: Table, question: Question) -> Iterator[DealtSplit]:
    """Yield the splits, each from a random stream of its own."""
    for number in range(question.splits):
        yield draw_split(table, question, number)


def draw_split(table: Table, question: Question, number: int) -> DealtSplit:
    """Return one of the splits.

    Args:
        table: All rows, scaled into [0, 1].
        question: The inputs of the comparison.
        number: The number of the split, from 0.
    """
    streams = Streams(question.seed)
    train, held_out = split(table, TEST_SHARE, streams.generator("split", number))
    dealt = partition(
        train.y,
        question.parties,
        streams.generator("partition", number),
        kind=question.partition,
    )
    parts = {
        name: Rows(train.X[rows], train.y[rows])
        for name, rows in zip(question.names, dealt, strict=True)
    }
    return DealtSplit(number, train, held_out, parts)
