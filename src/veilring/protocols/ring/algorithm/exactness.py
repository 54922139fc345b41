"""How many rounds PP-TopK needs: the probability that its result is exact.

Source: Xiong, Chitti and Liu, SAC 2007, Section 5.1.
"""

import math

from veilring.protocols.ring.algorithm.checks import require, require_noise


def exactness_bound(k: int, P0: float, d: float, rounds: int) -> float:
    """Return the least probability that the result is exact (Section 5.1).

    At most k parties contribute to the result, and each fails only if it answers with noise in
    every round: `(1 - P0**r * d**(r(r-1)/2))**k` with r = `rounds`. For values without ties and
    exactly c contributing parties, the probability *is* this formula with c in place of k.

    Raises:
        InputError: If an argument is outside the range given in `TopKParameters`.
    """
    return 1.0 - _error_bound(k, P0, d, rounds)


def rounds_for(error: float, k: int, P0: float, d: float) -> int:
    """Return the fewest rounds that make the result exact with probability `1 - error` or more.

    Args:
        error: The accepted probability of an inexact result, in (0, 1); may be far below 1e-16.
        k: See `TopKParameters`.
        P0: See `TopKParameters`.
        d: See `TopKParameters`.

    Raises:
        InputError: If an argument is outside its range, or if `P0 = d = 1`: the noise never fades.
    """
    require_noise(k, P0, d)
    require(0 < error < 1, "error", error, "a number in (0, 1)")
    require(min(P0, d) < 1, "d", d, "below 1 if P0 is 1, else no number of rounds suffices")

    def enough(rounds: int) -> bool:
        return _error_bound(k, P0, d, rounds) <= error

    below, above = 0, 1
    while not enough(above):
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above


def _error_bound(k: int, P0: float, d: float, rounds: int) -> float:
    """Return `1 - exactness_bound`, accurate when it is tiny."""
    require_noise(k, P0, d)
    require(rounds >= 1, "rounds", rounds, "an integer of at least 1")
    if P0 == 0:
        return 0.0
    always_noise = math.exp(rounds * math.log(P0) + rounds * (rounds - 1) / 2 * math.log(d))
    return 1.0 if always_noise >= 1 else -math.expm1(k * math.log1p(-always_noise))
