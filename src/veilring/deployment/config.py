"""The configuration of one long-lived party or of a client: one small file each."""

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field

from veilring.deployment.files import read_toml
from veilring.errors import InputError, ScenarioError
from veilring.scenarios.schema import Section
from veilring.transport.identity import Identity, load_identity
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("ClientConfig", "MemberConfig", "load_config", "load_credentials")

_FILE = "a path, relative to this file"


class _Config(Section):
    """What every role has.

    Attributes:
        identity: The file with this party's own key.
        roster: The file that says who takes part.
        terms: The file that says what is run.
    """

    identity: str = Field(description=_FILE)
    roster: str = Field(description=_FILE)
    terms: str = Field(description=_FILE)


class MemberConfig(_Config):
    """A member of a ring that answers queries together with all others.

    Attributes:
        role: `ring-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["ring-member"] = Field(description="ring-member")
    rows: str = Field(description=_FILE)
    listen: str = Field(LOOPBACK, description="an address of this machine, such as 0.0.0.0")


class ClientConfig(_Config):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member that it asks; all members see the queries.
    """

    role: Literal["client"] = Field(description="client")
    ask: str = Field(description="the name of a party of the roster")


_ROLES: dict[str, type[MemberConfig | ClientConfig]] = {
    "ring-member": MemberConfig,
    "client": ClientConfig,
}


def load_config(path: Path) -> MemberConfig | ClientConfig:
    """Read a configuration; the paths in it come back relative to where it was.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    config = read_toml(path, _ROLES[_role_of(path)])
    paths = {"identity", "roster", "terms", "rows"} & type(config).model_fields.keys()
    found = {key: str(path.parent / getattr(config, key)) for key in paths}
    return config.model_copy(update=found)


def _role_of(path: Path) -> str:
    try:
        role = tomllib.loads(path.read_text(encoding="utf-8")).get("role")
    except (OSError, ValueError) as error:
        raise ScenarioError("file", path, f"a file in TOML that can be read ({error})") from error
    if role not in _ROLES:
        raise ScenarioError("role", role, ", ".join(_ROLES))
    return str(role)


def load_credentials(config: MemberConfig | ClientConfig) -> tuple[Identity, Roster]:
    """Load the key and the roster that a configuration names.

    Raises:
        ScenarioError: If one cannot be read or does not fit.
    """
    try:
        identity = load_identity(Path(config.identity))
    except (OSError, InputError) as error:
        raise ScenarioError("identity", config.identity, f"a key file ({error})") from error
    try:
        roster = Roster.load(Path(config.roster))
    except OSError as error:
        raise ScenarioError("roster", config.roster, f"a roster ({error})") from error
    return identity, roster
