"""Figures 6.2 to 6.31 as a table: what each shows, and what the thesis claims of it.

Given in the thesis: 100,000 and 1,000,000 uniform points, ε_i = 1 for distances, radii from 1e3 to
1e9, the variants, and what stands beside them. Chosen here: the points of the axes, the sizes of
P, E and N where only one is named, 400 queries, 8 trees, and the bounds that make "about", "high",
"little" and "roughly" testable. Curves for ten times as many points are drawn for generated ones.
"""

from collections.abc import Sequence
from typing import Final

from veilring.scenarios.figures.claims import Claim
from veilring.scenarios.figures.evidence import Take
from veilring.scenarios.figures.treewalk.evidence import gain, height, leads
from veilring.scenarios.figures.treewalk.figures import (
    EQUAL,
    PRINTED,
    RAW,
    SPENT,
    TOP,
    comparison_figure,
    distance_figure,
)
from veilring.scenarios.figures.treewalk.ways import Way, early, greedy, named, parallel

__all__ = ("FIGURES",)

_BASIC: Final = Way("basic")
_N5, _N20 = (Way(f"N{near}", neighbours=near) for near in (5, 20))
_E8: Final = early(8)
_P8: Final = parallel(8)
_GS_N5, _GS_N20 = greedy(5), greedy(20)
_RESPONSE: Final = named(8)
_ALL: Final = (_BASIC, _P8, _E8, greedy(), _N20, _GS_N20)
_BUT_P: Final = (_BASIC, _E8, greedy(), _N20, _GS_N20)
_BOTH: Final = (1, 2)
_RAW_PRINTED, _TOP_PRINTED = RAW + PRINTED, TOP + PRINTED
_TOP_SPENT: Final = TOP + SPENT
# Privacy radii of 1e6, 1e5, 1e4 and 1e3 at epsilon_i = 1.
_FAR, _MIDDLE, _NEAR, _LAST = 1e-6, 1e-5, 1e-4, 1e-3
_MOST: Final = 300.0  # the largest epsilon of the axis


def _above(says: str, quantity: str, bound: float, take: Take) -> Claim:
    return Claim(says, quantity, "above", bound, take)


def _about(says: str, quantity: str, low: float, high: float, take: Take) -> tuple[Claim, Claim]:
    """Return the two claims that a number is about what the thesis says."""
    return (
        Claim(says, quantity, "above", low, take),
        Claim(says, quantity, "below", high, take),
    )


def _in(dimensions: int, *ways: Way) -> tuple[Way, ...]:
    return tuple(way.at(dimensions) for way in ways)


def _beside(ways: Sequence[Way]) -> tuple[Way, ...]:
    """Return ways, and what the thesis puts beside each."""
    return tuple(each for way in ways for each in (way, way.blurred()))


def _over(best: Way, ways: Sequence[Way]) -> list[tuple[str, str]]:
    return [(best.label, way.label) for way in ways if way.label != best.label]


_BY_DISTANCE: Final = (
    distance_figure(
        2,
        "Basic walks by distance, 1-d",
        _beside((_BASIC.at(1), _BASIC.at(1).larger())),
        (
            *_about(
                "GEO has a top-5 accuracy of about 90 % at a radius of 100,000",
                "top-5 accuracy of GEO at r = 1e5",
                0.85,
                0.95,
                height(TOP, "GEO for basic", at=_MIDDLE),
            ),
            _above(
                "walks achieve that at a radius of 1,000",
                "top-5 accuracy of walks at r = 1e3",
                0.85,
                height(TOP, "basic", at=_LAST),
            ),
            _above(
                "more points lower the accuracy at the same radius",
                "top-5 accuracy less that among ten times as many points, at r = 1e4,",
                0.0,
                leads(TOP, [("basic", "basic, 10 N")], at=_NEAR),
            ),
        ),
    ),
    distance_figure(
        3,
        "Basic walks by distance, 2-d",
        _beside((_BASIC, _BASIC.larger())),
        _about(
            "the top-5 accuracy plateaus around 30 %",
            "top-5 accuracy at r = 1e3",
            0.2,
            0.4,
            height(TOP, "basic", at=_LAST),
        ),
    ),
    distance_figure(
        4,
        "Walks by distance in one and two dimensions",
        tuple(_BASIC.at(dimensions) for dimensions in _BOTH),
        (
            _above(
                "in two dimensions it is higher at large radii",
                "top-5 accuracy in 2-d less that in 1-d, at r = 1e6,",
                0.0,
                leads(TOP, [("basic, 2-d", "basic, 1-d")], at=_FAR),
            ),
            _above(
                "in two dimensions it is lower at small radii",
                "top-5 accuracy in 1-d less that in 2-d, at r = 1e3,",
                0.0,
                leads(TOP, [("basic, 1-d", "basic, 2-d")], at=_LAST),
            ),
        ),
    ),
    distance_figure(
        5,
        "Parallel walks by distance (P), 1-d",
        _beside(_in(1, _BASIC, parallel(4), _P8)),
        (
            _above(
                "GEO performs better than P",
                "top-5 accuracy of GEO less that of the walks beside it, at r = 1e5,",
                0.0,
                leads(
                    TOP,
                    [(f"GEO for {each}", each) for each in ("basic", "P4", "P8")],
                    at=_MIDDLE,
                ),
            ),
            _above(
                "the more splits, the worse",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads(TOP, [("basic", "P4"), ("P4", "P8")], at=_NEAR),
            ),
            _above(
                "the more splits, the worse, where all spend the same",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads(TOP + EQUAL, [("basic", "P4"), ("P4", "P8")], at=_NEAR),
            ),
        ),
    ),
    distance_figure(
        6,
        "Parallel walks by distance (P), 2-d",
        _beside((_BASIC, parallel(4), _P8)),
        (
            _above(
                "P overtakes basic walks",
                "accuracy of P8 less that of basic walks, at r = 1e3,",
                0.0,
                leads(RAW, [("P8", "basic")], at=_LAST),
            ),
            *_about(
                "the raw accuracy plateaus at 40 %",
                "accuracy of P8 at r = 1e3",
                0.3,
                0.5,
                height(RAW, "P8", at=_LAST),
            ),
        ),
    ),
    distance_figure(
        7,
        "Walks by distance that stop early (E), 1-d",
        _beside(_in(1, _BASIC, early(4), _E8)),
        (
            _above(
                "the earlier, the higher the accuracy",
                "accuracy of earlier ones less that of later ones, at r = 1e4,",
                0.0,
                leads(RAW, [("E8", "E4"), ("E4", "basic")], at=_NEAR),
            ),
            _above(
                "E achieves high accuracy",
                "accuracy of E8 at r = 1e3",
                0.9,
                height(RAW, "E8", at=_LAST),
            ),
        ),
    ),
    distance_figure(
        8,
        "Walks by distance that stop early (E), 2-d",
        _beside((_BASIC, early(4), _E8)),
        _about(
            "E plateaus around 40 %",
            "top-5 accuracy of E8 at r = 1e3",
            0.3,
            0.5,
            height(TOP, "E8", at=_LAST),
        ),
    ),
    distance_figure(
        9,
        "Walks by distance that split at every level (GS)",
        _beside(tuple(greedy().at(dimensions) for dimensions in _BOTH)),
        (
            _above(
                "in two dimensions the accuracy plateaus earlier",
                "accuracy in 1-d less that in 2-d, at r = 1e3,",
                0.0,
                leads(RAW, [("GS, 1-d", "GS, 2-d")], at=_LAST),
            ),
        ),
    ),
    distance_figure(
        10,
        "Walks by distance with neighbours (N), 1-d",
        _beside(_in(1, _N5, _N20)),
        (
            _above(
                "a larger neighbourhood is a small benefit",
                "top-5 accuracy of N20 less that of N5, at r = 1e4,",
                0.0,
                leads(TOP, [("N20", "N5")], at=_NEAR),
            ),
        ),
    ),
    distance_figure(
        11,
        "Walks by distance with neighbours (N), 2-d",
        _beside((_N5, _N20)),
        (
            _above(
                "20 neighbours roughly double the accuracy of 5",
                "accuracy of N20 less 1.5 times that of N5, at r = 1e3,",
                0.0,
                leads(RAW, [("N20", "N5")], at=_LAST, times=1.5),
            ),
        ),
    ),
    distance_figure(
        12,
        "Walks by distance that split, with neighbours (GS-N), 1-d",
        _beside(_in(1, _GS_N5, _GS_N20)),
        (
            Claim(
                "a larger neighbourhood is a marginal benefit",
                "accuracy of GS-N20 less that of GS-N5, at r = 1e3,",
                "below",
                0.1,
                leads(RAW, [("GS-N20", "GS-N5")], at=_LAST),
            ),
        ),
    ),
    distance_figure(
        13,
        "Walks by distance that split, with neighbours (GS-N), 2-d",
        _beside((_GS_N5, _GS_N20)),
        (
            _above(
                "the raw accuracy benefits most from a larger neighbourhood",
                "what GS-N20 gains over GS-N5 in accuracy, less what in top-5, at r = 1e3,",
                0.0,
                gain((RAW, TOP), "GS-N20", "GS-N5", at=_LAST),
            ),
        ),
    ),
    distance_figure(
        14,
        "Walks by distance compared, 1-d",
        _in(1, *_ALL),
        (
            *(
                _above(
                    f"E8 performs best{where}",
                    f"accuracy of E8 less each other's, at r = {radius},",
                    0.0,
                    leads(measure, _over(_E8, _ALL), at=at),
                )
                for radius, at in (("1e5", _MIDDLE), ("1e4", _NEAR))
                for measure, where in ((RAW, ""), (RAW + EQUAL, ", where all spend the same"))
            ),
            _above(
                "P8 performs worst",
                "accuracy of each other less that of P8, at r = 1e4,",
                0.0,
                leads(RAW, [(other, one) for one, other in _over(_P8, _ALL)], at=_NEAR),
            ),
        ),
    ),
    distance_figure(
        15,
        "Walks by distance compared, 2-d",
        _ALL,
        (
            _above(
                "GS-N performs best at small radii",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads(RAW, _over(_GS_N20, _ALL), at=_NEAR),
            ),
            _above(
                "GS-N performs best at small radii, where all spend the same",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads(RAW + EQUAL, _over(_GS_N20, _ALL), at=_NEAR),
            ),
            *_about(
                "it achieves about 85 % at a radius of 10,000",
                "accuracy of GS-N20 at r = 1e4",
                0.8,
                0.9,
                height(RAW, "GS-N20", at=_NEAR),
            ),
        ),
    ),
    distance_figure(
        16,
        "Walks by distance compared, real places",
        _ALL,
        (
            _above(
                "GS-N performs best",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads(RAW, _over(_GS_N20, _ALL), at=_NEAR),
            ),
        ),
    ),
)

_BY_COMPARISON: Final = (
    comparison_figure(
        17,
        "Basic walks by comparison, and GEO for the whole domain",
        tuple(each for dimensions in _BOTH for each in _beside((_BASIC.at(dimensions),))),
        (
            _above(
                "GEO performs much worse",
                "top-5 accuracy of walks less that of GEO, at epsilon = 100,",
                0.0,
                leads(
                    _TOP_PRINTED,
                    [(f"basic, {each}-d", f"GEO for basic, {each}-d") for each in _BOTH],
                    at=100.0,
                ),
            ),
        ),
    ),
    comparison_figure(
        18,
        "Basic walks by comparison, by the number of points",
        tuple(
            each
            for dimensions in _BOTH
            for each in (_BASIC.at(dimensions), _BASIC.at(dimensions).larger())
        ),
        (
            _above(
                "more points lower the accuracy",
                "top-5 accuracy less that among ten times as many points, at epsilon = 75,",
                0.0,
                leads(
                    _TOP_PRINTED,
                    [(f"basic, {each}-d", f"basic, 10 N, {each}-d") for each in _BOTH],
                    at=75.0,
                ),
            ),
            *_about(
                "in two dimensions it plateaus at 80 %",
                f"top-5 accuracy in 2-d at epsilon = {_MOST:g}",
                0.75,
                0.85,
                height(_TOP_PRINTED, "basic, 2-d", at=_MOST),
            ),
            *_about(
                "the raw accuracy is half of the top-5 accuracy (1-d)",
                f"accuracy in 1-d at epsilon = {_MOST:g}",
                0.45,
                0.55,
                height(_RAW_PRINTED, "basic, 1-d", at=_MOST),
            ),
        ),
    ),
    *(
        comparison_figure(
            18 + dimensions,
            f"Parallel walks by comparison (P), {dimensions}-d",
            _in(dimensions, _BASIC, parallel(4), _P8),
            (
                _above(
                    "P provides no benefit",
                    "top-5 accuracy of basic walks less that of P4 and P8, at epsilon = 100,",
                    0.0,
                    leads(_TOP_PRINTED, [("basic", "P4"), ("basic", "P8")], at=100.0),
                ),
            ),
        )
        for dimensions in _BOTH
    ),
    comparison_figure(
        21,
        "Walks by comparison that stop early (E), 1-d",
        _in(1, _BASIC, early(4), _E8, _RESPONSE),
        (
            _above(
                "E8 achieves 95 % at epsilon = 50",
                "accuracy of E8 at epsilon = 50",
                0.93,
                height(_RAW_PRINTED, "E8", at=50.0),
            ),
        ),
    ),
    comparison_figure(
        22,
        "Walks by comparison that stop early (E), 2-d",
        (_BASIC, early(4), _E8, _RESPONSE),
        (
            _above(
                "E8 achieves 100 % at epsilon = 100",
                "top-5 accuracy of E8 at epsilon = 100",
                0.98,
                height(_TOP_PRINTED, "E8", at=100.0),
            ),
            _above(
                "the earlier, the higher the accuracy",
                "top-5 accuracy of earlier ones less that of later ones, at epsilon = 50,",
                0.0,
                leads(_TOP_PRINTED, [("E8", "E4"), ("E4", "basic")], at=50.0),
            ),
        ),
    ),
    comparison_figure(
        23,
        "Walks by comparison that split at every level (GS)",
        tuple(greedy().at(dimensions) for dimensions in _BOTH),
        (
            Claim(
                "in two dimensions it has at most 40 % top-5 accuracy",
                f"top-5 accuracy of GS in 2-d at epsilon = {_MOST:g}",
                "below",
                0.45,
                height(_TOP_PRINTED, "GS, 2-d", at=_MOST),
            ),
        ),
    ),
    comparison_figure(
        24,
        "Walks by comparison with neighbours (N), 1-d",
        _in(1, _N5, _N20),
        (
            Claim(
                "the size of the neighbourhood makes little to no difference",
                "top-5 accuracy of N20 less that of N5, at epsilon = 100,",
                "below",
                0.05,
                leads(_TOP_PRINTED, [("N20", "N5")], at=100.0),
            ),
        ),
    ),
    *(
        comparison_figure(
            number,
            title,
            ways,
            (
                _above(
                    "a larger neighbourhood improves the raw accuracy more than the top-5 one",
                    f"what {more} gains over {less} in accuracy, less what in top-5, at "
                    f"epsilon = {_MOST:g},",
                    0.0,
                    gain((_RAW_PRINTED, _TOP_PRINTED), more, less, at=_MOST),
                ),
            ),
        )
        for number, title, ways, less, more in (
            (25, "Walks by comparison with neighbours (N), 2-d", (_N5, _N20), "N5", "N20"),
            (
                27,
                "Walks by comparison that split, with neighbours (GS-N), 2-d",
                (_GS_N5, _GS_N20),
                "GS-N5",
                "GS-N20",
            ),
        )
    ),
    comparison_figure(
        26,
        "Walks by comparison that split, with neighbours (GS-N), 1-d",
        _in(1, _GS_N5, _GS_N20),
        (
            Claim(
                "the size of the neighbourhood does not change the accuracy",
                f"accuracy of GS-N20 less that of GS-N5, at epsilon = {_MOST:g},",
                "below",
                0.05,
                leads(_RAW_PRINTED, [("GS-N20", "GS-N5")], at=_MOST),
            ),
        ),
    ),
    *(
        comparison_figure(
            number,
            title,
            _in(dimensions, *ways, _RESPONSE),
            (
                _above(
                    "E8 provides the most for the smallest budget",
                    "top-5 accuracy of E8 less each other walk's, at epsilon = 50,",
                    0.0,
                    leads(_TOP_PRINTED, _over(_E8, ways), at=50.0),
                ),
                _above(
                    "not in the thesis: one response does more than E8 at what both spend",
                    "top-5 accuracy of the response less that of E8, at epsilon = 10,",
                    0.0,
                    leads(_TOP_SPENT, [(_RESPONSE.label, "E8")], at=10.0),
                ),
            ),
        )
        for number, title, dimensions, ways in (
            (28, "Walks by comparison compared, 1-d", 1, _BUT_P),
            (29, "Walks by comparison compared, 2-d", 2, _BUT_P),
            (30, "Walks by comparison compared, real places", 2, _ALL),
            (31, "The best walks by comparison, real places", 2, (_BASIC, _E8, _N20)),
        )
    ),
)

FIGURES: Final = tuple(
    sorted((*_BY_DISTANCE, *_BY_COMPARISON), key=lambda figure: int(figure.name.split(".")[1]))
)
"""In the order of the thesis."""
