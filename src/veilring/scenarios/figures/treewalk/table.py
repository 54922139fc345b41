"""Figures 6.2 to 6.31 as a table: what each shows, and what the thesis claims of it.

Given in the thesis: 100,000 and 1,000,000 uniform points, ε_i = 1 for distances, radii from 1e3 to
1e9, the variants, and what stands beside them. Chosen here: the points of the axes, the sizes of
P, E and N where only one is named, 400 queries, 8 trees, and the bounds that make "about", "high",
"little" and "roughly" testable. Curves for ten times as many points are drawn for generated ones.
"""

from typing import Final

from veilring.scenarios.figures.treewalk.by_comparison import BY_COMPARISON
from veilring.scenarios.figures.treewalk.by_distance import BY_DISTANCE
from veilring.scenarios.figures.treewalk.compared import COMPARED

FIGURES: Final = tuple(
    sorted(
        (*BY_DISTANCE, *BY_COMPARISON, *COMPARED),
        key=lambda figure: int(figure.name.split(".")[1]),
    )
)
"""In the order of the thesis."""
