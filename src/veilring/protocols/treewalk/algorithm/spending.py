"""What a walk spends: the least of all bounds that are valid for it, and what the paper printed."""

from dataclasses import dataclass
from math import inf
from typing import Final

from veilring.privacy.accounting import BoundedRange, PureSteps
from veilring.protocols.treewalk.algorithm.steps import Distance, Utility
from veilring.protocols.treewalk.algorithm.walks import Variant

# More than a few products and sums of floats are rounded down by.
_UP: Final = 1 + 2.0**-48


@dataclass(frozen=True, slots=True)
class Spending:
    """What one walk spends. It is the same for any query, since each walk takes as many steps.

    Attributes:
        steps: c, the compositions.
        epsilon: The least (ε, δ)-LDP bound; infinite where distances hide near queries only.
        per_distance: For distances with a radius: ε per unit of distance between two queries, for
            δ = 0, beside `rounding`; otherwise infinite.
        rounding: For distances with a radius: what the rounding of floats may add to that, however
            near two queries are; otherwise 0.
        printed: What the paper's formula gives: the sum of all ε_i, or bounded range composed as
            in Dong, Durfee and Rogers if that is less. For comparisons in `paper` mode it can be
            *less* than what is spent.
    """

    steps: int
    epsilon: float
    per_distance: float
    printed: float
    rounding: float = 0.0

    def loss(self, distance: float) -> float:
        """Return the most by which a walk tells two queries at a distance apart, rounded up.

        It is `epsilon` where that is finite.

        Args:
            distance: Between the two queries, at least 0; infinite for any two.
        """
        if self.epsilon < inf:
            return self.epsilon
        return (self.per_distance * distance + self.rounding) * _UP


def spending(utility: Utility, variant: Variant, depth: int, delta: float) -> Spending:
    """Account for one walk.

    A step of either utility is a randomised response of at most its `step_loss`, so that the exact
    composition of Kairouz, Oh and Viswanath bounds all of them together; neither the sum of the
    steps' ε nor bounded range nor zCDP is ever less.

    Args:
        utility: Of the steps.
        variant: How the walk splits.
        depth: ⌈log2 N⌉, whatever the paths.
        delta: From 0, for pure LDP, to below 1.

    Raises:
        InputError: If delta is outside its range.
    """
    steps = variant.compositions(depth)
    local = utility.step_loss < inf
    together = PureSteps(utility.step_loss, steps).epsilon(delta) if local else inf
    ranged = BoundedRange.step(utility.epsilon).repeat(steps)
    per_distance, rounding = inf, 0.0
    if isinstance(utility, Distance) and not local:
        per_distance = steps * utility.epsilon / utility.sensitivity
        rounding = steps * utility.loss(0.0)
    printed = min(ranged.linear, ranged.epsilon_2020(delta)) if delta > 0 else ranged.linear
    return Spending(steps, together, per_distance, printed, rounding)
