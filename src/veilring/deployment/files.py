"""Configuration files: TOML, checked against a model, with all mistakes named."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final, TypeVar

import tomli_w
from pydantic import ValidationError

from veilring.errors import ScenarioError
from veilring.scenarios.mistakes import scenario_error
from veilring.scenarios.schema import Section
from veilring.toml import load_toml

__all__ = ("Agreed", "has_table", "read_toml")

_TEXT_MAX: Final = 32  # characters: longer values are told apart by their hash
_DIGITS: Final = 16

S = TypeVar("S", bound=Section)


class Agreed(Section):
    """A public file that parties have to hold alike."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it: parties that differ in anything refuse each other."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    @property
    def keys(self) -> dict[str, str]:
        """The value of each key as a text, two tables deep; a long value is given by its hash.

        Parties that differ say by this which keys do.
        """
        found = dict[str, str]()
        for key, value in self.model_dump(mode="json").items():
            if isinstance(value, dict):
                found |= {f"{key}.{inner}": _text(given) for inner, given in value.items()}
            else:
                found[key] = _text(value)
        return found

    def to_toml(self) -> str:
        """Return the text of the file."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_defaults=True))


def _text(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _TEXT_MAX:
        return text
    return f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def read_toml(path: Path, model: type[S]) -> S:
    """Read a TOML file as what `model` says.

    Raises:
        ScenarioError: If it cannot be read, is not TOML, or a key does not fit; it names all keys
            that do not, their values and what is allowed.
    """
    tables = _tables(path)
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, model) from None


def has_table(path: Path, name: str) -> bool:
    """Return whether a TOML file has a table, or a key, of this name.

    Raises:
        ScenarioError: If it cannot be read, or is not TOML.
    """
    return name in _tables(path)


def _tables(path: Path) -> dict[str, Any]:
    try:
        return load_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError("file", path, f"a file in UTF-8 that can be read ({error})") from error
    except ValueError as error:
        raise ScenarioError("file", path, f"a file in TOML ({error})") from error
