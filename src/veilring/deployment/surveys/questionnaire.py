"""The questions of a survey, and the reports that follow from them for each kind of trust.

One file has the questions. If people trust nobody, each of them answers one question with a noisy
report to a collector. If people trust that one of two aggregators is honest, each report answers
all questions: it is a vector of bits, one for each possible answer, and one ε covers all of it.
"""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, get_args

from pydantic import AwareDatetime, Field, ValidationError

from veilring.config import Section, read_tables, require_key, require_key_that, scenario_error
from veilring.data.cells import Words
from veilring.data.columns import FeatureTerms, require_different
from veilring.deployment.surveys.terms import (
    FREQUENCY_BINS,
    MINIMUM_REPORTS,
    SurveySection,
    name_bins,
)
from veilring.errors import ScenarioError
from veilring.privacy.checks import require_that
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.prio.task import Vdaf

Trusted = Literal["nobody", "one of two aggregators"]
"""The kinds of trust for which a survey can be deployed."""
TIME_PRECISION: Final = 3600
"""The times of reports are rounded down to hours, which reveal little about a person."""
NOBODY, AGGREGATED = get_args(Trusted)
YES_OR_NO: Final = ("yes", "no")


_KEYS: Final[Mapping[str, tuple[AbstractSet[str], AbstractSet[str]]]] = {
    "single-choice": ({"answers"}, set()),
    "multiple-choice": ({"answers"}, {"most"}),
    "yes-no": (set(), set()),
    "number": ({"low", "high"}, {"unit"}),
}
"""The further keys of each kind of question: those that are required, and the others."""


class Entry(NamedTuple):
    """A possible answer: one number of a total."""

    question: str
    answer: str


class Question(Section):
    """A question of a survey.

    Attributes:
        name: The short name, which is also the header of a column.
        text: The question as people read it.
        kind: The kind; ordered answers are a `single-choice` whose `answers` are in order.
        answers: The possible answers of a choice, in the order in which people see them.
        most: The largest number of answers that a person may choose, for `multiple-choice`; by
            default all.
        low: The minimum, for `number`.
        high: The maximum, for `number`.
        unit: The unit of a number, for people.
    """

    name: str = Field(min_length=1)
    text: str = Field(min_length=1)
    kind: Literal["single-choice", "multiple-choice", "yes-no", "number"] = "single-choice"
    answers: Words = Field((), description="a list of two or more different texts, for a choice")
    most: int | None = Field(None, ge=1)
    low: float | None = None
    high: float | None = None
    unit: str = ""

    def check(self) -> None:
        """Refuse keys that do not belong to the kind, and values that do not fit each other."""
        key, given = f"questions.{self.name}", self.model_fields_set - {"name", "text", "kind"}
        due, more = _KEYS[self.kind]
        keys = ", ".join(("name", "text", *sorted(due), *sorted(more)))
        said = f"a question of the kind {self.kind} has the keys {keys}"
        require_key_that(due <= given <= due | more, key, said)
        require_different(f"{key}.answers", self.answers)
        fits = "answers" not in due or len(self.answers) > 1
        require_key(fits, f"{key}.answers", list(self.answers), "two or more texts")
        fits = self.most is None or self.most <= len(self.answers)
        require_key(fits, f"{key}.most", self.most, f"at most {len(self.answers)}, as answers")
        low, high = self.range
        require_key("low" not in due or low < high, f"{key}.high", high, f"above low ({low:g})")

    @property
    def range(self) -> tuple[float, float]:
        """The minimum and the maximum of a number."""
        return self.low or 0.0, self.high or 0.0

    def options(self, bins: int) -> tuple[str, ...]:
        """Return the name of each possible answer; of a number, the parts of its range."""
        if self.kind == "number":
            return name_bins(*self.range, bins)
        return self.answers or YES_OR_NO

    @property
    def weight(self) -> int:
        """The largest number of answers that a person may choose."""
        return (self.most or len(self.answers)) if self.kind == "multiple-choice" else 1

    def choices(self, given: Any, bins: int) -> tuple[int, ...]:  # noqa: ANN401  (checked here)
        """Return the places of a person's answers among the options.

        Raises:
            InputError: If the answer is not one that people may give.
        """
        key, options = f"questions.{self.name}", self.options(bins)
        if self.kind == "number":
            low, high = self.range
            fits = isinstance(given, int | float) and low <= given <= high
            require_that(fits, key, f"an answer is a number from {low:g} to {high:g}")
            return (min(math.floor((given - low) / (high - low) * bins), bins - 1),)
        chosen = list(given) if self.kind == "multiple-choice" else [given]
        fits = all(each in options for each in chosen) and len(set(chosen)) == len(chosen)
        most = f"at most {self.weight}" if self.kind == "multiple-choice" else "one"
        said = f"a person answers with {most} of {', '.join(options)}"
        require_that(fits and len(chosen) <= self.weight, key, said)
        return tuple(map(options.index, chosen))

    @property
    def columns(self) -> tuple[FeatureTerms, ...]:
        """The columns of a file with people's answers: of a multiple choice, one an answer."""
        if self.kind == "number":
            low, high = self.range
            return (FeatureTerms(name=self.name, unit=self.unit, low=low, high=high),)
        if self.kind == "multiple-choice":
            names = (f"{self.name}={each}" for each in self.answers)
            return tuple(FeatureTerms(name=each, categories=YES_OR_NO) for each in names)
        return (FeatureTerms(name=self.name, categories=self.options(0)),)


class Form(Section):
    """The questions of a survey, as the people who answer see them.

    Attributes:
        title: The heading.
        about: The introduction: who asks, and what for.
        bins: The number of equal parts into which the range of a number is divided.
        questions: All questions, each a table.
    """

    title: str = Field(min_length=1)
    about: str = ""
    bins: int = Field(FREQUENCY_BINS, ge=2)
    questions: Annotated[tuple[Question, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of tables with the keys name, text and kind"
    )

    def checked(self) -> Self:
        """Return these questions after checking them."""
        require_different("questions", [each.name for each in self.questions])
        for each in self.questions:
            each.check()
        return self

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All possible answers to all questions, in the order of a report."""
        return tuple(
            Entry(each.name, answer)
            for each in self.questions
            for answer in each.options(self.bins)
        )

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The place of the first answer to each question among all entries."""
        sizes = (len(each.options(self.bins)) for each in self.questions)
        return tuple(accumulate(sizes, initial=0))[:-1]

    def measurement(self, answers: Mapping[str, Any]) -> int | list[int]:
        """Return the measurement of a person's report, as the page makes it.

        It is the place of the only answer, or one bit for each entry.

        Args:
            answers: By the name of each question, the text of an answer, a list of texts for a
                `multiple-choice`, or a number.

        Raises:
            InputError: If an answer is missing, or is not one that people may give.
        """
        names = [each.name for each in self.questions]
        said = f"the questions are {', '.join(names)}; answer all of them, and no others"
        require_that(set(answers) == set(names), "answers", said)
        bits = [0] * len(self.entries)
        for first, each in zip(self.firsts, self.questions, strict=True):
            for place in each.choices(answers[each.name], self.bins):
                bits[first + place] = 1
        return bits.index(1) if self.vdaf.kind == "histogram" else bits

    @property
    def norm(self) -> int:
        """The largest number of answers of a person: the L1 norm of a report."""
        return sum(each.weight for each in self.questions)

    @property
    def vdaf(self) -> Vdaf:
        """The kind of the reports.

        A histogram proves that a report has one answer. Several answers need a vector of bits.
        """
        length = len(self.entries)
        chunk = math.isqrt(length - 1) + 1
        if len(self.questions) == self.norm == 1 and self.questions[0].kind != "multiple-choice":
            return Vdaf(kind="histogram", length=length, chunk_length=chunk)
        return Vdaf(kind="sumvec", bits=1, length=length, chunk_length=chunk)

    @property
    def task(self) -> dict[str, Any]:
        """The keys of a verified sum's task that follow from the questions."""
        fields = set(Form.model_fields)
        return {
            "vdaf": self.vdaf.model_dump(exclude_none=True),
            "norm": self.norm,
            "terms": self.model_dump(mode="json", include=fields, exclude_defaults=True),
        }

    @classmethod
    def of_terms(cls, terms: Mapping[str, Any]) -> Self | None:
        """Return the questions in the terms of a task, if it has any.

        Raises:
            ScenarioError: If they are no questions of this kind.
        """
        return cls.of(terms) if "questions" in terms else None

    @classmethod
    def of(cls, tables: Mapping[str, Any]) -> Self:
        """Return checked questions of a file's tables; errors name a question by its name.

        Raises:
            ScenarioError: If a key is wrong.
        """
        try:
            return cls.model_validate(tables).checked()
        except ValidationError as error:
            raised = scenario_error(error, cls)
        first, *others = (
            ScenarioError.of(each, _by_name(each.field, tables))
            for each in (raised, *raised.others)
        )
        raise first.with_others(others)


def _by_name(key: str, tables: Mapping[str, Any]) -> str:
    """Return the key of a question with its name in place of its number, if it has one."""
    table, _, rest = key.partition(".")
    number, _, part = rest.partition(".")
    if table != "questions" or not number.isdecimal():
        return key
    name = tables["questions"][int(number)]
    name = name.get("name", number) if isinstance(name, Mapping) else number
    return f"questions.{name}.{part}".rstrip(".")


class Questionnaire(Form):
    """A file with the questions of a survey, and whom the people who answer have to trust.

    Attributes:
        trust: `nobody`, for noise that each person adds, or `one of two aggregators`.
        epsilon: The ε of a person's report, for all questions together.
        minimum: The number of reports that estimates need; of two aggregators, the number of
            reports in each total.
        closes: The time after which no report is accepted.
    """

    trust: Trusted = "one of two aggregators"
    epsilon: float = Field(LDPBayes().epsilon, gt=0)
    minimum: int = Field(MINIMUM_REPORTS, ge=1)
    closes: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description=str(SurveySection.model_fields["closes"].description)
    )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of questions.

        Raises:
            ScenarioError: If the file cannot be read, or a key is wrong.
        """
        return cls.of(read_tables(path))

    def warn(self, now: float) -> str:
        """Return a warning if people at the end would never be counted.

        Args:
            now: The time in seconds since 1970 (UTC).

        Raises:
            ScenarioError: If the survey has ended.
        """
        if self.closes is None:
            waits = f"the last people, fewer than {self.minimum:,}, are never counted; add its end"
            return f"closes: without it, {waits}" if self.trust == AGGREGATED else ""
        is_over = self.closes.timestamp() <= now
        require_key(not is_over, "closes", self.closes.isoformat(), "a time in the future")
        return ""

    @property
    def columns(self) -> tuple[FeatureTerms, ...]:
        """The columns of a file with people's answers."""
        return tuple(column for each in self.questions for column in each.columns)

    @property
    def survey_tables(self) -> dict[str, Any]:
        """The tables of the terms of a collection from people who trust nobody."""
        keys = ("epsilon", "minimum", "bins", "closes")
        protocol = {key: getattr(self, key) for key in keys}
        return {"protocol": {"kind": "frequency", **protocol}, "features": self.columns}

    @property
    def task(self) -> dict[str, Any]:
        """The keys of a verified sum's task, without the addresses of the aggregators."""
        return super().task | {
            "time_precision": TIME_PRECISION,
            "minimum": self.minimum,
            "closes": None if self.closes is None else int(self.closes.timestamp()),
            "epsilon": self.epsilon,
        }
