"""What a figure is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator

from veilring.data import load_table, scale_to_unit
from veilring.papers.claims import Claim, CurveKey, Measured
from veilring.randomness import Streams

_SPLITS: Final = 100
"""How many random splits there are, unless a figure says otherwise."""


PointsFor = Callable[[Any, bool], tuple[float, ...]]
"""Gives the points at which data are measured: many, or few if the second argument is true."""
Observe = Callable[[Any, Sequence[float], Generator], Mapping[CurveKey, Sequence[float]]]
"""Measures all curves at all points for one random split; all randomness is the generator's."""


class DataKind(NamedTuple):
    """What kind of data a figure is about.

    Attributes:
        load: Takes a source as the command line has it; what it returns has a `name`.
        prepare: Makes of that what a figure observes.
        usual: The source that is measured unless another is given.
    """

    load: Callable[[str], Any]
    prepare: Callable[[Any], Any]
    usual: str


TABLES: Final = DataKind(load_table, scale_to_unit, "wine")
"""Tables of labelled rows, scaled by their own bounds, which count as public."""


class Axis(NamedTuple):
    """An axis of a plot."""

    label: str
    is_log: bool = False
    low: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper, as an experiment that can be repeated on any data of its kind.

    Attributes:
        name: `family/figure-n`.
        title: What it shows.
        source: Where it is in which paper.
        setting: All that is fixed, in words; what the paper leaves open is marked as chosen.
        x: The axis across.
        measures: The axis up, for each measure.
        grid: Where to measure.
        observe: How to measure, once the subject has prepared the data.
        claims: What the paper says of it.
        splits: How many random splits the paper took.
        subject: What kind of data it is about.
        measurement: A name that figures share which show parts of one measurement: their splits
            are the same. The figure's own unless given.
    """

    name: str
    title: str
    source: str
    setting: str
    x: Axis
    measures: Mapping[str, Axis]
    grid: PointsFor
    observe: Observe
    claims: tuple[Claim, ...]
    splits: int = _SPLITS
    subject: DataKind = TABLES
    measurement: str = ""


def points_at(many: Sequence[float], few: Sequence[float] | None = None) -> PointsFor:
    """Return a grid of these points.

    Args:
        many: Ascending.
        few: Those that are measured quickly; by default the `coarser` ones.
    """
    quickly = coarser(many) if few is None else tuple(few)

    def grid(_data: Any, quick: bool) -> tuple[float, ...]:  # noqa: ANN401, FBT001  (as `PointsFor` has it)
        return quickly if quick else tuple(many)

    return grid


def coarser(points: Sequence[float]) -> tuple[float, ...]:
    """Return the first point, every third after it, and the last."""
    return tuple(sorted({*points[::3], points[-1]}))


def measure_figure(
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
    found: dict[CurveKey, list[list[float]]] = {}
    for number in range(splits):
        rng = streams.generator("figure", figure.measurement or figure.name, table.name, number)
        for key, values in figure.observe(prepared, x, rng).items():
            found.setdefault(key, []).append(list(values))
        tell(number + 1)
    return Measured(table.name, x, {key: np.array(values) for key, values in found.items()})
