"""The configuration of one long-lived party or of a client: one small file each."""

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field

from veilring.deployment.files import read_toml
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ldp.store.opening import URL_PREFIXES
from veilring.scenarios.schema import Section
from veilring.transport.identity import Identity, load_identity
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

__all__ = (
    "AnyConfig",
    "ClientConfig",
    "CollectorConfig",
    "Config",
    "MemberConfig",
    "SubmitterConfig",
    "load_config",
    "load_credentials",
)

_FILE = "a path, relative to this file"


class Config(Section):
    """What every role has.

    Attributes:
        identity: The file with this party's own key.
        roster: The file that says who takes part.
    """

    identity: str = Field(description=_FILE)
    roster: str = Field(description=_FILE)


class _TermsConfig(Config):
    """What every role has that has to know beforehand what is run.

    Attributes:
        terms: The file that says what is run.
    """

    terms: str = Field(description=_FILE)


class MemberConfig(_TermsConfig):
    """A member of a ring that answers queries together with all others.

    Attributes:
        role: `ring-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["ring-member"] = Field(description="ring-member")
    rows: str = Field(description=_FILE)
    listen: str = Field(LOOPBACK, description="an address of this machine, such as 0.0.0.0")


class ClientConfig(_TermsConfig):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member that it asks; all members see the queries.
    """

    role: Literal["client"] = Field(description="client")
    ask: str = Field(description="the name of a party of the roster")


class CollectorConfig(_TermsConfig):
    """An aggregator that collects clients' reports.

    Attributes:
        role: `collector`.
        store: Where the reports are kept: an SQLite file, or a PostgreSQL database.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["collector"] = Field(description="collector")
    store: str = Field("reports.sqlite", description=f"{_FILE}, or postgresql://USER@HOST/DATABASE")
    listen: str = Field(LOOPBACK, description="an address of this machine, such as 0.0.0.0")


class SubmitterConfig(Config):
    """Whoever hands in the reports of its clients, made on this machine.

    Attributes:
        role: `submitter`.
        collector: To whom; it publishes the task.
        budget: The epsilon that all reports of one client may spend together, for ever.
        key: The column that says whose row it is; by default its place in the file does, so that
            rows may be added at the end and never moved.
        outbox: The file that keeps what was made and sent, and what each client has spent.
        task: The hash of the only task that is answered; any task of the collector if left out.
    """

    role: Literal["submitter"] = Field(description="submitter")
    collector: str = Field(description="the name of a party of the roster")
    budget: float = Field(gt=0, description="a number above 0")
    key: str = Field("", description="the header of a column, or nothing")
    outbox: str = Field("outbox.sqlite", description=_FILE)
    task: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="64 hexadecimal digits, or nothing"
    )


AnyConfig = MemberConfig | ClientConfig | CollectorConfig | SubmitterConfig
_ROLES: dict[str, type[AnyConfig]] = {
    "ring-member": MemberConfig,
    "client": ClientConfig,
    "collector": CollectorConfig,
    "submitter": SubmitterConfig,
}
_PATHS = {"identity", "roster", "terms", "rows", "store", "outbox"}


def load_config(path: Path) -> AnyConfig:
    """Read a configuration; the paths in it come back relative to where it was.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    config = read_toml(path, _ROLES[_role_of(path)])
    named = {key: getattr(config, key) for key in _PATHS & type(config).model_fields.keys()}
    found = {
        key: str(path.parent / name)
        for key, name in named.items()
        if not name.startswith(URL_PREFIXES)
    }
    return config.model_copy(update=found)


def _role_of(path: Path) -> str:
    try:
        role = tomllib.loads(path.read_text(encoding="utf-8")).get("role")
    except (OSError, ValueError) as error:
        raise ScenarioError("file", path, f"a file in TOML that can be read ({error})") from error
    if role not in _ROLES:
        raise ScenarioError("role", role, ", ".join(_ROLES))
    return str(role)


def load_credentials(config: Config) -> tuple[Identity, Roster]:
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
