"""No noise: the ceiling that private answers are compared with, on the very same path."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles.numerals import counted, decoded, encoded, width_of
from veilring.protocols.ldp.algorithm.oracles.oracle import require_values
from veilring.protocols.ldp.algorithm.randomiser import (
    CONFIDENCE,
    Estimate,
    LocalRandomiser,
    Reports,
    Sums,
    normal_estimate,
    require_sums,
)
from veilring.protocols.ldp.algorithm.survey import Survey, Tally, tally


@dataclass(frozen=True)
class PlainOracle(LocalRandomiser):
    """The client's value itself. It hides nothing.

    Attributes:
        domain: How many values there are, at least 1.
    """

    domain: int

    name: ClassVar[str] = "plain"

    def __post_init__(self) -> None:
        """Refuse a domain without values."""
        if self.domain < 1:
            raise InputError("domain", self.domain, "an integer of at least 1")

    @property
    @override
    def exact_epsilon(self) -> float:
        return inf

    @property
    @override
    def report_bytes(self) -> int:
        return width_of(self.domain)

    @property
    @override
    def cells(self) -> int:
        return self.domain

    @property
    @override
    def entries(self) -> int:
        return self.domain

    @property
    @override
    def public(self) -> Mapping[str, int | str]:
        return {"oracle": self.name, "domain": self.domain}

    @override
    def perturb(self, values: NDArray[Any], rng: Generator) -> Reports:
        return encoded(require_values(values, self.domain), self.report_bytes)

    @override
    def _fits(self, reports: Reports) -> NDArray[np.bool_]:
        return decoded(reports) < self.domain

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return counted(reports, self.domain)

    @override
    def rough(self, sums: Sums, clients: int) -> NDArray[np.bool_]:
        return np.zeros(self.domain, dtype=np.bool_)

    @override
    def estimate(self, sums: Sums, clients: int, *, confidence: float = CONFIDENCE) -> Estimate:
        require_sums(sums, self.cells, clients, low=0, high=clients)
        return normal_estimate(sums / clients, np.zeros(self.domain), clients, confidence)


def census(survey: Survey, rows: NDArray[Any], labels: NDArray[np.int64], rng: Generator) -> Tally:
    """Return the tally of all clients' answers to all questions, without noise.

    Raises:
        InputError: If the survey has noise: the losses of a client's answers would add up.
    """
    if any(question.exact_epsilon < inf for question in survey.questions):
        raise InputError("survey", "one with noise", "one whose questions are all plain")
    values, classes = survey.judged(rows, labels)
    reports = [
        question.perturb(survey.told(values, classes, number), rng)
        for number, question in enumerate(survey.questions)
    ]
    return tally(survey, reports)
