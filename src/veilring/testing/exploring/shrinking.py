"""Shrinking: from a world that fails to the smallest one that still does.

Delta debugging (Zeller and Hildebrandt, IEEE TSE 28, 2002): parts are left out, large ones first,
as long as the rest still fails. Parties come first, because smaller worlds make all later steps
faster. If the same world with three parties does not fail, a few other worlds with three parties
are tried before the next number of parties. Faults, queries and runs follow, and then faults again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from veilring.simulation.faults import Fault
from veilring.testing.exploring.worlds import (
    Explored,
    Start,
    Subject,
    World,
    draw_world,
    play_world,
)

_T = TypeVar("_T")

# Other worlds per number of parties: a mistake in one world of five is missed once in 10,000.
_REDRAWN: Final = 40
# The limit on all plays. A world of three parties and one run takes a few milliseconds.
_PLAYS_MAX: Final = 2000


class Shrunk(NamedTuple):
    """A world that fails, and no longer fails if any part is left out.

    Attributes:
        subject: The subject that is played in it.
        world: The world; its runs are written out.
        wrong: The violations, one sentence each.
        plays: The number of worlds that were played to find it.
    """

    subject: Subject
    world: World
    wrong: tuple[str, ...]
    plays: int

    def __str__(self) -> str:
        world = self.world
        runs = len(world.runs or ())
        said = f"{len(self.subject.parties)} parties, {runs} run{'s' * (runs != 1)}"
        faults = ", ".join(_describe(fault) for fault in world.faults) or "no fault"
        order = "" if world.order is None else ", ready tasks in another order"
        return f"{said}, {faults}{order}: {'; '.join(self.wrong)}"


def shrink(subject: Subject, world: World, *, plays_max: int = _PLAYS_MAX) -> Shrunk | None:
    """Shrink a world that fails.

    Args:
        world: The world in which it fails.
        plays_max: The number of worlds after which the smallest one found so far is returned.

    Returns:
        The smallest world, or None if the given world does not fail when it is played again.
    """
    shrinker = _Shrinker(subject, plays_max)
    if not shrinker.takes(subject, world):
        return None
    shrinker.leave_out_parties()
    shrinker.leave_out_faults()
    shrinker.keep_order()
    shrinker.leave_out_queries()
    shrinker.leave_out_runs()
    shrinker.leave_out_faults()
    return Shrunk(shrinker.subject, shrinker.world, shrinker.wrong, shrinker.plays)


@dataclass(init=False)
class _Shrinker:
    """The search: holds the smallest world so far."""

    subject: Subject
    world: World
    wrong: tuple[str, ...]
    plays: int

    def __init__(self, subject: Subject, plays_max: int) -> None:
        self.subject, self.plays, self._plays_max = subject, 0, plays_max

    def takes(self, subject: Subject, world: World) -> bool:
        """Keep a world if it fails, and still fails when its runs are written out."""
        explored = self._played(subject, world)
        if explored is None or not explored.wrong:
            return False
        written = replace(world, runs=tuple(explored.runs))
        if world.runs is None:
            again = self._played(subject, written)
            if again is None or not again.wrong:
                return False
            explored = again
        self.subject, self.world, self.wrong = subject, written, tuple(explored.wrong)
        return True

    def leave_out_parties(self) -> None:
        whole, world = self.subject, self.world
        for count in range(2, len(whole.parties)):
            for fewer in whole.smaller(count):
                if any(self.takes(fewer, each) for each in _worlds_among(fewer, world)):
                    return

    def leave_out_faults(self) -> None:
        def goes_wrong(some: Sequence[Fault]) -> bool:
            return self.takes(self.subject, replace(self.world, faults=tuple(some)))

        if self.world.faults and not goes_wrong([]):
            _minimise(self.world.faults, goes_wrong)

    def leave_out_runs(self) -> None:
        def goes_wrong(some: Sequence[Start]) -> bool:
            return self.takes(self.subject, replace(self.world, runs=tuple(some)))

        _minimise(self.world.runs or (), goes_wrong)

    def keep_order(self) -> None:
        """Restore the default order of ready tasks, if the failure does not depend on another."""
        if self.world.order is not None:
            self.takes(self.subject, replace(self.world, order=None))

    def leave_out_queries(self) -> None:
        while any(self.takes(simpler, self.world) for simpler in self.subject.simpler()):
            pass

    def _played(self, subject: Subject, world: World) -> Explored | None:
        if self.plays >= self._plays_max:
            return None
        self.plays += 1
        return play_world(subject, world)


def _worlds_among(subject: Subject, world: World) -> Iterator[World]:
    """Yield the world with only the faults among these parties, and then other worlds with them."""
    present = set(subject.parties)
    faults = tuple(fault for fault in world.faults if present.issuperset(fault.parties))
    redrawn = (draw_world(seed, subject.parties) for seed in range(_REDRAWN))
    return chain([replace(world, faults=faults)], redrawn)


def _minimise(whole: Sequence[_T], goes_wrong: Callable[[list[_T]], bool]) -> None:
    """Leave out parts of a sequence, halves first, while the rest still fails.

    At least one item is always kept.
    """
    left = list(whole)
    size = len(left) // 2
    while size:
        place = 0
        while place < len(left):
            rest = left[:place] + left[place + size :]
            if rest and len(rest) < len(left) and goes_wrong(rest):
                left = rest
            else:
                place += size
        size //= 2


def _describe(fault: Fault) -> str:
    return f"{fault.kind} of {', '.join(fault.parties)} from {fault.start:.2f} s"
