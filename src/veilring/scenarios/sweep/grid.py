"""Grids: which values of which keys a sweep goes through, as they are written and as they are."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from veilring.config import parse_toml, require_key

Value = bool | int | float | str
Grid = Mapping[str, tuple[Value, ...]]
Point = Mapping[str, Value]

# Every cell is checked before the first one runs and is a row of one table in memory: at a
# millisecond and a kilobyte each, these are a quarter of an hour and a gigabyte.
CELLS_MAX: Final = 1_000_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1  # what TOML and a column of the results can hold

_ALLOWED: Final = (
    "values with commas between them, such as 3,10,30 or uniform,distance; "
    "whole numbers also as 1..6 or 1..100:10"
)
_OPTION: Final = "table.key=values, such as protocol.rounds=1..6 or parties.count=3,10,30"
# A quoted string of TOML, or a run of what is not punctuation of TOML.
_ITEM: Final = r"""\s*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,"'#\[\]{}](?:[^,"'#\[\]{}\n]*))\s*"""
_LIST: Final = re.compile(rf"{_ITEM}(?:,{_ITEM})*")
_ITEMS: Final = re.compile(_ITEM)
_RANGE: Final = re.compile(r"([+-]?\d+)\.\.([+-]?\d+)(?::(\d+))?", re.ASCII)
_LIKE_RANGE: Final = re.compile(r"[^/\\]*\.\.[^/\\]*")  # two dots that are no part of a path


def parse_grid(options: Sequence[str]) -> Grid:
    """Read what `--grid` was given.

    Args:
        options: Each as `table.key=values`. Values are scalars of TOML with commas between them;
            what is not TOML is a string. `1..6` stands for the whole numbers from 1 to 6, and
            `1..100:10` for every tenth of them from the first.

    Returns:
        The values of each key, keys and values in the order in which they were given.

    Raises:
        ScenarioError: For whatever is not that, for a key or value that is there twice, and for
            more than `CELLS_MAX` points.
    """
    grid: dict[str, tuple[Value, ...]] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        require_key(bool(equals and key and all(key.split("."))), "--grid", option, _OPTION)
        require_key(key not in grid, key, text, "one --grid for each key")
        grid[key] = _values(key, text)
    count = math.prod(map(len, grid.values()))
    require_key(count <= CELLS_MAX, "--grid", f"{count} points", f"at most {CELLS_MAX} of them")
    return grid


def points(grid: Grid) -> Iterator[Point]:
    """Give all combinations of the values; those of the first key change least often."""
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def canonical(value: Value) -> Value:
    """Return one value for all that are written differently and mean the same: 1 for 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _values(key: str, text: str) -> tuple[Value, ...]:
    require_key(_LIST.fullmatch(text) is not None, key, text or "empty", _ALLOWED)
    values: list[Value] = []
    for item in _ITEMS.findall(text):
        values.extend(_expand(key, item.strip()))
        require_key(len(values) <= CELLS_MAX, key, text, f"at most {CELLS_MAX} values")
    seen: set[tuple[bool, Value]] = set()
    for value in values:
        mark = (isinstance(value, bool), canonical(value))  # True equals 1
        require_key(mark not in seen, key, f"{text}, where {value} is twice", "each value once")
        seen.add(mark)
    return tuple(values)


def _expand(key: str, item: str) -> Sequence[Value]:
    bounds = _RANGE.fullmatch(item)
    if bounds is not None:
        return _range(key, item, *bounds.groups(default="1"))
    is_quoted = item[0] in "\"'"
    allowed = "whole numbers as first..last or first..last:step, such as 1..6 or 1..100:10"
    require_key(is_quoted or _LIKE_RANGE.fullmatch(item) is None, key, item, allowed)
    return [_scalar(key, item, is_quoted=is_quoted)]


def _range(key: str, item: str, first: str, last: str, step: str) -> range:
    bounds = range(_whole(key, first), _whole(key, last) + 1)
    require_key(bounds.start < bounds.stop, key, item, "a range whose last is not below its first")
    width = _whole(key, step)
    require_key(width >= 1, key, item, "a step of at least 1")
    count = (bounds.stop - 1 - bounds.start) // width + 1
    require_key(count <= CELLS_MAX, key, item, f"a range of at most {CELLS_MAX} values")
    return bounds[::width]


def _scalar(key: str, item: str, *, is_quoted: bool) -> Value:
    try:
        value = parse_toml(f"value = {item}")["value"]
    except ValueError:
        require_key(not is_quoted, key, item, "a string as TOML writes it")
        return item
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return _whole(key, value)
    is_number = isinstance(value, float) and math.isfinite(value)
    require_key(is_number, key, item, "finite numbers, true, false and strings")
    return float(value)


def _whole(key: str, number: str | int) -> int:
    digits_max = 20  # of 64 bits with a sign; longer text takes time that grows with its square
    is_short = not isinstance(number, str) or len(number) <= digits_max
    allowed = "whole numbers of at most 64 bits"
    require_key(is_short and _INT_MIN <= int(number) <= _INT_MAX, key, number, allowed)
    return int(number)
