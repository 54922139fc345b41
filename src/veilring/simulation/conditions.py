"""What happens to links for a while: they stall, slow down, or lose bandwidth.

Conditions are known from the start, so that the arrival of each message is known when it departs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Condition(NamedTuple):
    """What a link is like from `start` to `end`, in simulated seconds.

    A stalled link carries nothing until the end, as TCP does when its packets are lost: what was to
    depart or to arrive waits. Otherwise each message takes `extra_seconds` longer, and bytes
    depart `slowdown` times slower.
    """

    start: float
    end: float
    cause: int
    """Which fault this is part of; it is noted when a message meets it."""
    stalled: bool = False
    extra_seconds: float = 0.0
    slowdown: float = 1.0


@dataclass(slots=True)
class Conditions:
    """All conditions of all links.

    Attributes:
        links: By (source, target); in any order, and they may overlap.
        met: The causes of those that a message has met so far.
    """

    links: Mapping[tuple[str, str], Iterable[Condition]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)

    def of(self, source: str, target: str) -> "LinkConditions | None":
        """Return those of one link, if it has any."""
        conditions = tuple(self.links.get((source, target), ()))
        return LinkConditions(conditions, self.met) if conditions else None


class LinkConditions:
    """The conditions of one link."""

    def __init__(self, conditions: tuple[Condition, ...], met: set[int]) -> None:
        self._stalls = tuple(sorted(c for c in conditions if c.stalled))
        self._others = tuple(c for c in conditions if not c.stalled)
        self._met = met

    def resume(self, instant: float) -> float:
        """Return when the link next carries something, from an instant on."""
        moved = True
        while moved:
            moved = False
            for stall in self._stalls:
                if stall.start <= instant < stall.end:
                    instant, moved = stall.end, True
                    self._met.add(stall.cause)
        return instant

    def slowdown(self, instant: float) -> float:
        """Return how many times slower bytes depart."""
        factor = 1.0
        for condition in self._now(instant):
            if condition.slowdown != 1.0:
                factor *= condition.slowdown
                self._met.add(condition.cause)
        return factor

    def extra_seconds(self, instant: float) -> float:
        """Return how much longer a message takes."""
        extra = 0.0
        for condition in self._now(instant):
            if condition.extra_seconds:
                extra += condition.extra_seconds
                self._met.add(condition.cause)
        return extra

    def _now(self, instant: float) -> list[Condition]:
        return [c for c in self._others if c.start <= instant < c.end]
