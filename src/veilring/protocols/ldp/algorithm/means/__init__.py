"""Mean mechanisms: estimates of the means of numbers in [-1, 1]."""

from veilring.protocols.ldp.algorithm.means.approaches import APPROACHES, Approach, make_means
from veilring.protocols.ldp.algorithm.means.each_feature import EachFeature
from veilring.protocols.ldp.algorithm.means.hybrid import Hybrid
from veilring.protocols.ldp.algorithm.means.laplace import Laplace
from veilring.protocols.ldp.algorithm.means.law import Law
from veilring.protocols.ldp.algorithm.means.one_bit import OneBit
from veilring.protocols.ldp.algorithm.means.piecewise import Piecewise
from veilring.protocols.ldp.algorithm.means.plain import Plain
from veilring.protocols.ldp.algorithm.means.sampled_feature import SampledFeature
from veilring.protocols.ldp.algorithm.means.signs import SignVector
from veilring.protocols.ldp.algorithm.means.vectors import Means

__all__ = (
    "APPROACHES",
    "Approach",
    "EachFeature",
    "Hybrid",
    "Laplace",
    "Law",
    "Means",
    "OneBit",
    "Piecewise",
    "Plain",
    "SampledFeature",
    "SignVector",
    "make_means",
)
