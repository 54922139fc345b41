"""Attacks of a semi-honest coalition on PP-TopK and on secure sums, using its members' views.

Each attack is a function of the coalition's joint view: of a real run with watched parties, or of
simulated runs. `leakage` estimates how much can be learned; attacks extract it. This module has the
views of real runs and the attacks on secure sums, `views` the simple attack on PP-TopK and the one
over repetitions of a query, and `posterior` the optimal attack.

Sources: Clifton, Kantarcioglu, Vaidya, Lin and Zhu, "Tools for privacy preserving distributed data
mining", SIGKDD Explorations 2002; that a coalition learns the sums of groups of honest parties and
nothing more is derived in `veilring.protocols.ring.algorithm.sums.leaked_groups`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.nodes.journal import View
from veilring.nodes.ring import Ring
from veilring.privacy.checks import require
from veilring.protocols.masks import MaskedWords
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod, leaked_groups
from veilring.protocols.ring.algorithm.topk import TopKParameters, start_vector
from veilring.protocols.ring.attacks.views import TopKView
from veilring.protocols.ring.roles import (
    SumPart,
    SumPartial,
    SumTotal,
    TopKResult,
    TopKVector,
    sum_cycles,
)


@dataclass(frozen=True, slots=True, eq=False)
class CoalitionView:
    """The knowledge of a semi-honest coalition about one run.

    Attributes:
        views: The view of each member, by its name: `Run.views` of a run that watched the members.
        own: The input of each member, by its name, shape (runs, entries); may be empty for attacks
            that do not need it.
    """

    ring: Ring
    views: Mapping[str, View]
    own: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.views:
            raise InputError.because(
                "there are no views; give the view of at least one member", field="views"
            )
        for name in self.views:
            require(name in self.ring.order, "views", name, "parties of the ring")
        for name in self.own:
            require(name in self.views, "own", name, "members of the coalition")

    @property
    def members(self) -> frozenset[str]:
        """The corrupt parties."""
        return frozenset(self.views)


def topk_view(view: CoalitionView, parameters: TopKParameters) -> TopKView:
    """Return a coalition's view of PP-TopK in a run, alone or within PP-kNN."""
    n, vectors = len(view.ring), dict[int, Floats]()
    for member, saw in view.views.items():
        sent = ((member, seen.message) for seen in saw.sent)
        received = ((seen.sender, seen.message) for seen in saw.received)
        for sender, message in chain(sent, received):
            if isinstance(message, TopKVector):
                number = (message.round - 1) * n + view.ring.position(sender) + 1
                vectors[number] = message.values
            elif isinstance(message, TopKResult):
                vectors[n * parameters.rounds] = message.values
    if not vectors:
        raise InputError.because("the views lack the vectors of a run of PP-TopK", field="views")
    runs = len(next(iter(vectors.values())))
    vectors[0] = start_vector(parameters, runs)
    return TopKView(parameters, tuple(view.ring.order), view.members, vectors)


def recover_groups(
    view: CoalitionView, *, method: SumMethod, fixed: FixedPoint
) -> dict[frozenset[str], Floats]:
    """Return the sum of the inputs of each group of honest parties that a coalition can isolate.

    For `ring` and `cycles`: the running sums that the coalition received from a group, minus those
    that it sent to it, are the shares that the group added, over all cycles; the uniform parts of
    the shares and the masks cancel. In the starter's group each cycle begins, so its whole total is
    missing; the public total compensates for it.

    For `shares` and `masks` the honest parties are one group: the total, minus the members' inputs.

    The sum may have been run alone or within PP-kNN; `shares` and `masks` need every member's input
    in `own`. Results have the shape (runs, entries) and are exact up to the rounding of `fixed`.
    """
    if not method.goes_round:
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


def recover_input(
    view: CoalitionView, victim: str, *, method: SumMethod, fixed: FixedPoint
) -> Floats | None:
    """Return the input of one party to a secure sum, or None if the coalition cannot isolate it.

    Recovery is possible if and only if the victim's neighbours in every cycle are members, whether
    or not the victim is the starter.
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
    """Return the public total, which each member received or, as the starter, sent."""
    saw = next(iter(view.views.values()))
    for seen in chain(saw.received, saw.sent):
        if isinstance(seen.message, SumTotal):
            return seen.message.values
    raise InputError.because("the views lack the total of a secure sum along a ring", field="views")


def _all_but_own(view: CoalitionView, fixed: FixedPoint) -> dict[frozenset[str], Floats]:
    missing = view.members - view.own.keys()
    if missing:
        raise InputError.because(
            f"the input of {', '.join(sorted(missing))} is missing; every member's is needed",
            field="own",
        )
    saw = next(iter(view.views.values()))
    published = {
        (way, seen.sender): _published(seen.message)
        for way, kept in (("in", saw.received), ("out", saw.sent[-1:]))
        for seen in kept
        if isinstance(seen.message, SumPartial | MaskedWords)
    }
    if len(published) != len(view.ring):
        raise InputError.because(
            "the views lack some of the values that parties published for a sum", field="views"
        )
    shape = next(iter(view.own.values())).shape
    words = np.add.reduce([*published.values()], axis=0).reshape(shape)
    for values in view.own.values():
        words = words - fixed.encode(values)
    honest = frozenset(view.ring.order) - view.members
    return {honest: fixed.decode(words)} if honest else {}


def _published(message: SumPartial | MaskedWords) -> NDArray[np.uint64]:
    values = message.values if isinstance(message, SumPartial) else message.words[0]
    return np.asarray(values, dtype=np.uint64)
