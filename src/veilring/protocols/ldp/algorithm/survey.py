"""Surveys: questions, of which each client answers one, and the tally of the answers.

A client draws its question itself, from a public distribution that does not depend on its data,
encodes its row for that question, and perturbs the result. The aggregator keeps one sum and one
count per question.

Source of the two surveys for naive Bayes: Yilmaz, Al-Rubaie and Chang, 2019, Sections 3.1 and 3.2.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.privacy.checks import floats
from veilring.protocols.ldp.algorithm.changing import MemoisedOracle, Memos
from veilring.protocols.ldp.algorithm.codes import require_normalised
from veilring.protocols.ldp.algorithm.means import Means, make_means
from veilring.protocols.ldp.algorithm.oracles import MakeOracle, make_oracle
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser, Reports, Sums
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling, Step, apply_steps, require_columns

ValidRows: TypeAlias = tuple[NDArray[Any], Ints]
"""Rows after public steps with every cell checked, and the class of each row."""


class Survey(ABC):
    """The questions to clients; frozen. Subclasses are for frequencies, means and naive Bayes.

    Attributes:
        version: The version of the mechanisms, which tasks state from 2 on.
        steps: The public steps that are applied to each row first; empty by default.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    steps: tuple[Step, ...] = ()

    @property
    @abstractmethod
    def questions(self) -> tuple[LocalRandomiser, ...]:
        """The randomiser of each question."""

    @property
    def public(self) -> Mapping[str, Any]:
        """The definition of the survey, as plain data: part of the task's hash."""
        versioned = {"version": self.version} if self.version > 1 else {}
        return {
            **versioned,
            "survey": self.name,
            "steps": [dict(step.public) for step in self.steps],
            "questions": [dict(question.public) for question in self.questions],
        }

    @property
    def exact_epsilon(self) -> float:
        """The greatest loss of one answer to any question."""
        return max(question.exact_epsilon for question in self.questions)

    @property
    def memoised(self) -> MemoisedOracle | None:
        """The only question, if its clients keep permanent answers (memoisation)."""
        only = self.questions[0]
        return only if isinstance(only, MemoisedOracle) else None

    @abstractmethod
    def validated(self, rows: NDArray[Any], labels: Ints) -> ValidRows:
        """Check every cell of rows, and return the rows in the form that the questions use.

        The whole row is checked for every question. If only the drawn cell were checked, the
        questions that a client never answers would reveal something about its row.
        """

    def encode(
        self,
        values: NDArray[Any],
        classes: Ints,  # noqa: ARG002  (a subclass's own)
        question: int,  # noqa: ARG002  (likewise)
    ) -> NDArray[Any]:
        """Return each client's true answer to a question; by default its row."""
        return values


@dataclass(frozen=True)
class FrequencySurvey(Survey):
    """A survey of the frequency of each value of each column, of which a client answers one."""

    oracles: tuple[LocalRandomiser, ...]

    name: ClassVar[str] = "frequency"

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return self.oracles

    @override
    def validated(self, rows: NDArray[Any], labels: Ints) -> ValidRows:
        require_columns(rows, len(self.oracles))
        columns = enumerate(self.oracles)
        checked = [whole_numbers(rows[:, at], oracle.entries, at) for at, oracle in columns]
        return np.column_stack(checked), labels

    @override
    def encode(self, values: NDArray[Any], classes: Ints, question: int) -> NDArray[Any]:
        return np.asarray(values[:, question])


@dataclass(frozen=True)
class MeanSurvey(Survey):
    """A survey of the mean of each feature over all clients, clipped to [-1, 1] after the steps."""

    means: Means
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "means"
    version: ClassVar[int] = 2  # of a number: one bit until 1

    def __post_init__(self) -> None:
        if self.means.classes > 1:
            raise InputError.because(
                "a survey of means takes no classes; these means are taken within "
                f"{self.means.classes}",
                field="means",
            )

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return (self.means,)

    @override
    def validated(self, rows: NDArray[Any], labels: Ints) -> ValidRows:
        numbers = np.clip(floats("rows", apply_steps(self.steps, rows)), -1.0, 1.0)
        require_normalised(numbers)
        return numbers, labels


@dataclass(frozen=True)
class DiscreteBayesSurvey(Survey):
    """A survey for naive Bayes over discrete features (Section 3.1).

    A client reports its class, or one of its features together with its class. Question 0 is the
    class. Question i is feature i, from 1, and value and class are encoded as one number: `a *
    classes + v`, which is the paper's `(a_i - 1) k + v` counted from 0. The steps give values
    numbered from 0.
    """

    domains: tuple[int, ...]
    classes: int
    oracles: tuple[LocalRandomiser, ...]
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "discrete-bayes"

    def __post_init__(self) -> None:
        if self.classes < 1 or min(self.domains, default=1) < 1:
            raise InputError.because(
                "domains and classes must be integers of at least 1", field="domains, classes"
            )
        needed = (self.classes, *(self.classes * values for values in self.domains))
        given = tuple(oracle.entries for oracle in self.oracles)
        if len(given) != len(needed) or any(a < b for a, b in zip(given, needed, strict=True)):
            raise InputError.because(
                f"the oracles have the domains {given}; {needed} are needed", field="oracles"
            )

    @classmethod
    def of(
        cls, domains: Sequence[int], classes: int, make: MakeOracle, steps: tuple[Step, ...] = ()
    ) -> Self:
        """Return the survey whose oracles are all of one kind.

        Each has a domain of at least 2: a single value needs no protection.
        """
        sizes = (classes, *(classes * values for values in domains))
        oracles = tuple(make(max(2, size)) for size in sizes)
        return cls(tuple(domains), classes, oracles, steps)

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return self.oracles

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {**super().public, "domains": list(self.domains), "classes": self.classes}

    @override
    def validated(self, rows: NDArray[Any], labels: Ints) -> ValidRows:
        classes = whole_numbers(labels, self.classes, "label")
        values = apply_steps(self.steps, rows)
        require_columns(values, len(self.domains))
        columns = [
            whole_numbers(values[:, at], domain, at) for at, domain in enumerate(self.domains)
        ]
        return np.column_stack((classes, *columns)), classes

    @override
    def encode(self, values: NDArray[Any], classes: Ints, question: int) -> NDArray[Any]:
        if question == 0:
            return classes
        return np.asarray(values[:, question] * self.classes + classes)


@dataclass(frozen=True)
class GaussianBayesSurvey(Survey):
    """A survey for Gaussian naive Bayes (Section 3.2).

    A client reports its class, a feature, or a feature's square. Question 0 is the class. Questions
    1 and 2 are the features and their squares, each as a vector that is 0 except at the client's
    class; with `SampledFeature` the client also draws the feature. Each client answers only one
    question, because all are about the same row. The result of the steps is clipped to [-1, 1].
    """

    oracle: LocalRandomiser
    means: Means
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "gaussian-bayes"
    version: ClassVar[int] = MeanSurvey.version

    def __post_init__(self) -> None:
        if self.oracle.entries < self.means.classes:
            raise InputError.because(
                f"the oracle is for {self.oracle.entries} values; there are "
                f"{self.means.classes} classes",
                field="oracle",
            )

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return (self.oracle, self.means, self.means)

    @override
    def validated(self, rows: NDArray[Any], labels: Ints) -> ValidRows:
        classes = whole_numbers(labels, self.means.classes, "label")
        numbers = np.clip(floats("rows", apply_steps(self.steps, rows)), -1.0, 1.0)
        require_columns(numbers, self.means.features)
        require_normalised(numbers)
        return numbers, classes

    @override
    def encode(self, values: NDArray[Any], classes: Ints, question: int) -> NDArray[Any]:
        if question == 0:
            return classes
        moments = values if question == 1 else values**2
        return moments if self.means.classes == 1 else np.column_stack((moments, classes))


def make_survey(step: Bins | Scaling, classes: int | None, epsilon: float, oracle: str) -> Survey:
    """Return the survey of values (bins) or of scaled numbers, within classes for naive Bayes.

    Args:
        step: The public step that a client applies to its row. The clients of a survey of
            frequencies apply it themselves.
        classes: The number of classes; None for a survey of frequencies or means.
        epsilon: The maximum ε of a report; infinite for no noise.
    """
    make = make_oracle(oracle, epsilon)
    if isinstance(step, Bins):
        if classes is None:
            return FrequencySurvey(tuple(map(make, step.counts)))
        return DiscreteBayesSurvey.of(step.counts, classes, make, (step,))
    means = make_means(epsilon, len(step.ranges), 1 if classes is None else classes)
    if classes is None:
        return MeanSurvey(means, (step,))
    return GaussianBayesSurvey(make(max(2, classes)), means, (step,))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Perturbed reports, by question."""

    reports: tuple[Reports, ...]
    clients: tuple[Ints, ...]

    def __iter__(self) -> Iterator[tuple[int, Reports]]:
        return iter(enumerate(self.reports))


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The sums of each question and the number of reports behind them."""

    sums: tuple[Sums, ...]
    counts: tuple[int, ...]

    def __add__(self, other: Self) -> "Tally":
        return Tally(
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
        )

    @classmethod
    def of(cls, survey: Survey, reports: Iterable[tuple[int, Reports]]) -> Self:
        """Return the tally of accepted reports, in groups with their question."""
        sums = [np.zeros(each.cells, dtype=np.int64) for each in survey.questions]
        counts = [0] * len(sums)
        for question, some in reports:
            sums[question] += survey.questions[question].aggregate(some)
            counts[question] += len(some)
        return cls(tuple(sums), tuple(counts))

    @classmethod
    def empty(cls, survey: Survey) -> Self:
        """Return an empty tally."""
        return cls.of(survey, ())

    @property
    def clients(self) -> int:
        """The number of reports to all questions."""
        return sum(self.counts)


def answer(
    survey: Survey, rows: NDArray[Any], labels: Ints, rng: Generator, *, memos: Memos | None = None
) -> Answers:
    """Return one perturbed report for each client, to the question that it drew.

    Args:
        rng: The clients' secret randomness.
        memos: The clients' permanent answers, if they keep them; by default they are new.
    """
    values, classes = survey.validated(rows, labels)
    drawn = rng.integers(len(survey.questions), size=len(labels))
    clients = [np.flatnonzero(drawn == number) for number in range(len(survey.questions))]
    if memos is not None and survey.memoised is not None:
        reports = survey.memoised.again(memos, survey.encode(values, classes, 0), rng)
        return Answers((reports,), tuple(clients))
    said = [
        each.perturb(survey.encode(values[who], classes[who], number), rng)
        for number, (each, who) in enumerate(zip(survey.questions, clients, strict=True))
    ]
    return Answers(tuple(said), tuple(clients))


def tally_reports(survey: Survey, reports: Sequence[Reports]) -> Tally:
    """Return the tally of accepted reports, given by question."""
    return Tally.of(survey, enumerate(reports))


def census(survey: Survey, rows: NDArray[Any], labels: Ints, rng: Generator) -> Tally:
    """Return the tally of all clients' answers to all questions, without noise."""
    if any(question.exact_epsilon < inf for question in survey.questions):
        raise InputError.because("`census()` needs a survey without noise", field="survey")
    values, classes = survey.validated(rows, labels)
    reports = [
        question.perturb(survey.encode(values, classes, number), rng)
        for number, question in enumerate(survey.questions)
    ]
    return tally_reports(survey, reports)


def whole_numbers(values: NDArray[Any], count: int, column: int | str) -> Ints:
    """Return values as integers from 0 to `count - 1`."""
    field, allowed = f"column {column}", f"integers from 0 to {count - 1}"
    given = floats(field, values, allowed)
    with np.errstate(invalid="ignore"):  # values that are not finite are rejected
        numbers = given.astype(np.int64)
    is_wrong = (numbers != given) | (numbers < 0) | (numbers >= count)
    if is_wrong.any():
        raise InputError.because(f"{field} must hold {allowed}", field=field)
    return numbers
