"""The mathematics of the radius family: pure vectorised functions, no I/O, no asyncio.

`balls` says which rows and which other balls a ball meets, `cliques` how many balls can share a
row, `allocation` what each query may spend, `voting` how a label is drawn: together they are
`radius`, private r-N. `candidates` and `grid` turn k into a radius, `conversion` puts them to use,
and `nearest` is private k-N. `adaptive` answers queries that come one at a time.
"""

from veilring.protocols.radius.algorithm.adaptive import Answered, answer_next, pay
from veilring.protocols.radius.algorithm.allocation import Allocation, AllocationRule, allocate
from veilring.protocols.radius.algorithm.balls import (
    ABSOLUTE_SLACK,
    BATCH_MAX,
    FEATURES_MAX,
    RELATIVE_SLACK,
    count_votes,
    distances,
    overlaps,
)
from veilring.protocols.radius.algorithm.candidates import (
    CANDIDATES_MAX,
    Spacing,
    candidate_counts,
    candidate_qualities,
    candidate_radii,
    uniform_radius,
)
from veilring.protocols.radius.algorithm.cliques import WORK_MAX, CliqueBounds, largest_cliques
from veilring.protocols.radius.algorithm.conversion import (
    ByCandidates,
    ByGrid,
    Chooser,
    Conversion,
    convert,
    plan_conversion,
    true_radii,
)
from veilring.protocols.radius.algorithm.grid import (
    CELLS_MAX,
    GAMMA,
    GAMMA_MIN,
    GRID_FEATURES_MAX,
    NoisyGrid,
    cell_counts,
    grid_radii,
    grid_side,
    noisy_grid,
)
from veilring.protocols.radius.algorithm.nearest import (
    KNNParameters,
    LabelledNearest,
    label_nearest,
    label_nearest_baseline,
    nearest_votes,
    released_rows,
)
from veilring.protocols.radius.algorithm.radius import (
    RNParameters,
    label_batch,
    label_openly,
    plan_batch,
)
from veilring.protocols.radius.algorithm.volumes import cell_points, covered_1d, covered_2d
from veilring.protocols.radius.algorithm.voting import Mechanism, label_law, vote

__all__ = (
    "ABSOLUTE_SLACK",
    "BATCH_MAX",
    "CANDIDATES_MAX",
    "CELLS_MAX",
    "FEATURES_MAX",
    "GAMMA",
    "GAMMA_MIN",
    "GRID_FEATURES_MAX",
    "RELATIVE_SLACK",
    "WORK_MAX",
    "Allocation",
    "AllocationRule",
    "Answered",
    "ByCandidates",
    "ByGrid",
    "Chooser",
    "CliqueBounds",
    "Conversion",
    "KNNParameters",
    "LabelledNearest",
    "Mechanism",
    "NoisyGrid",
    "RNParameters",
    "Spacing",
    "allocate",
    "answer_next",
    "candidate_counts",
    "candidate_qualities",
    "candidate_radii",
    "cell_counts",
    "cell_points",
    "convert",
    "count_votes",
    "covered_1d",
    "covered_2d",
    "distances",
    "grid_radii",
    "grid_side",
    "label_batch",
    "label_law",
    "label_nearest",
    "label_nearest_baseline",
    "label_openly",
    "largest_cliques",
    "nearest_votes",
    "noisy_grid",
    "overlaps",
    "pay",
    "plan_batch",
    "plan_conversion",
    "released_rows",
    "true_radii",
    "uniform_radius",
    "vote",
)
