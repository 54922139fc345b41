"""The roles of a deployment, imported when one of their configurations is read.

A new role is one entry of `ROLES`.
"""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from veilring.config import read_tables, read_toml, require_key
from veilring.deployment.config import RELATIVE, Columns, Config
from veilring.errors import ScenarioError
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import back_up_state_file

if TYPE_CHECKING:
    from veilring.deployment.places import Near
    from veilring.protocols.membership import PublicModel

C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class DeployedRole:
    """The definition of a role; each location has the form `package.module:name`.

    Attributes:
        serve: The coroutine of `veilring serve`, which runs until cancelled, if the role serves.
        ask: The coroutine of `veilring ask` for a file of queries, if the role has one.
        near: The coroutine of `veilring ask --near` for a place, if the role has one.
        model: The coroutine of `veilring ask --model`, if the role has one.
        begin: The function that creates the role's durable state, if the role has any. It returns
            whether the terms need it.
    """

    config: str
    serve: str = ""
    ask: str = ""
    near: str = ""
    model: str = ""
    begin: str = ""


def _role(module: str, config: str, **duties: str) -> DeployedRole:
    given = {"config": config, **duties}
    full = {duty: name if ":" in name else f"{module}:{name}" for duty, name in given.items()}
    return DeployedRole(**{duty: f"veilring.deployment.{name}" for duty, name in full.items()})


ROLES: Final[Mapping[str, DeployedRole]] = MappingProxyType(
    {
        "member": _role("peers", "MemberConfig", serve="serve_member", begin="begin_member"),
        "client": _role("peers", "ClientConfig", ask="ask_member", model="fetch_model"),
        "collector": _role(
            "survey", "CollectorConfig", serve="serve_collector", begin="begin_store"
        ),
        "survey-client": _role("survey_client", "SurveyClientConfig", begin="begin_outbox"),
        "data-owner": _role("owner", "OwnerConfig", serve="serve_owner", begin="begin_owner"),
        "analyst": _role("owner", "AnalystConfig", ask="ask_owner"),
        "places": _role("places", "PlacesConfig", serve="serve_places"),
        "places-client": _role(
            "places", "PlacesClientConfig", near="ask_places", begin="begin_places_client"
        ),
        "prediction-server": _role(
            "prediction", "PredictionServerConfig", serve="serve_prediction", begin="begin_server"
        ),
        "prediction-client": _role("prediction", "PredictionClientConfig", ask="ask_prediction"),
        "records-administrator": _role("prediction", "RecordsAdministratorConfig"),
    }
)
"""The roles by their names in configurations."""

_RENAMED_ROLES: Final[Mapping[str, str]] = {
    "curator": "records-administrator",
    "querier": "prediction-client",
    "ring-member": "member",
    "seeker": "places-client",
    "submitter": "survey-client",
    "votes-member": "member",
}


def load_config(path: Path) -> Config:
    """Read a configuration, with its paths resolved relative to its folder."""
    model: type[Config] = _imported(ROLES[_role_of(path)].config)
    config = read_toml(path, model)
    fields = model.model_fields.items()
    named = {key: getattr(config, key) for key, field in fields if RELATIVE in field.metadata}
    found = {
        key: str(path.parent / name)
        for key, name in named.items()
        if "://" not in name  # a database, not a path
    }
    return config.model_copy(update=found)


def load_config_of(path: Path, kind: type[C], command: str) -> C:
    """Read a configuration of one role."""
    config = load_config(path)
    if not isinstance(config, kind):
        place = f"{kind.__module__}:{kind.__name__}"
        able = ", ".join(name for name, role in ROLES.items() if role.config == place)
        raise ScenarioError.because(
            f"the role {config.role} has no `{command}`; these roles have it: {able}", field="role"
        )
    return config


def serve(config: Config | Path | str) -> Coroutine[Any, Any, None]:
    """Return the server coroutine for a configuration, which runs until cancelled.

    Args:
        config: The configuration, or the path of its file.

    Raises:
        ScenarioError: As in `load_config`, or if the role does not serve.
    """
    loaded = _loaded(config)
    served: Coroutine[Any, Any, None] = _duty(loaded, "serve", "`veilring serve`")(loaded)
    return served


def ask(config: Config | Path | str, queries: Path | str) -> Coroutine[Any, Any, Columns]:
    """Return the coroutine that gets a file of queries answered.

    Args:
        config: The configuration, or the path of its file.
        queries: The path of the file of queries.

    Raises:
        ScenarioError: As in `load_config`, or if the role does not query.
    """
    loaded = _loaded(config)
    role = _duty(loaded, "ask", "`veilring ask` with a file")
    asked: Coroutine[Any, Any, Columns] = role(loaded, Path(queries))
    return asked


def ask_near(config: Config | Path | str, near: "Near") -> Coroutine[Any, Any, Columns]:
    """Return the coroutine that searches near a private place."""
    loaded = _loaded(config)
    asked: Coroutine[Any, Any, Columns] = _duty(loaded, "near", "`veilring ask --near`")(
        loaded, near
    )
    return asked


def fetch_model(config: Config | Path | str) -> Coroutine[Any, Any, "PublicModel"]:
    """Return the coroutine that fetches the released model."""
    loaded = _loaded(config)
    fetched: Coroutine[Any, Any, PublicModel] = _duty(loaded, "model", "`veilring ask --model`")(
        loaded
    )
    return fetched


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
    begin = ROLES[loaded.role].begin
    return bool(begin and _imported(begin)(loaded))


def back_up_state(path: Path, to: Path) -> None:
    """Copy a file of state completely into one file, even while its party is running.

    Raises:
        StoreFailed: If it is damaged or incomplete, or the disk fails.
    """
    with as_store_failed("SQLite", path):
        back_up_state_file(path, to)


def _loaded(config: Config | Path | str) -> Config:
    return config if isinstance(config, Config) else load_config(Path(config))


def _duty(config: Config, duty: str, command: str) -> Any:  # noqa: ANN401  (a coroutine function)
    """Return a role's function for a duty, or raise an error that names the roles that have one."""
    place = getattr(ROLES[config.role], duty)
    if not place:
        able = ", ".join(name for name, role in ROLES.items() if getattr(role, duty))
        raise ScenarioError.because(
            f"the role {config.role} does not support {command}; these roles do: {able}",
            field="role",
        )
    return _imported(place)


def _imported(place: str) -> Any:  # noqa: ANN401  (a class or a function)
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _role_of(path: Path) -> str:
    table = read_tables(path)
    if "role" not in table:
        raise ScenarioError.because(
            f"the key is missing; give one of {', '.join(ROLES)}", field="role"
        )
    given = table["role"]
    role = str(given)
    if role in _RENAMED_ROLES:
        raise ScenarioError.because(
            f"the role {role} was renamed to {_RENAMED_ROLES[role]}", field="role"
        )
    require_key(role in ROLES, "role", given, ", ".join(ROLES))
    return role
