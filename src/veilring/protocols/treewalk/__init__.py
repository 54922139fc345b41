"""Private nearest-neighbour look-ups: a client hides its query from a server of public points.

Source: "Differentially private tree-based nearest neighbours", a thesis whose algorithms and
figures are cited by their numbers.
"""

from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, walk, walk_loss
from veilring.protocols.treewalk.algorithm.tree import Places, build_tree
from veilring.protocols.treewalk.memory import RememberedAnswer, WalkMemory, ask_once, snap
from veilring.protocols.treewalk.plan import (
    BUCKET_SPLITS,
    KnownTop,
    LookupOption,
    LookupPlan,
    recommend_lookup,
    response_cost,
    walk_cost,
)
from veilring.protocols.treewalk.roles import (
    Keeper,
    NearestPlaces,
    bucket_client,
    bucket_server,
    walk_client,
    walk_server,
)

__all__ = (
    "BUCKET_SPLITS",
    "Comparison",
    "Keeper",
    "KnownTop",
    "LookupOption",
    "LookupPlan",
    "NearestPlaces",
    "Places",
    "RememberedAnswer",
    "WalkMemory",
    "ask_once",
    "bucket_client",
    "bucket_server",
    "build_tree",
    "recommend_lookup",
    "response_cost",
    "snap",
    "walk",
    "walk_client",
    "walk_cost",
    "walk_loss",
    "walk_server",
)
