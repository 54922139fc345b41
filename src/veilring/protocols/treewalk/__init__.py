"""Private nearest-neighbour look-ups: a client hides its query from a server of public points.

Source: "Differentially private tree-based nearest neighbours", a thesis whose algorithms and
figures are cited by their numbers.
"""

from veilring.protocols.treewalk.algorithm.one_message import Blur
from veilring.protocols.treewalk.algorithm.tree import Places, build_tree
from veilring.protocols.treewalk.algorithm.walks import (
    BASIC,
    Comparison,
    Distance,
    Spending,
    Variant,
    spending,
    walk,
)
from veilring.protocols.treewalk.memory import (
    RememberedAnswer,
    WalkMemory,
    ask_once,
    snap,
    unit_within,
)
from veilring.protocols.treewalk.plan import (
    BUCKET_SPLITS,
    BlurPlan,
    BucketPlan,
    KnownTop,
    LookupOption,
    WalkPlan,
    blur_cost,
    bucket_cost,
    recommend_lookup,
    walk_cost,
)
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    blur_client,
    blur_server,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)

__all__ = (
    "BASIC",
    "BUCKET_SPLITS",
    "Blur",
    "BlurPlan",
    "BucketPlan",
    "Comparison",
    "Distance",
    "Keeper",
    "KnownTop",
    "LookupOption",
    "NearestPlaces",
    "Places",
    "RememberedAnswer",
    "Spending",
    "Variant",
    "WalkMemory",
    "WalkPlan",
    "ask_once",
    "blur_client",
    "blur_cost",
    "blur_server",
    "bucket_client",
    "bucket_cost",
    "bucket_server",
    "build_tree",
    "recommend_lookup",
    "snap",
    "spending",
    "unit_within",
    "walk",
    "walk_client",
    "walk_cost",
    "walk_server",
)
