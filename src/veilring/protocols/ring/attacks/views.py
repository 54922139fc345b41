"""The joint view of a coalition: what its members saw, and what they know of themselves."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.nodes.ring import Ring
from veilring.nodes.transcript import View
from veilring.protocols.ring.algorithm import TopKParameters, start_vector
from veilring.protocols.ring.messages import TopKResult, TopKVector


@dataclass(frozen=True, slots=True, eq=False)
class CoalitionView:
    """All that a semi-honest coalition knows of one run.

    Attributes:
        ring: The order of the parties; all know it.
        views: What each member saw, by its name: `Run.views` of a run that watched the members.
        own: What each member put in, by its name, shape (runs, entries); as far as it is needed.

    Raises:
        InputError: If there is no member, one is not in the ring, or `own` has another party's
            input, which the coalition does not know.
    """

    ring: Ring
    views: Mapping[str, View]
    own: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is not a coalition's."""
        if not self.views:
            raise InputError("views", "empty", "the view of at least one member")
        for name in self.views:
            if name not in self.ring.order:
                raise InputError("views", name, "parties of the ring")
        for name in self.own:
            if name not in self.views:
                raise InputError("own", name, "members of the coalition")

    @property
    def members(self) -> frozenset[str]:
        """The corrupt parties."""
        return frozenset(self.views)


@dataclass(frozen=True, slots=True, eq=False)
class TopKView:
    """What a coalition saw of PP-TopK: some of the vectors that went round.

    Vectors are numbered by hops made: number 0 is the public start vector, number h + 1 is what
    hop h passed on, and hop `(r - 1) * n + p` is that of position p in round r. The last, number
    `n * rounds`, is public too: the starter hands it to all.

    Attributes:
        parameters: Public.
        order: The parties, the starter first.
        members: Those of the coalition.
        vectors: The vectors seen by their numbers, each of shape (T, k) for T independent runs.
            A session that failed lacks the last ones.
    """

    parameters: TopKParameters
    order: tuple[str, ...]
    members: frozenset[str]
    vectors: Mapping[int, NDArray[np.float64]]

    @property
    def runs(self) -> int:
        """How many independent runs (queries) the vectors hold, T."""
        return len(self.vectors[0])

    @property
    def seen(self) -> tuple[int, ...]:
        """The numbers of the vectors seen, ascending."""
        return tuple(sorted(self.vectors))

    @property
    def result(self) -> NDArray[np.float64] | None:
        """The last vector as the starter sent it, not yet cut at `upper`; None if it never did."""
        return self.vectors.get(len(self.order) * self.parameters.rounds)

    def last_before(self, hop: int) -> int:
        """Return the number of the last vector seen that was passed on before a hop."""
        return self.seen[bisect_right(self.seen, hop) - 1]

    def hops_of(self, party: str) -> tuple[int, ...]:
        """Return the hops that a party makes, one a round.

        Raises:
            InputError: If it is not in the ring.
        """
        if party not in self.order:
            raise InputError("party", party, f"one of {', '.join(self.order)}")
        place, n = self.order.index(party), len(self.order)
        return tuple(place + n * turn for turn in range(self.parameters.rounds))


def topk_view(view: CoalitionView, parameters: TopKParameters) -> TopKView:
    """Return what a coalition saw of PP-TopK in a run, be it alone or within PP-kNN.

    Args:
        view: The joint view.
        parameters: Public; in PP-kNN they are `KNNParameters.topk`.

    Raises:
        InputError: If no member saw a vector.
    """
    n, vectors = len(view.ring), dict[int, NDArray[np.float64]]()
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
        raise InputError("views", "without a vector", "views of a run of PP-TopK")
    runs = len(next(iter(vectors.values())))
    vectors[0] = start_vector(parameters, runs)
    return TopKView(parameters, tuple(view.ring.order), view.members, vectors)


def simulated_view(
    vectors: NDArray[np.float64],
    parameters: TopKParameters,
    order: Sequence[str],
    members: Collection[str],
    failed_after: int | None = None,
) -> TopKView:
    """Return what a coalition sees of simulated runs.

    Args:
        vectors: All vectors, shape (n * rounds + 1, T, k), as
            `veilring.protocols.ring.leakage.transcripts.transcript` returns them.
        parameters: Public.
        order: The parties, the starter first.
        members: Those of the coalition.
        failed_after: If given, the session failed after so many hops, and nobody saw more.

    Raises:
        InputError: If the number of vectors does not fit, or a member is not in the ring.
    """
    n, hops = len(order), len(order) * parameters.rounds
    if len(vectors) != hops + 1:
        raise InputError("vectors", f"{len(vectors)} of them", f"n * rounds + 1 = {hops + 1}")
    if not set(members) <= set(order):
        raise InputError("members", ", ".join(sorted(members)), "parties of the ring")
    places = {order.index(member) for member in members}
    touching = (
        number
        for number in range(1, hops)
        if number % n in places or (number - 1) % n in places  # its receiver, or its sender
    )
    last = hops if failed_after is None else failed_after
    seen = {number: vectors[number] for number in (0, *touching, hops) if number <= last}
    return TopKView(parameters, tuple(order), frozenset(members), seen)
