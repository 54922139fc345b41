"""Gaussian differential privacy (Dong, Roth and Su 2022)."""

import math
from dataclasses import dataclass
from typing import Self

from veilring.privacy.accounting.checks import (
    require_count,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
)
from veilring.privacy.accounting.search import greatest, least
from veilring.privacy.accounting.zcdp import ZCDP


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """Telling two neighbours apart is as hard as telling N(0, 1) from N(mu, 1).

    For Gaussian noise this loses nothing: composition and conversion are exact.

    Attributes:
        mu: At least 0.

    Raises:
        InputError: If mu is negative or no number.
    """

    mu: float

    def __post_init__(self) -> None:
        require_loss("mu", self.mu)

    @classmethod
    def of_gaussian(cls, sigma: float, sensitivity: float = 1.0) -> Self:
        """Return what Gaussian noise gives at this L2 sensitivity (Theorem 1)."""
        require_noise(sigma, sensitivity)
        return cls(sensitivity / sigma)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float) -> Self:
        """Return the weakest Gaussian guarantee that implies (epsilon, delta)-DP.

        Raises:
            InputError: If epsilon is negative or infinite, or delta is outside (0, 1).
        """
        require_epsilon(epsilon)
        require_delta(delta)
        return cls(greatest(lambda mu: cls(mu).delta(epsilon) <= delta))

    def compose(self, *others: Self) -> Self:
        """Return what all guarantee together: the squares of mu add up (Corollary 2)."""
        return type(self)(math.hypot(self.mu, *(other.mu for other in others)))

    def repeat(self, count: int) -> Self:
        """Return what `count` releases like this guarantee together."""
        require_count(count)
        return type(self)(math.sqrt(count) * self.mu if count else 0.0)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta (Corollary 1; Balle and Wang 2018, Theorem 8).

        With `a = epsilon/mu - mu/2` and `b = epsilon/mu + mu/2` it is
        `Phi(-a) - e**epsilon Phi(-b)`; and `e**epsilon phi(b) = phi(a)`, which lets the second
        term be found without overflow.
        """
        from scipy.special import erfcx  # noqa: PLC0415  (a party that counts otherwise starts sooner)

        require_epsilon(epsilon)
        if self.mu in {0.0, math.inf}:
            return float(self.mu > 0)
        a, b = epsilon / self.mu - self.mu / 2, epsilon / self.mu + self.mu / 2
        second = math.exp(-a * a / 2) * float(erfcx(b / math.sqrt(2)))
        return max(0.0, (math.erfc(a / math.sqrt(2)) - second) / 2)

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon for a delta in (0, 1)."""
        require_delta(delta)
        if self.mu == math.inf:
            return math.inf
        return 0.0 if self.delta(0) <= delta else least(lambda eps: self.delta(eps) <= delta)

    def zcdp(self) -> ZCDP:
        """Return the zCDP that follows: rho is `mu**2 / 2` (its Renyi divergences are equal)."""
        return ZCDP(self.mu**2 / 2)

    def sigma(self, sensitivity: float = 1.0) -> float:
        """Return the standard deviation of Gaussian noise at this L2 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / self.mu if self.mu else math.inf
