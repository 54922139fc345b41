"""k-ary randomised response whose probabilities are whole numbers over a whole number.

Also called generalised randomised response or direct encoding (Kairouz, Oh and Viswanath, 2014;
Wang et al., USENIX Security 2017). The true value is reported with `p = a / N`, each of the other
`d - 1` values with `q = b / N`, where `N = a + (d - 1) b`; the loss is exactly `ln(a / b)`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.checks import require, require_positive
from veilring.privacy.loss import exp_floor, log_ceil

# A draw below N takes one word, and stays a whole number with a sign.
_GREATEST_TOTAL: Final = 2**63
EPSILON_MAX: Final = 40.0
"""Of a response: e**43 is 2**62, above which nothing is left for the other values."""


@dataclass(frozen=True, slots=True)
class ResponseLaw:
    """With which exact probabilities a value is reported as itself or as another.

    Attributes:
        domain: d, the number of values, at least 2.
        own: a, the weight of the true value.
        other: b, the weight of each other value, at least 1 and at most `own`.

    Raises:
        InputError: If one of them is outside its range, or they add up to more than 2**63.
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
        """Return the law with a loss of at most `epsilon`, and as near to it as 63 bits go.

        Args:
            epsilon: Above 0, at most `EPSILON_MAX`.
            domain: The number of values, at least 2.

        Raises:
            InputError: If an argument is outside its range, or the domain too large to answer
                with this budget in 63 bits.
        """
        exact = require_positive("epsilon", epsilon)
        require(exact <= EPSILON_MAX, "epsilon", epsilon, f"at most {EPSILON_MAX:g}")
        ratio = max(Fraction(1), exp_floor(exact))  # the floor of a tiny budget's is below 1
        room = ratio + domain - 1 <= _GREATEST_TOTAL
        require(room, "domain", domain, "fewer values, which have room in 63 bits")
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
    values: NDArray[np.integer], law: ResponseLaw, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Report each value as itself or as another, with exactly the law's probabilities.

    Args:
        values: Whole numbers from 0 to `law.domain - 1`, of any shape.
        law: The probabilities.
        rng: Source of the draws: one a value.

    Returns:
        The reports, of the same shape.

    Raises:
        InputError: If a value is outside the domain.
    """
    inside = values.size == 0 or bool(values.min() >= 0 and values.max() < law.domain)
    require(inside, "values", "outside the domain", f"from 0 to {law.domain - 1}")
    draws = rng.integers(0, law.total, values.shape)
    # The draws from `own` on are shared out among the others, in their order.
    others = (draws - law.own) // law.other
    others += others >= values
    return np.where(draws < law.own, values, others).astype(np.int64)
