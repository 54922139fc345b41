"""Rings of rings: a ring cut into arcs, each a ring of its own, and the ring of their starters."""

from collections.abc import Iterator
from dataclasses import dataclass

from veilring.errors import InputError
from veilring.nodes.ring import PARTIES_MIN, Ring


@dataclass(frozen=True, slots=True)
class NestedRings:
    """Who goes round with whom.

    Attributes:
        order: Of all parties.
        groups: Arcs of that order, the longer ones first; each is a ring.
        starters: The first of each group, in the order of the groups.
    """

    order: Ring
    groups: tuple[Ring, ...]
    starters: Ring

    def number(self, party: str) -> int:
        """Return the number of a party's group, from 0."""
        longest = len(self.groups[0])
        long = len(self.order) - (longest - 1) * len(self.groups)  # groups of that length
        place = self.order.position(party)
        if place < long * longest:
            return place // longest
        return long + (place - long * longest) // (longest - 1)


def group_sizes(parties: int, groups: int) -> tuple[int, ...]:
    """Return how many parties each group has: as even as can be, the larger ones first.

    Raises:
        InputError: If there would be fewer than three groups, or fewer than three parties in one.
    """
    most = parties // PARTIES_MIN
    if not PARTIES_MIN <= groups <= most:
        allowed = f"{PARTIES_MIN} to {most} for {parties} parties"
        if most < PARTIES_MIN:
            allowed = f"nothing: rings of rings take at least {PARTIES_MIN**2} parties"
        raise InputError("groups", groups, allowed)
    size, larger = divmod(parties, groups)
    return (size + 1,) * larger + (size,) * (groups - larger)


def nest(order: Ring, groups: int) -> NestedRings:
    """Cut a ring into groups of parties that follow each other.

    If nobody chose the order, nobody chose its group or who starts it.

    Raises:
        InputError: As `group_sizes` does.
    """
    arcs = tuple(_arcs(order, group_sizes(len(order), groups)))
    return NestedRings(order, arcs, Ring([arc.starter for arc in arcs]))


def _arcs(order: Ring, sizes: tuple[int, ...]) -> Iterator[Ring]:
    first = 0
    for size in sizes:
        yield Ring(order.order[first : first + size])
        first += size
