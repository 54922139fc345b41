"""What every way of counting refuses at its edge."""

import math
from typing import Final

from veilring.privacy.checks import require

# A mechanism that publishes each row whole with this probability keeps (0, delta)-DP: beyond one in
# a thousand nobody should call that private, however few rows there are.
DELTA_DOUBTFUL: Final = 1e-3


def doubt_of_delta(delta: float, rows: int = 1) -> str:
    """Return a warning about a delta that is allowed but too large, or an empty string.

    Args:
        delta: Chosen for a promise about rows.
        rows: The number of rows, if the reader of the warning may know it.
    """
    most = min(DELTA_DOUBTFUL, 1 / max(1, rows))
    if delta <= most:
        return ""
    return (
        f"delta is {delta:g}, the probability with which a row may be revealed in full: choose one "
        f"below {most:.2g}, and below 1 in the number of rows"
    )


def require_loss(field: str, value: float) -> None:
    """Refuse what is no measure of privacy loss: negative, or no number. Infinity is one."""
    require(value >= 0, field, value, "a number of at least 0")


def require_epsilon(epsilon: float, field: str = "epsilon") -> None:
    """Refuse an epsilon below 0, infinite, or no number."""
    require(0 <= epsilon < math.inf, field, epsilon, "a finite number of at least 0")


def require_delta(delta: float, *, zero: bool = False) -> None:
    """Refuse a delta outside (0, 1), or [0, 1) where a pure guarantee makes sense of 0."""
    allowed = "a number in [0, 1)" if zero else "a number in (0, 1)"
    require(0 < delta < 1 or (zero and delta == 0), "delta", delta, allowed)


def require_count(count: int) -> None:
    """Refuse to repeat something fewer than 0 times."""
    require(count >= 0, "count", count, "a whole number of at least 0")


def require_noise(sigma: float, sensitivity: float) -> None:
    """Refuse a standard deviation or a sensitivity that is not finite and above 0."""
    allowed = "a finite number above 0"
    require(0 < sigma < math.inf, "sigma", sigma, allowed)
    require(0 < sensitivity < math.inf, "sensitivity", sensitivity, allowed)
