"""Configuration files of parties and clients, and the schema that the terms of all share."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

import tomli_w
from pydantic import Field, ValidationError
from typing_extensions import override

from veilring.arrays import Floats
from veilring.config import (
    Agreed,
    Section,
    as_scenario_errors,
    missing_file,
    read_tables,
    scenario_error,
)
from veilring.data.cells import Reading, Words, read_particulars
from veilring.data.columns import FeatureTerms
from veilring.data.schema import (
    OUTSIDE_MAX,
    OutsideMax,
    RowSchema,
    drafted,
    feature_terms,
    kept_columns,
    schema_of,
)
from veilring.data.sources import is_public
from veilring.data.table import Table
from veilring.errors import InputError, ScenarioError, VeilringError
from veilring.nodes.session import ANSWER_SECONDS, SESSION_SECONDS, SessionLimits
from veilring.protocols.promise import Facts
from veilring.protocols.registry import PROTOCOL_DEFAULT
from veilring.protocols.system import System
from veilring.transport.handshake import FORMAT
from veilring.transport.roster import Identity, Roster, load_identity
from veilring.transport.tls import LOOPBACK

A_FILE: Final = "a path, relative to this file"
STATE_SUFFIX: Final = ".db"
SOCKET_SUFFIX: Final = ".sock"
STATISTICS: Final = "statistics"
"""The name of the terms that are a plan of statistics, which are no `System`."""
VERIFIED_SUM: Final = "prio"
"""The name of the system whose terms have a table `task`."""
TASK: Final = "task"
RELATIVE: Final = "relative"
"""Marks a key whose path is relative to its file."""
_ADDRESS: Final = "an address of this machine, such as 0.0.0.0"

FilePath = Annotated[str, RELATIVE, Field(description=A_FILE)]
BudgetAmount = Annotated[float, Field(ge=0)]
"""A privacy budget."""
AnAddress = Annotated[str, Field(description=_ADDRESS)]


_RENAMED_TABLES: Final[Mapping[str, str]] = {
    "labelling": "data-owner",
    "prediction": "ind-knn",
    "survey": "ldp-bayes",
    "votes": "noisy-votes",
}
"""The system of a table of terms in earlier versions."""


def read_terms(path: Path) -> dict[str, Any]:
    """Return the content of a file of terms."""
    tables = read_tables(path, "terms")
    for name in tables.keys() & _RENAMED_TABLES.keys():
        now = f'protocol, with name = "{_RENAMED_TABLES[name]}"'
        raise ScenarioError.because(f"this table was renamed to {now}", field=name)
    return tables


class Terms(Agreed):
    """A public file, equal for all parties of a deployment: the protocol and the columns."""

    @property
    def system(self) -> type[System] | None:
        """The system whose messages the parties exchange; none for columns alone."""
        return None

    @property
    @override
    def keys(self) -> dict[str, str]:
        return super().keys | ({} if self.system is None else message_format(self.system))

    @property
    @override
    def tables(self) -> dict[str, Any]:
        tables = super().tables
        name = None if self.system is None else name_of(self.system)
        if name not in {None, PROTOCOL_DEFAULT}:
            tables["protocol"] = {"name": name, **tables.get("protocol", {})}
        return tables

    @classmethod
    def load(cls, path: Path, parties: int | None = None) -> Self:
        """Read a file of terms and check it.

        Args:
            parties: The number of parties, if it is known and matters.
        """
        return cls.of(**read_terms(path)).checked(parties)

    @classmethod
    def of(cls, **tables: Any) -> Self:
        """Return terms with these keys, as read from a file but not yet checked."""
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise scenario_error(error, cls) from None

    def checked(self, parties: int | None = None) -> Self:  # noqa: ARG002  (for terms that need it)
        """Return these terms after checking them."""
        return self


def message_format(system: type[System]) -> dict[str, str]:
    """Return the term for the version of a system's messages, which greetings compare."""
    return {f"{name_of(system)} {FORMAT}": str(system.messages_format)}


def name_of(system: type[System]) -> str:
    """Return the name of a system."""
    return str(system.model_fields["name"].default)


class Config(Section):
    """Base configuration of all roles.

    Attributes:
        role: The role: see `veilring.deployment.duties`.
        identity: The file with this party's own key.
        roster: The file with all members.
        session_seconds: The time for which the parties of a session wait for each other, in
            seconds; equal for all parties.
        answer_seconds: The time that a peer may compute before it counts as silent, in seconds;
            equal for all parties.
    """

    role: str
    identity: FilePath
    roster: FilePath
    session_seconds: float = Field(SESSION_SECONDS, gt=0)
    answer_seconds: float = Field(ANSWER_SECONDS, gt=0)

    @property
    def limits(self) -> SessionLimits:
        """The time limits of sessions."""
        return SessionLimits(self.session_seconds, self.answer_seconds)


@dataclass(frozen=True, slots=True)
class Duty:
    """The duty of a party of one system, for the role that its configuration names.

    Attributes:
        config: The model of the configuration.
        serve: The coroutine function of `veilring serve`, which runs until cancelled.
        ask: The coroutine function of `veilring ask` for a file of queries.
        near: The coroutine function of `veilring ask --near` for a place.
        model: The coroutine function of `veilring ask --model`.
        statistics: The coroutine function of `veilring stats` for running parties.
        estimate: The coroutine function of `veilring estimate` for running parties.
        start: The `Start` of `veilring check`, called with the configuration.
        begin: The function that creates the durable state. It returns whether the terms need any.
    """

    config: type[Config]
    serve: Callable[..., Coroutine[Any, Any, None]] | None = None
    ask: Callable[..., Coroutine[Any, Any, Any]] | None = None
    near: Callable[..., Coroutine[Any, Any, Any]] | None = None
    model: Callable[..., Coroutine[Any, Any, Any]] | None = None
    statistics: Callable[..., Coroutine[Any, Any, Any]] | None = None
    estimate: Callable[..., Coroutine[Any, Any, Any]] | None = None
    start: Callable[..., Any] | None = None
    begin: Callable[..., bool] | None = None


class StateConfig(Config):
    """Base configuration of a party that keeps state.

    Attributes:
        state: The file with the state that the party keeps, used by no other process; by
            default this file's name with the ending `.db`. Never delete it, or restore an old copy.
    """

    renamed = MappingProxyType(dict.fromkeys(("asked", "ledger", "outbox", "store"), "state"))

    state: FilePath = ""


class TermsConfig(Config):
    """Base configuration of the roles that need the terms file.

    Attributes:
        terms: The file of the terms.
    """

    terms: FilePath


class ReadingConfig(Config):
    """Base configuration of a party that reads a file of rows.

    Attributes:
        outside_max: The maximum share of a column's values outside of its public range. If there
            are more, the party does not start, and a client sends nothing.
        reading: The file with the particulars of this party's file of rows, by which the schema can
            read it; none if the file is written like the schema.
    """

    outside_max: OutsideMax = OUTSIDE_MAX
    reading: FilePath = ""

    @property
    def particulars(self) -> Reading:
        """The particulars of the party's file."""
        return read_particulars(Path(self.reading) if self.reading else None)


class ServerConfig(TermsConfig):
    """Base configuration of a party that accepts connections.

    Attributes:
        listen: The address at which to listen; loopback by default.
        socket: The Unix socket of `veilring status`; by default the name of the state file, or of
            this file for a role without state, with the ending `.sock`.
        policy: The file of this party's own policy. Without one, it takes part in everything that
            the terms allow.
        log_level: The lowest level of the lines of its log.
    """

    listen: AnAddress = LOOPBACK
    socket: FilePath = ""
    policy: FilePath = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class QueryingConfig(TermsConfig):
    """Base configuration of a client that queries a party.

    Attributes:
        ask: The party to query, which sees the queries.
    """

    ask: str = Field(description="the name of a party of the roster")


class AskingConfig(QueryingConfig, ReadingConfig):
    """Base configuration of a client that has the rows of a file labelled.

    Attributes:
        keep: Columns of the file of queries to put beside the answers, besides the identifiers of
            the schema. They are never sent.
    """

    keep: Words = ()


def load_credentials(config: Config) -> tuple[Identity, Roster]:
    """Load the key and the roster that a configuration names."""
    try:
        identity = load_identity(Path(config.identity))
    except FileNotFoundError as error:
        raise missing_file(config.identity, "identity") from error
    except (OSError, InputError) as error:
        raise ScenarioError("identity", config.identity, f"a key file ({error})") from error
    try:
        roster = Roster.load(Path(config.roster))
    except FileNotFoundError as error:
        raise missing_file(config.roster, "roster") from error
    except OSError as error:
        raise ScenarioError("roster", config.roster, f"a roster ({error})") from error
    return identity, roster


Columns = Mapping[str, Sequence[object]]
"""The answers, row by row of the queries: each column by its header."""


class Unfinished(VeilringError):
    """Raised if not all queries were answered, with the answers to the first ones.

    Attributes:
        answered: The answers to the first rows, in order.
    """

    def __init__(self, answered: Columns, asked: int, cause: VeilringError) -> None:
        self.answered, self.asked, self.cause = answered, asked, cause
        super().__init__(answered, asked, cause)

    def __str__(self) -> str:
        done = len(next(iter(self.answered.values())))
        return f"only the first {done:,} of {self.asked:,} rows were labelled: {self.cause}"


def columns_of(table: Table) -> tuple[FeatureTerms, ...]:
    """Return the columns of a table for terms, marked as not agreed if rows may be private."""
    return feature_terms(table.features) if is_public(table) else drafted(table.features)


def _as_written(feature: FeatureTerms) -> dict[str, Any]:
    """Return the keys of a column in a file, with both ends of its range."""
    ends = ("name", "low", "high") if feature.is_numeric else ("name",)
    return feature.model_dump(include=set(ends)) | feature.model_dump(exclude_defaults=True)


class Schema(RowSchema, Terms):
    """How to read a row. The terms of a system add its parameters."""

    @override
    def to_toml(self) -> str:
        tables = self.tables
        if self.features:  # embeddings have none
            tables["features"] = [_as_written(feature) for feature in self.features]
        return tomli_w.dumps(tables)

    def asked(
        self, path: Path, config: AskingConfig, log: logging.Logger
    ) -> tuple[Floats, dict[str, list[str]]]:
        """Return the queries of a file, scaled, and the columns to put beside the answers."""
        cells = self.read(path, config.particulars)
        kept = kept_columns(self, cells, config.keep)
        return self.queries_of(cells, config.outside_max, log), kept

    def facts(self, parties: int, rows: int | None = None) -> Facts:
        """Return the public facts about the data of the given number of parties."""
        schema = self.encoded if self.features else None  # embeddings have none
        if schema is None:
            return Facts(parties, self.width, len(self.classes), rows)
        return Facts.of(parties, schema, rows=rows)

    @classmethod
    def of_table(cls, table: Table, **tables: Any) -> Self:
        """Return terms that fit a table, for examples in which one process has all rows.

        Args:
            table: All rows; the ranges are the table's own, see `columns_of`.
        """
        schema = schema_of(table.features)
        columns = {key: getattr(schema, key) for key in schema.model_fields_set}
        columns["features"] = columns_of(table)
        if schema.target is not None and not (is_public(table) or table.features.declared):
            columns["target"] = schema.target.model_copy(update={"agreed": False})
        return cls.of(**columns | tables)

    @override
    def checked(self, parties: int | None = None) -> Self:
        self.require_sound()
        if self.system is not None:
            with as_scenario_errors({"name": "target"}, "protocol"):
                self.system.check_label(self.target)
        return self
