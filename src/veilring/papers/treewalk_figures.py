"""What the tables of figures share: the ways that stand in them, and how a claim is written."""

from collections.abc import Sequence
from typing import Final

from veilring.papers.claims import Claim, Take, above, below
from veilring.papers.evidence import gain, height, leads_at
from veilring.papers.treewalk import (
    EQUAL,
    PRINTED,
    RAW,
    SPENT,
    TOP,
    WalkWay,
    comparison_figure,
    distance_figure,
    early,
    greedy,
    named_bucket,
    parallel,
)

BASIC: Final = WalkWay("basic")
N5, N20 = (WalkWay(f"N{near}", neighbours=near) for near in (5, 20))
E8: Final = early(8)
P8: Final = parallel(8)
GS_N5, GS_N20 = greedy(5), greedy(20)
RESPONSE: Final = named_bucket(8)
ALL: Final = (BASIC, P8, E8, greedy(), N20, GS_N20)
BUT_P: Final = (BASIC, E8, greedy(), N20, GS_N20)
BOTH: Final = (1, 2)
RAW_PRINTED, TOP_PRINTED = RAW + PRINTED, TOP + PRINTED
TOP_SPENT: Final = TOP + SPENT
# Privacy radii of 1e6, 1e5, 1e4 and 1e3 at epsilon_i = 1.
FAR, MIDDLE, NEAR, LAST = 1e-6, 1e-5, 1e-4, 1e-3
MOST: Final = 300.0  # the largest epsilon of the axis


def about(says: str, quantity: str, low: float, high: float, take: Take) -> tuple[Claim, Claim]:
    """Return the two claims that a number is about what the thesis says."""
    return above(says, quantity, low, take), below(says, quantity, high, take)


def of_dimensions(dimensions: int, *ways: WalkWay) -> tuple[WalkWay, ...]:
    """Return ways among points of so many dimensions."""
    return tuple(way.at(dimensions) for way in ways)


def beside(ways: Sequence[WalkWay]) -> tuple[WalkWay, ...]:
    """Return ways, and what the thesis puts beside each."""
    return tuple(each for way in ways for each in (way, way.blurred()))


def over(best: WalkWay, ways: Sequence[WalkWay]) -> list[tuple[str, str]]:
    """Return the pairs of the best way and each other, by their labels."""
    return [(best.label, way.label) for way in ways if way.label != best.label]


BY_DISTANCE: Final = (
    distance_figure(
        2,
        "Basic walks by distance, 1-d",
        beside((BASIC.at(1), BASIC.at(1).larger())),
        (
            *about(
                "GEO has a top-5 accuracy of about 90 % at a radius of 100,000",
                "top-5 accuracy of GEO at r = 1e5",
                0.85,
                0.95,
                height(TOP, "GEO for basic", at=MIDDLE),
            ),
            above(
                "walks achieve that at a radius of 1,000",
                "top-5 accuracy of walks at r = 1e3",
                0.85,
                height(TOP, "basic", at=LAST),
            ),
            above(
                "more points lower the accuracy at the same radius",
                "top-5 accuracy less that among ten times as many points, at r = 1e4,",
                0.0,
                leads_at(TOP, [("basic", "basic, 10 N")], at=NEAR),
            ),
        ),
    ),
    distance_figure(
        3,
        "Basic walks by distance, 2-d",
        beside((BASIC, BASIC.larger())),
        about(
            "the top-5 accuracy plateaus around 30 %",
            "top-5 accuracy at r = 1e3",
            0.2,
            0.4,
            height(TOP, "basic", at=LAST),
        ),
    ),
    distance_figure(
        4,
        "Walks by distance in one and two dimensions",
        tuple(BASIC.at(dimensions) for dimensions in BOTH),
        (
            above(
                "in two dimensions it is higher at large radii",
                "top-5 accuracy in 2-d less that in 1-d, at r = 1e6,",
                0.0,
                leads_at(TOP, [("basic, 2-d", "basic, 1-d")], at=FAR),
            ),
            above(
                "in two dimensions it is lower at small radii",
                "top-5 accuracy in 1-d less that in 2-d, at r = 1e3,",
                0.0,
                leads_at(TOP, [("basic, 1-d", "basic, 2-d")], at=LAST),
            ),
        ),
    ),
    distance_figure(
        5,
        "Parallel walks by distance (P), 1-d",
        beside(of_dimensions(1, BASIC, parallel(4), P8)),
        (
            above(
                "GEO performs better than P",
                "top-5 accuracy of GEO less that of the walks beside it, at r = 1e5,",
                0.0,
                leads_at(
                    TOP,
                    [(f"GEO for {each}", each) for each in ("basic", "P4", "P8")],
                    at=MIDDLE,
                ),
            ),
            above(
                "the more splits, the worse",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads_at(TOP, [("basic", "P4"), ("P4", "P8")], at=NEAR),
            ),
            above(
                "the more splits, the worse, where all spend the same",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads_at(TOP + EQUAL, [("basic", "P4"), ("P4", "P8")], at=NEAR),
            ),
        ),
    ),
    distance_figure(
        6,
        "Parallel walks by distance (P), 2-d",
        beside((BASIC, parallel(4), P8)),
        (
            above(
                "P overtakes basic walks",
                "accuracy of P8 less that of basic walks, at r = 1e3,",
                0.0,
                leads_at(RAW, [("P8", "basic")], at=LAST),
            ),
            *about(
                "the raw accuracy plateaus at 40 %",
                "accuracy of P8 at r = 1e3",
                0.3,
                0.5,
                height(RAW, "P8", at=LAST),
            ),
        ),
    ),
    distance_figure(
        7,
        "Walks by distance that stop early (E), 1-d",
        beside(of_dimensions(1, BASIC, early(4), E8)),
        (
            above(
                "the earlier, the higher the accuracy",
                "accuracy of earlier ones less that of later ones, at r = 1e4,",
                0.0,
                leads_at(RAW, [("E8", "E4"), ("E4", "basic")], at=NEAR),
            ),
            above(
                "E achieves high accuracy",
                "accuracy of E8 at r = 1e3",
                0.9,
                height(RAW, "E8", at=LAST),
            ),
        ),
    ),
    distance_figure(
        8,
        "Walks by distance that stop early (E), 2-d",
        beside((BASIC, early(4), E8)),
        about(
            "E plateaus around 40 %",
            "top-5 accuracy of E8 at r = 1e3",
            0.3,
            0.5,
            height(TOP, "E8", at=LAST),
        ),
    ),
    distance_figure(
        9,
        "Walks by distance that split at every level (GS)",
        beside(tuple(greedy().at(dimensions) for dimensions in BOTH)),
        (
            above(
                "in two dimensions the accuracy plateaus earlier",
                "accuracy in 1-d less that in 2-d, at r = 1e3,",
                0.0,
                leads_at(RAW, [("GS, 1-d", "GS, 2-d")], at=LAST),
            ),
        ),
    ),
    distance_figure(
        10,
        "Walks by distance with neighbours (N), 1-d",
        beside(of_dimensions(1, N5, N20)),
        (
            above(
                "a larger neighbourhood is a small benefit",
                "top-5 accuracy of N20 less that of N5, at r = 1e4,",
                0.0,
                leads_at(TOP, [("N20", "N5")], at=NEAR),
            ),
        ),
    ),
    distance_figure(
        11,
        "Walks by distance with neighbours (N), 2-d",
        beside((N5, N20)),
        (
            above(
                "20 neighbours roughly double the accuracy of 5",
                "accuracy of N20 less 1.5 times that of N5, at r = 1e3,",
                0.0,
                leads_at(RAW, [("N20", "N5")], at=LAST, times=1.5),
            ),
        ),
    ),
    distance_figure(
        12,
        "Walks by distance that split, with neighbours (GS-N), 1-d",
        beside(of_dimensions(1, GS_N5, GS_N20)),
        (
            below(
                "a larger neighbourhood is a marginal benefit",
                "accuracy of GS-N20 less that of GS-N5, at r = 1e3,",
                0.1,
                leads_at(RAW, [("GS-N20", "GS-N5")], at=LAST),
            ),
        ),
    ),
    distance_figure(
        13,
        "Walks by distance that split, with neighbours (GS-N), 2-d",
        beside((GS_N5, GS_N20)),
        (
            above(
                "the raw accuracy benefits most from a larger neighbourhood",
                "what GS-N20 gains over GS-N5 in accuracy, less what in top-5, at r = 1e3,",
                0.0,
                gain((RAW, TOP), "GS-N20", "GS-N5", at=LAST),
            ),
        ),
    ),
)


BY_COMPARISON: Final = (
    comparison_figure(
        17,
        "Basic walks by comparison, and GEO for the whole domain",
        tuple(each for dimensions in BOTH for each in beside((BASIC.at(dimensions),))),
        (
            above(
                "GEO performs much worse",
                "top-5 accuracy of walks less that of GEO, at epsilon = 100,",
                0.0,
                leads_at(
                    TOP_PRINTED,
                    [(f"basic, {each}-d", f"GEO for basic, {each}-d") for each in BOTH],
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
            for dimensions in BOTH
            for each in (BASIC.at(dimensions), BASIC.at(dimensions).larger())
        ),
        (
            above(
                "more points lower the accuracy",
                "top-5 accuracy less that among ten times as many points, at epsilon = 75,",
                0.0,
                leads_at(
                    TOP_PRINTED,
                    [(f"basic, {each}-d", f"basic, 10 N, {each}-d") for each in BOTH],
                    at=75.0,
                ),
            ),
            *about(
                "in two dimensions it plateaus at 80 %",
                f"top-5 accuracy in 2-d at epsilon = {MOST:g}",
                0.75,
                0.85,
                height(TOP_PRINTED, "basic, 2-d", at=MOST),
            ),
            *about(
                "the raw accuracy is half of the top-5 accuracy (1-d)",
                f"accuracy in 1-d at epsilon = {MOST:g}",
                0.45,
                0.55,
                height(RAW_PRINTED, "basic, 1-d", at=MOST),
            ),
        ),
    ),
    *(
        comparison_figure(
            18 + dimensions,
            f"Parallel walks by comparison (P), {dimensions}-d",
            of_dimensions(dimensions, BASIC, parallel(4), P8),
            (
                above(
                    "P provides no benefit",
                    "top-5 accuracy of basic walks less that of P4 and P8, at epsilon = 100,",
                    0.0,
                    leads_at(TOP_PRINTED, [("basic", "P4"), ("basic", "P8")], at=100.0),
                ),
            ),
        )
        for dimensions in BOTH
    ),
    comparison_figure(
        21,
        "Walks by comparison that stop early (E), 1-d",
        of_dimensions(1, BASIC, early(4), E8, RESPONSE),
        (
            above(
                "E8 achieves 95 % at epsilon = 50",
                "accuracy of E8 at epsilon = 50",
                0.93,
                height(RAW_PRINTED, "E8", at=50.0),
            ),
        ),
    ),
    comparison_figure(
        22,
        "Walks by comparison that stop early (E), 2-d",
        (BASIC, early(4), E8, RESPONSE),
        (
            above(
                "E8 achieves 100 % at epsilon = 100",
                "top-5 accuracy of E8 at epsilon = 100",
                0.98,
                height(TOP_PRINTED, "E8", at=100.0),
            ),
            above(
                "the earlier, the higher the accuracy",
                "top-5 accuracy of earlier ones less that of later ones, at epsilon = 50,",
                0.0,
                leads_at(TOP_PRINTED, [("E8", "E4"), ("E4", "basic")], at=50.0),
            ),
        ),
    ),
    comparison_figure(
        23,
        "Walks by comparison that split at every level (GS)",
        tuple(greedy().at(dimensions) for dimensions in BOTH),
        (
            below(
                "in two dimensions it has at most 40 % top-5 accuracy",
                f"top-5 accuracy of GS in 2-d at epsilon = {MOST:g}",
                0.45,
                height(TOP_PRINTED, "GS, 2-d", at=MOST),
            ),
        ),
    ),
    comparison_figure(
        24,
        "Walks by comparison with neighbours (N), 1-d",
        of_dimensions(1, N5, N20),
        (
            below(
                "the size of the neighbourhood makes little to no difference",
                "top-5 accuracy of N20 less that of N5, at epsilon = 100,",
                0.05,
                leads_at(TOP_PRINTED, [("N20", "N5")], at=100.0),
            ),
        ),
    ),
    *(
        comparison_figure(
            number,
            title,
            ways,
            (
                above(
                    "a larger neighbourhood improves the raw accuracy more than the top-5 one",
                    f"what {more} gains over {less} in accuracy, less what in top-5, at "
                    f"epsilon = {MOST:g},",
                    0.0,
                    gain((RAW_PRINTED, TOP_PRINTED), more, less, at=MOST),
                ),
            ),
        )
        for number, title, ways, less, more in (
            (25, "Walks by comparison with neighbours (N), 2-d", (N5, N20), "N5", "N20"),
            (
                27,
                "Walks by comparison that split, with neighbours (GS-N), 2-d",
                (GS_N5, GS_N20),
                "GS-N5",
                "GS-N20",
            ),
        )
    ),
    comparison_figure(
        26,
        "Walks by comparison that split, with neighbours (GS-N), 1-d",
        of_dimensions(1, GS_N5, GS_N20),
        (
            below(
                "the size of the neighbourhood does not change the accuracy",
                f"accuracy of GS-N20 less that of GS-N5, at epsilon = {MOST:g},",
                0.05,
                leads_at(RAW_PRINTED, [("GS-N20", "GS-N5")], at=MOST),
            ),
        ),
    ),
)


COMPARED: Final = (
    distance_figure(
        14,
        "Walks by distance compared, 1-d",
        of_dimensions(1, *ALL),
        (
            *(
                above(
                    f"E8 performs best{where}",
                    f"accuracy of E8 less each other's, at r = {radius},",
                    0.0,
                    leads_at(measure, over(E8, ALL), at=at),
                )
                for radius, at in (("1e5", MIDDLE), ("1e4", NEAR))
                for measure, where in ((RAW, ""), (RAW + EQUAL, ", where all spend the same"))
            ),
            above(
                "P8 performs worst",
                "accuracy of each other less that of P8, at r = 1e4,",
                0.0,
                leads_at(RAW, [(other, one) for one, other in over(P8, ALL)], at=NEAR),
            ),
        ),
    ),
    distance_figure(
        15,
        "Walks by distance compared, 2-d",
        ALL,
        (
            above(
                "GS-N performs best at small radii",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads_at(RAW, over(GS_N20, ALL), at=NEAR),
            ),
            above(
                "GS-N performs best at small radii, where all spend the same",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads_at(RAW + EQUAL, over(GS_N20, ALL), at=NEAR),
            ),
            *about(
                "it achieves about 85 % at a radius of 10,000",
                "accuracy of GS-N20 at r = 1e4",
                0.8,
                0.9,
                height(RAW, "GS-N20", at=NEAR),
            ),
        ),
    ),
    distance_figure(
        16,
        "Walks by distance compared, real places",
        ALL,
        (
            above(
                "GS-N performs best",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads_at(RAW, over(GS_N20, ALL), at=NEAR),
            ),
        ),
    ),
    *(
        comparison_figure(
            number,
            title,
            of_dimensions(dimensions, *ways, RESPONSE),
            (
                above(
                    "E8 provides the most for the smallest budget",
                    "top-5 accuracy of E8 less each other walk's, at epsilon = 50,",
                    0.0,
                    leads_at(TOP_PRINTED, over(E8, ways), at=50.0),
                ),
                above(
                    "not in the thesis: one response does more than E8 at what both spend",
                    "top-5 accuracy of the response less that of E8, at epsilon = 10,",
                    0.0,
                    leads_at(TOP_SPENT, [(RESPONSE.label, "E8")], at=10.0),
                ),
            ),
        )
        for number, title, dimensions, ways in (
            (28, "Walks by comparison compared, 1-d", 1, BUT_P),
            (29, "Walks by comparison compared, 2-d", 2, BUT_P),
            (30, "Walks by comparison compared, real places", 2, ALL),
            (31, "The best walks by comparison, real places", 2, (BASIC, E8, N20)),
        )
    ),
)


TREEWALK_FIGURES: Final = tuple(
    sorted(
        (*BY_DISTANCE, *BY_COMPARISON, *COMPARED),
        key=lambda figure: int(figure.name.split(".")[1]),
    )
)
"""In the order of the thesis."""
