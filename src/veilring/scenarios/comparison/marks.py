"""The scores of all contenders, and of two baselines, on the same held-out rows of a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from veilring.arrays import Floats
from veilring.data.table import Table
from veilring.errors import InputError
from veilring.measures import NUMBERS, measure
from veilring.protocols.ring.algorithm.classify import pooled_knn, pooled_mean
from veilring.protocols.system import Scored
from veilring.scenarios.comparison.contenders import Contender
from veilring.scenarios.comparison.lines import MAJORITY, POOLED, Key, Left
from veilring.scenarios.comparison.question import DealtSplit, Question, draw_split
from veilring.scenarios.comparison.tuning import SystemAt


@dataclass(frozen=True, slots=True)
class Right:
    """The credit of the baselines for each held-out row, shape (rows,) each.

    Attributes:
        pooled: The credit of the nearest rows of all parties.
        majority: The credit of the majority class, or of the mean of all numbers.
        measures: The values of measures of each baseline, by its key.
    """

    pooled: Floats
    majority: Floats
    measures: Mapping[str, Mapping[str, float]]

    @classmethod
    def on(cls, split: DealtSplit, k: int) -> "Right":
        """Return the correct answers of the baselines on a split."""
        train, held_out = split.train, split.held_out
        if train.features.target is None:
            classes = len(train.features.classes)
            pooled = pooled_knn(held_out.X, train.X, train.y, classes, k)
            always = int(np.bincount(train.y).argmax())
        else:
            pooled = pooled_mean(held_out.X, train.X, train.y, k)
            always = round(float(train.y.mean()))
        most = np.full(len(held_out), always)
        measures = {
            key: _values(held_out, Scored(labels))
            for key, labels in ((POOLED, pooled), (MAJORITY, most))
        }
        return cls(split.credits(pooled), split.credits(most), measures)


@dataclass(frozen=True, slots=True)
class Marks:
    """The scores of the same queries: the accuracy, or R² for numbers."""

    own: float
    pooled: float
    majority: float
    queries: int
    measures: Mapping[str, float]


def _values(held_out: Table, said: Scored) -> Mapping[str, float]:
    """Return the value of each measure of the classes of the first held-out rows."""
    if held_out.features.target is not None:
        return {}
    truth = held_out.y[: len(said.labels)]
    found = measure(truth, said.labels, held_out.features.classes, said.scores)
    each = ((name, found.number(name)) for name in NUMBERS)
    return {name: number.value for name, number in each if number is not None}


def mark(contender: Contender, split: DealtSplit, question: Question, right: Right) -> Marks:
    """Return the score of a system on a split, and of the baselines on the same queries."""
    said = contender.score(split, question)
    asked = slice(len(said.labels))
    return Marks(
        own=float(split.credits(said.labels).mean()),
        pooled=float(right.pooled[asked].mean()),
        majority=float(right.majority[asked].mean()),
        queries=len(said.labels),
        measures=_values(split.held_out, said),
    )


class Marked(NamedTuple):
    """The marks on one split, and the baselines that failed on it."""

    marks: Mapping[Key, Marks]
    failed: Mapping[Key, Left]


def mark_split(
    number: int, contenders: Sequence[Contender], table: Table, question: Question
) -> Marked:
    """Return the marks of all contenders on one split."""
    split = draw_split(table, question, number)
    right = Right.on(split, question.k)
    pooled, majority = float(right.pooled.mean()), float(right.majority.mean())
    queries = len(right.pooled)
    marks: dict[Key, Marks] = {
        (key, "", None): Marks(own, pooled, majority, queries, right.measures[key])
        for key, own in ((POOLED, pooled), (MAJORITY, majority))
    }
    failed = {}
    for each in contenders:
        try:
            marks[each.key] = mark(each, split, question, right)
        except InputError as error:
            if isinstance(each, SystemAt):
                raise
            failed[each.key] = Left(f"{each.title}, ε = {each.epsilon:g}", error.sentence)
    return Marked(marks, failed)
