"""Figures, and their measurement on a data set, split by split.

The module also has the common parts of all papers' figures: the points of an axis, the split into
rows and queries, and the citation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from papers.claims import Claim, CurveKey, Measured
from veilring.arrays import Ints
from veilring.data.sources import load
from veilring.data.table import Table, scale_to_unit, split
from veilring.randomness import Streams

ACCURACY: Final = "accuracy"
"""The measure that most figures have."""
MAJORITY_CLASS: Final = "majority class"
"""The curve of the majority-class baseline."""

PointsFor = Callable[[Any, bool], tuple[float, ...]]
"""A function that returns the points to measure: few if its second argument is true."""
Observe = Callable[[Any, Sequence[float], Generator], Mapping[CurveKey, Sequence[float]]]
"""A function that measures all curves at all points for one random split."""
_Data = TypeVar("_Data")
_Dealt = TypeVar("_Dealt")


class DataKind(NamedTuple):
    """The kind of data that a figure needs.

    Attributes:
        load: A function from a source, as on the command line, to an object with a `name`.
        prepare: A function from that object to the data that a figure observes.
        usual: The default source.
    """

    load: Callable[[str], Any]
    prepare: Callable[[Any], Any]
    usual: str


TABLES: Final = DataKind(load, scale_to_unit, "wine")
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
        title: The title.
        source: The citation of the paper and the figure.
        setting: The fixed parameters, in words; choices that the paper leaves open are marked.
        x: The horizontal axis.
        measures: The vertical axis of each measure.
        grid: The points to measure.
        observe: The function that measures prepared data.
        claims: The paper's claims about the figure.
        splits: The paper's number of random splits.
        subject: The kind of data.
        measurement: The common name of figures that show parts of one measurement and use the same
            splits; by default the figure's own name.
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
    splits: int = 100
    subject: DataKind = TABLES
    measurement: str = ""


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

    A split's randomness depends only on the seed, the measurement, the data set's name and the
    split's number, so more splits do not change the first ones.

    Args:
        figure: The figure.
        table: The data that the figure's subject loads, such as a `Table`.
        splits: The number of random splits, at least 2.
        quick: Whether to measure at few points.
        streams: The source of the splits, the partitions and the parties' noise.
        tell: A callback that receives the number of finished splits.

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


def cited(paper: str, figure: str, section: str) -> str:
    """Return the citation of a figure in a paper."""
    return f"{paper}, Figure {figure} (Section {section})"


def points_at(many: Sequence[float], few: Sequence[float] | None = None) -> PointsFor:
    """Return points that do not depend on the data.

    Args:
        many: The points, ascending.
        few: The points of a quick measurement; by default the `coarser` ones.
    """
    return points_of(lambda _data: many, (lambda _data: few) if few else None)


def points_of(
    many: Callable[[Any], Sequence[float]], few: Callable[[Any], Sequence[float]] | None = None
) -> PointsFor:
    """Return points that depend on the data: `many`, or for quick runs `few` (default: coarser)."""

    def grid(data: Any, quick: bool) -> tuple[float, ...]:  # noqa: ANN401, FBT001  (as `PointsFor` has it)
        if quick and few is not None:
            return tuple(few(data))
        return coarser(many(data)) if quick else tuple(many(data))

    return grid


def coarser(points: Sequence[float]) -> tuple[float, ...]:
    """Return the first point, every third after it, and the last."""
    return tuple(sorted({*points[::3], points[-1]}))


def point_by_point(
    deal: Callable[[_Data, Generator], _Dealt],
    observe: Callable[[_Dealt, float, Generator], Mapping[CurveKey, float]],
) -> Observe:
    """Return a function that measures one point after the other on one split.

    Args:
        deal: The function that splits the data.
        observe: The function that measures all curves at one point.
    """

    def observe_all(
        data: _Data, x: Sequence[float], rng: Generator
    ) -> Mapping[CurveKey, Sequence[float]]:
        dealt, curves = deal(data, rng), dict[CurveKey, list[float]]()
        for at in x:
            for key, value in observe(dealt, at, rng).items():
                curves.setdefault(key, []).append(value)
        return curves

    return observe_all


def accuracy_points(shares: Mapping[str, float]) -> dict[CurveKey, float]:
    """Return the accuracy of each series as points of curves."""
    return {CurveKey(ACCURACY, series): share for series, share in shares.items()}


class HoldOut(NamedTuple):
    """A random split of a table into rows to learn from and queries with known classes."""

    train: Table
    held_out: Table

    def accuracy(self, labels: Ints) -> float:
        """Return the share of correct labels among the first queries."""
        return float((labels == self.held_out.y[: len(labels)]).mean())

    def majority(self, queries: int | None = None) -> float:
        """Return the accuracy of the rows' majority class."""
        most_common = np.bincount(self.train.y).argmax()
        return self.accuracy(np.full(queries or len(self.held_out), most_common))


def draw_hold_out(table: Table, share: float, rng: Generator) -> HoldOut:
    """Split a table at random, with the given share of it for queries."""
    return HoldOut(*split(table, share, rng))


def held_out_rows(table: Table, share: float) -> int:
    """Return the number of queries that `draw_hold_out` keeps."""
    return min(max(1, round(share * len(table))), len(table) - 1)
