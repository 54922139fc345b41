"""Tables that name a kind of thing and its parameters: `{ law = "constant", seconds = 0.02 }`."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from veilring.errors import ScenarioError
from veilring.scenarios.mistakes import as_scenario_errors, require_key, unknown_key

__all__ = ("make_kind",)

T = TypeVar("T")

# For the type of a field: what a TOML file may hold for it, and how to say so.
_VALUES: Final[Mapping[object, tuple[tuple[type, ...], str]]] = {
    float: ((int, float), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a text"),
    tuple[str, ...]: ((list, tuple), "a list of texts"),
}


def make_kind(key: str, tag: str, table: Mapping[str, Any], kinds: Mapping[str, type[T]]) -> T:
    """Return the thing that a table describes.

    Args:
        key: The table's dotted key.
        tag: Which of its keys holds the name of the kind.
        table: The name, and some of the fields of the kind.
        kinds: The dataclass of each name. Fields are numbers, texts or tuples of texts, and
            `__post_init__` refuses what is out of range with an `InputError`.

    Raises:
        ScenarioError: If the kind or a field is unknown, one is missing, or a value does not fit.
    """
    given = dict(table)
    name = given.pop(tag, "missing")
    require_key(name in kinds, f"{key}.{tag}", name, ", ".join(kinds))
    kind = kinds[name]
    known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]  # each is a dataclass
    for parameter, value in given.items():
        if parameter not in known:
            raise unknown_key(f"{key}.{parameter}", value, sorted(known))
        accepted, allowed = _VALUES[known[parameter].type]
        fits = isinstance(value, accepted) and not isinstance(value, bool)
        require_key(fits, f"{key}.{parameter}", value, allowed)
    needed = {name for name, each in known.items() if each.default is MISSING}
    if not needed <= set(given):
        raise ScenarioError(key, dict(table), f"a table with {tag}, {', '.join(sorted(known))}")
    with as_scenario_errors({}, key):
        return kind(**given)
