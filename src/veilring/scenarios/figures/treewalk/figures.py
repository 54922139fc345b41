"""How the two kinds of figures are made: accuracy by distances, and by comparisons."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from numpy.random import Generator

from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.grids import points_at
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Axis, Figure, Grid, Observe
from veilring.scenarios.figures.treewalk.accuracy import (
    DELTA,
    EPSILON_I,
    QUERIES,
    Accuracy,
    by_comparison,
    by_distance,
)
from veilring.scenarios.figures.treewalk.points import POINTS, Points
from veilring.scenarios.figures.treewalk.ways import Account, Way

SPLITS: Final = 8
RAW: Final = "nearest found"
TOP: Final = "one of 5 nearest found"
PRINTED: Final = ", as printed"
SPENT: Final = ", as spent"
EQUAL: Final = ", equal spending"
_LEVELS: Final = tuple(10.0**power for power in range(-9, -2))
_EPSILONS: Final = (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0)
_FEW_LEVELS: Final = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_FEW_EPSILONS: Final = (10.0, 50.0, 75.0, 100.0, 300.0)
_SEED_END: Final = 1 << 63
_CHOSEN: Final = f"chosen: {QUERIES} uniform queries"
_THESIS: Final = "Differentially private tree-based nearest neighbours"


class _Kind(NamedTuple):
    """What figures of one kind have in common.

    Attributes:
        measure: Gives a way's accuracy at a point of the axis, under an account.
        accounts: Each is measured, and has a pair of rows; by what is added to their names.
        setting: All that is fixed.
        x: The axis across.
        grid: Where to measure.
    """

    measure: Callable[[Points, int, Way, float, Account], Accuracy]
    accounts: Mapping[str, Account]
    setting: str
    x: Axis
    grid: Grid


_BY_DISTANCE: Final = _Kind(
    by_distance,
    {"": "paper", EQUAL: "spent"},
    f"epsilon_i = {EPSILON_I:g}, side 1e9; GEO at the walk's printed epsilon, delta = {DELTA:g}; "
    f"{_CHOSEN}",
    Axis("epsilon_i / sensitivity (= 1 / privacy radius)", is_log=True),
    points_at(_LEVELS, _FEW_LEVELS),
)
_BY_COMPARISON: Final = _Kind(
    by_comparison,
    {PRINTED: "paper", SPENT: "spent"},
    f"delta = {DELTA:g}; as printed: slips and epsilon of the thesis' plots; {_CHOSEN}",
    Axis("epsilon of the whole walk", is_log=True),
    points_at(_EPSILONS, _FEW_EPSILONS),
)


def distance_figure(
    number: int, title: str, ways: Sequence[Way], claims: tuple[Claim, ...]
) -> Figure:
    """Return a figure over ε_i by sensitivity, of all walks and then of basic ones.

    In the second pair of rows each walk, and blur, spends what a basic walk does there.

    Args:
        number: 6.2 is 2.
        title: What it shows.
        ways: Its curves.
        claims: What the thesis says of it.
    """
    return _figure(_BY_DISTANCE, number, title, ways, claims)


def comparison_figure(
    number: int, title: str, ways: Sequence[Way], claims: tuple[Claim, ...]
) -> Figure:
    """Return a figure over a whole walk's epsilon, as the thesis prints it and as it is spent.

    Args:
        number: 6.17 is 17.
        title: What it shows.
        ways: Its curves.
        claims: What the thesis says of it.
    """
    return _figure(_BY_COMPARISON, number, title, ways, claims)


def _figure(
    kind: _Kind, number: int, title: str, ways: Sequence[Way], claims: tuple[Claim, ...]
) -> Figure:
    names = [f"{name}{suffix}" for suffix in kind.accounts for name in (RAW, TOP)]
    return Figure(
        name=f"treewalk/figure-6.{number}",
        title=title,
        source=_source(number),
        setting=kind.setting,
        x=kind.x,
        measures={name: Axis(name, low=0.0) for name in names},
        grid=kind.grid,
        observe=_observing(kind, ways),
        claims=claims,
        splits=SPLITS,
        subject=POINTS,
        measurement="treewalk",
    )


def _source(number: int) -> str:
    section = "6.2.1" if number <= 16 else "6.2.2"  # noqa: PLR2004  (where the section ends)
    return f'"{_THESIS}", a thesis, Figure 6.{number} (Section {section})'


def _observing(kind: _Kind, ways: Sequence[Way]) -> Observe:
    several = len({way.dimensions for way in ways}) > 1

    def observe(
        points: Points, x: Sequence[float], rng: Generator
    ) -> Mapping[Key, Sequence[float]]:
        seed, curves = int(rng.integers(_SEED_END)), dict[Key, Sequence[float]]()
        for (suffix, account), way in product(kind.accounts.items(), ways):
            label = way.told_apart().label if several else way.label
            found = [kind.measure(points, seed, way, each, account) for each in x]
            curves[Key(f"{RAW}{suffix}", label)] = [each.raw for each in found]
            curves[Key(f"{TOP}{suffix}", label)] = [each.top for each in found]
        return curves

    return observe
