"""`Survey`: the questions of which each client answers one, and what comes of the answers.

A client draws its question itself, from a public law that does not depend on its data, encodes its
row as that question asks, and perturbs. The aggregator keeps one sum and one count a question.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser, Reports, Sums

Judged: TypeAlias = tuple[NDArray[Any], NDArray[np.int64]]
"""Rows whose every cell was judged, after public steps, and the class of each."""


class Survey(ABC):
    """What is asked; frozen. Its subclasses say what for: frequencies, naive Bayes, means."""

    @property
    @abstractmethod
    def questions(self) -> tuple[LocalRandomiser, ...]:
        """The randomiser of each question."""

    @property
    @abstractmethod
    def public(self) -> Mapping[str, Any]:
        """All that defines the survey, as plain data: part of the task's hash."""

    @abstractmethod
    def judged(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> Judged:
        """Return rows as the questions take them, after every cell of them was judged.

        A row is judged as a whole, whichever of its cells a question asks for: if only the cell
        that a client drew were judged, the questions that it never answers would tell of its row.

        Args:
            rows: One row a client.
            labels: The class of each.

        Raises:
            InputError: If a cell does not fit, in any column.
        """

    @abstractmethod
    def told(self, values: NDArray[Any], classes: NDArray[np.int64], question: int) -> NDArray[Any]:
        """Return the value that each client tells a randomiser, from rows that were judged.

        Args:
            values: One row a client, from `judged`.
            classes: The class of each.
            question: The number of the question.
        """

    def encode(self, rows: NDArray[Any], labels: NDArray[np.int64], question: int) -> NDArray[Any]:
        """Return what clients would say to a question if they had nothing to hide.

        Args:
            rows: One row a client.
            labels: The class of each.
            question: The number of the question.

        Raises:
            InputError: If a cell does not fit, in any column.
        """
        return self.told(*self.judged(rows, labels), question)

    @property
    def exact_epsilon(self) -> float:
        """What one answer spends, whichever question it is to."""
        return max(question.exact_epsilon for question in self.questions)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Perturbed reports, by question.

    Attributes:
        reports: For each question, the reports of the clients that drew it.
        clients: For each question, the positions of these clients among those that were asked.
    """

    reports: tuple[Reports, ...]
    clients: tuple[NDArray[np.int64], ...]

    def __iter__(self) -> Iterator[tuple[int, Reports]]:
        return iter(enumerate(self.reports))


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """What a collector knows: for each question the sums, and over how many reports.

    Attributes:
        sums: One array a question.
        counts: One number a question.
    """

    sums: tuple[Sums, ...]
    counts: tuple[int, ...]

    def __add__(self, other: Self) -> "Tally":
        return Tally(
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
        )

    @classmethod
    def empty(cls, survey: Survey) -> Self:
        """Return the tally of no reports."""
        zeros = tuple(np.zeros(each.cells, dtype=np.int64) for each in survey.questions)
        return cls(zeros, (0,) * len(zeros))

    @property
    def clients(self) -> int:
        """How many reports there are over all questions."""
        return sum(self.counts)


def answer(
    survey: Survey, rows: NDArray[Any], labels: NDArray[np.int64], rng: Generator
) -> Answers:
    """Return one perturbed report for each client, to the question that it drew.

    Args:
        survey: What is asked.
        rows: One row a client.
        labels: The class of each.
        rng: The clients' secret randomness.

    Raises:
        InputError: If a cell of a row does not fit, in any column; nothing was drawn then.
    """
    values, classes = survey.judged(rows, labels)
    drawn = rng.integers(len(survey.questions), size=len(labels))
    clients = [np.flatnonzero(drawn == number) for number in range(len(survey.questions))]
    reports = [
        each.perturb(survey.told(values[who], classes[who], number), rng)
        for number, (each, who) in enumerate(zip(survey.questions, clients, strict=True))
    ]
    return Answers(tuple(reports), tuple(clients))


def tally(survey: Survey, reports: Sequence[Reports]) -> Tally:
    """Return the tally of accepted reports, given by question."""
    pairs = zip(survey.questions, reports, strict=True)
    sums = tuple(randomiser.aggregate(each) for randomiser, each in pairs)
    return Tally(sums, tuple(map(len, reports)))
