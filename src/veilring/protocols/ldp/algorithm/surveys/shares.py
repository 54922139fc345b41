"""What is asked for one number a value or a feature: shares of a domain, and means."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.checks import floats
from veilring.protocols.ldp.algorithm.means import Means, SignVector
from veilring.protocols.ldp.algorithm.means.law import require_in_range
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.algorithm.steps import Step, prepared
from veilring.protocols.ldp.algorithm.survey import Judged
from veilring.protocols.ldp.algorithm.surveys.prepared import (
    PreparedSurvey,
    require_columns,
    whole,
)


@dataclass(frozen=True)
class FrequencySurvey(PreparedSurvey):
    """Which share of the clients holds each value of one attribute, the only column of the rows.

    Attributes:
        oracle: Over the attribute's values, numbered from 0.
    """

    oracle: LocalRandomiser

    name: ClassVar[str] = "frequency"

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return (self.oracle,)

    @override
    def judged(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> Judged:
        require_columns(rows, 1)
        return whole(rows[:, 0], self.oracle.entries, 0), labels

    @override
    def told(self, values: NDArray[Any], classes: NDArray[np.int64], question: int) -> NDArray[Any]:
        return values


@dataclass(frozen=True)
class MeanSurvey(PreparedSurvey):
    """The mean of each feature over all clients.

    Attributes:
        means: Of so many features.
        steps: What becomes of a row first; its result is cut to [-1, 1].

    Raises:
        InputError: If the means are within classes: labels are not asked for.
    """

    means: Means | SignVector
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "means"

    def __post_init__(self) -> None:
        """Refuse means within classes."""
        if isinstance(self.means, Means) and self.means.classes > 1:
            raise InputError("means", f"within {self.means.classes} classes", "without classes")

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return (self.means,)

    @override
    def judged(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> Judged:
        numbers = np.clip(floats("rows", prepared(self.steps, rows)), -1.0, 1.0)
        require_in_range(numbers)
        return numbers, labels

    @override
    def told(self, values: NDArray[Any], classes: NDArray[np.int64], question: int) -> NDArray[Any]:
        return values
