"""Columns of rows: what all parties agree about each, and how its cells become features.

Errors name the column, the line and what to do. They show no value except the first characters of
an unknown category, so that it can be found, and are meant for the party that holds the file.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from math import floor, log10
from typing import Annotated, Any, Final, Literal, TypeVar

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from veilring.arrays import Floats, Ints
from veilring.config import Section, did_you_mean, require_key_that
from veilring.data.cells import AUTO, Cells, Words
from veilring.errors import InputError, ScenarioError

Kind = Literal["number", "ordinal", "category", "date", "identifier", "ignored"]
REFUSE: Final = "refuse"
CATEGORY: Final = "category"
UNKNOWN: Final = "?"
"""The category of missing values."""
_SHOWN: Final = 40  # enough of a cell to find it in its file
_WORDS_MAX: Final = 8  # of an error about words that are no categories
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?", re.ASCII)
_DOTTED: Final = re.compile(
    r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII
)
_COMMA: Final = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)
_STEP_ERROR: Final = 1e-9  # relative, of a division of decimal fractions
_NOT_A_NUMBER: Final = float("nan")


def day_of(text: str, form: str = "") -> float:
    """Return a date, with or without a time, as days since 1970-01-01; NaN if it is none.

    Args:
        text: Such as 2024-01-31, 2024-01-31 10:37 or 31.01.2024.
        form: The format instead, as in `datetime.strptime`.
    """
    try:
        if form:
            moment = datetime.strptime(text, form).replace(tzinfo=UTC)
        elif found := _DOTTED.fullmatch(text):
            day, month, year, hour, minute, second = (int(part or 0) for part in found.groups())
            moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        elif _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        else:
            return _NOT_A_NUMBER
    except ValueError:
        return _NOT_A_NUMBER
    return (moment - _EPOCH) / _DAY


def date_of(days: float) -> date:
    """Return the date, or the moment, of a number of days since 1970-01-01."""
    moment = (_EPOCH + days * _DAY).replace(tzinfo=None)
    return moment if days % 1 else moment.date()


def _as_days(given: Any) -> Any:  # noqa: ANN401  (a file may contain anything)
    """Return a date of a file as days, and anything else as it is."""
    if isinstance(given, date | str):
        days = day_of(str(given))
        return given if np.isnan(days) else days
    return given


Bound = Annotated[float, BeforeValidator(_as_days)]
"""A number, or a date in days."""


class FeatureTerms(Section):
    """One column of all parties' rows, as they agree on it before anybody reads a row.

    Attributes:
        name: The header of the column.
        kind: A number or a date in a range, a category, or an ordinal: a category with a rank,
            which becomes one number. An identifier stays with its party, and an ignored column is
            not read. By default a category if there are categories, otherwise a number.
        unit: The unit of the numbers, for people and for headers such as `crp [mg/l]`.
        low: The minimum, of dates a date; lower values are clipped to it.
        high: The maximum; higher values are clipped to it.
        categories: The allowed values, instead of a range; of an ordinal in ascending order.
        missing: The value of an empty cell: `refuse` for none, a number in the range, one of the
            categories, or `category` for a category `?` of its own.
        agreed: Whether the range and the categories are agreed. A draft made from one party's rows
            sets it to false, because they reveal these rows.
    """

    name: str = Field(description="the header of a column")
    kind: Kind | None = Field(
        None,
        description="number, ordinal, category, date, identifier or ignored",
        exclude_if=lambda kind: kind is None,
    )
    unit: str = Field("", exclude_if=lambda unit: not unit)
    low: Bound = Field(0.0, description="a number, or a date")
    high: Bound = Field(1.0, description="a number, or a date, at least low")
    categories: Words = Field((), description="a list of different words, or none")
    missing: float | str = Field(
        REFUSE,
        union_mode="left_to_right",
        description="refuse, category, or a value of the column",
        exclude_if=lambda missing: missing == REFUSE,
    )
    agreed: bool = Field(True, exclude_if=bool)

    @model_validator(mode="before")
    @classmethod
    def _add_the_unknown(cls, given: Any) -> Any:  # noqa: ANN401  (a file may contain anything)
        if isinstance(given, dict) and isinstance(given.get("missing"), date):
            given = {**given, "missing": str(given["missing"])}
        if not isinstance(given, dict) or given.get("missing") != CATEGORY:
            return given
        categories = given.get("categories", ())
        if not isinstance(categories, list | tuple) or UNKNOWN in categories or not categories:
            return given
        return {**given, "categories": (*categories, UNKNOWN)}

    @model_serializer(mode="wrap")
    def _show_dates(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.kind == "date":
            written |= {key: date_of(written[key]) for key in ("low", "high") if key in written}
        return written

    @property
    def meaning(self) -> Kind:
        """The kind, also if it is not given."""
        return self.kind or ("category" if self.categories else "number")

    @property
    def is_feature(self) -> bool:
        """Whether the column is a part of rows."""
        return self.meaning not in {"identifier", "ignored"}

    @property
    def is_numeric(self) -> bool:
        """Whether its cells are numbers or dates in a range."""
        return self.meaning in {"number", "date"}

    @property
    def width(self) -> int:
        """The number of features of the column if a category becomes several of 0 and 1."""
        if self.meaning == CATEGORY:
            return len(self.categories)
        return int(self.is_feature)

    @property
    def filler(self) -> float | str | None:
        """The value of a missing cell; None if it is refused."""
        if self.missing == REFUSE:
            return None
        if self.missing == CATEGORY and self.meaning == CATEGORY:
            return UNKNOWN
        return day_of(str(self.missing)) if self.meaning == "date" else self.missing

    def cell_of(self, value: float) -> object:
        """Return the cell of a file with the value of a column that is one feature."""
        if self.meaning == "ordinal":
            return self.categories[round(value)]
        return date_of(value) if self.meaning == "date" else value

    @property
    def range_text(self) -> str:
        """The range in words."""
        if self.meaning == "date":
            return f"a date ({date_of(self.low)} to {date_of(self.high)})"
        return f"a number ({self.low:g} to {self.high:g})"


STEPS_MAX: Final = 2**31 - 2
"""The maximum number of steps of a target: sums over 2^32 rows then fit into words of 64 bits."""
_DIGITS: Final = 14  # of a float; the last ones are rounding errors of a sum of steps


class Target(Section):
    """A number as the label, which is predicted rather than a class.

    A label is then a whole number from 0 to `steps`: the steps of the resolution above `low`.

    Attributes:
        low: The minimum; lower values are clipped to it.
        high: The maximum, a whole number of steps above the minimum; higher values are clipped.
        resolution: The size of a step. Values and predictions are rounded to whole steps.
        agreed: Whether the range is agreed; of a draft from one party's rows, it is not.
    """

    low: float
    high: float
    resolution: float = Field(gt=0)
    agreed: bool = Field(True, exclude_if=bool)

    @property
    def steps(self) -> int:
        """The number of steps from the minimum to the maximum."""
        return round((self.high - self.low) / self.resolution)

    def require_sound(self) -> None:
        """Refuse a range that is empty, or that is not a whole number of steps."""
        exact = (self.high - self.low) / self.resolution
        fits = 1 <= round(exact) <= STEPS_MAX and abs(exact - round(exact)) <= _STEP_ERROR * exact
        require_key_that(
            fits,
            "target",
            f"the range from {self.low:g} to {self.high:g} has {exact:,.6g} steps of"
            f" {self.resolution:g}; choose a resolution that divides it into 1 to {STEPS_MAX:,}"
            " whole steps",
        )

    def labels_of(self, values: Floats) -> Ints:
        """Return values as numbers of steps, clipped to the range, in the same shape."""
        steps = (np.clip(values, self.low, self.high) - self.low) / self.resolution
        return np.rint(steps).astype(np.int64)

    def values_of(self, labels: Ints) -> Floats:
        """Return numbers of steps as values, in the same shape."""
        places = _DIGITS - floor(log10(max(abs(self.low), abs(self.high))))
        return np.asarray(np.round(self.low + labels * self.resolution, places), np.float64)

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g} in steps of {self.resolution:g}"


FeatureList = Annotated[
    tuple[FeatureTerms, ...],
    Field(
        strict=False,
        description="a list of tables with the keys name, and low and high or categories",
    ),
]


def check_features(features: Sequence[FeatureTerms]) -> None:
    """Refuse incompatible columns."""
    require_different("features", tuple(feature.name for feature in features))
    for feature in features:
        key = f"features.{feature.name}"
        require_different(f"{key}.categories", feature.categories)
        if feature.low > feature.high:
            raise ScenarioError(f"{key}.high", feature.high, "at least low")
        has_values = feature.meaning in {"category", "ordinal"}
        require_key_that(
            has_values == bool(feature.categories),
            f"{key}.categories",
            f"a column of the kind {feature.meaning} {'needs' if has_values else 'has no'}"
            " categories; change the kind or the categories",
        )
        _check_filler(f"{key}.missing", feature)


def _check_filler(key: str, feature: FeatureTerms) -> None:
    filler = feature.filler
    if filler is None:
        return
    if feature.is_numeric:
        fits = not isinstance(filler, str) and feature.low <= filler <= feature.high
        allowed = f"{REFUSE}, or {feature.range_text}"
    else:
        fits, allowed = filler in feature.categories, f"{REFUSE}, or one of its categories"
        if feature.meaning == CATEGORY:
            allowed = f"{REFUSE}, {CATEGORY}, or one of its categories"
    if not fits:
        raise ScenarioError(key, feature.missing, allowed if feature.is_feature else REFUSE)


def require_different(key: str, names: Sequence[str]) -> None:
    """Refuse names that occur twice."""
    if len(set(names)) != len(names):
        raise ScenarioError(key, list(names), "a list without repeated names")


_Found = TypeVar("_Found")


def all_of(reads: Iterable[Callable[[], _Found]]) -> list[_Found]:
    """Return the results of all calls, or raise all their errors together."""
    found, wrong = list[_Found](), list[InputError]()
    for read in reads:
        try:
            found.append(read())
        except InputError as error:
            wrong += [error, *error.others]
    if wrong:
        raise wrong[0].with_others(wrong[1:])
    return found


def features_of(feature: FeatureTerms, cells: Cells) -> Floats:
    """Return a column as features, not scaled, shape (rows, width)."""
    match feature.meaning:
        case "category":
            return np.eye(feature.width)[read_categories(feature, cells)]
        case "ordinal":
            return read_categories(feature, cells).astype(np.float64)[:, None]
        case "number" | "date":
            return numbers_of(feature, cells)[:, None]
    return np.empty((cells.rows, 0))


def read_categories(feature: FeatureTerms, cells: Cells) -> Ints:
    """Return the number of each cell's category, in the order of the categories."""
    filler = feature.filler
    missing = None if filler is None else feature.categories.index(str(filler))
    return look_up(cells, feature.name, feature.categories, missing=missing)


def look_up(
    cells: Cells, column: str, names: Sequence[str], *, missing: int | None = None, note: str = ""
) -> Ints:
    """Return the position of each cell in a list of names.

    Args:
        missing: The position of a missing value; by default such cells are refused.
        note: A remark for the error about an unknown name.
    """
    numbers = {name: number for number, name in enumerate(names)}
    for cell, name in cells.reading.values.get(column, {}).items():
        if name not in numbers:
            raise InputError(f"values.{column}.{cell}", name, f"one of {', '.join(names)}")
        numbers[cell] = numbers[name]
    texts = cells.texts[column]
    found = np.array([numbers.get(cell, -1) for cell in texts], dtype=np.int64)
    unknown = np.flatnonzero(found < 0).tolist()
    gaps = [row for row in unknown if cells.is_gap(texts[row])]
    if gaps:
        found[gaps] = _filled(cells, column, gaps, missing)
        unknown = np.flatnonzero(found < 0).tolist()
    if unknown:
        where, cell = cells.at(column, unknown[0]), texts[unknown[0]][:_SHOWN]
        near = did_you_mean(cell, names)
        remedy = f"; or say which it is in the reading, under values.{column}"
        also = _others([texts[row] for row in unknown])
        raise InputError(where, cell, f"one of {', '.join(names)}{note}{near}{remedy}{also}")
    return found


def _others(words: Sequence[str]) -> str:
    """Return all words of cells that are no categories, if the first one is not alone."""
    if len(words) == 1:
        return ""
    different = sorted({word[:_SHOWN] for word in words} - {words[0][:_SHOWN]})
    more = f", … ({len(different):,})" if len(different) > _WORDS_MAX else ""
    listed = f", also {', '.join(map(repr, different[:_WORDS_MAX]))}{more}" if different else ""
    return f" ({len(words):,} cells{listed})"


def read_numbers(feature: FeatureTerms, cells: Cells) -> Floats:
    """Return the cells as numbers, clipped to the range."""
    return np.clip(numbers_of(feature, cells), feature.low, feature.high)


def numbers_of(feature: FeatureTerms, cells: Cells) -> Floats:
    """Return the cells as numbers in the unit of the schema, also those outside of the range."""
    name = feature.name
    if name not in cells.numbers:
        cells.numbers[name] = _numbers(feature, cells)
    return cells.numbers[name]


def _numbers(feature: FeatureTerms, cells: Cells) -> Floats:
    name, reading = feature.name, cells.reading
    texts = cells.texts[name]
    if feature.meaning == "date":
        numbers = np.array([day_of(cell, reading.dates) for cell in texts], np.float64)
    else:
        numbers = parsed(texts, name, cells)
        numbers = numbers * reading.factors.get(name, 1.0) + reading.offsets.get(name, 0.0)
    unread = np.flatnonzero(~np.isfinite(numbers)).tolist()
    gaps = [row for row in unread if cells.is_gap(texts[row])]
    if gaps:
        filler = feature.filler
        numbers[gaps] = _filled(cells, name, gaps, None if filler is None else float(filler))
        unread = sorted({*unread} - {*gaps})
    if unread:
        where = cells.at(name, unread[0])
        what, remedy = "finite number", ""
        if feature.meaning == "date":
            what = "date"
            remedy = ", or the format of this file's dates in its reading, as dates"
        raise InputError.because(
            f"{where}: this is not a {what}; give {feature.range_text}{remedy}"
            f"{_more(unread, 'too')}",
            field=where,
        )
    return numbers


_Filler = TypeVar("_Filler", int, float)


def _filled(cells: Cells, column: str, gaps: Sequence[int], filler: _Filler | None) -> _Filler:
    """Return the value of missing cells, or refuse them."""
    if filler is not None:
        return filler
    where = cells.at(column, gaps[0])
    raise InputError.because(
        f"{where} is empty{_more(gaps, 'empty')}; fill it in, remove the row, or agree on a value"
        " for missing cells in the schema (`missing` of this column), unless it is the label",
        field=where,
    )


def _more(rows: Sequence[int], word: str) -> str:
    if len(rows) == 1:
        return ""
    return f" ({len(rows) - 1:,} more {'cell is' if len(rows) == 2 else 'cells are'} {word})"  # noqa: PLR2004  (one more)


def parse(texts: Iterable[str]) -> Floats:
    """Return cells as numbers, with NaN for a cell that is not one."""
    cells = list(texts)
    with suppress(ValueError, TypeError):  # the usual case, several times as fast
        return np.fromiter(map(float, cells), np.float64, len(cells))
    return np.fromiter(map(_number, cells), np.float64, len(cells))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return _NOT_A_NUMBER


def parsed(texts: Sequence[str], name: str, cells: Cells) -> Floats:
    """Return cells as numbers by the decimal mark of their file."""
    decimal = cells.reading.decimal
    if decimal != AUTO:
        other = "." if decimal == "," else ","
        return parse(cell.replace(other, "").replace(decimal, ".") for cell in texts)
    numbers = parse(texts)
    commas = [row for row in np.flatnonzero(np.isnan(numbers)).tolist() if "," in texts[row]]
    if not commas:
        return numbers
    if all(_THOUSANDS.fullmatch(texts[row]) for row in commas):
        where = cells.at(name, commas[0])
        raise InputError.because(
            f"{where}: the comma may stand before decimals or thousands; say which by"
            ' decimal = "," or decimal = "." in the reading of this file',
            field=where,
        )
    points = any("." in texts[row] for row in np.flatnonzero(np.isfinite(numbers)).tolist())
    decimals = [] if points else [row for row in commas if _COMMA.fullmatch(texts[row])]
    numbers[decimals] = [float(texts[row].replace(",", ".")) for row in decimals]
    return numbers
