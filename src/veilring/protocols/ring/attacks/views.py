"""A coalition's view of PP-TopK, and the simple attack: every new entry is the sender's own.

Source of the attack: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN
classifier", SAC 2007, Section 6.6, where the adversary is the successor alone. Views of real runs
are made by `runs.topk_view`, those of simulated ones by `simulated_view`.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.consistency import difference, overlap
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import uniform_values


@dataclass(frozen=True, slots=True, eq=False)
class TopKView:
    """A coalition's view of PP-TopK: some of the vectors that went round.

    Vectors are numbered by hops made: number 0 is the public start vector, number h + 1 is the
    output of hop h, and hop `(r - 1) * n + p` is that of position p in round r. The last, number `n
    * rounds`, is public too: the starter sends it to all.

    Attributes:
        parameters: The public parameters.
        order: The parties, the starter first.
        members: The members of the coalition.
        vectors: The vectors seen by their numbers, each of shape (T, k) for T independent runs.
            A session that failed lacks the last ones.
    """

    parameters: TopKParameters
    order: tuple[str, ...]
    members: frozenset[str]
    vectors: Mapping[int, NDArray[np.float64]]

    @property
    def runs(self) -> int:
        """The number of independent runs (queries) in the vectors, T."""
        return len(self.vectors[0])

    @property
    def seen(self) -> tuple[int, ...]:
        """The numbers of the vectors seen, ascending."""
        return tuple(sorted(self.vectors))

    @property
    def result(self) -> NDArray[np.float64] | None:
        """The last vector as the starter sent it, not yet clipped at `upper`; None if not sent."""
        return self.vectors.get(len(self.order) * self.parameters.rounds)

    def last_before(self, hop: int) -> int:
        """Return the number of the last vector seen that was passed on before a hop."""
        return self.seen[bisect_right(self.seen, hop) - 1]

    def hops_of(self, party: str) -> tuple[int, ...]:
        """Return the hops of a party, one per round.

        Raises:
            InputError: If it is not in the ring.
        """
        if party not in self.order:
            raise InputError("party", party, f"one of {', '.join(self.order)}")
        place, n = self.order.index(party), len(self.order)
        return tuple(place + n * turn for turn in range(self.parameters.rounds))


def simulated_view(
    vectors: NDArray[np.float64],
    parameters: TopKParameters,
    order: Sequence[str],
    members: Collection[str],
    failed_after: int | None = None,
) -> TopKView:
    """Return a coalition's view of simulated runs.

    Args:
        vectors: All vectors, shape (n * rounds + 1, T, k), as
            `veilring.protocols.ring.leakage.transcript` returns them.
        order: The parties, the starter first.
        failed_after: The number of hops after which the session failed, if it did.

    Raises:
        InputError: If the number of vectors does not fit, or a member is not in the ring.
    """
    n, hops = len(order), len(order) * parameters.rounds
    if len(vectors) != hops + 1:
        raise InputError.because(
            f"there are {len(vectors)} vectors; n * rounds + 1 = {hops + 1} are needed",
            field="vectors",
        )
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


@dataclass(frozen=True, slots=True)
class UniformPrior:
    """The adversary's belief about the others' values: independent and uniform.

    Attributes:
        rows_per_party: The number of rows of each party, N, at least 1.
        upper: The upper end of the uniform distribution, positive and at most
            `TopKParameters.upper`.

    Raises:
        InputError: If a parameter is not positive.
    """

    rows_per_party: int
    upper: float = 1.0

    def __post_init__(self) -> None:
        """Reject values outside the documented ranges."""
        if self.rows_per_party < 1:
            raise InputError("rows_per_party", self.rows_per_party, "at least 1")
        if not 0 < self.upper < np.inf:
            raise InputError("upper", self.upper, "a finite number above 0")

    def draw(
        self, trials: int, parties: int, k: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return each party's k smallest values, shape (trials, parties, k)."""
        return uniform_values(trials, parties, k, self.rows_per_party, rng, self.upper)


@dataclass(frozen=True, slots=True)
class Success:
    """The quality of claims, over all rounds and runs.

    A *new entry* is one that the simple attack claims. An attack decides for each whether it is
    the victim's own.

    Attributes:
        new: The number of new entries per run.
        claims: The number of claimed entries per run.
        precision: The fraction of claims that are right; 0 without claims.
        recall: The fraction of the victim's values that were claimed; 0 if it has no values.
        accuracy: The fraction of new entries that were decided correctly, claimed or not; 1 without
            new entries.
        gain: The number of right claims minus that of wrong claims, per run.
    """

    new: float
    claims: float
    precision: float
    recall: float
    accuracy: float
    gain: float


def claim_new(view: TopKView, victim: str) -> NDArray[np.float64]:
    """Return the entries that the simple attack claims as the victim's, round by round.

    It claims the entries of the victim's output that are not in the last earlier vector seen by the
    coalition. For a successor alone that is its own previous output, so it claims the insertions of
    any of the n - 1 others. With the predecessor in the coalition it is the victim's input: the
    claims are exactly the victim's insertions, real or noise. The start vector and the result are
    public, so they are used as well.

    Args:
        view: The coalition's view.
        victim: An honest party.

    Returns:
        Shape (rounds, T, k), rows ascending and padded with `+inf`. A round in which the coalition
        did not see the victim's output has no claims.

    Raises:
        InputError: If the victim is in the coalition or not in the ring.
    """
    if victim in view.members:
        raise InputError("victim", victim, "a party outside the coalition")
    hops = view.hops_of(victim)
    claims = np.full((len(hops), *view.vectors[0].shape), np.inf)
    for turn, hop in enumerate(hops):
        passed = view.vectors.get(hop + 1)
        if passed is not None:
            claims[turn] = difference(passed, view.vectors[view.last_before(hop)])
    return claims


def owned(claims: NDArray[np.float64], own: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each claim is a value of the victim, in the shape of the claims.

    Args:
        claims: Shape (rounds, T, k), filled up with `+inf`.
        own: The victim's real values, shape (T, m), filled up with `+inf`.
    """
    equal = (claims[..., :, None] == own[:, None, :]).any(axis=-1)
    return np.asarray(equal & np.isfinite(claims))


def judge_claims(
    claims: NDArray[np.float64],
    own: NDArray[np.float64],
    decided: NDArray[np.bool_] | None = None,
) -> Success:
    """Compare claims with the truth.

    Args:
        claims: The new entries, as `claim_new` returns them, shape (rounds, T, k).
        own: The victim's k smallest values, shape (T, k), filled up with `+inf`.
        decided: Whether the attack makes each claim, same shape; all of them by default.
    """
    new = np.isfinite(claims)
    made = new if decided is None else decided & new
    right = owned(claims, own)
    runs, entries = claims.shape[1], int(new.sum())
    kept = np.where(made, claims, np.inf)
    found = overlap(own, np.sort(np.concatenate(kept, axis=1), axis=1)).sum()
    hits, count = int((made & right).sum()), int(made.sum())
    return Success(
        new=entries / runs,
        claims=count / runs,
        precision=hits / max(1, count),
        recall=float(found / max(1, np.isfinite(own).sum())),
        accuracy=float((made == right)[new].mean()) if entries else 1.0,
        gain=(2 * hits - count) / runs,
    )
