"""Randomised response with exact weights.

`ResponseDistribution` is k-ary randomised response, also called generalised randomised response or
direct encoding (Kairouz, Oh and Viswanath, 2014; Wang et al., USENIX Security 2017). The true value
is reported with `p = a / N`, each of the other `d - 1` values with `q = b / N`, where
`N = a + (d - 1) b`; the loss is exactly `ln(a / b)`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.privacy.checks import require, require_positive, require_that
from veilring.privacy.exact import exp_floor, log_ceil

WEIGHT_BITS: Final = 64
# A draw below N takes one word, and stays a signed whole number.
_GREATEST_TOTAL: Final = 2**63
EPSILON_MAX: Final = 40.0
"""The maximum epsilon of a response: e**43 is 2**62, above which no weight is left for the other
values."""


@dataclass(frozen=True, slots=True)
class ResponseDistribution:
    """The exact probabilities of reporting a value as itself or as another.

    Attributes:
        domain: d, the number of values, at least 2.
        other: b, the weight of each other value, at least 1 and at most `own`.
    """

    domain: int
    own: int
    other: int

    def __post_init__(self) -> None:
        require(self.domain >= 2, "domain", self.domain, "a whole number of at least 2")  # noqa: PLR2004  (one value needs no noise)
        require(1 <= self.other <= self.own, "other", self.other, f"from 1 to {self.own}")
        require(self.total <= _GREATEST_TOTAL, "own, other", self.total, "2**63 at most in total")

    @classmethod
    def spending(cls, epsilon: float | Fraction, domain: int) -> Self:
        """Return the distribution with the largest loss up to `epsilon` that 63 bits can represent.

        Args:
            epsilon: Above 0, at most `EPSILON_MAX`.
            domain: The number of values, at least 2.
        """
        exact = require_positive("epsilon", epsilon)
        require(exact <= EPSILON_MAX, "epsilon", epsilon, f"at most {EPSILON_MAX:g}")
        ratio = max(Fraction(1), exp_floor(exact))  # for a tiny budget the floor is below 1
        room = ratio + domain - 1 <= _GREATEST_TOTAL
        require(room, "domain", domain, "fewer values; at this epsilon these exceed 63 bits")
        other = 1 << (math.floor(_GREATEST_TOTAL / (ratio + domain - 1)).bit_length() - 1)
        return cls(domain, math.floor(ratio * other), other)

    @property
    def total(self) -> int:
        """N, the sum of all weights."""
        return self.own + (self.domain - 1) * self.other

    @property
    def p(self) -> Fraction:
        """The probability that the true value is reported."""
        return Fraction(self.own, self.total)

    @property
    def q(self) -> Fraction:
        """The probability that a certain other value is reported."""
        return Fraction(self.other, self.total)

    @property
    def epsilon(self) -> float:
        """The exact loss, `ln(p / q)`, rounded up to a float."""
        return log_ceil(Fraction(self.own, self.other))


def randomised_response(
    values: NDArray[np.integer], distribution: ResponseDistribution, rng: np.random.Generator
) -> Ints:
    """Report each value as itself or as another, with exactly the distribution's probabilities.

    Args:
        values: Whole numbers from 0 to `distribution.domain - 1`, of any shape.

    Returns:
        The reports, of the same shape.
    """
    inside = values.size == 0 or bool(values.min() >= 0 and values.max() < distribution.domain)
    require_that(inside, "values", f"values must be from 0 to {distribution.domain - 1}")
    draws = rng.integers(0, distribution.total, values.shape)
    # The draws from `own` on are divided among the others, in their order.
    others = (draws - distribution.own) // distribution.other
    others += others >= values
    return np.where(draws < distribution.own, values, others).astype(np.int64)
