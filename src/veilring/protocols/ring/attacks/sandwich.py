"""The attack on secure sums: what went into a group of honest parties, against what came out.

Sources: Clifton, Kantarcioglu, Vaidya, Lin and Zhu, "Tools for privacy preserving distributed data
mining", SIGKDD Explorations 2002; that a coalition learns the sums of these groups and nothing
more is derived in `veilring.protocols.ring.algorithm.exposure`.
"""

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.algorithm import FixedPoint, SumMethod, leaked_groups
from veilring.protocols.ring.attacks.views import CoalitionView
from veilring.protocols.ring.messages import SumPart, SumPartial, SumTotal
from veilring.protocols.ring.roles.sums import sum_cycles


def recover_groups(
    view: CoalitionView, *, method: SumMethod, fixed: FixedPoint
) -> dict[frozenset[str], NDArray[np.float64]]:
    """Return the sum of the inputs of each group of honest parties that a coalition can isolate.

    For `ring` and `cycles`: the running sums that the coalition received from a group, less those
    that it sent to it, are the shares that the group added, over all cycles; the uniform parts of
    the shares and the masks cancel. In the starter's group each cycle began anew, so that its
    whole total is missing: the public total makes up for it.

    For `shares` the honest parties are one group: the total, less what the members put in.

    Args:
        view: The joint view of a run of the secure sum, alone or within PP-kNN. `shares` needs
            every member's input in `own`, shape (runs, entries).
        method: How the sum was computed.
        fixed: How reals were written.

    Returns:
        The sums, shape (runs, entries), exact up to the rounding of `fixed`, by group.

    Raises:
        InputError: If no total is in the view, or an input is missing.
    """
    if method.name == "shares":
        return _all_but_own(view, fixed)
    total = _total(view)
    groups = _groups(view, method)
    group_of = {party: group for group in groups for party in group}
    sums = {group: total * np.uint64(view.ring.starter in group) for group in groups}
    for member in view.views.values():
        for seen in member.received:
            if isinstance(seen.message, SumPart) and seen.sender in group_of:
                sums[group_of[seen.sender]] += seen.message.values
        for seen in member.sent:
            if isinstance(seen.message, SumPart) and seen.sender in group_of:
                sums[group_of[seen.sender]] -= seen.message.values
    return {group: fixed.decode(words) for group, words in sums.items()}


def sandwich(
    view: CoalitionView, victim: str, *, method: SumMethod, fixed: FixedPoint
) -> NDArray[np.float64] | None:
    """Return what one party put into a secure sum, or None if the coalition cannot tell.

    It can exactly if the victim's neighbours in every cycle are members; whether the victim is the
    starter makes no difference.

    Args:
        view: As for `recover_groups`.
        victim: An honest party.
        method: How the sum was computed.
        fixed: How reals were written.

    Raises:
        InputError: If the victim is a member, or as `recover_groups` does.
    """
    if victim in view.members or victim not in view.ring.order:
        raise InputError("victim", victim, "a party of the ring outside the coalition")
    return recover_groups(view, method=method, fixed=fixed).get(frozenset({victim}))


def _groups(view: CoalitionView, method: SumMethod) -> tuple[frozenset[str], ...]:
    place = view.ring.position
    cycles = [[place(party) for party in c.order] for c in sum_cycles(view.ring, method)]
    leaked = leaked_groups(cycles, [place(member) for member in view.members])
    return tuple(frozenset(view.ring.order[position] for position in group) for group in leaked)


def _total(view: CoalitionView) -> NDArray[np.uint64]:
    """Return the public total: each member received it, or the starter sent it."""
    saw = next(iter(view.views.values()))
    for seen in chain(saw.received, saw.sent):
        if isinstance(seen.message, SumTotal):
            return seen.message.values
    raise InputError("views", "without a total", "views of a secure sum along a ring")


def _all_but_own(
    view: CoalitionView, fixed: FixedPoint
) -> dict[frozenset[str], NDArray[np.float64]]:
    missing = view.members - view.own.keys()
    if missing:
        raise InputError("own", f"without {', '.join(sorted(missing))}", "every member's input")
    saw = next(iter(view.views.values()))
    published = {
        (way, seen.sender): seen.message.values
        for way, kept in (("in", saw.received), ("out", saw.sent[-1:]))
        for seen in kept
        if isinstance(seen.message, SumPartial)
    }
    if len(published) != len(view.ring):
        raise InputError("views", "without all partial sums", "views of a sum by shares")
    words = np.add.reduce([*published.values()], axis=0)
    for values in view.own.values():
        words = words - fixed.encode(values)
    honest = frozenset(view.ring.order) - view.members
    return {honest: fixed.decode(words)} if honest else {}
