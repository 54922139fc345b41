"""The configuration of one long-lived party or of a client: one small file each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError

from veilring.config import Agreed, Section, read_toml, scenario_error
from veilring.errors import InputError, ScenarioError, VeilringError
from veilring.nodes.session import ANSWER_SECONDS, SESSION_SECONDS, SessionLimits
from veilring.transport.identity import Identity, load_identity
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

A_FILE: Final = "a path, relative to this file"
RELATIVE: Final = "relative"
"""Marks a key whose path is relative to the file that it stands in."""
_ADDRESS: Final = "an address of this machine, such as 0.0.0.0"

FilePath = Annotated[str, RELATIVE, Field(description=A_FILE)]
AMOUNT_ALLOWED: Final = "a number of at least 0"
BudgetAmount = Annotated[float, Field(ge=0, description=AMOUNT_ALLOWED)]
"""A privacy budget."""
AnAddress = Annotated[str, Field(description=_ADDRESS)]


class Terms(Agreed):
    """A public file that all parties of a deployment hold alike: what is run, on which columns."""

    @classmethod
    def load(cls, path: Path, parties: int | None = None) -> Self:
        """Read a file of terms and check it.

        Args:
            path: The file.
            parties: The number of parties, where it is known and matters.

        Raises:
            ScenarioError: With all mistakes: the key, its value and what is allowed.
        """
        return read_toml(path, cls).checked(parties)

    @classmethod
    def of(cls, **tables: Any) -> Self:
        """Return terms with these keys, as a file would have them; not yet checked.

        Raises:
            ScenarioError: With all mistakes: the key, its value and what is allowed.
        """
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise scenario_error(error, cls) from None

    def checked(self, parties: int | None = None) -> Self:  # noqa: ARG002  (for terms that need it)
        """Return the same terms.

        Raises:
            ScenarioError: If their keys do not go together.
        """
        return self


class Config(Section):
    """The configuration of any role.

    Attributes:
        role: The name of the role: see `veilring.deployment.roles`.
        identity: The file with this party's own key.
        roster: The file that says who takes part.
        session_seconds: How long the parties of a session wait for each other, the same at all of
            them, in seconds.
        answer_seconds: How long a peer may compute before it counts as silent, likewise.
    """

    role: str
    identity: FilePath
    roster: FilePath
    session_seconds: float = Field(SESSION_SECONDS, gt=0, description="a number above 0")
    answer_seconds: float = Field(ANSWER_SECONDS, gt=0, description="a number above 0")

    @property
    def limits(self) -> SessionLimits:
        """How long sessions may take."""
        return SessionLimits(self.session_seconds, self.answer_seconds)


class TermsConfig(Config):
    """The configuration of a role that knows the terms beforehand.

    Attributes:
        terms: The file of the terms.
    """

    terms: FilePath


class ServerConfig(TermsConfig):
    """The configuration of a party that others reach.

    Attributes:
        listen: The address to listen at; loopback by default.
    """

    listen: AnAddress = LOOPBACK


class AskingConfig(TermsConfig):
    """The configuration of a client that asks a party.

    Attributes:
        ask: The party, which sees what is asked.
    """

    ask: str = Field(description="the name of a party of the roster")


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


Columns = Mapping[str, Sequence[object]]
"""The answers, row by row of the queries: each column by its header."""


class Unfinished(VeilringError):
    """Raised when not all queries could be answered, and the first of them have answers.

    Attributes:
        answered: The answers to the first rows, in order.
        asked: The number of rows.
        cause: The refusal of the others.
    """

    def __init__(self, answered: Columns, asked: int, cause: VeilringError) -> None:
        self.answered, self.asked, self.cause = answered, asked, cause
        super().__init__(answered, asked, cause)

    def __str__(self) -> str:
        done = len(next(iter(self.answered.values())))
        return f"only the first {done:,} of {self.asked:,} rows are labelled: {self.cause}"
