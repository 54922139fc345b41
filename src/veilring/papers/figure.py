"""The definition of a figure, and its measurement on a data set, split by split.

The module also has the parts shared by the figures of all papers: the points of an axis, a split
into rows and queries, and the citation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.data.sources import load
from veilring.data.table import Table, scale_to_unit, split
from veilring.papers.claims import Claim, CurveKey, Measured
from veilring.randomness import Streams

ACCURACY: Final = "accuracy"
"""The measure that most figures have."""
MAJORITY_CLASS: Final = "majority class"
"""The curve of always answering the most common class."""

PointsFor = Callable[[Any, bool], tuple[float, ...]]
"""Gives the points at which data are measured: many, or few if the second argument is true."""
Observe = Callable[[Any, Sequence[float], Generator], Mapping[CurveKey, Sequence[float]]]
"""Measures all curves at all points for one random split; all randomness is the generator's."""
_Data = TypeVar("_Data")
_Dealt = TypeVar("_Dealt")


class DataKind(NamedTuple):
    """The kind of data of a figure.

    Attributes:
        load: A function from a source on the command line to data with a `name`.
        prepare: A function from these data to the input of `observe`.
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
        title: The title of the figure.
        source: The citation of the figure.
        setting: A description of all fixed parameters; those that the paper leaves open are marked
            as chosen.
        x: The axis across.
        measures: The axis up, for each measure.
        grid: The points of measurement.
        observe: The measurement, for prepared data.
        claims: The paper's claims about it.
        splits: The number of random splits in the paper.
        subject: The kind of data.
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

    A split's randomness depends on the seed, the measurement, the data set's name and the split's
    number only: the first splits of many are those of few.

    Args:
        figure: The figure.
        table: The data loaded by the figure's subject, such as a `Table`.
        splits: The number of random splits, at least 2.
        quick: Whether to measure at only a few points.
        streams: The source of the splits, the partitions, and the parties' noise.
        tell: A callback with the number of splits done.

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
        many: Ascending.
        few: The points of a quick measurement; by default the `coarser` ones.
    """
    return points_of(lambda _data: many, (lambda _data: few) if few else None)


def points_of(
    many: Callable[[Any], Sequence[float]], few: Callable[[Any], Sequence[float]] | None = None
) -> PointsFor:
    """Return points that depend on the data: `many`, or fewer for a quick measurement."""

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
        deal: Splits the data.
        observe: Measures all curves at one point.
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
    """Return shares of right answers by their series as points of curves."""
    return {CurveKey(ACCURACY, series): share for series, share in shares.items()}


class HoldOut(NamedTuple):
    """A random split of a table: training rows, and queries with known classes."""

    train: Table
    held_out: Table

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Return the share of right labels, for the first queries."""
        return float((labels == self.held_out.y[: len(labels)]).mean())

    def majority(self, queries: int | None = None) -> float:
        """Return the accuracy of always answering the most common class of the rows."""
        most_common = np.bincount(self.train.y).argmax()
        return self.accuracy(np.full(queries or len(self.held_out), most_common))


def draw_hold_out(table: Table, share: float, rng: Generator) -> HoldOut:
    """Split a table at random, and keep this share of it for queries."""
    return HoldOut(*split(table, share, rng))


def held_out_rows(table: Table, share: float) -> int:
    """Return how many queries `draw_hold_out` keeps."""
    return min(max(1, round(share * len(table))), len(table) - 1)
