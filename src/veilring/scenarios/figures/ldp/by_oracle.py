"""Figure 2: the accuracy of discrete naive Bayes by each oracle.

A client answers one question, so that it spends epsilon, as the paper's Section 3.1 says. The
numbers that its Section 4.1 gives are not reached in that way; they are if every client answers all
`n + 1` questions, each at epsilon. So both are measured.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from numpy.random import Generator

from veilring.data import Table, split
from veilring.scenarios.figures.ldp.learning import (
    MAJORITY,
    ORACLES,
    PLAIN,
    TEST_SHARE,
    accuracy,
    learned_discrete,
    majority,
)
from veilring.scenarios.figures.ldp.numbered import numbered
from veilring.scenarios.figures.measured import Key

ONE_QUESTION: Final = "one question a client"
ALL_QUESTIONS: Final = "all questions a client"
NUMBER_BINS: Final = 4  # of columns of numbers, which the paper's tables here have not


def accuracy_by_oracle(
    table: Table, x: Sequence[float], rng: Generator
) -> Mapping[Key, Sequence[float]]:
    """Measure it at each epsilon, beside no noise and the majority class, on one split."""
    train, held_out = split(table, TEST_SHARE, rng)
    values, queries = (numbered(each, NUMBER_BINS) for each in (train, held_out))
    sizes = values.domains, len(table.class_names)

    def measured(oracle: str, epsilon: float, *, all_questions: bool = False) -> float:
        model = learned_discrete(
            values.rows,
            train.labels,
            sizes,
            oracle=oracle,
            epsilon=epsilon,
            rng=rng,
            all_questions=all_questions,
        )
        return accuracy(model.classify(queries.rows), held_out)

    flat = {PLAIN: measured(PLAIN, inf), MAJORITY: majority(train, held_out)}
    curves: dict[Key, Sequence[float]] = {}
    for measure in (ONE_QUESTION, ALL_QUESTIONS):
        for oracle in ORACLES:
            curves[Key(measure, oracle)] = [
                measured(oracle, epsilon, all_questions=measure == ALL_QUESTIONS) for epsilon in x
            ]
        curves |= {Key(measure, series): [level] * len(x) for series, level in flat.items()}
    return curves
