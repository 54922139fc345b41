"""The collector of a survey's reports, and the estimates from them.

Estimates are read from the store, not requested from the collector: the data are durable, the
collector may be down, it has no extra work, and nobody needs permission to ask over the network.
Read access to the store is permission to estimate.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from pydantic import Field
from typing_extensions import override

from veilring.data.columns import FeatureTerms
from veilring.deployment.config import A_FILE, RELATIVE, Duty, ServerConfig, StateConfig, name_of
from veilring.deployment.policy import Request
from veilring.deployment.start import Start, Step
from veilring.deployment.surveys.client import SurveyClientConfig, begin_outbox
from veilring.deployment.surveys.terms import (
    SurveyTerms,
    closing_time,
    domain_of,
    name_bins,
    ranges_of,
)
from veilring.errors import InputError, ScenarioError
from veilring.protocols.admission import guarded
from veilring.protocols.ldp.algorithm.bayes import evidence, learn
from veilring.protocols.ldp.algorithm.randomiser import (
    INTERVAL_CONFIDENCE,
    Consistency,
    SurveyEstimate,
)
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.algorithm.words import WordSurvey, find_words, word_of
from veilring.protocols.ldp.collector import Collector
from veilring.protocols.ldp.messages import Task, format_terms
from veilring.protocols.ldp.parquet import write_parquet
from veilring.protocols.ldp.saved import save_classifier
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Quotas, Recount, Store, recount_all
from veilring.protocols.ldp.system import LDPBayes
from veilring.transport.roster import Roster

_log = logging.getLogger("veilring.collector")
SURVEY_REQUEST: Final = Request("", name_of(LDPBayes), epsilon=0.0, counted=False)
"""A submission, for a policy; each client spends its own ε."""
WORDS_MAX: Final = 32
"""The maximum number of words that are estimated, the most frequent ones."""
_Count = Annotated[int, Field(ge=0)]


class CollectorConfig(ServerConfig, StateConfig):
    """An aggregator that collects clients' reports.

    Attributes:
        role: `collector`.
        state: The database of the reports: a state file, or a PostgreSQL database.
        reports_max: The lifetime limit on the number of reports of each member. A report does not
            reveal its client, so only this limit keeps a member from answering for thousands.
        reports_max_of: The limits of individual members, by name.
    """

    role: Literal["collector"]
    state: Annotated[str, RELATIVE] = Field(
        "", description=f"{A_FILE}, or postgresql://USER@HOST/DATABASE"
    )
    reports_max: _Count | None = None
    reports_max_of: Mapping[str, _Count] = Field(
        {}, description="a table of members' names, each with a whole number of at least 0"
    )


class CollectorStart(Start[CollectorConfig]):
    """The checks at the start of a collector."""

    @cached_property
    def terms(self) -> SurveyTerms:
        """The terms."""
        return SurveyTerms.load(Path(self.config.terms))

    @cached_property
    def quotas(self) -> Quotas:
        """The limits on the reports of members."""
        server = self.server
        quotas = _quotas(self.config, server.roster)
        senders = [name for name in server.roster.names if name != server.name]
        _warn_of_quotas(quotas, senders, self.terms.protocol.minimum)
        return quotas

    @property
    @override
    def request(self) -> Request:
        return SURVEY_REQUEST

    @override
    def files(self) -> Iterator[Step]:
        yield "quotas", lambda: self.quotas
        yield "task", self._task

    def _task(self) -> None:
        self.log.info("task %s, %s", self.terms.task.digest.hex(), closing_time(self.terms))

    @override
    def open_copy(self) -> bool:
        store = open_configured_store(self.config, self.terms.task, read_only=True)
        with closing(store):
            self.log.info("%s reports", f"{store.tally().clients:,}")
        return True


async def serve_collector(
    config: CollectorConfig, *, on_ready: Callable[[Collector], None] | None = None
) -> None:
    """Collect reports until cancelled.

    All files are read and checked first. When cancelled, the collector finishes the running
    transaction and shuts down in order; a survey client without a receipt sends the same reports
    again.

    Args:
        on_ready: Called once reports are accepted.
    """
    start = CollectorStart(config, _log)
    start.begin()
    admission = start.admission()
    store = open_configured_store(config, start.terms.task)
    async with (
        Collector(store, time.time, quotas=start.quotas) as collector,
        start.server.listen(guarded(collector.offers(), admission), terms=format_terms()),
    ):
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
    """Create the store of a collector: see `begin_state` of `veilring.deployment.duties`."""
    with _store_errors():
        begin_report_store(config.state)
    return True


def open_configured_store(config: CollectorConfig, task: Task, *, read_only: bool = False) -> Store:
    """Open the database that a configuration names."""
    with _store_errors():
        return open_report_store(config.state, task, read_only=read_only)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise ScenarioError.of(error, "state") from error


DUTIES: Final[Mapping[str, Duty]] = {
    "collector": Duty(
        CollectorConfig,
        serve=serve_collector,
        start=partial(CollectorStart, log=_log),
        begin=begin_store,
    ),
    "client": Duty(SurveyClientConfig, begin=begin_outbox),
}
"""The duties of a collector and its survey clients."""


@dataclass(frozen=True, slots=True)
class EstimatedNumber:
    """One estimated number.

    Attributes:
        value: One of its values; for numbers `mean`, and within classes `mean * share` or `mean
            square * share`.
        within: For naive Bayes, the class; or nothing.
        estimate: A share of the clients asked; a mean in the column's own unit; or, for a column
            scaled to [-1, 1], a mean within a class times the class's share. It is unbiased, so a
            share may be slightly negative.
        low: The lower end of its interval; infinite if there are no reports.
    """

    of: str
    value: str
    within: str
    estimate: float
    low: float
    high: float
    clients: int


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of a survey so far.

    Attributes:
        members: The number of reports of each member, if known.
        repeated: The number of reports in several stores, each of which counts once.
        reused: The number of reports that are not counted, because an earlier store has another
            report with the same id.
    """

    terms: SurveyTerms
    tally: Tally
    confidence: float
    lines: tuple[EstimatedNumber, ...]
    members: Mapping[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    repeated: int = 0
    reused: int = 0

    @property
    def is_below_minimum(self) -> bool:
        """Whether fewer reports than the survey's minimum are left after members were left out."""
        return self.tally.clients < self.terms.protocol.minimum


def estimate_stored(
    config: CollectorConfig,
    *,
    stores: Sequence[str] = (),
    confidence: float = INTERVAL_CONFIDENCE,
    recount: bool = False,
    without: Sequence[str] = (),
) -> Estimates:
    """Estimate from the stored reports of a collector, even while it collects.

    The minimum applies to all stored reports: fewer may be left after members are left out.

    Args:
        stores: The stores of further collectors with the same task, each a state file or a
            PostgreSQL database. All reports are then read, and each id counts once.
        without: The members whose reports are left out; all reports are then read, too.

    Raises:
        StoreFailed: If a store cannot be read, or its sums do not match its reports.
    """
    terms = SurveyTerms.load(Path(config.terms))
    if terms.is_of_words and stores:
        raise InputError.because(
            "a survey of words is estimated from one store; name no others", field="stores"
        )
    with ExitStack() as stack:
        with _store_errors():
            opened = [
                stack.enter_context(closing(open_report_store(where, terms.task, read_only=True)))
                for where in (config.state, *stores)
            ]
        if recount or without or stores:
            read = recount_all(opened, without=without)
        else:
            read = Recount(opened[0].tally(), opened[0].members())
        tally, members = read.tally, read.members
        _require_enough(terms, sum(members.values()) if without else tally.clients)
        if not tally.clients:
            message = "no reports are left; leave out fewer members"
            raise InputError.because(message, field="without")
        if terms.is_of_words:
            lines = tuple(_words(terms, opened[0], without, confidence))
            found = Estimates(terms, tally, confidence, lines)
        else:
            found = _estimate(terms, tally, confidence)
    return replace(
        found, members=members, without=tuple(without), repeated=read.repeated, reused=read.reused
    )


def estimate_from(
    terms: SurveyTerms, tally: Tally, *, confidence: float = INTERVAL_CONFIDENCE
) -> Estimates:
    """Estimate from a tally of any origin."""
    if terms.is_of_words:
        raise InputError.because(
            "a survey of words needs its reports; use `veilring estimate` where the store is"
        )
    _require_enough(terms, tally.clients)
    return _estimate(terms, tally, confidence)


def _require_enough(terms: SurveyTerms, reports: int) -> None:
    minimum = terms.protocol.minimum
    if reports < minimum:
        raise InputError.because(
            f"{reports:,} of at least {minimum:,} reports so far (`minimum` in the terms, which may"
            " be changed at any time)"
        )


def _estimate(terms: SurveyTerms, tally: Tally, confidence: float) -> Estimates:
    found = evidence(terms.task.survey, tally, confidence=confidence)
    return Estimates(terms, tally, confidence, tuple(_lines(terms, found)))


def _words(
    terms: SurveyTerms, store: Store, without: Sequence[str], confidence: float
) -> Iterator[EstimatedNumber]:
    """Yield the most frequent words."""
    survey = cast(WordSurvey, terms.task.survey)
    with store.transaction():
        counts = [
            sum(len(some) for some in store.stored(question, without=without))
            for question in range(len(survey.questions))
        ]
        found = find_words(
            survey,
            partial(store.stored, without=without),
            counts,
            most=WORDS_MAX,
            confidence=confidence,
        )
    if not len(found.numbers):
        return
    names = [word_of(number, survey.longest) for number in found.numbers.tolist()]
    yield from _named(found.estimate, ((terms.features[0].name, name, "") for name in names))


def save_model(found: Estimates, path: Path, *, consistency: str | None = None) -> None:
    """Learn naive Bayes from the reports, and write it in the open format.

    Args:
        consistency: How to treat negative counts: `paper`, `clip` or `norm-sub`; by default as in
            `LDPBayes`.
    """
    _require_enough(found.terms, found.tally.clients)
    how = cast(Consistency, consistency or LDPBayes().consistency)  # `learn` checks it
    save_classifier(learn(found.terms.task.survey, found.tally, consistency=how), path)


def _lines(terms: SurveyTerms, found: Sequence[SurveyEstimate]) -> Iterator[EstimatedNumber]:
    match terms.protocol.kind:
        case "frequency":
            for feature, each in zip(terms.features, found, strict=True):
                yield from _named(each, ((feature.name, v, "") for v in _values(terms, feature)))
        case "means":
            yield from _means(terms, found[0])
        case "discrete-bayes":
            yield from _named(found[0], (("class", name, "") for name in terms.classes))
            for feature, each in zip(terms.features, found[1:], strict=True):
                values = product((feature.name,), _values(terms, feature), terms.classes)
                yield from _named(each, values)
        case "gaussian-bayes":
            yield from _named(found[0], (("class", name, "") for name in terms.classes))
            moments = ("mean * share", "mean square * share")
            for what, each in zip(moments, found[1:], strict=True):
                yield from _named(each, product(_columns(terms), (what,), terms.classes))


def _named(
    estimate: SurveyEstimate, names: Iterable[tuple[str, str, str]]
) -> Iterator[EstimatedNumber]:
    """Yield the first entries of an estimate with their names; an oracle's last may be unused."""
    for entry, (of, value, within) in enumerate(names):
        share, low, high = (
            float(each[entry]) for each in (estimate.values, estimate.low, estimate.high)
        )
        yield EstimatedNumber(of, value, within, share, low, high, estimate.clients)


def _means(terms: SurveyTerms, estimate: SurveyEstimate) -> Iterator[EstimatedNumber]:
    """Yield means in the units of the columns, which were scaled to [-1, 1]."""
    ranges = ranges_of(terms.features)
    lines = _named(estimate, product(_columns(terms), ("mean",), ("",)))
    for line, low, high in zip(lines, ranges.lows, ranges.highs, strict=True):
        scaled = {
            name: low + (getattr(line, name) + 1) / 2 * (high - low)
            for name in ("estimate", "low", "high")
        }
        yield replace(line, **scaled)


def _columns(terms: SurveyTerms) -> list[str]:
    return [
        f"{feature.name}={category}" if category else feature.name
        for feature in terms.features
        for category in feature.categories or ("",)
    ]


def _values(terms: SurveyTerms, feature: FeatureTerms) -> tuple[str, ...]:
    """Return the name of each value of a column: its category, or the ends of its bin."""
    if feature.categories:
        return feature.categories
    return name_bins(feature.low, feature.high, domain_of(terms.protocol, feature))


def export_reports(
    config: CollectorConfig, folder: Path, *, without: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Write a snapshot of all stored reports of a collector, even while it collects.

    Returns:
        The files.
    """
    task = SurveyTerms.load(Path(config.terms)).task
    store = open_configured_store(config, task, read_only=True)
    try:
        with store.transaction():
            stored = (
                (question, reports)
                for question in range(len(task.survey.questions))
                for reports in store.stored(question, without=without)
            )
            return write_parquet(task, stored, folder)
    finally:
        store.close()
