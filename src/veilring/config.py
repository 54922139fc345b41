"""TOML files checked against a model: sections, agreed terms, and errors that name the key.

No file, however it is constructed, can keep a process busy or end it with a traceback.
"""

import datetime as dt
import hashlib
import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from veilring.errors import InputError, ScenarioError

# A scenario or a configuration is a few kilobytes long; terms with a thousand columns, a hundred.
TOML_BYTES_MAX: Final = 1 << 20
# The time of Python's parser grows with the square of the number of parts of a dotted key: a minute
# for 50,000 parts in 100 kB. None of our keys has more than four.
KEY_PARTS_MAX: Final = 64
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS_MAX},}}"
)
# More mistakes than anyone reads at once; a file of another kind has thousands.
MISTAKES_MAX: Final = 20
ORDER_OF: Final = "order of "
"""The start of a compared key that differs if a list has the same entries in another order."""
HASHED: Final = "SHA-256 "
"""The start of a compared value that is replaced by its hash."""
_TEXT_MAX: Final = 32  # characters: longer values are compared by their hash
# Some 90 columns: half of the terms in a greeting. The columns of more are compared by one hash.
_TABLES_TEXT_MAX: Final = 1 << 13
_DIGITS: Final = 16
# For the type of a field: the values that a TOML file may have, with a description. All others,
# such as choices, are texts.
_VALUES: Final[Mapping[object, tuple[tuple[type, ...], str]]] = {
    float: ((int, float), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a text"),
    tuple[str, ...]: ((list, tuple), "a list of texts"),
    dt.date | None: ((dt.date,), "a date"),
}
_MEANING: Final = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)


class Section(BaseModel):
    """The base of every table of a file: frozen, strict, and without unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    renamed: ClassVar[Mapping[str, str]] = {}
    """The renamed keys, by their old names: a file with an old name is refused with the new one."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_given: Any) -> None:
        """Describe the allowed values of each key, unless its field does."""
        for field in cls.model_fields.values():
            field.description = field.description or allowed_by(field.annotation, field.metadata)


def allowed_by(kind: Any, limits: Iterable[object] = ()) -> str:  # noqa: ANN401  (an annotation is anything)
    """Describe the values that an annotation allows; return an empty string if it does not tell.

    Args:
        kind: The annotation: a number, a text, a choice, or a number or a choice, such as
            `Annotated[int, Field(ge=1)] | Literal["auto"]`.
        limits: The metadata of a field, such as `Ge(1)`.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        marked = [each for each in parts[1:] if isinstance(each, FieldInfo)]
        stated = next((each.description for each in marked if each.description), None)
        inner = [limit for each in marked for limit in each.metadata]
        return stated or allowed_by(parts[0], [*inner, *limits])
    if origin is Literal:
        *others, last = map(str, parts)
        return f"{', '.join(others)} or {last}" if others else last
    if origin in {Union, UnionType}:
        number, *words = sorted((each for each in parts if each is not NoneType), key=_is_choice)
        also = " or ".join(json.dumps(word) for each in words for word in get_args(each))
        described = allowed_by(number, limits)
        return f"{described}, or {also}" if also and described else described
    simple = {bool: "true or false", str: "a text"}
    return _range_text(kind, limits) if kind in {int, float} else simple.get(kind, "")


def _is_choice(kind: Any) -> bool:  # noqa: ANN401  (an annotation is anything)
    return get_origin(kind) is Literal


def _range_text(kind: type, limits: Iterable[object]) -> str:
    noun = "a whole number" if kind is int else "a number"
    given = {
        key: value
        for each in limits
        for key in ("ge", "gt", "le", "lt")
        if (value := getattr(each, key, None)) is not None
    }
    if kind is int and "gt" in given:
        given["ge"] = given.pop("gt") + 1
    shown = {
        key: f"{each:,}" if isinstance(each, int) else f"{each:,.10g}"
        for key, each in given.items()
    }
    if {"ge", "le"} <= shown.keys():
        return f"{noun} from {shown['ge']} to {shown['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "up to", "lt": "below"}
    ends = [f"{word} {shown[key]}" for key, word in words.items() if key in shown]
    return f"{noun} {' and '.join(ends)}" if ends else noun


def same_field(model: type[BaseModel], key: str, *, required: bool = False) -> Any:  # noqa: ANN401  (a field's default is anything)
    """Return the field of another model, for a table that has the same key with the same meaning.

    This keeps the default, the range and the description of the field in one place.

    Args:
        required: Whether the key must be given here, without a default.
    """
    field = copy(model.model_fields[key])
    if required:
        field.default = PydanticUndefined
    return field


class Agreed(Section):
    """A public file that must be equal for all parties."""

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the whole file; parties with different digests refuse each other."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    @property
    def keys(self) -> dict[str, str]:
        """The value of each key as text, two tables deep; long values are replaced by their hashes.

        A list has a second key for its order, and tables with a `name` a key for each entry, such
        as `features.age.high`. Parties compare these to find the keys that differ.
        """
        found = dict[str, str]()
        for key, value in self.model_dump(mode="json").items():
            if isinstance(value, dict):
                found |= {f"{key}.{inner}": _text(given) for inner, given in value.items()}
            else:
                found |= _compared(key, value)
        return found

    @property
    def tables(self) -> dict[str, Any]:
        """The keys and tables of the file, without those that have their default values."""
        return self.model_dump(exclude_defaults=True)

    def to_toml(self) -> str:
        """Return the text of the file."""
        return tomli_w.dumps(self.tables)


def _compared(key: str, value: object) -> dict[str, str]:
    """Return the compared keys of a value: of a list, its entries and their order."""
    if not isinstance(value, list) or not value:
        return {key: _text(value)}
    if all(isinstance(each, str) for each in value):
        return {key: _text(sorted(value)), f"{ORDER_OF}{key}": _text(value)}
    if not all(isinstance(each, dict) and "name" in each for each in value):
        return {key: _text(value)}
    found = {f"{ORDER_OF}{key}": _text([each["name"] for each in value])}
    for each in value:
        for inner, given in each.items():
            if inner != "name" and given != []:
                found |= _compared(f"{key}.{each['name']}.{inner}", given)
    return found if len(json.dumps(found)) <= _TABLES_TEXT_MAX else {key: _text(value)}


def _text(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _TEXT_MAX:
        return text
    return f"{HASHED}{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


_SectionT = TypeVar("_SectionT", bound=Section)


def read_toml(path: Path, model: type[_SectionT], key: str = "") -> _SectionT:
    """Read a TOML file and validate it as `model`."""
    tables = read_tables(path, key)
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, model) from None


def read_tables(path: Path, key: str = "") -> dict[str, Any]:
    """Return the content of a TOML file.

    Args:
        key: The key or option that names the file, if there is one.
    """
    try:
        return load_toml(path)
    except FileNotFoundError as error:
        raise missing_file(path, key) from error
    except (OSError, UnicodeDecodeError) as error:
        allowed = f"a file in UTF-8 that can be read ({error})"
        raise ScenarioError(key or "file", path, allowed) from error
    except ValueError as error:
        raise ScenarioError(key or "file", path, f"a file in TOML ({error})") from error


def missing_file(path: Path | str, key: str = "") -> ScenarioError:
    """Return the error for a file that does not exist, with the key that names it, if any."""
    return ScenarioError.because(f"there is no file {path}; check the path", field=key)


def load_toml(path: Path, *, bytes_max: int = TOML_BYTES_MAX) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: If it cannot be read.
        UnicodeDecodeError: If it is not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ValueError(_too_long(bytes_max))
    return parse_toml(content.decode("utf-8"), bytes_max=bytes_max)


def parse_toml(text: str, *, bytes_max: int = TOML_BYTES_MAX) -> dict[str, Any]:
    """Read a text in TOML."""
    if len(text) > bytes_max:
        raise ValueError(_too_long(bytes_max))
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its brackets nest too deeply") from None


def _too_long(bytes_max: int) -> str:
    return f"it is longer than {bytes_max:,} bytes"


def set_key(tables: dict[str, Any], setting: str) -> None:
    """Set a key of nested tables, like `--set table.key=value`.

    Args:
        tables: The tables; missing ones are added.
        setting: The dotted key and its value in TOML; a text needs no quotes.
    """
    key, equals, text = setting.partition("=")
    *names, last = key.strip().split(".")
    complete = bool(equals and last and all(names))
    require_key(complete, "--set", setting, "table.key=value, such as protocol.k=7")
    table = tables
    for depth, name in enumerate(names, start=1):
        inner = table.setdefault(name, {})
        where = ".".join(names[:depth])
        require_key(isinstance(inner, dict), where, inner, f"a table, to hold {key.strip()}")
        table = inner
    table[last] = parse_value(text.strip())


def parse_value(text: str) -> object:
    """Return a value parsed as TOML, or the text itself if that fails."""
    try:
        parsed = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


class DescribedKey(NamedTuple):
    """The description of one key of a table.

    Attributes:
        default: The default value; `PydanticUndefined` if the key is required.
        meaning: The meaning of the key, in words; empty if undocumented.
    """

    name: str
    default: Any
    allowed: str
    meaning: str

    @property
    def default_text(self) -> str:
        """The default as written in a file; `required`, or `none` if there is nothing to write."""
        match self.default:
            case None | ():
                return "none"
            case bool():
                return str(self.default).lower()
            case dict():
                items = (f"{key} = {json.dumps(value)}" for key, value in self.default.items())
                return f"{{ {', '.join(items)} }}" if self.default else "none"
        if self.default is PydanticUndefined:
            return "required"
        return str(self.default)


def attribute_meanings(kind: type) -> dict[str, str]:
    """Return the entries under `Attributes` in the docstrings of a class and its bases, by name."""
    meanings = dict[str, str]()
    for each in reversed(kind.__mro__):
        _, _, said = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")
        meanings |= {key: " ".join(text.split()) for key, text in _MEANING.findall(said)}
    return meanings


def describe_keys(model: type[BaseModel]) -> tuple[DescribedKey, ...]:
    """Return the descriptions of all keys of a table, in order.

    The default and the description of allowed values come from the field. The meaning comes from
    the docstring of the model or of the base that defines the field, under `Attributes`.
    """
    meanings = attribute_meanings(model)
    return tuple(
        DescribedKey(
            name,
            field.get_default(call_default_factory=True),
            field.description or "",
            meanings.get(name, ""),
        )
        for name, field in model.model_fields.items()
    )


def require_key(fulfilled: bool, key: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `ScenarioError(key, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise ScenarioError(key, value, allowed)


@contextmanager
def as_scenario_errors(keys: Mapping[str, str], section: str) -> Iterator[None]:
    """Convert an `InputError` of the enclosed code into one that names the scenario's key.

    Args:
        keys: The keys of fields whose key is not `section.field`.
    """
    try:
        yield
    except ScenarioError:
        raise
    except InputError as error:
        first, *others = (
            ScenarioError.of(each, keys.get(each.field, f"{section}.{each.field}"))
            for each in (error, *error.others)
        )
        raise first.with_others(others) from error


def require_key_that(fulfilled: bool, key: str, message: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `ScenarioError.because(message, field=key)` unless the condition is fulfilled."""
    if not fulfilled:
        raise ScenarioError.because(message, field=key)


def unknown_key(key: str, known: Iterable[str]) -> ScenarioError:
    """Return the error for an unknown key, with the nearest known key."""
    known = tuple(known)
    hint = did_you_mean(key.rpartition(".")[2], known)
    return ScenarioError.because(
        f"there is no such key; allowed: {', '.join(known)}{hint}", field=key
    )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name, or an empty string if none is near."""
    near = get_close_matches(given, tuple(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


_Kind = TypeVar("_Kind")


def make_kind(
    key: str, tag: str, table: Mapping[str, Any], kinds: Mapping[str, type[_Kind]]
) -> _Kind:
    """Return the object that a table describes.

    Args:
        kinds: The dataclass of each kind. Fields are numbers, texts or tuples of texts, and
            `__post_init__` refuses values out of range with an `InputError`.
    """
    given = dict(table)
    if tag not in given:
        raise ScenarioError.because(
            f"the key is missing; give {', '.join(kinds)}", field=f"{key}.{tag}"
        )
    name = given.pop(tag)
    require_key(name in kinds, f"{key}.{tag}", name, ", ".join(kinds))
    return make_table(key, given, kinds[name], tag)


def make_table(key: str, table: Mapping[str, Any], kind: type[_Kind], *more: str) -> _Kind:
    """Return the dataclass with the values of a table; see `make_kind` for its fields.

    Args:
        more: Other keys that the table needs, for an error that lists them.
    """
    known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]  # each is a dataclass
    for parameter, value in table.items():
        if parameter not in known:
            raise unknown_key(f"{key}.{parameter}", sorted(known))
        accepted, allowed = _VALUES.get(known[parameter].type, _VALUES[str])
        fits = isinstance(value, accepted) and not isinstance(value, bool)
        require_key(fits, f"{key}.{parameter}", value, allowed)
    needed = {name for name, each in known.items() if each.default is MISSING}
    if not needed <= set(table):
        listed = ", ".join((*more, *sorted(known)))
        raise ScenarioError.because(f"the table needs {listed}", field=key)
    with as_scenario_errors({}, key):
        return kind(**table)


def scenario_error(error: ValidationError, root: type[BaseModel]) -> ScenarioError:
    """Return pydantic's errors about a file's tables as one error, each mistake once.

    The error contains the first `MISTAKES_MAX` mistakes.
    """
    mistakes: dict[str, ScenarioError] = {}
    for found in error.errors(include_url=False):
        if len(mistakes) == MISTAKES_MAX:
            break
        mistake = _mistake(root, found["type"], found["loc"], found["input"])
        mistakes.setdefault(mistake.field, mistake)  # a union reports each of its members
    # A list whose elements are wrong is also reported as too short.
    parents = {key for key in mistakes for other in mistakes if other.startswith(f"{key}.")}
    return _together(each for key, each in mistakes.items() if key not in parents)


def _mistake(
    root: type[BaseModel], kind: str, loc: tuple[int | str, ...], given: object
) -> ScenarioError:
    path, allowed = _known_part(root, loc)
    if kind == "extra_forbidden":
        name = str(loc[-1])
        model = _model(root, path)
        known = model.model_fields
        if issubclass(model, Section) and name in model.renamed:
            message = f"this key was renamed to {model.renamed[name]}"
            return ScenarioError.because(message, field=".".join((*path, name)))
        where = next((table for table in known if name in _keys(known[table])), None)
        if where is not None and not path:
            message = (
                f"there is no such key; allowed: {', '.join(known)} (did you mean {where}.{name}?)"
            )
            return ScenarioError.because(message, field=name)
        return unknown_key(".".join((*path, name)), known)
    if kind == "missing":
        return ScenarioError.because(f"the key is missing; give {allowed}", field=".".join(path))
    return ScenarioError(".".join(path), given, allowed)


def _known_part(root: type[BaseModel], loc: Iterable[int | str]) -> tuple[list[str], str]:
    """Return the keys of a location, without pydantic's additions, and the allowed values."""
    path: list[str] = []
    allowed = "a table"
    model: type[BaseModel] | None = root
    element: type[BaseModel] | None = None
    for part in loc:
        if element is not None and (isinstance(part, int) or model is None):
            path.append(str(part))
            model, element = element, None
            allowed = f"a table with the keys {', '.join(model.model_fields)}"
            continue
        field = model.model_fields.get(str(part)) if model is not None else None
        if field is None:
            break
        path.append(str(part))
        model, element = _section(field), _element(field)
        sections = f"a table with the keys {', '.join(model.model_fields)}" if model else "a table"
        allowed = field.description or sections
    return path, allowed


def _model(root: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    model = root
    for part in path:
        field = model.model_fields.get(part)  # none of a number or a name of an element
        model = model if field is None else _section(field) or _element(field) or model
    return model


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind: Any = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _element(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of the tables of a list, or of a table by names, if the field is one."""
    parts = (field.annotation, *get_args(field.annotation))  # that of one that may be missing
    found = (each for part in parts for each in get_args(part) if isinstance(each, type))
    return next((each for each in found if issubclass(each, BaseModel)), None)


def _keys(field: FieldInfo) -> Iterable[str]:
    section = _section(field)
    return () if section is None else section.model_fields


def _together(mistakes: Iterable[ScenarioError]) -> ScenarioError:
    first, *others = mistakes
    return first.with_others(others)
