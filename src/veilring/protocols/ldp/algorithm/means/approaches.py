"""The paper's three approaches to many features, by name, and no noise at all as a fourth."""

from fractions import Fraction
from math import inf
from typing import Final, Literal

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.means.each_feature import EachFeature
from veilring.protocols.ldp.algorithm.means.laplace import Laplace
from veilring.protocols.ldp.algorithm.means.one_bit import OneBit
from veilring.protocols.ldp.algorithm.means.plain import Plain
from veilring.protocols.ldp.algorithm.means.sampled_feature import SampledFeature
from veilring.protocols.ldp.algorithm.means.vectors import Means

Approach = Literal["all-features", "one-bit", "one-feature"]
"""Every feature with noise scaled by their number; one bit of one; one with Laplace noise."""
APPROACHES: Final[tuple[Approach, ...]] = ("all-features", "one-bit", "one-feature")


def make_means(approach: Approach, epsilon: float, features: int, classes: int = 1) -> Means:
    """Return the randomiser of an approach; without noise if epsilon is infinite.

    Args:
        approach: 1, 2 or 3 of the paper's Section 2.2.3, in the order of `APPROACHES`.
        epsilon: What a report may spend, above 0.
        features: How many, at least 1.
        classes: How many to hide a client's among, or 1.

    Raises:
        InputError: If an argument is not allowed.
    """
    if features < 1:
        raise InputError("features", features, "an integer of at least 1")
    if not epsilon > 0:
        raise InputError("epsilon", epsilon, "a number above 0")
    if epsilon == inf:
        return EachFeature(Plain(), features, classes)
    match approach:
        case "all-features":
            return EachFeature(Laplace(Fraction(epsilon) / features), features, classes)
        case "one-bit":
            return SampledFeature(OneBit(epsilon), features, classes)
        case "one-feature":
            return SampledFeature(Laplace(epsilon), features, classes)
        case _:
            raise InputError("approach", approach, ", ".join(APPROACHES))
