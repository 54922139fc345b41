"""From what pydantic found to errors that name the key, its value and what is allowed."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from veilring.data.sources import did_you_mean
from veilring.errors import InputError, ScenarioError
from veilring.scenarios.schema import Scenario

__all__ = ("MISTAKES_MAX", "as_scenario_errors", "require_key", "scenario_error", "unknown_key")

# As many as a person reads at once. A file of another kind has thousands.
MISTAKES_MAX: Final = 20


def scenario_error(error: ValidationError, root: type[BaseModel] = Scenario) -> ScenarioError:
    """Return pydantic's findings about a file's tables as one error, each mistake once.

    It has the first `MISTAKES_MAX` mistakes.

    Args:
        error: What it found.
        root: The model of the whole file.
    """
    mistakes: dict[str, ScenarioError] = {}
    for found in error.errors(include_url=False):
        if len(mistakes) == MISTAKES_MAX:
            break
        mistake = _mistake(root, found["type"], found["loc"], found["input"])
        mistakes.setdefault(mistake.field, mistake)  # a union reports each of its members
    return _together(mistakes.values())


def _mistake(
    root: type[BaseModel], kind: str, loc: tuple[int | str, ...], given: object
) -> ScenarioError:
    path, allowed = _known_part(root, loc)
    if kind == "extra_forbidden":
        name = str(loc[-1])
        known = _model(root, path).model_fields
        where = next((table for table in known if name in _keys(known[table])), None)
        if where is not None and not path:
            allowed = f"{', '.join(known)} (did you mean {where}.{name}?)"
            return ScenarioError(name, f"{given}, but there is no such key", allowed)
        return unknown_key(".".join((*path, name)), given, known)
    if kind == "missing":
        return ScenarioError(".".join(path), "missing", allowed)
    # A text where a number is wanted: its quotes are the mistake.
    is_text = kind.endswith("_type") and isinstance(given, str)
    return ScenarioError(".".join(path), repr(given) if is_text else given, allowed)


def unknown_key(key: str, value: object, known: Iterable[str]) -> ScenarioError:
    """Return the error for a key that does not exist, with the nearest that does."""
    known = tuple(known)
    hint = did_you_mean(key.rpartition(".")[2], known)
    return ScenarioError(key, f"{value}, but there is no such key", ", ".join(known) + hint)


def require_key(fulfilled: bool, key: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `ScenarioError(key, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise ScenarioError(key, value, allowed)


@contextmanager
def as_scenario_errors(keys: Mapping[str, str], section: str) -> Iterator[None]:
    """Turn an `InputError` of the code below into one that names the scenario's key.

    Args:
        keys: The key for a field, where it is not `section.field`.
        section: For all other fields.
    """
    try:
        yield
    except ScenarioError:
        raise
    except InputError as error:
        key = keys.get(error.field, f"{section}.{error.field}")
        raise ScenarioError(key, error.value, error.allowed) from error


def _known_part(root: type[BaseModel], loc: Iterable[int | str]) -> tuple[list[str], str]:
    """Return the keys of a location, without what pydantic adds to it, and what is allowed."""
    path: list[str] = []
    allowed = "a table"
    model: type[BaseModel] | None = root
    for part in loc:
        field = model.model_fields.get(str(part)) if model is not None else None
        if field is None:
            break
        path.append(str(part))
        model = _section(field)
        sections = f"a table with the keys {', '.join(model.model_fields)}" if model else "a table"
        allowed = field.description or sections
    return path, allowed


def _model(root: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    model = root
    for part in path:
        model = _section(model.model_fields[part]) or model
    return model


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind: Any = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _keys(field: FieldInfo) -> Iterable[str]:
    section = _section(field)
    return () if section is None else section.model_fields


def _together(mistakes: Iterable[ScenarioError]) -> ScenarioError:
    first, *others = mistakes
    return ScenarioError(first.field, first.value, first.allowed, tuple(others))
