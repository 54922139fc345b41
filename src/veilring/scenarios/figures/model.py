"""What a figure is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from numpy.random import Generator

from veilring.data import Table
from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.measured import Key

__all__ = ("SPLITS", "Axis", "Figure", "Grid", "Observe")

SPLITS: Final = 100
"""How many random splits there are, unless a figure says otherwise."""


Grid = Callable[[Table, bool], tuple[float, ...]]
"""Gives the points at which a table is measured: many, or few if the second argument is true."""
Observe = Callable[[Table, Sequence[float], Generator], Mapping[Key, Sequence[float]]]
"""Measures all curves at all points for one random split; all randomness is the generator's."""


class Axis(NamedTuple):
    """An axis of a plot."""

    label: str
    is_log: bool = False
    low: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper, as an experiment that can be repeated on any table.

    Attributes:
        name: `family/figure-n`.
        title: What it shows.
        source: Where it is in which paper.
        setting: All that is fixed, in words; what the paper leaves open is marked as chosen.
        x: The axis across.
        measures: The axis up, for each measure.
        grid: Where to measure.
        observe: How to measure. It takes tables whose features are scaled into [0, 1].
        claims: What the paper says of it.
        splits: How many random splits the paper took.
    """

    name: str
    title: str
    source: str
    setting: str
    x: Axis
    measures: Mapping[str, Axis]
    grid: Grid
    observe: Observe
    claims: tuple[Claim, ...]
    splits: int = SPLITS
