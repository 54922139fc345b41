"""The roles of a deployment. A role's module is imported when one of its configurations is read.

A new role is one entry of `ROLES`.
"""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from veilring.config import load_toml, read_toml, require_key
from veilring.deployment.config import RELATIVE, Columns, Config
from veilring.errors import ScenarioError

if TYPE_CHECKING:
    from veilring.deployment.places import Near
    from veilring.protocols.system import PublicModel

C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class DeployedRole:
    """Where a role is defined; each place is written `package.module:name`.

    Attributes:
        config: The model of its configuration.
        serve: The coroutine that `veilring serve` runs until it is cancelled, if the role serves.
        ask: The coroutine that `veilring ask` runs on a file of queries, if the role asks.
        near: The coroutine that `veilring ask --near` runs on a place, if the role asks for places.
        model: The coroutine that `veilring ask --model` runs, if the role asks for a model.
    """

    config: str
    serve: str = ""
    ask: str = ""
    near: str = ""
    model: str = ""


def _role(module: str, config: str, **duties: str) -> DeployedRole:
    place = f"veilring.deployment.{module}"
    places = {duty: f"{place}:{name}" for duty, name in duties.items()}
    return DeployedRole(f"{place}:{config}", **places)


ROLES: Final[Mapping[str, DeployedRole]] = MappingProxyType(
    {
        "member": _role("peers", "MemberConfig", serve="serve_member"),
        "ring-member": _role("peers", "MemberConfig", serve="serve_member"),
        "client": _role("peers", "ClientConfig", ask="ask_member", model="fetch_model"),
        "votes-member": _role("votes", "VotesMemberConfig", serve="serve_votes"),
        "collector": _role("survey", "CollectorConfig", serve="serve_collector"),
        "survey-client": _role("survey_client", "SurveyClientConfig"),
        "data-owner": _role("owner", "OwnerConfig", serve="serve_owner"),
        "analyst": _role("owner", "AnalystConfig", ask="ask_owner"),
        "places": _role("places", "PlacesConfig", serve="serve_places"),
        "places-client": _role("places", "PlacesClientConfig", near="ask_places"),
        "prediction-server": _role(
            "prediction", "PredictionServerConfig", serve="serve_prediction"
        ),
        "prediction-client": _role("prediction", "PredictionClientConfig", ask="ask_prediction"),
        "records-administrator": _role("prediction", "RecordsAdministratorConfig"),
    }
)
"""Each role by the name that it has in a configuration."""

_RENAMED_ROLES: Final[Mapping[str, str]] = {
    "curator": "records-administrator",
    "querier": "prediction-client",
    "seeker": "places-client",
    "submitter": "survey-client",
}


def load_config(path: Path) -> Config:
    """Read a configuration; the paths in it come back relative to the folder that it stands in.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    model: type[Config] = _imported(ROLES[_role_of(path)].config)
    config = read_toml(path, model)
    fields = model.model_fields.items()
    named = {key: getattr(config, key) for key, field in fields if RELATIVE in field.metadata}
    found = {
        key: str(path.parent / name)
        for key, name in named.items()
        if "://" not in name  # a database, and no path
    }
    return config.model_copy(update=found)


def load_config_of(path: Path, kind: type[C], command: str) -> C:
    """Read a configuration of one role.

    Args:
        path: The file.
        kind: The role's model.
        command: The command that needs it, as an error names it, such as `veilring records`.

    Raises:
        ScenarioError: As `load_config`, or if it is another role's.
    """
    config = load_config(path)
    if not isinstance(config, kind):
        place = f"{kind.__module__}:{kind.__name__}"
        able = ", ".join(name for name, role in ROLES.items() if role.config == place)
        raise ScenarioError.because(
            f"{config.role} does not run `{command}`; these roles do: {able}", field="role"
        )
    return config


def serve(config: Config | Path | str) -> Coroutine[Any, Any, None]:
    """Return the server's coroutine for a configuration; it runs until it is cancelled.

    Args:
        config: The configuration, or the path of its file.

    Raises:
        ScenarioError: As `load_config`, or if the role serves nothing.
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
        ScenarioError: As `load_config`, or if the role asks nothing.
    """
    loaded = _loaded(config)
    role = _duty(loaded, "ask", "`veilring ask` with a file")
    asked: Coroutine[Any, Any, Columns] = role(loaded, Path(queries))
    return asked


def ask_near(config: Config | Path | str, near: "Near") -> Coroutine[Any, Any, Columns]:
    """Return the coroutine that finds places near a private one.

    Args:
        config: The configuration, or the path of its file.
        near: The private place, and what may be spent on it.

    Raises:
        ScenarioError: As `load_config`, or if the role asks for no places.
    """
    loaded = _loaded(config)
    asked: Coroutine[Any, Any, Columns] = _duty(loaded, "near", "`veilring ask --near`")(
        loaded, near
    )
    return asked


def fetch_model(config: Config | Path | str) -> Coroutine[Any, Any, "PublicModel"]:
    """Return the coroutine that gets the model that parties release.

    Args:
        config: The configuration, or the path of its file.

    Raises:
        ScenarioError: As `load_config`, or if the role asks for no model.
    """
    loaded = _loaded(config)
    fetched: Coroutine[Any, Any, PublicModel] = _duty(loaded, "model", "`veilring ask --model`")(
        loaded
    )
    return fetched


def _loaded(config: Config | Path | str) -> Config:
    return config if isinstance(config, Config) else load_config(Path(config))


def _duty(config: Config, duty: str, command: str) -> Any:  # noqa: ANN401  (a coroutine function)
    """Return the function of a role for a duty; if it has none, name the roles that do."""
    place = getattr(ROLES[config.role], duty)
    if not place:
        able = ", ".join(name for name, role in ROLES.items() if getattr(role, duty))
        raise ScenarioError.because(
            f"{config.role} has nothing for {command}; these roles have: {able}", field="role"
        )
    return _imported(place)


def _imported(place: str) -> Any:  # noqa: ANN401  (a class or a function)
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _role_of(path: Path) -> str:
    try:
        table = load_toml(path)
    except (OSError, ValueError) as error:
        raise ScenarioError("file", path, f"a file in TOML that can be read ({error})") from error
    given = table.get("role")
    role = str(given)
    if role in _RENAMED_ROLES:
        raise ScenarioError.because(
            f"the role {role} is now called {_RENAMED_ROLES[role]}", field="role"
        )
    require_key(role in ROLES, "role", given, ", ".join(ROLES))
    return role
