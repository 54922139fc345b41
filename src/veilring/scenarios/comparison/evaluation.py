"""Accuracy of a system on one split, for comparisons and for tuning.

Labels come from `Setup.label`: the vectorised steps that parties run, without their messages.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.classify import pooled_knn
from veilring.protocols.system import Setup, System
from veilring.randomness import Streams
from veilring.scenarios.comparison.question import Question
from veilring.scenarios.comparison.splits import DealtSplit

Labels = NDArray[np.int64]


class Labeller(Protocol):
    """Anything that labels held-out rows: a system at an ε, or a baseline."""

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The name, the form and the ε, which identify it."""

    def label(self, split: DealtSplit, question: Question) -> Labels:
        """Return the labels of the first held-out rows, in the number that the question gives."""


@dataclass(frozen=True, slots=True)
class SystemAt:
    """A system with its parameters.

    Attributes:
        system: The system.
        form: The form of the system, if it has several.
    """

    system: System
    form: str = ""

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The name, the form and the ε."""
        return self.system.name, self.form, getattr(self.system, "epsilon", None)

    @property
    def asks_all(self) -> bool:
        """Whether all held-out rows are queried, because further queries cost no privacy."""
        return self.system.is_lasting or not self.system.is_bounded()

    def label(self, split: DealtSplit, question: Question) -> Labels:
        """Label batch by batch, each under the whole ε of the system.

        Args:
            question: The number of queries of a batch, and the seed of all noise. Other parameters
                of the same system meet the same noise.

        Raises:
            InputError: If the parameters do not fit the rows.
        """
        streams, (system, form, epsilon) = Streams(question.seed), self.key
        name = ("comparison", system, form, str(epsilon), split.number)
        asked = [split.held_out] if self.asks_all else split.batches(question.queries)
        setup, labels = self.set_up(split, len(asked[0])), list[Labels]()
        for number, batch in enumerate(asked):
            rng = streams.generator(*name, number)
            labels += [setup.label(part, rng) for part in setup.batches(batch.X)]
        return np.concatenate(labels)

    def set_up(self, split: DealtSplit, queries: int) -> Setup:
        """Give the rows of a split to parties that will be asked the given number of queries."""
        return self.system.setup(split.parts, replace(split.facts, queries=queries))


@dataclass(frozen=True, slots=True)
class Right:
    """Whether the baselines label each held-out row correctly, shape (rows,) each.

    Attributes:
        pooled: Whether the pooled classifier is right.
        majority: Whether the majority class of the training rows is right.
    """

    pooled: NDArray[np.bool_]
    majority: NDArray[np.bool_]

    @classmethod
    def on(cls, split: DealtSplit, k: int) -> "Right":
        """Return the correct answers of the baselines on a split.

        Args:
            k: The number of neighbours that vote.
        """
        train, held_out = split.train, split.held_out
        classes = len(train.features.classes)
        pooled = pooled_knn(held_out.X, train.X, train.y, classes, k)
        most = np.bincount(train.y).argmax()
        return cls(pooled == held_out.y, most == held_out.y)


@dataclass(frozen=True, slots=True)
class Marks:
    """The shares of the same queries that were labelled correctly.

    Attributes:
        own: The share for the system.
        pooled: The share for the pooled classifier.
        majority: The share for the majority class.
        queries: The number of those queries.
    """

    own: float
    pooled: float
    majority: float
    queries: int


def mark(contender: Labeller, split: DealtSplit, question: Question, right: Right) -> Marks:
    """Return the accuracy of a system on a split, and of the baselines on the same queries.

    Raises:
        InputError: If its parameters do not fit the rows.
    """
    labels = contender.label(split, question)
    asked = slice(len(labels))
    own = labels == split.held_out.y[asked]
    return Marks(
        own=float(own.mean()),
        pooled=float(right.pooled[asked].mean()),
        majority=float(right.majority[asked].mean()),
        queries=len(labels),
    )
