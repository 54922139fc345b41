"""How the two kinds of figures are made: accuracy by distances, and by comparisons."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from numpy.random import Generator

from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.grids import points_at
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Axis, Figure
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

__all__ = (
    "EQUAL",
    "PRINTED",
    "RAW",
    "SPENT",
    "SPLITS",
    "TOP",
    "comparison_figure",
    "distance_figure",
)

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
_ACCOUNTS: Final[Mapping[str, Account]] = {PRINTED: "paper", SPENT: "spent"}
_BY_DISTANCE: Final[Mapping[str, Account]] = {"": "paper", EQUAL: "spent"}
_CHOSEN: Final = f"chosen: {QUERIES} uniform queries"
_THESIS: Final = "Differentially private tree-based nearest neighbours"


def _source(number: int) -> str:
    section = "6.2.1" if number <= 16 else "6.2.2"  # noqa: PLR2004  (where the section ends)
    return f'"{_THESIS}", a thesis, Figure 6.{number} (Section {section})'


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

    def observe(
        points: Points, x: Sequence[float], rng: Generator
    ) -> Mapping[Key, Sequence[float]]:
        seed, curves = int(rng.integers(_SEED_END)), dict[Key, Sequence[float]]()
        for suffix, account in _BY_DISTANCE.items():

            def at(way: Way, level: float, account: Account = account) -> Accuracy:
                return by_distance(points, seed, way, level, account)

            curves |= _curves(ways, x, suffix, at)
        return curves

    return Figure(
        name=f"treewalk/figure-6.{number}",
        title=title,
        source=_source(number),
        setting=(
            f"epsilon_i = {EPSILON_I:g}, side 1e9; GEO at the walk's printed epsilon, delta = "
            f"{DELTA:g}; {_CHOSEN}"
        ),
        x=Axis("epsilon_i / sensitivity (= 1 / privacy radius)", is_log=True),
        measures={
            f"{name}{suffix}": Axis(f"{name}{suffix}", low=0.0)
            for suffix in _BY_DISTANCE
            for name in (RAW, TOP)
        },
        grid=points_at(_LEVELS, _FEW_LEVELS),
        observe=observe,
        claims=claims,
        splits=SPLITS,
        subject=POINTS,
        measurement="treewalk",
    )


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

    def observe(
        points: Points, x: Sequence[float], rng: Generator
    ) -> Mapping[Key, Sequence[float]]:
        seed, curves = int(rng.integers(_SEED_END)), dict[Key, Sequence[float]]()
        for suffix, account in _ACCOUNTS.items():

            def at(way: Way, epsilon: float, account: Account = account) -> Accuracy:
                return by_comparison(points, seed, way, epsilon, account)

            curves |= _curves(ways, x, suffix, at)
        return curves

    names = [f"{name}{suffix}" for suffix in _ACCOUNTS for name in (RAW, TOP)]
    return Figure(
        name=f"treewalk/figure-6.{number}",
        title=title,
        source=_source(number),
        setting=(
            f"delta = {DELTA:g}; as printed: slips and epsilon of the thesis' plots; {_CHOSEN}"
        ),
        x=Axis("epsilon of the whole walk", is_log=True),
        measures={name: Axis(name, low=0.0) for name in names},
        grid=points_at(_EPSILONS, _FEW_EPSILONS),
        observe=observe,
        claims=claims,
        splits=SPLITS,
        subject=POINTS,
        measurement="treewalk",
    )


def _curves(
    ways: Sequence[Way],
    x: Sequence[float],
    suffix: str,
    at: Callable[[Way, float], Accuracy],
) -> dict[Key, Sequence[float]]:
    several = len({way.dimensions for way in ways}) > 1
    curves: dict[Key, Sequence[float]] = {}
    for way in ways:
        label = way.told_apart().label if several else way.label
        found = [at(way, each) for each in x]
        curves[Key(f"{RAW}{suffix}", label)] = [each.raw for each in found]
        curves[Key(f"{TOP}{suffix}", label)] = [each.top for each in found]
    return curves
