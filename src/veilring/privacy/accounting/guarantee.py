"""What all ways of counting have in common."""

from collections.abc import Callable
from typing import Protocol, Self

from veilring.privacy.accounting.checks import require_delta, require_epsilon
from veilring.privacy.accounting.search import least


class Guarantee(Protocol):
    """What is known of the privacy loss of one release, or of several together."""

    def compose(self, *others: Self) -> Self:
        """Return what this and the others guarantee together, chosen adaptively in any order."""
        ...

    def repeat(self, count: int) -> Self:
        """Return what `count` releases like this guarantee together."""
        ...

    def epsilon(self, delta: float) -> float:
        """Return an epsilon such that (epsilon, delta)-DP holds; the least that is known."""
        ...


def least_noise(of: Callable[[float], Guarantee], epsilon: float, delta: float) -> float:
    """Return the least noise with which everything together is (epsilon, delta)-DP.

    This calibrates what has no closed form, such as many steps of a subsampled mechanism:
    `least_noise(lambda sigma: RenyiDP.subsampled_gaussian(sigma, 0.01).repeat(1000), 1.0, 1e-5)`.

    Args:
        of: What is guaranteed at a given noise; more noise must not guarantee less.
        epsilon: The target, above 0.
        delta: The target, in (0, 1).

    Raises:
        InputError: If a target is outside its range, or no noise reaches it.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    return least(lambda noise: of(noise).epsilon(delta) <= epsilon)
