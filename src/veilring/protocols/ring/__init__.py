"""Private kNN among peers in a ring: PP-TopK, secure sums and PP-kNN.

Source: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", 2007.
"""

from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.algorithm.topk import TopKParameters, exactness_bound, rounds_for
from veilring.protocols.ring.cost import knn_cost, sum_cost, topk_cost
from veilring.protocols.ring.roles import KNNAnswer, KNNParameters, pp_topk, private_knn, secure_sum

__all__ = (
    "FixedPoint",
    "KNNAnswer",
    "KNNParameters",
    "SumMethod",
    "TopKParameters",
    "Weights",
    "exactness_bound",
    "knn_cost",
    "pooled_knn",
    "pp_topk",
    "private_knn",
    "rounds_for",
    "secure_sum",
    "sum_cost",
    "topk_cost",
)
