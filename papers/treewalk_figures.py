"""Figures 6.2 to 6.31 of "Differentially private tree-based nearest neighbours".

Given in the thesis: 100,000 and 1,000,000 uniform points, ε_i = 1 for distances, radii from 1e3 to
1e9, the variants and their comparisons. Chosen here: the points of the axes, the sizes of
P, E and N where only one is named, 400 queries, 8 trees, and the bounds that make "about", "high",
"little" and "roughly" testable. Curves for ten times as many points are drawn for generated ones.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from numpy.random import Generator

from papers.claims import Claim, CurveKey, Take, about, above, below
from papers.evidence import gain, heights, in_measure, leads, near
from papers.figure import Axis, DataKind, Figure, Observe, PointsFor, cited, points_at
from papers.treewalk import (
    EPSILON_I,
    PLACE_QUERIES,
    PRIVACY_DELTA,
    USUAL_POINTS,
    Account,
    FoundShares,
    Points,
    SearchWay,
    bucket_response,
    by_comparison,
    by_distance,
    early,
    greedy,
    load_points,
    parallel,
)

RAW: Final = "nearest found"
TOP: Final = "one of 5 nearest found"
PRINTED: Final = ", as printed"
SPENT: Final = ", as spent"
EQUAL: Final = ", equal spending"
_THESIS: Final = '"Differentially private tree-based nearest neighbours", a thesis'
_POINTS: Final = DataKind(load_points, lambda points: points, USUAL_POINTS)
_SPLITS: Final = 8
_SEED_END: Final = 1 << 63
_CHOSEN: Final = f"chosen: {PLACE_QUERIES} uniform queries"


class _Kind(NamedTuple):
    """The common part of figures of one kind.

    Attributes:
        measure: The function that returns the accuracy of a look-up at a point, under an account.
        accounts: The accounting methods, each with a pair of rows, by the suffix of their names.
        setting: The fixed parameters, in words.
        x: The horizontal axis.
        grid: The points to measure.
        section: The section of the thesis.
    """

    measure: Callable[[Points, int, SearchWay, float, Account], FoundShares]
    accounts: Mapping[str, Account]
    setting: str
    x: Axis
    grid: PointsFor
    section: str

    def figure(self, number: int, title: str, ways: Sequence[SearchWay], *claims: Claim) -> Figure:
        """Return figure 6.`number`, with a curve for each look-up."""
        names = [f"{name}{suffix}" for suffix in self.accounts for name in (RAW, TOP)]
        return Figure(
            name=f"treewalk/figure-6.{number}",
            title=title,
            source=cited(_THESIS, f"6.{number}", self.section),
            setting=self.setting,
            x=self.x,
            measures={name: Axis(name, low=0.0) for name in names},
            grid=self.grid,
            observe=self._observing(ways),
            claims=claims,
            splits=_SPLITS,
            subject=_POINTS,
            measurement="treewalk",
        )

    def _observing(self, ways: Sequence[SearchWay]) -> Observe:
        def observe(
            points: Points, x: Sequence[float], rng: Generator
        ) -> Mapping[CurveKey, Sequence[float]]:
            seed, curves = int(rng.integers(_SEED_END)), dict[CurveKey, Sequence[float]]()
            for (suffix, account), way in product(self.accounts.items(), ways):
                found = [self.measure(points, seed, way, each, account) for each in x]
                label = _label(way, ways)
                curves[CurveKey(f"{RAW}{suffix}", label)] = [each.raw for each in found]
                curves[CurveKey(f"{TOP}{suffix}", label)] = [each.top for each in found]
            return curves

        return observe


def _label(way: SearchWay, ways: Sequence[SearchWay]) -> str:
    """Return the name of a curve, with its dimensions if they differ between curves."""
    several = len({each.dimensions for each in ways}) > 1
    return f"{way.label}, {way.dimensions}-d" if several else way.label


# Over ε_i by sensitivity, for all walks. In the second pair of rows each walk, and blur, spends as
# much as a basic walk does there.
_BY_DISTANCE: Final = _Kind(
    by_distance,
    {"": "paper", EQUAL: "spent"},
    f"epsilon_i = {EPSILON_I:g}, side 1e9; GEO at the walk's printed epsilon, delta = "
    f"{PRIVACY_DELTA:g}; {_CHOSEN}",
    Axis("epsilon_i / sensitivity (= 1 / privacy radius)", is_log=True),
    points_at([10.0**power for power in range(-9, -2)], (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)),
    "6.2.1",
)
# Over a whole walk's epsilon, as the thesis prints it and as it is spent.
_BY_COMPARISON: Final = _Kind(
    by_comparison,
    {PRINTED: "paper", SPENT: "spent"},
    f"delta = {PRIVACY_DELTA:g}; as printed: slips and epsilon of the thesis' plots; {_CHOSEN}",
    Axis("epsilon of the whole walk", is_log=True),
    points_at(
        (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0),
        (10.0, 50.0, 75.0, 100.0, 300.0),
    ),
    "6.2.2",
)

BASIC_WALK: Final = SearchWay("basic")
BUCKETS: Final = bucket_response(8)
_N5, _N20 = (SearchWay(f"N{near_ones}", neighbours=near_ones) for near_ones in (5, 20))
_E4, _E8, _P4, _P8 = early(4), early(8), parallel(4), parallel(8)
_GS, _GS_N5, _GS_N20 = greedy(), greedy(5), greedy(20)
_ALL: Final = (BASIC_WALK, _P8, _E8, _GS, _N20, _GS_N20)
_BUT_P: Final = (BASIC_WALK, _E8, _GS, _N20, _GS_N20)
_BOTH: Final = (1, 2)
_RAW_PRINTED, _TOP_PRINTED = RAW + PRINTED, TOP + PRINTED
# Privacy radii of 1e6, 1e5, 1e4 and 1e3 at epsilon_i = 1.
_FAR, _MIDDLE, _NEAR, _LAST = 1e-6, 1e-5, 1e-4, 1e-3
_MOST: Final = 300.0  # the largest epsilon of the axis
_Pairs = Sequence[tuple[str, str]]


def _in(dimensions: int, *ways: SearchWay) -> tuple[SearchWay, ...]:
    return tuple(way.at(dimensions) for way in ways)


def _beside(*ways: SearchWay) -> tuple[SearchWay, ...]:
    """Return look-ups, and the comparison of each in the thesis."""
    return tuple(each for way in ways for each in (way, way.blurred()))


def _over(best: SearchWay, ways: Sequence[SearchWay]) -> _Pairs:
    """Return the pairs of the best look-up and each other one, by their labels."""
    return [(best.label, way.label) for way in ways if way != best]


def _apart(measure: str, pairs: _Pairs, at: float, times: float = 1.0) -> Take:
    """Take the lead of curves over others, or over multiples of them, at one point."""
    return leads(in_measure(measure, *pairs), at=near(at), times=times)


def _high(measure: str, series: str, at: float) -> Take:
    """Take a curve at one point."""
    return heights(measure, series, at=near(at))


_distance, _comparison = _BY_DISTANCE.figure, _BY_COMPARISON.figure


def _parallel_by_comparison(dimensions: int) -> Figure:
    return _comparison(
        18 + dimensions,
        f"Parallel walks by comparison (P), {dimensions}-d",
        _in(dimensions, BASIC_WALK, _P4, _P8),
        above(
            "P provides no benefit",
            "top-5 accuracy of basic walks minus that of P4 and P8, at epsilon = 100,",
            0.0,
            _apart(_TOP_PRINTED, [("basic", "P4"), ("basic", "P8")], 100.0),
        ),
    )


def _neighbours_in_plane(number: int, title: str, less: SearchWay, more: SearchWay) -> Figure:
    return _comparison(
        number,
        f"{title}, 2-d",
        (less, more),
        above(
            "a larger neighbourhood improves the raw accuracy more than the top-5 one",
            f"gain of {more.label} over {less.label} in accuracy minus the gain in top-5, at "
            f"epsilon = {_MOST:g},",
            0.0,
            gain((_RAW_PRINTED, _TOP_PRINTED), more.label, less.label, at=near(_MOST)),
        ),
    )


def _compared(number: int, title: str, dimensions: int, *ways: SearchWay) -> Figure:
    return _comparison(
        number,
        title,
        _in(dimensions, *ways, BUCKETS),
        above(
            "E8 is best for the smallest budget",
            "top-5 accuracy of E8 minus each other walk's, at epsilon = 50,",
            0.0,
            _apart(_TOP_PRINTED, _over(_E8, ways), 50.0),
        ),
        above(
            "not in the thesis: a response is better than E8 if both spend the same",
            "top-5 accuracy of the response minus that of E8, at epsilon = 10,",
            0.0,
            _apart(TOP + SPENT, [(BUCKETS.label, "E8")], 10.0),
        ),
    )


TREEWALK_FIGURES: Final = (
    _distance(
        2,
        "Basic walks by distance, 1-d",
        _beside(*_in(1, BASIC_WALK, BASIC_WALK.larger())),
        *about(
            "GEO has a top-5 accuracy of about 90 % at a radius of 100,000",
            "top-5 accuracy of GEO at r = 1e5",
            (0.85, 0.95),
            _high(TOP, "GEO for basic", _MIDDLE),
        ),
        above(
            "walks achieve that at a radius of 1,000",
            "top-5 accuracy of walks at r = 1e3",
            0.85,
            _high(TOP, "basic", _LAST),
        ),
        above(
            "more points lower the accuracy at the same radius",
            "top-5 accuracy minus that among ten times as many points, at r = 1e4,",
            0.0,
            _apart(TOP, [("basic", "basic, 10 N")], _NEAR),
        ),
    ),
    _distance(
        3,
        "Basic walks by distance, 2-d",
        _beside(BASIC_WALK, BASIC_WALK.larger()),
        *about(
            "the top-5 accuracy plateaus around 30 %",
            "top-5 accuracy at r = 1e3",
            (0.2, 0.4),
            _high(TOP, "basic", _LAST),
        ),
    ),
    _distance(
        4,
        "Walks by distance in one and two dimensions",
        tuple(BASIC_WALK.at(dimensions) for dimensions in _BOTH),
        above(
            "in two dimensions it is higher at large radii",
            "top-5 accuracy in 2-d minus that in 1-d, at r = 1e6,",
            0.0,
            _apart(TOP, [("basic, 2-d", "basic, 1-d")], _FAR),
        ),
        above(
            "in two dimensions it is lower at small radii",
            "top-5 accuracy in 1-d minus that in 2-d, at r = 1e3,",
            0.0,
            _apart(TOP, [("basic, 1-d", "basic, 2-d")], _LAST),
        ),
    ),
    _distance(
        5,
        "Parallel walks by distance (P), 1-d",
        _beside(*_in(1, BASIC_WALK, _P4, _P8)),
        above(
            "GEO performs better than P",
            "top-5 accuracy of GEO minus that of the walks beside it, at r = 1e5,",
            0.0,
            _apart(TOP, [(f"GEO for {each}", each) for each in ("basic", "P4", "P8")], _MIDDLE),
        ),
        *(
            above(
                f"the more splits, the worse{where}",
                "top-5 accuracy of fewer splits minus that of more, at r = 1e4,",
                0.0,
                _apart(measure, [("basic", "P4"), ("P4", "P8")], _NEAR),
            )
            for measure, where in ((TOP, ""), (TOP + EQUAL, ", where all spend the same"))
        ),
    ),
    _distance(
        6,
        "Parallel walks by distance (P), 2-d",
        _beside(BASIC_WALK, _P4, _P8),
        above(
            "P overtakes basic walks",
            "accuracy of P8 minus that of basic walks, at r = 1e3,",
            0.0,
            _apart(RAW, [("P8", "basic")], _LAST),
        ),
        *about(
            "the raw accuracy plateaus at 40 %",
            "accuracy of P8 at r = 1e3",
            (0.3, 0.5),
            _high(RAW, "P8", _LAST),
        ),
    ),
    _distance(
        7,
        "Walks by distance that stop early (E), 1-d",
        _beside(*_in(1, BASIC_WALK, _E4, _E8)),
        above(
            "the earlier, the higher the accuracy",
            "accuracy of earlier ones minus that of later ones, at r = 1e4,",
            0.0,
            _apart(RAW, [("E8", "E4"), ("E4", "basic")], _NEAR),
        ),
        above(
            "E achieves high accuracy", "accuracy of E8 at r = 1e3", 0.9, _high(RAW, "E8", _LAST)
        ),
    ),
    _distance(
        8,
        "Walks by distance that stop early (E), 2-d",
        _beside(BASIC_WALK, _E4, _E8),
        *about(
            "E plateaus around 40 %",
            "top-5 accuracy of E8 at r = 1e3",
            (0.3, 0.5),
            _high(TOP, "E8", _LAST),
        ),
    ),
    _distance(
        9,
        "Walks by distance that split at every level (GS)",
        _beside(*(_GS.at(dimensions) for dimensions in _BOTH)),
        above(
            "in two dimensions the accuracy plateaus earlier",
            "accuracy in 1-d minus that in 2-d, at r = 1e3,",
            0.0,
            _apart(RAW, [("GS, 1-d", "GS, 2-d")], _LAST),
        ),
    ),
    _distance(
        10,
        "Walks by distance with neighbours (N), 1-d",
        _beside(*_in(1, _N5, _N20)),
        above(
            "a larger neighbourhood is a small benefit",
            "top-5 accuracy of N20 minus that of N5, at r = 1e4,",
            0.0,
            _apart(TOP, [("N20", "N5")], _NEAR),
        ),
    ),
    _distance(
        11,
        "Walks by distance with neighbours (N), 2-d",
        _beside(_N5, _N20),
        above(
            "20 neighbours roughly double the accuracy of 5",
            "accuracy of N20 minus 1.5 times that of N5, at r = 1e3,",
            0.0,
            _apart(RAW, [("N20", "N5")], _LAST, times=1.5),
        ),
    ),
    _distance(
        12,
        "Walks by distance that split, with neighbours (GS-N), 1-d",
        _beside(*_in(1, _GS_N5, _GS_N20)),
        below(
            "a larger neighbourhood is a marginal benefit",
            "accuracy of GS-N20 minus that of GS-N5, at r = 1e3,",
            0.1,
            _apart(RAW, [("GS-N20", "GS-N5")], _LAST),
        ),
    ),
    _distance(
        13,
        "Walks by distance that split, with neighbours (GS-N), 2-d",
        _beside(_GS_N5, _GS_N20),
        above(
            "the raw accuracy benefits most from a larger neighbourhood",
            "gain of GS-N20 over GS-N5 in accuracy minus the gain in top-5, at r = 1e3,",
            0.0,
            gain((RAW, TOP), "GS-N20", "GS-N5", at=near(_LAST)),
        ),
    ),
    _distance(
        14,
        "Walks by distance compared, 1-d",
        _in(1, *_ALL),
        *(
            above(
                f"E8 performs best{where}",
                f"accuracy of E8 minus each other's, at r = {radius},",
                0.0,
                _apart(measure, _over(_E8, _ALL), at),
            )
            for radius, at in (("1e5", _MIDDLE), ("1e4", _NEAR))
            for measure, where in ((RAW, ""), (RAW + EQUAL, ", where all spend the same"))
        ),
        above(
            "P8 performs worst",
            "accuracy of each other minus that of P8, at r = 1e4,",
            0.0,
            _apart(RAW, [(other, one) for one, other in _over(_P8, _ALL)], _NEAR),
        ),
    ),
    _distance(
        15,
        "Walks by distance compared, 2-d",
        _ALL,
        *(
            above(
                f"GS-N performs best at small radii{where}",
                "accuracy of GS-N20 minus each other's, at r = 1e4,",
                0.0,
                _apart(measure, _over(_GS_N20, _ALL), _NEAR),
            )
            for measure, where in ((RAW, ""), (RAW + EQUAL, ", where all spend the same"))
        ),
        *about(
            "it achieves about 85 % at a radius of 10,000",
            "accuracy of GS-N20 at r = 1e4",
            (0.8, 0.9),
            _high(RAW, "GS-N20", _NEAR),
        ),
    ),
    _distance(
        16,
        "Walks by distance compared, real places",
        _ALL,
        above(
            "GS-N performs best",
            "accuracy of GS-N20 minus each other's, at r = 1e4,",
            0.0,
            _apart(RAW, _over(_GS_N20, _ALL), _NEAR),
        ),
    ),
    _comparison(
        17,
        "Basic walks by comparison, and GEO for the whole domain",
        _beside(*(BASIC_WALK.at(dimensions) for dimensions in _BOTH)),
        above(
            "GEO performs much worse",
            "top-5 accuracy of walks minus that of GEO, at epsilon = 100,",
            0.0,
            _apart(
                _TOP_PRINTED,
                [(f"basic, {each}-d", f"GEO for basic, {each}-d") for each in _BOTH],
                100.0,
            ),
        ),
    ),
    _comparison(
        18,
        "Basic walks by comparison, by the number of points",
        tuple(way for each in _BOTH for way in _in(each, BASIC_WALK, BASIC_WALK.larger())),
        above(
            "more points lower the accuracy",
            "top-5 accuracy minus that among ten times as many points, at epsilon = 75,",
            0.0,
            _apart(
                _TOP_PRINTED,
                [(f"basic, {each}-d", f"basic, 10 N, {each}-d") for each in _BOTH],
                75.0,
            ),
        ),
        *about(
            "in two dimensions it plateaus at 80 %",
            f"top-5 accuracy in 2-d at epsilon = {_MOST:g}",
            (0.75, 0.85),
            _high(_TOP_PRINTED, "basic, 2-d", _MOST),
        ),
        *about(
            "the raw accuracy is half of the top-5 accuracy (1-d)",
            f"accuracy in 1-d at epsilon = {_MOST:g}",
            (0.45, 0.55),
            _high(_RAW_PRINTED, "basic, 1-d", _MOST),
        ),
    ),
    *map(_parallel_by_comparison, _BOTH),
    _comparison(
        21,
        "Walks by comparison that stop early (E), 1-d",
        _in(1, BASIC_WALK, _E4, _E8, BUCKETS),
        above(
            "E8 achieves 95 % at epsilon = 50",
            "accuracy of E8 at epsilon = 50",
            0.93,
            _high(_RAW_PRINTED, "E8", 50.0),
        ),
    ),
    _comparison(
        22,
        "Walks by comparison that stop early (E), 2-d",
        (BASIC_WALK, _E4, _E8, BUCKETS),
        above(
            "E8 achieves 100 % at epsilon = 100",
            "top-5 accuracy of E8 at epsilon = 100",
            0.98,
            _high(_TOP_PRINTED, "E8", 100.0),
        ),
        above(
            "the earlier, the higher the accuracy",
            "top-5 accuracy of earlier ones minus that of later ones, at epsilon = 50,",
            0.0,
            _apart(_TOP_PRINTED, [("E8", "E4"), ("E4", "basic")], 50.0),
        ),
    ),
    _comparison(
        23,
        "Walks by comparison that split at every level (GS)",
        tuple(_GS.at(dimensions) for dimensions in _BOTH),
        below(
            "in two dimensions it has at most 40 % top-5 accuracy",
            f"top-5 accuracy of GS in 2-d at epsilon = {_MOST:g}",
            0.45,
            heights(_TOP_PRINTED, "GS, 2-d", at=near(_MOST)),
        ),
    ),
    _comparison(
        24,
        "Walks by comparison with neighbours (N), 1-d",
        _in(1, _N5, _N20),
        below(
            "the size of the neighbourhood makes little to no difference",
            "top-5 accuracy of N20 minus that of N5, at epsilon = 100,",
            0.05,
            _apart(_TOP_PRINTED, [("N20", "N5")], 100.0),
        ),
    ),
    _neighbours_in_plane(25, "Walks by comparison with neighbours (N)", _N5, _N20),
    _comparison(
        26,
        "Walks by comparison that split, with neighbours (GS-N), 1-d",
        _in(1, _GS_N5, _GS_N20),
        below(
            "the size of the neighbourhood does not change the accuracy",
            f"accuracy of GS-N20 minus that of GS-N5, at epsilon = {_MOST:g},",
            0.05,
            _apart(_RAW_PRINTED, [("GS-N20", "GS-N5")], _MOST),
        ),
    ),
    _neighbours_in_plane(
        27, "Walks by comparison that split, with neighbours (GS-N)", _GS_N5, _GS_N20
    ),
    _compared(28, "Walks by comparison compared, 1-d", 1, *_BUT_P),
    _compared(29, "Walks by comparison compared, 2-d", 2, *_BUT_P),
    _compared(30, "Walks by comparison compared, real places", 2, *_ALL),
    _compared(31, "The best walks by comparison, real places", 2, BASIC_WALK, _E8, _N20),
)
"""In the order of the thesis."""
