"""Zero-concentrated differential privacy (Bun and Steinke 2016)."""

import math
from dataclasses import dataclass
from typing import Final, Self

from veilring.privacy.accounting.checks import (
    require_count,
    require_delta,
    require_epsilon,
    require_loss,
    require_noise,
)
from veilring.privacy.accounting.search import greatest, least

# The best order for delta is nearer to 1 than e to minus this: it gives 1 to all digits of a float,
# and a bit farther on floats have no such order.
_NEAR: Final = 700.0


@dataclass(frozen=True, slots=True)
class ZCDP:
    """The Renyi divergence of every order alpha > 1 is at most `alpha * rho`.

    Attributes:
        rho: At least 0.

    Raises:
        InputError: If rho is negative or no number.
    """

    rho: float

    def __post_init__(self) -> None:
        require_loss("rho", self.rho)

    @classmethod
    def of_gaussian(cls, sigma: float, sensitivity: float = 1.0) -> Self:
        """Return what Gaussian noise gives at this L2 sensitivity (Bun and Steinke, Prop. 1.6)."""
        require_noise(sigma, sensitivity)
        return cls((sensitivity / sigma) ** 2 / 2)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float) -> Self:
        """Return the weakest zCDP whose tight conversion gives (epsilon, delta)-DP.

        Raises:
            InputError: If epsilon is negative or infinite, or delta is outside (0, 1).
        """
        require_epsilon(epsilon)
        require_delta(delta)
        return cls(greatest(lambda rho: cls(rho).epsilon(delta) <= epsilon))

    def compose(self, *others: Self) -> Self:
        """Return what all guarantee together: rho adds up (Bun and Steinke, Lemma 1.7)."""
        return type(self)(math.fsum((self.rho, *(other.rho for other in others))))

    def repeat(self, count: int) -> Self:
        """Return what `count` releases like this guarantee together."""
        require_count(count)
        return type(self)(count * self.rho if count else 0.0)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon over all orders, by the tight conversion.

        It is the least of `alpha rho + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1)` (Canonne,
        Kamath and Steinke 2020, Prop. 12; Balle et al. 2020). The derivative of this vanishes
        where `rho (alpha - 1)**2 = -ln(delta alpha)`, and only there. Every order gives a valid
        bound, so rounding costs nothing but a last digit.
        """
        require_delta(delta)
        if self.rho in {0.0, math.inf}:
            return self.rho
        above = least(lambda x: self.rho * x * x >= -math.log(delta) - math.log1p(x))
        log_order = math.log1p(above)
        bound = self.rho * (1 + above) + math.log(above) - log_order
        return max(0.0, bound - (math.log(delta) + log_order) / above)

    def delta(self, epsilon: float) -> float:
        """Return the least delta over all orders, by the tight conversion (Cor. 13 there).

        It is the least of `exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)**alpha /
        (alpha - 1)`.
        """
        require_epsilon(epsilon)
        if self.rho == 0 or epsilon / self.rho == math.inf:
            return 0.0
        if self.rho - epsilon > _NEAR:
            return 1.0
        above = least(lambda x: (2 * x + 1) * self.rho - epsilon + math.log(x) - math.log1p(x) >= 0)
        ratio = math.log(above) - math.log1p(above)
        log_delta = above * ((1 + above) * self.rho - epsilon + ratio) - math.log1p(above)
        return min(1.0, math.exp(log_delta))

    def epsilon_2016(self, delta: float) -> float:
        """Return the looser epsilon of Bun and Steinke's Prop. 1.3, to compare with papers."""
        require_delta(delta)
        return self.rho + 2 * math.sqrt(self.rho * -math.log(delta))

    def sigma(self, sensitivity: float = 1.0) -> float:
        """Return the standard deviation of Gaussian noise at this L2 sensitivity."""
        require_noise(1.0, sensitivity)
        return sensitivity / math.sqrt(2 * self.rho) if self.rho else math.inf
