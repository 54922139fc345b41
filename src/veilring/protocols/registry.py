"""All systems by name: those of this package, and those that other packages bring.

A system is imported when it is asked for. Another package brings one by an entry point of the group
`veilring.systems`: its name is the system's, and it names the class.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from veilring.config import did_you_mean
from veilring.errors import InputError
from veilring.protocols.system import System

GROUP: Final = "veilring.systems"
"""The group of entry points by which other packages bring systems."""

BUILT_IN: Final = MappingProxyType(
    {
        "private-knn": "veilring.protocols.ring.system:PrivateKNN",
        "noisy-votes": "veilring.protocols.noisyvotes.system:NoisyVotes",
        "ldp-bayes": "veilring.protocols.ldp.system:LDPBayes",
        "radius": "veilring.protocols.radius.system:DataOwner",
        "prediction": "veilring.protocols.prediction.system:IndKNN",
        "treewalk": "veilring.protocols.treewalk.system:TreeWalk",
    }
)
"""Where each system of this package is."""


def system_names() -> tuple[str, ...]:
    """Return the names of all systems, those of this package first."""
    return (*BUILT_IN, *(name for name in sorted(_brought()) if name not in BUILT_IN))


def find_system(name: str) -> type[System]:
    """Return a system by its name.

    Raises:
        InputError: If there is none, or the package that brings it cannot be imported.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found = getattr(import_module(module), attribute)
    elif name in _brought():
        found = _loaded(_brought()[name])
    else:
        names = system_names()
        raise InputError("protocol.name", repr(name), ", ".join(names) + did_you_mean(name, names))
    if not (isinstance(found, type) and issubclass(found, System)):
        raise InputError("protocol.name", repr(name), "the name of a subclass of veilring.System")
    return found


def _brought() -> dict[str, EntryPoint]:
    return _found_on(tuple(sys.path))


@cache
def _found_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        allowed = f"a system whose package can be imported; {entry.value} cannot: {error}"
        raise InputError("protocol.name", repr(entry.name), allowed) from error
