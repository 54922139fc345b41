"""Scenarios from the package's library and from files, with keys set on the command line."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError, create_model

from veilring.config import (
    as_scenario_errors,
    did_you_mean,
    load_toml,
    parse_toml,
    parse_value,
    require_key,
    scenario_error,
    set_key,
)
from veilring.errors import ScenarioError
from veilring.protocols.registry import find_system
from veilring.protocols.system import System
from veilring.scenarios.schema import PROTOCOL_DEFAULT, Scenario

_SUFFIX: Final = ".toml"
_TABLES: Final = (".csv", ".npz")
_FOR_TABLES: Final = "wine"  # the scenario whose settings a table of one's own is run with
_LIBRARY: Final = resources.files("veilring.scenarios") / "library"
# Keys that may hold a path, and how such a path ends.
_PATHS: Final = {("data", "source"): ".csv", ("network", "graph"): ".graphml"}


def scenario_names() -> tuple[str, ...]:
    """Return the names of the built-in scenarios."""
    files = (Path(entry.name) for entry in _LIBRARY.iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == _SUFFIX))


def scenario_text(name: str) -> str:
    """Return the file of a built-in scenario.

    Raises:
        ScenarioError: If there is none of this name.
    """
    names = scenario_names()
    require_key(name in names, "scenario", name, ", ".join(names))
    return (_LIBRARY / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def load_scenario(name_or_path: str, overrides: Sequence[str] = ()) -> Scenario:
    """Load a scenario and check it.

    Args:
        name_or_path: A built-in scenario, or a path that ends in `.toml`. Relative paths of data
            and graphs in that file are relative to it. A path that ends in `.csv` or `.npz` is a
            table that is run with the settings of the built-in `wine`.
        overrides: Keys to set in place of the file's, each as `table.key=value`. The value is read
            as TOML, or as a string if it is not TOML. Paths are relative to the current directory.

    Raises:
        ScenarioError: With all mistakes of the scenario, one a line: the key, its value, and what
            is allowed.
    """
    if name_or_path.endswith(_SUFFIX):
        path = Path(name_or_path)
        raw = _read(path)
        _resolve_paths(raw, path.parent)
    elif name_or_path.endswith(_TABLES):
        path, raw = Path(name_or_path), parse_toml(scenario_text(_FOR_TABLES))
        raw = {**raw, "data": {"source": name_or_path}, "description": ""}
    else:
        names = scenario_names()
        hint = did_you_mean(name_or_path, names)
        allowed = f"{', '.join(names)}, or a path to a {_SUFFIX}, .csv or .npz{hint}"
        require_key(name_or_path in names, "scenario", name_or_path, allowed)
        path, raw = Path(name_or_path), parse_toml(scenario_text(name_or_path))
    if any(override.partition("=")[0].strip() == "parties.names" for override in overrides):
        _forget_count(raw)
    for override in overrides:
        _set(raw, override)
    return make_scenario({"name": path.stem, **raw})


def make_scenario(tables: Mapping[str, Any]) -> Scenario:
    """Check what a scenario's file holds.

    Raises:
        ScenarioError: As `load_scenario` does.
    """
    protocol = tables.get("protocol", {})
    if isinstance(protocol, Mapping):
        # With the system's own model in place of the base, mistakes name its keys.
        name = protocol.get("name", PROTOCOL_DEFAULT)
        with as_scenario_errors({"protocol.name": "protocol.name"}, "protocol"):
            system = find_system(str(name))
        model = _model_with(system)
    else:
        model = Scenario
    try:
        checked = model.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, model) from None
    scenario = Scenario.model_construct(**dict(checked))
    _check_parties(scenario)
    return scenario


@cache
def _model_with(system: type[System]) -> type[Scenario]:
    """Return the model of a scenario of one system."""
    protocol: Any = (system, Field(default_factory=system))
    return create_model(Scenario.__name__, __base__=Scenario, protocol=protocol)


def _check_parties(scenario: Scenario) -> None:
    names, count = scenario.parties.names, scenario.parties.count
    absent = "left out where parties.names is given: set one of the two, not both"
    require_key(not names or count is None, "parties.count", count, absent)
    field = type(scenario.parties).model_fields["names"]
    distinct = len(set(names)) == len(names) and len(names) not in {1, 2}
    require_key(distinct, "parties.names", list(names), field.description or "")
    sizes, parties = scenario.partition.sizes, len(scenario.parties.all)
    if scenario.partition.kind == "sizes":
        allowed = f"one number for each of {parties} parties"
        require_key(len(sizes) == parties, "partition.sizes", list(sizes), allowed)
    else:
        allowed = f'nothing, unless partition.kind is "sizes" (it is "{scenario.partition.kind}")'
        require_key(not sizes, "partition.sizes", list(sizes), allowed)


def _read(path: Path) -> dict[str, Any]:
    try:
        return load_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        allowed = f"the path of a file in UTF-8 that can be read ({error})"
        raise ScenarioError("scenario", path, allowed) from error
    except ValueError as error:
        raise ScenarioError("scenario", path, f"a file in TOML ({error})") from error


def _resolve_paths(raw: dict[str, Any], folder: Path) -> None:
    for (table, key), suffix in _PATHS.items():
        section = raw.get(table)
        given = section.get(key) if isinstance(section, dict) else None
        if isinstance(given, str) and given.endswith(suffix):
            raw[table] = {**raw[table], key: str(folder / given)}


def _forget_count(raw: dict[str, Any]) -> None:
    """Forget the file's number of parties: names that are set say how many there are."""
    section = raw.get("parties")
    if isinstance(section, dict):
        raw["parties"] = {key: value for key, value in section.items() if key != "count"}


def _forget_protocol(raw: dict[str, Any], name: object) -> None:
    """Forget the file's parameters of another system."""
    section = raw.get("protocol", {})
    if isinstance(section, dict) and section.get("name", PROTOCOL_DEFAULT) != name:
        raw["protocol"] = {}


def _set(raw: dict[str, Any], override: str) -> None:
    key, _, text = override.partition("=")
    if key.strip() == "protocol.name":
        _forget_protocol(raw, parse_value(text.strip()))
    set_key(raw, override)
