"""What is asked for the two kinds of naive Bayes.

Source: Yilmaz, Al-Rubaie and Chang, 2019, Sections 3.1 and 3.2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.checks import floats
from veilring.protocols.ldp.algorithm.means import Means
from veilring.protocols.ldp.algorithm.means.law import require_in_range
from veilring.protocols.ldp.algorithm.randomiser import LocalRandomiser
from veilring.protocols.ldp.algorithm.steps import Step, prepared
from veilring.protocols.ldp.algorithm.survey import Judged
from veilring.protocols.ldp.algorithm.surveys.prepared import (
    PreparedSurvey,
    require_columns,
    whole,
)

MakeOracle: TypeAlias = Callable[[int], LocalRandomiser]
"""Makes a frequency oracle for a domain of so many values."""


@dataclass(frozen=True)
class DiscreteBayesSurvey(PreparedSurvey):
    """A client tells its class, or one of its features together with its class (Section 3.1).

    Question 0 is the class. Question i is feature i, from 1, and value and class are encoded as one
    number: `a * classes + v`, which is the paper's `(a_i - 1) k + v` counted from 0.

    Attributes:
        domains: How many values each feature has, `n_i` of the paper.
        classes: How many there are, `k` of the paper.
        oracles: The class's, then each feature's with class.
        steps: What becomes of a row first; its result is values numbered from 0.

    Raises:
        InputError: If the oracles are not one for the class and one a feature, or one of them has
            too small a domain.
    """

    domains: tuple[int, ...]
    classes: int
    oracles: tuple[LocalRandomiser, ...]
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "discrete-bayes"

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if self.classes < 1 or min(self.domains, default=1) < 1:
            raise InputError("domains, classes", "below 1 in some place", "integers of at least 1")
        needed = (self.classes, *(self.classes * values for values in self.domains))
        given = tuple(oracle.entries for oracle in self.oracles)
        if len(given) != len(needed) or any(a < b for a, b in zip(given, needed, strict=True)):
            raise InputError("oracles", f"of domains {given}", f"one for each of {needed}")

    @classmethod
    def of(
        cls,
        domains: Sequence[int],
        classes: int,
        make: MakeOracle,
        steps: tuple[Step, ...] = (),
    ) -> Self:
        """Return the survey whose oracles are all made alike.

        Args:
            domains: How many values each feature has.
            classes: How many there are.
            make: Makes an oracle for so many values, at least 2: with one there is none to hide.
            steps: What becomes of a row first.
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
    def judged(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> Judged:
        classes = whole(labels, self.classes, "label")
        values = prepared(self.steps, rows)
        require_columns(values, len(self.domains))
        columns = [whole(values[:, at], domain, at) for at, domain in enumerate(self.domains)]
        return np.column_stack((classes, *columns)), classes

    @override
    def told(self, values: NDArray[Any], classes: NDArray[np.int64], question: int) -> NDArray[Any]:
        if question == 0:
            return classes
        return np.asarray(values[:, question] * self.classes + classes)


@dataclass(frozen=True)
class GaussianBayesSurvey(PreparedSurvey):
    """A client tells its class, or a feature, or a feature's square (Section 3.2).

    Question 0 is the class. Questions 1 and 2 are the features and their squares, each as a vector
    that is 0 but at the client's class; with `SampledFeature` the client also draws which feature.
    One client answers one of them only, since all are about the same row.

    Attributes:
        oracle: The class's.
        means: Of features within classes; the same for both questions.
        steps: What becomes of a row first; its result is cut to [-1, 1].

    Raises:
        InputError: If the oracle has too few values for the classes.
    """

    oracle: LocalRandomiser
    means: Means
    steps: tuple[Step, ...] = ()

    name: ClassVar[str] = "gaussian-bayes"

    def __post_init__(self) -> None:
        """Refuse an oracle that does not fit."""
        if self.oracle.entries < self.means.classes:
            given = f"for {self.oracle.entries} values"
            raise InputError("oracle", given, f"one for {self.means.classes} classes")

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return (self.oracle, self.means, self.means)

    @override
    def judged(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> Judged:
        classes = whole(labels, self.means.classes, "label")
        numbers = np.clip(floats("rows", prepared(self.steps, rows)), -1.0, 1.0)
        require_columns(numbers, self.means.features)
        require_in_range(numbers)
        return numbers, classes

    @override
    def told(self, values: NDArray[Any], classes: NDArray[np.int64], question: int) -> NDArray[Any]:
        if question == 0:
            return classes
        told = values if question == 1 else values**2
        return told if self.means.classes == 1 else np.column_stack((told, classes))


BayesSurvey: TypeAlias = DiscreteBayesSurvey | GaussianBayesSurvey
"""What a classifier can be learned from."""
