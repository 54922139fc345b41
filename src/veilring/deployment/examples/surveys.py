"""Trial deployments of surveys: a collector of reports, or two aggregators and their collector."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from typing_extensions import override

from veilring.data.schema import feature_terms
from veilring.data.sources import is_public
from veilring.data.table import Categories, Features, Ranges, Table, encode_columns
from veilring.deployment.config import columns_of
from veilring.deployment.examples.example import (
    Example,
    NewDeployment,
    TermsSettings,
    numbered,
    override_tables,
)
from veilring.deployment.examples.folder import (
    COLLECTOR,
    SURVEY_CLIENT,
    Configs,
    write_folder,
    write_table,
)
from veilring.deployment.surveys.collector import SURVEY_REQUEST
from veilring.deployment.surveys.questionnaire import AGGREGATED, Question, Questionnaire
from veilring.deployment.surveys.terms import MINIMUM_REPORTS, SurveySection, SurveyTerms
from veilring.errors import InputError
from veilring.protocols.ldp.outbox import ROW_NUMBER
from veilring.protocols.ldp.system import LDPBayes
from veilring.randomness import Streams
from veilring.transport.tls import LOOPBACK

_log = logging.getLogger("veilring.deploy")
_KEY: Final = "client"  # the column that identifies the client of a row
_OF_ONE_COLUMN: Final = frozenset({"frequency", "words"})  # kinds of survey
_WITHOUT_CLASSES: Final = _OF_ONE_COLUMN | {"means"}


class SurveyExample(Example):
    """Write a trial deployment of a collector and its survey clients.

    Then start the collector, submit reports, and estimate at any time:

        veilring deploy survey wine --kind frequency --column alcohol --out survey
        veilring serve survey/collector.toml
        veilring submit survey/survey-client-0.toml survey/survey-client-0.csv
        veilring estimate survey/collector.toml

    Attributes:
        kind: frequency, words, means, discrete-bayes or gaussian-bayes.
        column: For frequency and words: the column whose values to count; by default the only one.
        epsilon: The price of a client's report.
        reports: The number of reports, each of one client, whose row is drawn from the data set
            with replacement.
        survey_clients: The number of machines that submit the reports.
    """

    section = SurveySection
    draws = "Seed of the split."
    ports = "Port of the collector."

    kind: str = "discrete-bayes"
    column: str | None = None
    epsilon: float = LDPBayes().epsilon
    reports: int = 10_000
    survey_clients: int = 2

    @property
    def names(self) -> list[str]:
        """The names of the survey clients; each has the files `NAME.toml` and `NAME.csv`."""
        return numbered(SURVEY_CLIENT, self.survey_clients)

    @property
    @override
    def needs_label(self) -> bool:
        return self.kind not in _WITHOUT_CLASSES

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        if not 1 <= self.survey_clients <= self.reports:
            raise InputError(
                "--survey-clients", self.survey_clients, f"1 to {self.reports}, as reports"
            )
        table = self._asked(source)
        terms = self._terms(table, to.settings)
        drawn = Streams(to.seed).generator("clients").integers(len(table), size=self.reports)
        configs: Configs = {COLLECTOR: {"role": "collector"}}
        files = dict[str, Callable[[Path], object]]()
        for number, name in enumerate(self.names):
            own = np.arange(number, self.reports, self.survey_clients)
            files[f"{name}.csv"] = partial(
                write_table,
                table=table.take(drawn[own]),
                ids=[f"client-{number}" for number in own.tolist()],
                key=_KEY,
                labelled=bool(terms.classes),
                encoded=self.kind not in _OF_ONE_COLUMN,  # which is counted by its categories
            )
            configs[name] = {
                "role": "client",
                "protocol": {"name": terms.protocol.name},
                "collector": COLLECTOR,
                "key": _KEY,
                "budget": self.epsilon,
            }
        write_folder(to.folder, terms, configs, files, port=to.port, request=SURVEY_REQUEST)
        return (
            to.serve(COLLECTOR),
            *(to.send("submit", name) for name in self.names),
            f"estimate {to.folder / COLLECTOR}.toml",
        )

    def _asked(self, source: Table) -> Table:
        """Return the columns that clients are asked for."""
        if self.kind not in _OF_ONE_COLUMN and self.column is None:
            return source
        columns = _columns(source)
        column = columns[0] if self.column is None and len(columns) == 1 else self.column
        if self.kind not in _OF_ONE_COLUMN or column is None:
            raise InputError.because(
                "--column is required with --kind frequency or words, unless the table has one"
                " column, and not allowed otherwise",
                field="--column",
            )
        return _only(source, column)

    def _terms(self, table: Table, settings: TermsSettings) -> SurveyTerms:
        features, ranges = table.features, table.features.ranges
        columns = [
            {"name": name, "low": low, "high": high, "agreed": is_public(table)}
            for name, low, high in zip(features.names, ranges.lows, ranges.highs, strict=True)
        ]
        if self.kind == "words":
            columns = [{"name": each.name} for each in columns_of(table)]
        elif self.kind == "frequency":
            columns = [each.model_dump(exclude_defaults=True) for each in columns_of(table)]
        classes = () if self.kind in _WITHOUT_CLASSES else features.classes
        minimum = min(self.reports, MINIMUM_REPORTS)
        tables = self.tables(settings, kind=self.kind, epsilon=self.epsilon, minimum=minimum)
        terms = SurveyTerms.of(classes=classes, features=columns, **tables).checked()
        if terms.protocol.minimum > self.reports:
            allowed = f"1 to {self.reports}, as reports"
            raise InputError("--minimum", terms.protocol.minimum, allowed)
        return terms


class VerifiedSumExample(Example):
    """Write a trial deployment of two aggregators, and of the collector of their totals.

    Clients report one value of a column each. Start both aggregators, and get the totals at any
    time:

        veilring deploy verified-sum wine --out sum
        veilring serve sum/leader.toml
        veilring serve sum/helper.toml
        veilring estimate sum/collector.toml

    Attributes:
        column: The column whose values to count; by default the label.
        epsilon: The ε of each report.
        minimum: The number of reports of a batch.
        budget: The ε that all batches together may cost at each aggregator.
    """

    in_production = (
        "In production each party makes its own keys, and clients reach both aggregators over"
        " HTTPS, with certificates that browsers trust."
    )
    ports = "Port of the leader; the helper, and both for clients, get the following ports."

    column: str | None = None
    epsilon: float = 1.0
    minimum: int = MINIMUM_REPORTS
    budget: float = 100.0

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        (feature,) = columns_of(_only(source, self.column or source.label_name))
        question = Question(
            name=feature.name,
            text=feature.name,
            answers=feature.categories or source.features.classes,
        )
        asked = Questionnaire(
            title=feature.name, epsilon=self.epsilon, minimum=self.minimum, questions=(question,)
        )
        return _write_sum(asked, self.budget, to)


class QuestionnaireExample(Example):
    """Write a trial deployment of a survey, from a file with its questions.

    With `trust = "one of two aggregators"`, people answer from a page:

        veilring deploy questionnaire questions.toml --out survey
        veilring survey page survey/terms.toml --client browser.js --out site
        veilring serve survey/leader.toml
        veilring serve survey/helper.toml
        veilring estimate survey/collector.toml

    With `trust = "nobody"`, a survey client reports the rows of a CSV file with a column for each
    question, as `veilring deploy survey` shows.

    Attributes:
        budget: The ε that all totals together may cost at each aggregator.
    """

    source = "TOML file with the questions."
    metavar = "QUESTIONS"
    in_production = VerifiedSumExample.in_production
    draws = ""
    ports = VerifiedSumExample.ports

    budget: float = VerifiedSumExample.model_fields["budget"].default

    @override
    def write(self, source: Path, to: NewDeployment) -> tuple[str, ...]:
        asked = Questionnaire.load(source)
        if warning := asked.warn(time.time()):
            _log.warning(warning)
        if asked.trust == AGGREGATED:
            return _write_sum(asked, self.budget, to)
        terms = SurveyTerms.of(**override_tables(asked.survey_tables, to.settings)).checked()
        name = f"{SURVEY_CLIENT}-0"
        client = {
            "role": "client",
            "protocol": {"name": terms.protocol.name},
            "collector": COLLECTOR,
            "key": ROW_NUMBER,
            "budget": terms.protocol.epsilon,
        }
        configs: Configs = {COLLECTOR: {"role": "collector"}, name: client}
        write_folder(to.folder, terms, configs, {}, port=to.port, request=SURVEY_REQUEST)
        collector = to.folder / COLLECTOR
        submit = f"submit {to.folder / name}.toml ANSWERS.csv"
        return to.serve(COLLECTOR), submit, f"estimate {collector}.toml"


def _write_sum(asked: Questionnaire, budget: float, to: NewDeployment) -> tuple[str, ...]:
    """Write the deployment of two aggregators with the questions of a survey."""
    from veilring.deployment.surveys.aggregators import VerifiedSumTerms, totals_request  # noqa: PLC0415  (an extra, for these examples only)
    from veilring.protocols.prio.sealing import add_key  # noqa: PLC0415  (likewise)

    ports = {"leader": to.port + 2, "helper": to.port + 3}
    addresses = {role: f"http://{LOOPBACK}:{port}/" for role, port in ports.items()}
    tables = override_tables({"task": {**addresses, **asked.task}}, to.settings)
    terms = VerifiedSumTerms.of(**tables).checked()
    names = {role: str(getattr(terms.protocol, role)) for role in ports}
    configs: Configs = {
        name: {"role": role, "keys": f"{name}.hpke", "port": ports[role], "budget": budget}
        for role, name in names.items()
    }
    configs[terms.protocol.collector] = {"role": "collector"}
    files: dict[str, Callable[[Path], object]] = {
        f"{name}.hpke": partial(add_key, now=time.time()) for name in names.values()
    }
    files["task.json"] = lambda path: path.write_bytes(terms.task.encoded)
    request = totals_request(terms)
    write_folder(to.folder, terms, configs, files, port=to.port, listening=2, request=request)
    return (
        *map(to.serve, names.values()),
        f"estimate {to.folder / terms.protocol.collector}.toml",
        to.show(names["leader"]),
    )


def _columns(table: Table) -> list[str]:
    """Return the names of all columns, the label last if there is one."""
    features = [feature.name for feature in feature_terms(table.features)]
    return [*features, table.label_name] if table.label_name else features


def _only(table: Table, column: str) -> Table:
    """Return a table with one of its columns, which may be the label."""
    if column not in _columns(table):
        raise InputError("--column", column, f"a column: {', '.join(_columns(table))}")
    if column == table.label_name:
        labels = np.array(table.features.named(table.y), np.str_)
        return encode_columns(table.name, {column: labels}, labels)
    features, ranges = table.features, table.features.ranges
    categories = {each.column: each for each in features.categories}
    if column not in categories:
        place = slice(first := features.names.index(column), first + 1)
        of_it: tuple[Categories, ...] = ()
    else:
        place, of_it = categories[column].features, (categories[column]._replace(first=0),)
    only = Features(
        features.names[place],
        Ranges(ranges.lows[place], ranges.highs[place]),
        features.classes,
        of_it,
    )
    return replace(table, X=table.X[:, place], features=only)
