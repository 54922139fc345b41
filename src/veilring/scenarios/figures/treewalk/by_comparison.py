"""Figures 6.17 to 6.27: walks by comparison, one variant after the other."""

from typing import Final

from veilring.scenarios.figures.claims import above, below
from veilring.scenarios.figures.treewalk.evidence import gain, height, leads
from veilring.scenarios.figures.treewalk.figures import comparison_figure
from veilring.scenarios.figures.treewalk.shared import (
    BASIC,
    BOTH,
    E8,
    GS_N5,
    GS_N20,
    MOST,
    N5,
    N20,
    P8,
    RAW_PRINTED,
    RESPONSE,
    TOP_PRINTED,
    about,
    beside,
    of_dimensions,
)
from veilring.scenarios.figures.treewalk.ways import early, greedy, parallel

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
                leads(
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
                leads(
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
                    leads(TOP_PRINTED, [("basic", "P4"), ("basic", "P8")], at=100.0),
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
                leads(TOP_PRINTED, [("E8", "E4"), ("E4", "basic")], at=50.0),
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
                leads(TOP_PRINTED, [("N20", "N5")], at=100.0),
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
                leads(RAW_PRINTED, [("GS-N20", "GS-N5")], at=MOST),
            ),
        ),
    ),
)
