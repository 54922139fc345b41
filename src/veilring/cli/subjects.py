"""Systems and roles that a command tests, by name or as `module:NAME`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilring.config import did_you_mean, parse_value
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.protocols.system import System
    from veilring.testing.auditing import RoleClaims


def names_object(name: str) -> bool:
    """Return whether a name has the form `module:NAME`, which no scenario or file has."""
    module, colon, attribute = name.partition(":")
    return bool(module and colon) and attribute.isidentifier()


def find_subject(name: str, settings: list[str]) -> "System | RoleClaims":
    """Return the system or the claims that a name denotes, with the given parameters.

    Args:
        settings: Parameters of the system, each as `key=value`.
    """
    from veilring.protocols.registry import find_system, system_names
    from veilring.protocols.system import System
    from veilring.testing.auditing import RoleClaims

    names = system_names()
    if ":" not in name and name not in names:
        hint = did_you_mean(name, names)
        raise InputError("name", name, f"{', '.join(names)}, or module:NAME{hint}")
    found: Any = _import(name) if ":" in name else find_system(name)
    if isinstance(found, type) and issubclass(found, System):
        return found(**dict(map(_parameter, settings)))
    if isinstance(found, System):
        return found.replaced(**dict(map(_parameter, settings)))
    if isinstance(found, RoleClaims):
        return without_settings(found, settings)
    raise InputError.because(
        f"{name} is neither a System nor a RoleClaims; describe a role, its inputs and its"
        " invariant with veilring.testing.auditing.RoleClaims",
        field="name",
    )


def without_settings(found: "RoleClaims", settings: list[str]) -> "RoleClaims":
    """Return the claims of a role, and refuse settings."""
    if settings:
        raise InputError.because("a role has no parameters; leave out --set", field="--set")
    return found


def _import(name: str) -> object:
    """Return an object by its module and its name; modules are looked for here as well."""
    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        raise InputError("name", name, f"module:NAME, such as {Path(module).stem}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError.because(f"{name} cannot be imported: {error}", field="name") from error


def _parameter(setting: str) -> tuple[str, object]:
    key, equals, value = setting.partition("=")
    if not equals:
        raise InputError("--set", setting, "KEY=VALUE, such as epsilon=2")
    return key.strip(), parse_value(value)
