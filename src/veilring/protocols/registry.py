"""The registry of systems: those of this package and of other packages.

A system is imported on first use. Another package adds one by an entry point of the group
`veilring.systems`: its name is the system's, and its value is the class.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny, create_model

from veilring.config import Section, as_scenario_errors, did_you_mean, require_key
from veilring.errors import InputError
from veilring.protocols.system import System

GROUP: Final = "veilring.systems"
"""The group of entry points by which other packages add systems."""

BUILT_IN: Final = {
    "private-knn": "veilring.protocols.ring.system:PrivateKNN",
    "rank-search": "veilring.protocols.ranksearch.system:RankSearch",
    "release": "veilring.protocols.release.system:Release",
    "noisy-votes": "veilring.protocols.noisyvotes.system:NoisyVotes",
    "prio": "veilring.protocols.prio.system:Prio",
    "ldp-bayes": "veilring.protocols.ldp.system:LDPBayes",
    "data-owner": "veilring.protocols.radius.system:DataOwner",
    "ind-knn": "veilring.protocols.prediction.system:IndKNN",
    "tree-walk": "veilring.protocols.treewalk.system:TreeWalk",
}
"""The module and class of each system of this package."""
RENAMED: Final = {"radius": "data-owner", "prediction": "ind-knn", "treewalk": "tree-walk"}
"""Names that files of earlier versions contain."""
PROTOCOL_DEFAULT: Final = "private-knn"
"""The system of a table `protocol` without a `name`."""

_S = TypeVar("_S", bound=Section)


def system_names() -> tuple[str, ...]:
    """Return the names of all systems, those of this package first."""
    return (*BUILT_IN, *(name for name in sorted(_brought()) if name not in BUILT_IN))


def find_system(name: str) -> type[System]:
    """Return a system by its name.

    Raises:
        InputError: If no system has this name, or its package cannot be imported.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found = getattr(import_module(module), attribute)
    elif name in _brought():
        found = _loaded(_brought()[name])
    else:
        names = system_names()
        hint = f"; it is now {RENAMED[name]}" if name in RENAMED else did_you_mean(name, names)
        raise InputError("protocol.name", name, ", ".join(names) + hint)
    if not (isinstance(found, type) and issubclass(found, System)):
        raise InputError("protocol.name", name, "the name of a subclass of veilring.System")
    return found


def _as_system(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return find_system(str(value.get("name", PROTOCOL_DEFAULT))).model_validate(value)


def default_system() -> System:
    """Return the system of a file that names none."""
    return find_system(PROTOCOL_DEFAULT)()


Protocol = Annotated[SerializeAsAny[System], BeforeValidator(_as_system)]
"""A system, or the table of its parameters with its `name`."""


def named_system(tables: Mapping[str, Any]) -> type[System]:
    """Return the system that the table `protocol` of a file names."""
    protocol = tables.get("protocol", {})
    require_key(isinstance(protocol, Mapping), "protocol", protocol, "a table")
    with as_scenario_errors({"protocol.name": "protocol.name"}, "protocol"):
        return find_system(str(protocol.get("name", PROTOCOL_DEFAULT)))


def model_naming(model: type[_S], tables: Mapping[str, Any]) -> type[_S]:
    """Return the model of a file with the system that its table `protocol` names.

    Pydantic then names the system's own keys in errors.
    """
    if not isinstance(tables.get("protocol", {}), Mapping):
        return model  # whose error names the keys of that table
    return _with(model, named_system(tables))


@cache
def _with(model: type[_S], system: type[System]) -> type[_S]:
    protocol: Any = (system, Field(default_factory=system))
    made: type[_S] = create_model(model.__name__, __base__=model, protocol=protocol)
    return made


def _brought() -> dict[str, EntryPoint]:
    return _found_on(tuple(sys.path))


@cache
def _found_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        message = f"the system {entry.name!r} cannot be imported from {entry.value}: {error}"
        raise InputError.because(message, field="protocol.name") from error
