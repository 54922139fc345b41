"""A client that hides its query: private walks down a server's tree of public points.

Source: "Differentially private tree-based nearest neighbours", a thesis whose algorithms and
figures are cited by their numbers.
"""

from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.rivals import Blur
from veilring.protocols.treewalk.algorithm.spending import Spending, spending
from veilring.protocols.treewalk.algorithm.steps import Comparison, Distance
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.protocols.treewalk.algorithm.walks import BASIC, Variant, walk
from veilring.protocols.treewalk.memory import Answer, Memory, remembered, snap, unit_within
from veilring.protocols.treewalk.one_message import (
    BUCKET_SPLITS,
    BlurPlan,
    BucketPlan,
    KnownTop,
    blur_cost,
    bucket_cost,
)
from veilring.protocols.treewalk.plan import Plan, walk_cost
from veilring.protocols.treewalk.planner import Option, recommend
from veilring.protocols.treewalk.roles import (
    Keeper,
    Nearest,
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
    "Answer",
    "Blur",
    "BlurPlan",
    "BucketPlan",
    "Comparison",
    "Distance",
    "Keeper",
    "KnownTop",
    "Memory",
    "Nearest",
    "Option",
    "Places",
    "Plan",
    "Spending",
    "Variant",
    "blur_client",
    "blur_cost",
    "blur_server",
    "bucket_client",
    "bucket_cost",
    "bucket_server",
    "build_tree",
    "recommend",
    "remembered",
    "snap",
    "spending",
    "unit_within",
    "walk",
    "walk_client",
    "walk_cost",
    "walk_server",
)
