"""What a figure is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from numpy.random import Generator

from veilring.data import load_table, scale_to_unit
from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.measured import Key

SPLITS: Final = 100
"""How many random splits there are, unless a figure says otherwise."""


Grid = Callable[[Any, bool], tuple[float, ...]]
"""Gives the points at which data are measured: many, or few if the second argument is true."""
Observe = Callable[[Any, Sequence[float], Generator], Mapping[Key, Sequence[float]]]
"""Measures all curves at all points for one random split; all randomness is the generator's."""


class Subject(NamedTuple):
    """What kind of data a figure is about.

    Attributes:
        load: Takes a source as the command line has it; what it returns has a `name`.
        prepare: Makes of that what a figure observes.
        usual: The source that is measured unless another is given.
    """

    load: Callable[[str], Any]
    prepare: Callable[[Any], Any]
    usual: str


TABLES: Final = Subject(load_table, scale_to_unit, "wine")
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
    grid: Grid
    observe: Observe
    claims: tuple[Claim, ...]
    splits: int = SPLITS
    subject: Subject = TABLES
    measurement: str = ""
