"""The configuration of one long-lived party or of a client: one small file each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from veilring.config import Section
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.errors import InputError, ScenarioError
from veilring.nodes.limit import ANSWER_SECONDS, SESSION_SECONDS, Limits
from veilring.protocols.ldp.outbox import ROW_NUMBER
from veilring.transport.identity import Identity, load_identity
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

A_FILE: Final = "a path, relative to this file"
RELATIVE: Final = "relative"
"""Marks a key whose path is relative to the file that it stands in."""
_ADDRESS: Final = "an address of this machine, such as 0.0.0.0"

_A_COUNT: Final = "a whole number of at least 0"

_Count = Annotated[int, Field(ge=0, description=_A_COUNT)]
FilePath = Annotated[str, RELATIVE, Field(description=A_FILE)]
AnAddress = Annotated[str, Field(description=_ADDRESS)]


class Config(Section):
    """What every role has.

    Attributes:
        role: What it does: see `roles`.
        identity: The file with this party's own key.
        roster: The file that says who takes part.
        session_seconds: For how long the parties of a session wait for each other; the same at all.
        answer_seconds: For how long a peer may compute before it counts as silent; likewise.
    """

    role: str
    identity: FilePath
    roster: FilePath
    session_seconds: float = Field(SESSION_SECONDS, gt=0, description="a number above 0")
    answer_seconds: float = Field(ANSWER_SECONDS, gt=0, description="a number above 0")

    @property
    def limits(self) -> Limits:
        """How long sessions may take."""
        return Limits(self.session_seconds, self.answer_seconds)


class TermsConfig(Config):
    """What every role has that has to know beforehand what is run.

    Attributes:
        terms: The file that says what is run.
    """

    terms: FilePath


class MemberConfig(TermsConfig):
    """A member of a ring that answers queries together with all others.

    Attributes:
        role: `ring-member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["ring-member"] = Field(description="ring-member")
    rows: FilePath
    outside_max: OutsideMax = OUTSIDE_MAX
    listen: AnAddress = LOOPBACK


class ClientConfig(TermsConfig):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member that it asks; all members see the queries.
        outside_max: The share of a column's values in a file of queries that may lie outside of its
            public range. With more the client does not ask.
    """

    role: Literal["client"] = Field(description="client")
    ask: str = Field(description="the name of a party of the roster")
    outside_max: OutsideMax = OUTSIDE_MAX


class CollectorConfig(TermsConfig):
    """An aggregator that collects clients' reports.

    Attributes:
        role: `collector`.
        store: Where the reports are kept: an SQLite file, or a PostgreSQL database.
        reports_max: How many reports of each member may count, over all that it ever sends. A
            report says nothing of whose it is, so that this is all that keeps a member from
            answering for thousands.
        reports_max_of: The limits of members that have one of their own.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["collector"] = Field(description="collector")
    store: Annotated[str, RELATIVE] = Field(
        "reports.sqlite", description=f"{A_FILE}, or postgresql://USER@HOST/DATABASE"
    )
    reports_max: _Count | None = Field(None, description=_A_COUNT)
    reports_max_of: Mapping[str, _Count] = Field(
        {}, description=f"a table of members' names, each with {_A_COUNT}"
    )
    listen: AnAddress = LOOPBACK


class SubmitterConfig(Config):
    """Whoever hands in the reports of its clients, made on this machine.

    Attributes:
        role: `submitter`.
        collector: To whom; it publishes the task.
        budget: The epsilon that all reports of one client may spend together, for ever.
        key: The column that says whose row it is, for ever; or `row number`, if rows are only ever
            added at the end and never changed.
        amend: Whether cells of known clients may differ from those that they reported.
        outbox: The file that keeps what was made and sent, and what each client has spent.
        task: The hash of the only task that is answered; any task of the collector if left out.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the submitter does not report.
    """

    role: Literal["submitter"] = Field(description="submitter")
    collector: str = Field(description="the name of a party of the roster")
    budget: float = Field(gt=0, description="a number above 0")
    key: str = Field(min_length=1, description=f"the header of a column, or {ROW_NUMBER!r}")
    amend: bool = Field(default=False, description="true or false")
    outbox: FilePath = "outbox.sqlite"
    outside_max: OutsideMax = OUTSIDE_MAX
    task: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="64 hexadecimal digits, or nothing"
    )


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
