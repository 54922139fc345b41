"""Figures 6.2 to 6.13: walks by distance, one variant after the other."""

from typing import Final

from veilring.scenarios.figures.claims import above, below
from veilring.scenarios.figures.treewalk.evidence import gain, height, leads
from veilring.scenarios.figures.treewalk.figures import EQUAL, RAW, TOP, distance_figure
from veilring.scenarios.figures.treewalk.shared import (
    BASIC,
    BOTH,
    E8,
    FAR,
    GS_N5,
    GS_N20,
    LAST,
    MIDDLE,
    N5,
    N20,
    NEAR,
    P8,
    about,
    beside,
    of_dimensions,
)
from veilring.scenarios.figures.treewalk.ways import early, greedy, parallel

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
                leads(TOP, [("basic", "basic, 10 N")], at=NEAR),
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
                leads(TOP, [("basic, 2-d", "basic, 1-d")], at=FAR),
            ),
            above(
                "in two dimensions it is lower at small radii",
                "top-5 accuracy in 1-d less that in 2-d, at r = 1e3,",
                0.0,
                leads(TOP, [("basic, 1-d", "basic, 2-d")], at=LAST),
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
                leads(
                    TOP,
                    [(f"GEO for {each}", each) for each in ("basic", "P4", "P8")],
                    at=MIDDLE,
                ),
            ),
            above(
                "the more splits, the worse",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads(TOP, [("basic", "P4"), ("P4", "P8")], at=NEAR),
            ),
            above(
                "the more splits, the worse, where all spend the same",
                "top-5 accuracy of fewer splits less that of more, at r = 1e4,",
                0.0,
                leads(TOP + EQUAL, [("basic", "P4"), ("P4", "P8")], at=NEAR),
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
                leads(RAW, [("P8", "basic")], at=LAST),
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
                leads(RAW, [("E8", "E4"), ("E4", "basic")], at=NEAR),
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
                leads(RAW, [("GS, 1-d", "GS, 2-d")], at=LAST),
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
                leads(TOP, [("N20", "N5")], at=NEAR),
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
                leads(RAW, [("N20", "N5")], at=LAST, times=1.5),
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
                leads(RAW, [("GS-N20", "GS-N5")], at=LAST),
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
