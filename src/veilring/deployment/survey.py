"""A deployed survey: its terms, its task, and the collector of reports."""

import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import tomli_w
from pydantic import AwareDatetime, Field, ValidationError, model_validator
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import Section, same_field
from veilring.data.csv import read_cells
from veilring.data.schema import (
    FeatureList,
    FeatureTerms,
    FileCells,
    Words,
    check_features,
    read_categories,
    read_labels,
    read_numbers,
    require_different,
)
from veilring.data.table import Ranges
from veilring.deployment.config import A_FILE, RELATIVE, ServerConfig, Terms
from veilring.deployment.connecting import Server
from veilring.errors import HandshakeError, InputError, ProtocolViolation, ScenarioError
from veilring.protocols.ldp.algorithm.planner import OracleName
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling
from veilring.protocols.ldp.algorithm.survey import make_survey
from veilring.protocols.ldp.collector import Collector
from veilring.protocols.ldp.messages import TASK_FORMAT, Task, format_terms, other_format
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Quotas, Store
from veilring.protocols.ldp.system import LDPBayes
from veilring.transport.roster import Roster

_log = logging.getLogger("veilring.collector")
_HALF: Final = 0.5
FREQUENCY_BINS: Final = 8
MINIMUM_REPORTS: Final = 1000  # at ε = 1, the shares of four answers are then within about ±0.09
_Count = Annotated[int, Field(ge=0)]


class SurveySection(Section):
    """The questions to the clients, and the mechanisms that protect the answers.

    Attributes:
        kind: `frequency` of the values of one column, `means` of columns, or naive Bayes.
        epsilon: The maximum epsilon of a client's single report.
        oracle: The frequency oracle for values; `auto` chooses the best one for each domain.
        bins: The number of equal parts of a range for questions about values; 8 for `frequency` by
            default.
        minimum: The number of reports that the collector's estimates need. It is not part of the
            task, so it may be changed at any time.
        closes: The time after which no new report is accepted.
    """

    kind: Literal["frequency", "means", "discrete-bayes", "gaussian-bayes"]
    epsilon: float = same_field(LDPBayes, "epsilon", required=True)
    oracle: OracleName = same_field(LDPBayes, "oracle")
    bins: int = same_field(LDPBayes, "bins")
    minimum: int = Field(MINIMUM_REPORTS, ge=1)
    closes: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description="a date and time with its zone, such as 2027-01-31T00:00:00Z"
    )

    @model_validator(mode="before")
    @classmethod
    def _show_a_histogram(cls, given: Any) -> Any:  # noqa: ANN401  (a file may contain anything)
        """Use more bins than a classifier needs, unless the file sets the number."""
        if isinstance(given, dict) and given.get("kind") == "frequency":
            return {"bins": FREQUENCY_BINS, **given}
        return given

    @property
    def is_numeric(self) -> bool:
        """Whether columns are treated as numbers, with one-hot categories."""
        return self.kind in {"means", "gaussian-bayes"}


def domain_of(section: SurveySection, feature: FeatureTerms) -> int:
    """Return the number of values of a column for questions about values."""
    return len(feature.categories) or section.bins


def bins_of(section: SurveySection, features: Sequence[FeatureTerms]) -> Bins:
    """Return the step that converts each column to numbers of values.

    A category is the middle of its bin, so rounding cannot move it to another bin.
    """
    lows = [-_HALF if each.categories else each.low for each in features]
    highs = [len(each.categories) - _HALF if each.categories else each.high for each in features]
    counts = tuple(domain_of(section, each) for each in features)
    return Bins(Ranges(tuple(lows), tuple(highs)), counts)


def ranges_of(features: Sequence[FeatureTerms]) -> Ranges:
    """Return the ranges of the columns; a column of categories becomes several of 0 and 1."""
    lows, highs = [], []
    for feature in features:
        lows += [0.0] * feature.width if feature.categories else [feature.low]
        highs += [1.0] * feature.width if feature.categories else [feature.high]
    return Ranges(tuple(lows), tuple(highs))


class SurveyTerms(Terms):
    """The terms of a collection: the survey, and how to read a row.

    Attributes:
        classes: The names of all classes; none for `frequency` and `means`.
        features: All columns except the label.
    """

    survey: SurveySection
    classes: Words = Field((), description="a list of different names of classes")
    features: FeatureList

    @cached_property
    def task(self) -> Task:
        """The task that an aggregator publishes."""
        closes = self.survey.closes
        return Task(
            # `minimum` protects no client: each report is private however many there are.
            terms=self.model_dump(mode="json", exclude={"survey": {"minimum"}}),
            survey=make_survey(
                Scaling(ranges_of(self.features))
                if self.survey.is_numeric
                else bins_of(self.survey, self.features),
                len(self.classes) or None,
                self.survey.epsilon,
                self.survey.oracle,
            ),
            closes=None if closes is None else closes.timestamp(),
        )

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        section = self.survey
        require_different("classes", self.classes)
        check_features(self.features)
        wants_classes = section.kind in {"discrete-bayes", "gaussian-bayes"}
        if wants_classes and len(self.classes) < 2:  # noqa: PLR2004  (one class needs no model)
            raise ScenarioError.because(
                f"{section.kind} needs two or more classes; there are {len(self.classes)}",
                field="classes",
            )
        if not wants_classes and self.classes:
            raise ScenarioError.because(
                f"{section.kind} takes no classes; leave them out", field="classes"
            )
        if self.is_frequency and len(self.features) > 1:
            raise ScenarioError.because(
                f"a survey of frequencies has one column; there are {len(self.features)}",
                field="features",
            )
        for feature in self.features:
            if len(feature.categories) == 1 and not section.is_numeric:
                key = f"features.{feature.name}.categories"
                raise ScenarioError(key, list(feature.categories), "two or more categories")
        try:
            _ = self.task
        except InputError as error:
            raise ScenarioError.of(error, f"survey.{error.field}") from error
        return self

    def read_clients(self, path: Path) -> ClientPool:
        """Read the rows of clients: all columns of the terms, and the label as the last column."""
        return self.clients_of(path, read_cells(path))

    def clients_of(self, path: Path, cells: FileCells) -> ClientPool:
        """Return clients from the cells of a file that was already read, like `read_clients`."""
        rows = np.hstack([self._encode(path, feature, cells) for feature in self.features])
        if not self.classes:
            return ClientPool(rows, np.zeros(len(rows), dtype=np.int64))
        return ClientPool(rows, read_labels(path, cells, self.classes))

    def _encode(self, path: Path, feature: FeatureTerms, cells: FileCells) -> Floats | Ints:
        if not feature.categories:
            numbers = read_numbers(path, feature, cells)[:, None]
            return bins_of(self.survey, (feature,))(numbers) if self.is_frequency else numbers
        places = read_categories(path, feature, cells)
        return np.eye(feature.width)[places] if self.survey.is_numeric else places[:, None]

    @property
    def is_frequency(self) -> bool:
        """Whether the survey counts the values of one column."""
        return self.survey.kind == "frequency"

    @override
    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(exclude_defaults=True))


def read_published(encoded: bytes, collector: str) -> SurveyTerms:
    """Decode a task that a collector published, and derive it again from its terms.

    Raises:
        HandshakeError: If the task has the format of another version of veilring.
        ProtocolViolation: If its terms do not give exactly the published numbers.
    """
    if found := other_format(encoded):
        raise HandshakeError(
            collector,
            f"its task has {found}, but this veilring reads format {TASK_FORMAT}; use the same"
            f" version of veilring at {collector} and here",
        )
    try:
        content = json.dumps(json.loads(encoded)["terms"])
        terms = SurveyTerms.model_validate_json(content).checked()
    except (ValidationError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"published an unreadable task ({type(error).__name__})"
        raise ProtocolViolation(collector, reason) from None
    if terms.task.encoded != encoded:
        raise ProtocolViolation(
            collector, "published parameters that do not follow from its own terms"
        )
    return terms


def closing_time(terms: SurveyTerms) -> str:
    """Format the closing time of a collection, for people."""
    closes = terms.survey.closes
    return f"closes {closes.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC" if closes else "never closes"


class CollectorConfig(ServerConfig):
    """An aggregator that collects clients' reports.

    Attributes:
        role: `collector`.
        store: The database of the reports: an SQLite file, or a PostgreSQL database.
        reports_max: The lifetime limit on the number of reports of each member. A report does not
            reveal its client, so only this limit keeps a member from answering for thousands.
        reports_max_of: The limits of individual members, by name.
    """

    role: Literal["collector"]
    store: Annotated[str, RELATIVE] = Field(
        "reports.sqlite", description=f"{A_FILE}, or postgresql://USER@HOST/DATABASE"
    )
    reports_max: _Count | None = None
    reports_max_of: Mapping[str, _Count] = Field(
        {}, description="a table of members' names, each with a whole number of at least 0"
    )


async def serve_collector(
    config: CollectorConfig, *, on_ready: Callable[[Collector], None] | None = None
) -> None:
    """Collect reports until cancelled.

    All files are read and checked first. When cancelled, the collector finishes the running
    transaction and shuts down in order; a survey client without a receipt sends the same reports
    again.

    Args:
        on_ready: Called once reports are accepted.

    Raises:
        StoreFailed: If the database cannot be opened.
    """
    server = Server(config, _log)
    terms = SurveyTerms.load(Path(config.terms))
    quotas = _quotas(config, server.roster)
    senders = [name for name in server.roster.names if name != server.name]
    _warn_of_quotas(quotas, senders, terms.survey.minimum)
    store = open_configured_store(config, terms.task)
    async with Collector(store, time.time, quotas=quotas) as collector:
        _log.info("task %s, %s", terms.task.digest.hex(), closing_time(terms))
        async with server.listen(collector.offers(), terms=format_terms()):
            if on_ready is not None:
                on_ready(collector)
            await collector.failure()


def _quotas(config: CollectorConfig, roster: Roster) -> Quotas:
    for member in config.reports_max_of:
        if member not in roster.names:
            raise ScenarioError.because(
                f"{member!r} is not a member of the roster, which has {', '.join(roster.names)}",
                field="reports_max_of",
            )
    return Quotas(config.reports_max, config.reports_max_of)


def _warn_of_quotas(quotas: Quotas, senders: Sequence[str], minimum: int) -> None:
    if quotas.each is None:
        _log.warning(
            "no reports_max is set: each member of the roster may send any number of reports"
        )
    most = sum(map(quotas.of, senders))
    if most < minimum:
        _log.warning(
            "reports_max allows only %s reports of all members together, but estimates need %s; "
            "raise reports_max, or lower `minimum` in the terms",
            *(f"{most:,}", f"{minimum:,}"),
        )


def begin_store(config: CollectorConfig) -> bool:
    """Create the store of a collector: see `begin_state` of `veilring.deployment.roles`."""
    with _store_errors():
        begin_report_store(config.store)
    return True


def open_configured_store(config: CollectorConfig, task: Task, *, read_only: bool = False) -> Store:
    """Open the database that a configuration names.

    Raises:
        StoreFailed: If it cannot be reached.
    """
    with _store_errors():
        return open_report_store(config.store, task, read_only=read_only)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise ScenarioError.of(error, "store") from error
