"""The terms of a deployed survey, and the task that follows from them."""

import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AwareDatetime, Field, ValidationError, model_validator
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import Section, as_scenario_errors, same_field
from veilring.data.cells import Cells, Words
from veilring.data.columns import (
    FeatureList,
    FeatureTerms,
    all_of,
    check_features,
    read_categories,
    read_numbers,
    require_different,
)
from veilring.data.schema import matched, read_file, read_labels
from veilring.data.table import Ranges
from veilring.deployment.config import Terms
from veilring.errors import HandshakeError, InputError, ProtocolViolation, ScenarioError
from veilring.protocols.digests import canonical_json
from veilring.protocols.ldp.algorithm.changing import MEMOISED
from veilring.protocols.ldp.algorithm.oracles import OracleName
from veilring.protocols.ldp.algorithm.randomiser import REPORT_EPSILON_MAX
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling
from veilring.protocols.ldp.algorithm.survey import FrequencySurvey, Survey, make_survey
from veilring.protocols.ldp.algorithm.words import WORD_BYTES_MAX, WordSurvey, word_numbers
from veilring.protocols.ldp.messages import TASK_FORMAT, Task, other_format
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.system import LDPBayes

_HALF: Final = 0.5
FREQUENCY_BINS: Final = 8
MINIMUM_REPORTS: Final = 1000  # at ε = 1, the shares of four answers are then within about ±0.09
_PUBLISHED: Final = "survey"
"""The key of the table `protocol` in a published task, as in all earlier versions."""
_MEANS: Final = {"approach": "one-bit"}
"""The mechanism for means, which tasks named until it was the only one."""


def _is_unset(value: object) -> bool:
    return value is None


class SurveySection(Section):
    """The questions to the clients, and the mechanisms that protect the answers.

    Attributes:
        name: `ldp-bayes`.
        kind: `frequency` of the values of each column, of which a client answers one at random;
            `words` that are frequent in one column and need no list; `means` of columns; or naive
            Bayes.
        epsilon: The maximum epsilon of a client's single report.
        oracle: The frequency oracle for values; `auto` chooses the best one for each domain.
        bins: The number of equal parts of a range for questions about values; 8 for `frequency` by
            default.
        longest: For `words`: the number of bytes that count; 6 by default, as more have no meaning.
        changes: For `frequency` in rounds, with answers that may change: `loloha`, or for few
            values `l-osue`. A client keeps permanent answers, and epsilon is that of its first
            report.
        permanent: For `changes`: the maximum epsilon of a permanent answer, above epsilon.
        round: For `changes`: the name of the round. Terms that differ only in it and in `closes`
            are one series, for which a client is charged once.
        minimum: The number of reports that the collector's estimates need. It is not part of the
            task, so it may be changed at any time.
        closes: The time after which no new report is accepted.
    """

    name: Literal["ldp-bayes"] = Field("ldp-bayes", exclude=True)
    kind: Literal["frequency", "words", "means", "discrete-bayes", "gaussian-bayes"]
    epsilon: float = same_field(LDPBayes, "epsilon", required=True)
    oracle: OracleName = same_field(LDPBayes, "oracle")
    bins: int = same_field(LDPBayes, "bins")
    longest: int | None = Field(None, ge=2, le=WORD_BYTES_MAX, exclude_if=_is_unset)
    changes: Literal["loloha", "l-osue"] | None = Field(None, exclude_if=_is_unset)
    permanent: float | None = Field(None, gt=0, le=REPORT_EPSILON_MAX, exclude_if=_is_unset)
    round: str | None = Field(None, min_length=1, exclude_if=_is_unset)
    minimum: int = Field(MINIMUM_REPORTS, ge=1)
    closes: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description="a date and time with its zone, such as 2027-01-31T00:00:00Z"
    )

    @model_validator(mode="before")
    @classmethod
    def _suit_the_kind(cls, given: Any) -> Any:  # noqa: ANN401  (a file may contain anything)
        """Show more bins than a classifier needs, and whole words, unless the file sets them."""
        kind = given.get("kind") if isinstance(given, dict) else None
        if kind == "frequency":
            return {"bins": FREQUENCY_BINS, **given}
        return {"longest": WORD_BYTES_MAX, **given} if kind == "words" else given

    @property
    def is_numeric(self) -> bool:
        """Whether columns are treated as numbers, with one-hot categories."""
        return self.kind in {"means", "gaussian-bayes"}


def domain_of(section: SurveySection, feature: FeatureTerms) -> int:
    """Return the number of values of a column for questions about values."""
    return len(feature.categories) or section.bins


def name_bins(low: float, high: float, bins: int) -> tuple[str, ...]:
    """Return the name of each equal part of a range, such as `0 to 10`."""
    ends = [low + (high - low) * n / bins for n in range(bins + 1)]
    return tuple(f"{one:g} to {two:g}" for one, two in pairwise(ends))


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

    system: ClassVar[type[LDPBayes]] = LDPBayes
    protocol: SurveySection
    classes: Words = Field((), description="a list of different names of classes")
    features: FeatureList

    @cached_property
    def task(self) -> Task:
        """The task that an aggregator publishes."""
        closes = self.protocol.closes
        # `minimum` protects no client: each report is private however many there are.
        terms = self.model_dump(mode="json", exclude={"protocol": {"minimum"}})
        return Task(
            terms={_PUBLISHED: terms.pop("protocol"), **terms},
            survey=self._survey(),
            closes=None if closes is None else closes.timestamp(),
        )

    def _survey(self) -> Survey:
        section = self.protocol
        if section.longest is not None:
            return WordSurvey(section.longest, section.epsilon)
        if section.changes is not None and section.permanent is not None:
            domain = domain_of(section, self.features[0])
            oracle = MEMOISED[section.changes](domain, section.epsilon, section.permanent)
            return FrequencySurvey((oracle,))
        numeric = section.is_numeric
        step = Scaling(ranges_of(self.features)) if numeric else bins_of(section, self.features)
        return make_survey(step, len(self.classes) or None, section.epsilon, section.oracle)

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        section = self.protocol
        if (section.longest is None) == self.is_of_words:
            raise ScenarioError.because(
                'longest is for kind = "words" only; leave it out', field="protocol.longest"
            )
        self._check_changes()
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
        if (self.is_of_words or section.changes is not None) and len(self.features) > 1:
            raise ScenarioError.because(
                "a survey of words, or of answers that change, asks one question, and there are"
                f" {len(self.features)} columns; write one file of terms for each",
                field="features",
            )
        for feature in self.features:
            if feature.meaning not in {"number", "category"}:
                key = f"features.{feature.name}.kind"
                raise ScenarioError(key, feature.meaning, "number or category, in a survey")
            if len(feature.categories) == 1 and not section.is_numeric:
                key = f"features.{feature.name}.categories"
                raise ScenarioError(key, list(feature.categories), "two or more categories")
        with as_scenario_errors({}, "protocol"):
            _ = self.task
        return self

    def _check_changes(self) -> None:
        section = self.protocol
        if section.changes is None and (section.permanent, section.round) == (None, None):
            return
        if section.changes is None or not self.is_frequency:
            raise ScenarioError.because(
                'permanent and round are for changes = "loloha" or "l-osue" only, and these for'
                ' kind = "frequency"',
                field="protocol.changes",
            )
        if section.permanent is None or section.round is None:
            missing = "permanent" if section.permanent is None else "round"
            raise ScenarioError.because(
                f"a survey with changes needs permanent and round; {missing} is missing",
                field=f"protocol.{missing}",
            )

    @cached_property
    def series(self) -> bytes:
        """The hash that the terms of all rounds of a series have."""
        content = self.model_dump(mode="json", exclude={"protocol": {"minimum", "round", "closes"}})
        return hashlib.sha256(b"series" + canonical_json(content)).digest()

    def read_clients(self, path: Path) -> ClientPool:
        """Read the rows of clients: all columns of the terms, and the label as the last column."""
        return self.clients_of(matched(read_file(path), self.features))

    def clients_of(self, cells: Cells) -> ClientPool:
        """Return clients from the cells of a file that was already read, like `read_clients`."""
        rows = np.hstack(all_of(partial(self._encode, each, cells) for each in self.features))
        if not self.classes:
            return ClientPool(rows, np.zeros(len(rows), dtype=np.int64))
        return ClientPool(rows, read_labels(cells, self.classes))

    def _encode(self, feature: FeatureTerms, cells: Cells) -> Floats | Ints:
        if self.protocol.longest is not None:
            return _words(cells, feature.name, self.protocol.longest)[:, None]
        if not feature.categories:
            numbers = read_numbers(feature, cells)[:, None]
            return bins_of(self.protocol, (feature,))(numbers) if self.is_frequency else numbers
        places = read_categories(feature, cells)
        return np.eye(feature.width)[places] if self.protocol.is_numeric else places[:, None]

    @property
    def is_frequency(self) -> bool:
        """Whether the survey counts the values of columns."""
        return self.protocol.kind == "frequency"

    @property
    def is_of_words(self) -> bool:
        """Whether the survey finds frequent words of one column, whose cells are any text."""
        return self.protocol.kind == "words"


def _words(cells: Cells, column: str, longest: int) -> Ints:
    words = cells.texts[column]
    if gaps := [row for row, word in enumerate(words) if cells.is_gap(word)]:
        where = cells.at(column, gaps[0])
        raise InputError.because(f"{where} is empty; fill it in, or remove the row", field=where)
    return word_numbers(words, longest)


def read_published(encoded: bytes, collector: str) -> SurveyTerms:
    """Decode a task that a collector published, and derive it again from its terms.

    Raises:
        HandshakeError: If the task has the format or the mechanisms of another version of veilring.
        ProtocolViolation: If its terms do not give exactly the published numbers.
    """
    if found := other_format(encoded):
        raise HandshakeError(
            collector,
            f"its task has {found}, but this veilring reads format {TASK_FORMAT}; use the same"
            f" version of veilring at {collector} and here",
        )
    try:
        content = {**json.loads(encoded)["terms"]}
        content["protocol"] = content.pop(_PUBLISHED)
        terms = SurveyTerms.model_validate_json(json.dumps(content)).checked()
    except (ValidationError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"published an unreadable task ({type(error).__name__})"
        raise ProtocolViolation(collector, reason) from None
    if terms.task.encoded != encoded:
        numbers = json.loads(encoded).get("numbers", {})
        if numbers.get("version", 1) != terms.task.survey.version:
            raise HandshakeError(
                collector,
                f"its task has other mechanisms for {terms.protocol.kind}; use the same version of"
                f" veilring at {collector} and here",
            )
        raise ProtocolViolation(
            collector, "published parameters that do not follow from its own terms"
        )
    return terms


def former_digest(task: Task) -> bytes:
    """Return the hash of the same task in versions that named the mechanism for means."""
    section = {**task.terms[_PUBLISHED], **_MEANS}
    return Task({**task.terms, _PUBLISHED: section}, task.survey, task.closes).digest


def renamed_task(encoded: bytes) -> bytes:
    """Return today's encoding of a task that names the mechanism for means."""
    content = json.loads(encoded)
    section = content["terms"].get(_PUBLISHED, {})
    if section.items() >= _MEANS.items():
        content["terms"][_PUBLISHED] = {key: section[key] for key in section.keys() - _MEANS.keys()}
    return canonical_json(content)


def closing_time(terms: SurveyTerms) -> str:
    """Format the closing time of a collection, for people."""
    closes = terms.protocol.closes
    return f"closes {closes.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC" if closes else "never closes"
