"""Measuring a figure on a data set, split by split."""

from collections.abc import Callable

import numpy as np

from veilring.data import Table, scale_to_unit
from veilring.randomness import Streams
from veilring.scenarios.figures.measured import Key, Measured
from veilring.scenarios.figures.model import Figure

__all__ = ("measure",)


def measure(
    figure: Figure,
    table: Table,
    *,
    splits: int,
    quick: bool,
    streams: Streams,
    tell: Callable[[int], None],
) -> Measured:
    """Measure all curves of a figure on a table.

    A split's randomness depends on the seed, the figure, the table's name and the split's number
    only: the first splits of many are those of few.

    Args:
        figure: Which.
        table: Unscaled. It is scaled by its own bounds, which count as public.
        splits: How many random splits, at least 2.
        quick: Whether to measure at few points.
        streams: Where the splits, the partitions, and the parties' noise come from.
        tell: Told how many splits are done.

    Raises:
        InputError: If the table is too small for the experiment.
    """
    scaled, x = scale_to_unit(table), figure.grid(table, quick)
    found: dict[Key, list[list[float]]] = {}
    for number in range(splits):
        rng = streams.generator("figure", figure.name, table.name, number)
        for key, values in figure.observe(scaled, x, rng).items():
            found.setdefault(key, []).append(list(values))
        tell(number + 1)
    return Measured(table.name, x, {key: np.array(values) for key, values in found.items()})
