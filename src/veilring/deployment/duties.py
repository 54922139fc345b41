"""The duties of the parties of a deployment, found by the system and the role of a configuration.

The terms name the system, and a `System` names the module that deploys it. That module is imported
when a configuration is read; its table `DUTIES` has a `Duty` for each role that the system has.
"""

from collections.abc import Coroutine, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from veilring.config import read_tables, read_toml, require_key, require_key_that
from veilring.deployment.config import (
    A_FILE,
    RELATIVE,
    SOCKET_SUFFIX,
    STATE_SUFFIX,
    STATISTICS,
    TASK,
    VERIFIED_SUM,
    Columns,
    Config,
    Duty,
    name_of,
    read_terms,
)
from veilring.errors import ScenarioError
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import back_up_state_file
from veilring.protocols.registry import named_system

if TYPE_CHECKING:
    from veilring.deployment.start import Start

C = TypeVar("C", bound=Config)

ROLES: Final = ("member", "server", "client", "administrator", "collector", "leader", "helper")
"""The roles that configurations name."""
_COMMANDS: Final[Mapping[str, str]] = {
    "serve": "`veilring serve`",
    "start": "`veilring check`",
    "ask": "`veilring ask` with a file",
    "near": "`veilring ask --near`",
    "model": "`veilring ask --model`",
    "statistics": "`veilring stats` with a configuration",
    "estimate": "`veilring estimate`",
}
"""The commands that run the coroutines of a `Duty`."""
_STATE: Final = "state"  # the only path with a default but the next
_SOCKET: Final = "socket"
_HERE: Final = "here"
_IN_TERMS: Final = "in the terms"
_RENAMED_ROLES: Final[Mapping[str, tuple[str, str, str]]] = {
    "analyst": ("client", "data-owner", _IN_TERMS),
    "curator": ("administrator", "ind-knn", _IN_TERMS),
    "data-owner": ("server", "data-owner", _IN_TERMS),
    "places": ("server", "tree-walk", _IN_TERMS),
    "places-client": ("client", "tree-walk", _IN_TERMS),
    "prediction-client": ("client", "ind-knn", _IN_TERMS),
    "prediction-server": ("server", "ind-knn", _IN_TERMS),
    "querier": ("client", "ind-knn", _IN_TERMS),
    "records-administrator": ("administrator", "ind-knn", _IN_TERMS),
    "ring-member": ("member", "private-knn", _IN_TERMS),
    "seeker": ("client", "tree-walk", _IN_TERMS),
    "submitter": ("client", "ldp-bayes", _HERE),
    "survey-client": ("client", "ldp-bayes", _HERE),
    "votes-member": ("member", "noisy-votes", _IN_TERMS),
}
"""The role, the system and the file that names it, by a role's name in earlier versions."""


def load_config(path: Path) -> Config:
    """Read a configuration, with its paths resolved relative to its folder."""
    tables = read_tables(path)
    role = _role_of(tables)
    name, duties = _duties_of(tables, path.parent)
    said = f"{', '.join(duties)}, which are the roles of {name} (protocol.name in the terms)"
    require_key(role in duties, "role", role, said)
    model = duties[role].config
    config = read_toml(path, model)
    fields = model.model_fields.items()
    named = {key: getattr(config, key) for key, field in fields if RELATIVE in field.metadata}
    found = {
        key: str(path.parent / name if name else path.with_suffix(STATE_SUFFIX))
        for key, name in named.items()
        if "://" not in name  # a database, not a path
        and (name or key == _STATE)
    }
    if not named.get(_SOCKET, "."):
        found[_SOCKET] = str(Path(found.get(_STATE, path)).with_suffix(SOCKET_SUFFIX))
    return config.model_copy(update=found)


def load_config_of(path: Path, kind: type[C], command: str) -> C:
    """Read a configuration of one duty."""
    config = load_config(path)
    if isinstance(config, kind):
        return config
    name, duties = _duties_of(config.model_dump(), Path())
    able = [role for role, duty in duties.items() if duty.config is kind]
    raise _unable(config.role, name, f"`{command}`", able)


def serve(config: Config | Path | str) -> Coroutine[Any, Any, None]:
    """Return the server coroutine for a configuration, which runs until cancelled.

    Args:
        config: The configuration, or the path of its file.

    Raises:
        ScenarioError: As in `load_config`, or if the role does not serve.
    """
    return perform(config, "serve")


def ask(config: Config | Path | str, queries: Path | str) -> Coroutine[Any, Any, Columns]:
    """Return the coroutine that gets a file of queries answered.

    Args:
        config: The configuration, or the path of its file.
        queries: The path of the file of queries.

    Raises:
        ScenarioError: As in `load_config`, or if the role does not query.
    """
    return perform(config, "ask", Path(queries))


def perform(config: Config | Path | str, what: str, *given: object) -> Coroutine[Any, Any, Any]:
    """Return a coroutine of a configuration's duty.

    Args:
        what: The field of `Duty`, such as `serve`.
        given: Its arguments after the configuration.
    """
    started: Coroutine[Any, Any, Any] = _performed(_loaded(config), what, *given)
    return started


def duty_of(config: Config) -> Duty:
    """Return the duty of a configuration."""
    _, duties = _duties_of(config.model_dump(), Path())
    return duties[config.role]


def start_of(config: Config) -> "Start[Any]":
    """Return the checks at the start of a party."""
    start: Start[Any] = _performed(config, "start")
    return start


def _performed(loaded: Config, what: str, *given: object) -> Any:  # noqa: ANN401  (the duty's own)
    name, duties = _duties_of(loaded.model_dump(), Path())
    found = getattr(duties[loaded.role], what)
    if found is None:
        able = [role for role, duty in duties.items() if getattr(duty, what)]
        raise _unable(loaded.role, name, _COMMANDS[what], able)
    return found(loaded, *given)


def begin_state(config: Config | Path | str) -> bool:
    """Create the durable state of a configuration: its ledger, store, outbox or records.

    No other function creates it, so a server never begins an empty ledger because a disk is not
    mounted.

    Returns:
        Whether its role and its terms need any.

    Raises:
        StoreFailed: If it existed, as its lock file shows, or the disk fails.
    """
    loaded = _loaded(config)
    begin = duty_of(loaded).begin
    return begin is not None and begin(loaded)


def back_up_state(path: Path, to: Path) -> None:
    """Copy a file of state completely into one file, even while its party is running.

    Raises:
        StoreFailed: If it is damaged or incomplete, or the disk fails.
    """
    with as_store_failed("SQLite", path):
        back_up_state_file(path, to)


def _loaded(config: Config | Path | str) -> Config:
    return config if isinstance(config, Config) else load_config(Path(config))


def _unable(role: str, system: str, command: str, able: list[str]) -> ScenarioError:
    others = f"; its role {able[0]} does" if able else ""
    return ScenarioError.because(
        f"the role {role} of {system} does not support {command}{others}", field="role"
    )


def _role_of(tables: Mapping[str, Any]) -> str:
    roles = ", ".join(ROLES)
    require_key_that("role" in tables, "role", f"the key is missing; give one of {roles}")
    role = str(tables["role"])
    if role in _RENAMED_ROLES:
        now, system, where = _RENAMED_ROLES[role]
        raise ScenarioError.because(
            f'the role {role} was renamed to {now}, with protocol.name = "{system}" {where}',
            field="role",
        )
    require_key(role in ROLES, "role", tables["role"], roles)
    return role


def _duties_of(tables: Mapping[str, Any], folder: Path) -> tuple[str, Mapping[str, Duty]]:
    """Return the name of the system of a configuration, and its duties by their roles.

    Args:
        tables: The content of the configuration, which names the terms, or the system itself.
        folder: The folder of its paths.
    """
    terms = tables.get("terms")
    if terms is None:
        missing = f"the key is missing; give {A_FILE}"
        require_key_that("protocol" in tables, "terms", missing)
        system = named_system(tables)
    else:
        require_key(isinstance(terms, str), "terms", terms, A_FILE)
        found = read_terms(folder / terms)
        if STATISTICS in found:  # a plan, which no system's terms contain
            return STATISTICS, import_module("veilring.deployment.statistics").DUTIES
        if TASK in found:
            return VERIFIED_SUM, import_module("veilring.deployment.surveys.aggregators").DUTIES
        system = named_system(found)
    return name_of(system), import_module(system.deployment).DUTIES
