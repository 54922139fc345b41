"""Figures 6.14 to 6.16 and 6.28 to 6.31: the variants beside each other."""

from typing import Final

from veilring.scenarios.figures.claims import above
from veilring.scenarios.figures.treewalk.evidence import height, leads
from veilring.scenarios.figures.treewalk.figures import (
    EQUAL,
    RAW,
    comparison_figure,
    distance_figure,
)
from veilring.scenarios.figures.treewalk.shared import (
    ALL,
    BASIC,
    BUT_P,
    E8,
    GS_N20,
    MIDDLE,
    N20,
    NEAR,
    P8,
    RESPONSE,
    TOP_PRINTED,
    TOP_SPENT,
    about,
    of_dimensions,
    over,
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
                    leads(measure, over(E8, ALL), at=at),
                )
                for radius, at in (("1e5", MIDDLE), ("1e4", NEAR))
                for measure, where in ((RAW, ""), (RAW + EQUAL, ", where all spend the same"))
            ),
            above(
                "P8 performs worst",
                "accuracy of each other less that of P8, at r = 1e4,",
                0.0,
                leads(RAW, [(other, one) for one, other in over(P8, ALL)], at=NEAR),
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
                leads(RAW, over(GS_N20, ALL), at=NEAR),
            ),
            above(
                "GS-N performs best at small radii, where all spend the same",
                "accuracy of GS-N20 less each other's, at r = 1e4,",
                0.0,
                leads(RAW + EQUAL, over(GS_N20, ALL), at=NEAR),
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
                leads(RAW, over(GS_N20, ALL), at=NEAR),
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
                    leads(TOP_PRINTED, over(E8, ways), at=50.0),
                ),
                above(
                    "not in the thesis: one response does more than E8 at what both spend",
                    "top-5 accuracy of the response less that of E8, at epsilon = 10,",
                    0.0,
                    leads(TOP_SPENT, [(RESPONSE.label, "E8")], at=10.0),
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
