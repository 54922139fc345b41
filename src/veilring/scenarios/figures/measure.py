"""Measuring a figure on a data set, split by split."""

from collections.abc import Callable
from typing import Any

import numpy as np

from veilring.randomness import Streams
from veilring.scenarios.figures.measured import Key, Measured
from veilring.scenarios.figures.model import Figure


def measure(
    figure: Figure,
    table: Any,  # noqa: ANN401  (what the figure's subject loads)
    *,
    splits: int,
    quick: bool,
    streams: Streams,
    tell: Callable[[int], None],
) -> Measured:
    """Measure all curves of a figure on a data set.

    A split's randomness depends on the seed, the measurement, the data set's name and the split's
    number only: the first splits of many are those of few.

    Args:
        figure: Which.
        table: What the figure's subject loads, such as a `Table`.
        splits: How many random splits, at least 2.
        quick: Whether to measure at few points.
        streams: Where the splits, the partitions, and the parties' noise come from.
        tell: Told how many splits are done.

    Raises:
        InputError: If the table is too small for the experiment.
    """
    prepared, x = figure.subject.prepare(table), figure.grid(table, quick)
    found: dict[Key, list[list[float]]] = {}
    for number in range(splits):
        rng = streams.generator("figure", figure.measurement or figure.name, table.name, number)
        for key, values in figure.observe(prepared, x, rng).items():
            found.setdefault(key, []).append(list(values))
        tell(number + 1)
    return Measured(table.name, x, {key: np.array(values) for key, values in found.items()})
