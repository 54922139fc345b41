"""What every algorithm of the ring refuses at its edge."""

from typing import Final

from veilring.errors import InputError

# With two parties each would see exactly what the other contributed: a ring hides nothing.
SMALLEST_RING: Final = 3


def require(fulfilled: bool, field: str, value: object, allowed: str) -> None:  # noqa: FBT001  (reads as an assertion)
    """Raise `InputError(field, value, allowed)` unless the condition is fulfilled."""
    if not fulfilled:
        raise InputError(field, value, allowed)


def require_noise(k: int, P0: float, d: float) -> None:
    """Refuse `k` < 1, `P0` outside [0, 1] and `d` outside (0, 1]."""
    require(k >= 1, "k", k, "an integer of at least 1")
    require(0 <= P0 <= 1, "P0", P0, "a number in [0, 1]")
    require(0 < d <= 1, "d", d, "a number in (0, 1]")
