"""The roles of the ring family: one coroutine each, over a `Party`."""

from veilring.protocols.ring.algorithm import SumMethod
from veilring.protocols.ring.roles.knn import KNNAnswer, KNNParameters, private_knn
from veilring.protocols.ring.roles.nested import nested_knn
from veilring.protocols.ring.roles.rings import NestedRings, group_sizes, nest
from veilring.protocols.ring.roles.sums import secure_sum, sum_rounds
from veilring.protocols.ring.roles.topk import pp_topk

__all__ = (
    "KNNAnswer",
    "KNNParameters",
    "NestedRings",
    "SumMethod",
    "group_sizes",
    "nest",
    "nested_knn",
    "pp_topk",
    "private_knn",
    "secure_sum",
    "sum_rounds",
)
