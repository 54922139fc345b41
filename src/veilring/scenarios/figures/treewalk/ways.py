"""What is compared: kinds of walks by either utility, and what the thesis puts beside each.

Beside a walk that returns several points stands geo-indistinguishability that returns as many: by
as many draws where the walk's points are apart (P, GS), and by as many neighbours of one draw where
they are together (E, N).
"""

from dataclasses import dataclass, replace
from typing import Literal

from veilring.protocols.treewalk.algorithm.walks import BASIC, Variant

Account = Literal["paper", "spent"]
"""For comparisons: slips and epsilon as the thesis plots them, or as they are."""


@dataclass(frozen=True, slots=True)
class Way:
    """One curve.

    Attributes:
        label: What it is called, without dimensions.
        variant: How walks split.
        neighbours: B.
        kind: Walks; a bucket response with the buckets of an early walk; or blur with the level
            that the same walk has.
        dimensions: Of the points.
        times: How many times the usual number of points.
    """

    label: str
    variant: Variant = BASIC
    neighbours: int = 0
    kind: Literal["walk", "response", "blur"] = "walk"
    dimensions: int = 2
    times: int = 1

    def at(self, dimensions: int) -> "Way":
        """Return the same in other dimensions."""
        return replace(self, dimensions=dimensions)

    def larger(self) -> "Way":
        """Return the same among ten times as many points."""
        return replace(self, label=f"{self.label}, 10 N", times=10)

    def blurred(self) -> "Way":
        """Return what stands beside it: as many points by geo-indistinguishability."""
        return replace(self, label=f"GEO for {self.label}", kind="blur")

    def told_apart(self) -> "Way":
        """Return the same with its dimensions in its name."""
        return replace(self, label=f"{self.label}, {self.dimensions}-d")


def early(splits: int) -> Way:
    """Return a walk that stops early (E)."""
    return Way(f"E{splits}", Variant("early", splits)) if splits else Way("basic")


def parallel(splits: int) -> Way:
    """Return walks that begin in parallel (P)."""
    return Way(f"P{splits}", Variant("parallel", splits)) if splits else Way("basic")


def greedy(neighbours: int = 0) -> Way:
    """Return a walk that splits at every level (GS), with neighbours (GS-N)."""
    label = f"GS-N{neighbours}" if neighbours else "GS"
    return Way(label, Variant("greedy"), neighbours)


def named(splits: int) -> Way:
    """Return one private message that names a bucket of 2**splits leaves."""
    return Way(f"response, buckets of {1 << splits}", Variant("early", splits), kind="response")
