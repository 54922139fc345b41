"""What a walk spends: the least of all bounds that are valid for it, and what the paper printed."""

from dataclasses import dataclass
from math import inf

from veilring.privacy.accounting import BoundedRange, PureSteps
from veilring.protocols.treewalk.algorithm.steps import Distance, Utility
from veilring.protocols.treewalk.algorithm.walks import Variant

__all__ = ("Spending", "spending")


@dataclass(frozen=True, slots=True)
class Spending:
    """What one walk spends. It is the same for any query, since each walk takes as many steps.

    Attributes:
        steps: c, the compositions.
        epsilon: The least (ε, δ)-LDP bound; infinite where distances hide near queries only.
        per_distance: For distances with a radius: ε per unit of distance between two queries, for
            δ = 0; else infinite.
        printed: What the paper's formula gives: the sum of all ε_i, or bounded range composed as
            in Dong, Durfee and Rogers if that is less. For comparisons in `paper` mode it can be
            *less* than what is spent.
    """

    steps: int
    epsilon: float
    per_distance: float
    printed: float


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
    per_distance = inf
    if isinstance(utility, Distance) and not local:
        per_distance = steps * utility.epsilon / utility.sensitivity
    printed = min(ranged.linear, ranged.epsilon_2020(delta)) if delta > 0 else ranged.linear
    return Spending(steps, together, per_distance, printed)
