"""The roles of a deployment: how each is configured, and what it does. A new one is one entry."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from veilring.config import load_toml, read_toml
from veilring.deployment.analyst import AnalystConfig, label
from veilring.deployment.client import ask
from veilring.deployment.collector import collect
from veilring.deployment.config import (
    RELATIVE,
    ClientConfig,
    CollectorConfig,
    Config,
    MemberConfig,
    SubmitterConfig,
)
from veilring.deployment.curator import CuratorConfig
from veilring.deployment.member import serve
from veilring.deployment.owner import OwnerConfig, own
from veilring.deployment.places import PlacesConfig, serve_places
from veilring.deployment.prediction import PredictionServerConfig, predict
from veilring.deployment.querier import QuerierConfig, query
from veilring.deployment.seeker import Near, SeekerConfig, seek
from veilring.deployment.votes_member import VotesMemberConfig, serve_votes
from veilring.errors import ScenarioError
from veilring.protocols.ldp.store import URL_PREFIXES

Columns = Mapping[str, Sequence[object]]
"""What was asked for, row by row of the queries: each column by its header."""

C = TypeVar("C", bound=Config)
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Part(Generic[C]):
    """What a role is.

    Attributes:
        config: The model of its configuration.
        serve: What `veilring serve` runs until it is cancelled, if it serves.
        ask: What `veilring ask` runs on a file of queries, if it asks.
        seek: What `veilring ask --near` runs on a place, if it looks for places.
    """

    config: type[C]
    serve: Callable[[C], Coroutine[Any, Any, None]] | None = None
    ask: Callable[[C, Path], Coroutine[Any, Any, Columns]] | None = None
    seek: Callable[[C, Near], Coroutine[Any, Any, Columns]] | None = None


ROLES: Final[Mapping[str, Part[Any]]] = MappingProxyType(
    {
        "ring-member": Part(MemberConfig, serve=serve),
        "client": Part(ClientConfig, ask=ask),
        "votes-member": Part(VotesMemberConfig, serve=serve_votes),
        "collector": Part(CollectorConfig, serve=collect),
        "submitter": Part(SubmitterConfig),
        "data-owner": Part(OwnerConfig, serve=own),
        "analyst": Part(AnalystConfig, ask=label),
        "places": Part(PlacesConfig, serve=serve_places),
        "seeker": Part(SeekerConfig, seek=seek),
        "prediction-server": Part(PredictionServerConfig, serve=predict),
        "querier": Part(QuerierConfig, ask=query),
        "curator": Part(CuratorConfig),
    }
)
"""Each role by the name that it has in a configuration."""


def load_config(path: Path) -> Config:
    """Read a configuration; the paths in it come back relative to where it was.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    model: type[Config] = ROLES[_role_of(path)].config
    config = read_toml(path, model)
    fields = model.model_fields.items()
    named = {key: getattr(config, key) for key, field in fields if RELATIVE in field.metadata}
    found = {
        key: str(path.parent / name)
        for key, name in named.items()
        if not name.startswith(URL_PREFIXES)
    }
    return config.model_copy(update=found)


def load_config_of(path: Path, kind: type[C], command: str) -> C:
    """Read a configuration of one role.

    Args:
        path: The file.
        kind: The role's model.
        command: Who wants it, as an error calls it, such as `veilring records`.

    Raises:
        ScenarioError: As `load_config`, or if it is another role's.
    """
    config = load_config(path)
    if not isinstance(config, kind):
        able = ", ".join(name for name, part in ROLES.items() if part.config is kind)
        raise ScenarioError("role", config.role, f"{able}, for `{command}`")
    return config


def serving(config: Config) -> Coroutine[Any, Any, None]:
    """Return what serves by a configuration until it is cancelled.

    Raises:
        ScenarioError: If its role serves nothing.
    """
    serve = _able(config, lambda part: part.serve, "`veilring serve`")
    return serve(config)


def asking(config: Config, queries: Path) -> Coroutine[Any, Any, Columns]:
    """Return what has a file of queries answered.

    Raises:
        ScenarioError: If its role asks nothing.
    """
    ask = _able(config, lambda part: part.ask, "`veilring ask` with a file")
    return ask(config, queries)


def seeking(config: Config, near: Near) -> Coroutine[Any, Any, Columns]:
    """Return what looks for places near another.

    Raises:
        ScenarioError: If its role does not.
    """
    seek = _able(config, lambda part: part.seek, "`veilring ask --near`")
    return seek(config, near)


def _able(config: Config, duty: Callable[[Part[Any]], D | None], command: str) -> D:
    """Return what a role does of one duty; if it does not, say whose duty it is."""
    does = duty(ROLES[config.role])
    if does is None:
        able = ", ".join(name for name, part in ROLES.items() if duty(part))
        raise ScenarioError("role", config.role, f"{able}, for {command}")
    return does


def _role_of(path: Path) -> str:
    try:
        role = load_toml(path).get("role")
    except (OSError, ValueError) as error:
        raise ScenarioError("file", path, f"a file in TOML that can be read ({error})") from error
    if role not in ROLES:
        raise ScenarioError("role", role, ", ".join(ROLES))
    return str(role)
