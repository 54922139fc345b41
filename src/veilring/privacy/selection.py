"""Choosing a candidate by its score, or reporting a value as itself or as another.

Scores are whole numbers, budgets are exact fractions of floats, and every mechanism draws from
exactly the distribution that it claims. Permute-and-flip is never worse than the exponential
mechanism at the same budget: each candidate's expected error is at most as large (McKenna and
Sheldon, NeurIPS 2020). Its distribution is that of the highest score plus exponential noise (Ding
et al., 2021).

With sensitivity D, scores enter as `epsilon * score / (2 D)`. If a change of the data moves all
scores in one direction, as adding a row does to counts, they are *monotone*, and the factor 2 is
not needed.

`ResponseDistribution` is k-ary randomised response, also called generalised randomised response or
direct encoding (Kairouz, Oh and Viswanath, 2014; Wang et al., USENIX Security 2017). The true value
is reported with `p = a / N`, each of the other `d - 1` values with `q = b / N`, where
`N = a + (d - 1) b`; the loss is exactly `ln(a / b)`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilring.arrays import Floats, Ints
from veilring.privacy.checks import require, require_positive, require_that
from veilring.privacy.draws import bernoulli_exp
from veilring.privacy.exact import exp_floor, log_ceil

# Differences of such scores are exact, both as whole numbers and as floats.
_GREATEST_SCORE: Final = 2**52


def permute_and_flip(
    scores: Ints,
    epsilon: ArrayLike,
    rng: np.random.Generator,
    *,
    sensitivity: int = 1,
    monotone: bool = False,
) -> Ints:
    """Choose candidates by permute-and-flip, exactly.

    Source: McKenna and Sheldon, NeurIPS 2020, Algorithm 1: in a random order, each candidate flips
    a coin with probability `e**(epsilon * (score - best) / (2 D))`, and the first heads wins. The
    order and the coins are independent, so all coins are flipped, and one of the heads is drawn.

    Args:
        scores: Shape (runs, candidates), at least one candidate, from -2**52 to 2**52.
        epsilon: The budget of a run: a number above 0 for all, or shape (runs,).
        sensitivity: D, the maximum change of any score by one record, at least 1.

    Returns:
        The chosen candidates, shape (runs,).
    """
    heads = bernoulli_exp(*exponents(scores, epsilon, sensitivity, monotone=monotone), rng)
    winner = rng.integers(0, heads.sum(axis=1))
    return np.asarray((heads.cumsum(axis=1) > winner[:, None]).argmax(axis=1))


def permute_and_flip_probabilities(
    scores: Ints, epsilon: ArrayLike, *, sensitivity: int = 1, monotone: bool = False
) -> Floats:
    """Return the probabilities of `permute_and_flip`, shape (runs, candidates).

    A candidate with coin p wins with `p` times the mean of `1 / (1 + heads among the others)`,
    the integral over t from 0 to 1 of `prod(1 - p_j + p_j t)` over the others. That is a polynomial
    of a degree below the number of candidates, which Gauss's rule integrates without error.
    """
    gamma, _ = exponents(scores, epsilon, sensitivity, monotone=monotone)
    p = np.exp(-gamma)
    nodes, weights = np.polynomial.legendre.leggauss(-(-p.shape[1] // 2))
    total = np.zeros_like(p)
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        factors = 1 - p + p * t
        total += weight * factors.prod(axis=1, keepdims=True) / factors
    return np.asarray(p * total)


def exponents(
    scores: Ints, epsilon: ArrayLike, sensitivity: int, *, monotone: bool
) -> tuple[Floats, Callable[[int], Fraction]]:
    """Return `epsilon * (best - score) / (2 D)`, and a function for the exact values."""
    shape = scores.shape
    right = len(shape) == 2 and shape[-1] > 0  # noqa: PLR2004  (runs, candidates)
    require_that(
        right,
        "scores",
        f"scores has the shape {shape}; it must be (runs, candidates), with at least one candidate",
    )
    require(np.issubdtype(scores.dtype, np.integer), "scores", scores.dtype, "whole numbers")
    inside = (scores >= -_GREATEST_SCORE) & (scores <= _GREATEST_SCORE)
    require_that(bool(inside.all()), "scores", "scores must be from -2**52 to 2**52")
    require(sensitivity >= 1, "sensitivity", sensitivity, "a whole number of at least 1")
    given = np.asarray(epsilon, dtype=np.float64)
    allowed = f"one number above 0, or one for each of {len(scores)} runs"
    right = given.shape in {(), shape[:1]} and bool(((given > 0) & np.isfinite(given)).all())
    require_that(right, "epsilon", f"epsilon has the shape {given.shape}; it must be {allowed}")
    budgets = np.broadcast_to(given, shape[:1])
    divisor = sensitivity if monotone else 2 * sensitivity
    wide = scores.astype(np.int64)  # differences of narrow numbers would wrap
    behind = wide.max(axis=1, keepdims=True) - wide

    def exact(index: int) -> Fraction:
        run = index // shape[1]
        return int(behind.flat[index]) * Fraction(float(budgets[run])) / divisor

    return behind * budgets[:, None] / divisor, exact


# A draw below N takes one word, and stays a signed whole number.
_GREATEST_TOTAL: Final = 2**63
EPSILON_MAX: Final = 40.0
"""The maximum epsilon of a response: e**43 is 2**62, above which no weight is left for the other
values."""


@dataclass(frozen=True, slots=True)
class ResponseDistribution:
    """The exact probabilities of reporting one of d values as itself or as another.

    The weights `own` and `other` are a and b above.
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
        """Return the distribution with the largest loss up to `epsilon` that 63 bits represent."""
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
    """Report each value as itself or as another, with exactly the distribution's probabilities."""
    inside = values.size == 0 or bool(values.min() >= 0 and values.max() < distribution.domain)
    require_that(inside, "values", f"values must be from 0 to {distribution.domain - 1}")
    draws = rng.integers(0, distribution.total, values.shape)
    # The draws from `own` on are divided among the others, in their order.
    others = (draws - distribution.own) // distribution.other
    others += others >= values
    return np.where(draws < distribution.own, values, others).astype(np.int64)
