"""What the tables of figures share: the ways that stand in them, and how a claim is written."""

from collections.abc import Sequence
from typing import Final

from veilring.scenarios.figures.claims import Claim, Take, above, below
from veilring.scenarios.figures.treewalk.figures import PRINTED, RAW, SPENT, TOP
from veilring.scenarios.figures.treewalk.ways import Way, early, greedy, named, parallel

BASIC: Final = Way("basic")
N5, N20 = (Way(f"N{near}", neighbours=near) for near in (5, 20))
E8: Final = early(8)
P8: Final = parallel(8)
GS_N5, GS_N20 = greedy(5), greedy(20)
RESPONSE: Final = named(8)
ALL: Final = (BASIC, P8, E8, greedy(), N20, GS_N20)
BUT_P: Final = (BASIC, E8, greedy(), N20, GS_N20)
BOTH: Final = (1, 2)
RAW_PRINTED, TOP_PRINTED = RAW + PRINTED, TOP + PRINTED
TOP_SPENT: Final = TOP + SPENT
# Privacy radii of 1e6, 1e5, 1e4 and 1e3 at epsilon_i = 1.
FAR, MIDDLE, NEAR, LAST = 1e-6, 1e-5, 1e-4, 1e-3
MOST: Final = 300.0  # the largest epsilon of the axis


def about(says: str, quantity: str, low: float, high: float, take: Take) -> tuple[Claim, Claim]:
    """Return the two claims that a number is about what the thesis says."""
    return above(says, quantity, low, take), below(says, quantity, high, take)


def of_dimensions(dimensions: int, *ways: Way) -> tuple[Way, ...]:
    """Return ways among points of so many dimensions."""
    return tuple(way.at(dimensions) for way in ways)


def beside(ways: Sequence[Way]) -> tuple[Way, ...]:
    """Return ways, and what the thesis puts beside each."""
    return tuple(each for way in ways for each in (way, way.blurred()))


def over(best: Way, ways: Sequence[Way]) -> list[tuple[str, str]]:
    """Return the pairs of the best way and each other, by their labels."""
    return [(best.label, way.label) for way in ways if way.label != best.label]
