"""A coalition's view of PP-TopK, the simple attack on it, and the attack over repeated sessions.

The simple attack claims that every new entry is the sender's own. Source: Xiong, Chitti and Liu,
"Mining multiple private databases using a kNN classifier", SAC 2007, Section 6.6, where the
adversary is the successor alone. Views of real runs are made by `topk_view` of the
package, those of simulated ones by `simulated_view`.

The attack over repetitions uses the same query, asked again with a fresh ring and fresh noise. Real
values recur exactly, noise never does: a value seen in two sessions is real. Each session also
carries information about its owner. A party whose value is among the k smallest of all offers it in
each round until it inserts, and inserts in round r with probability `1 - P0 d**(r-1)` if it has not
before. So the place and round in which the coalition first meets the value has a distribution that
depends only on the owner's position in the ring:

    P(first seen in vector number b, not yet in a) = P(the owner inserted at a hop in [a, b)).

Each session draws a fresh ring, so the likelihoods of the sessions multiply, and the posterior over
the owners, from a uniform prior, is exact for one value. Without noise, a single adversary
that meets a value in round 1 knows that the owner is between the starter and itself: each session
leaves two thirds of the others as candidates.

A session that failed halfway is used up to that point: a retry gives the adversary another
observation.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require, require_that
from veilring.protocols.ring.algorithm.consistency import difference, overlap
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import uniform_values


@dataclass(frozen=True, slots=True, eq=False)
class TopKView:
    """A coalition's view of PP-TopK: some of the vectors that went round.

    Vectors are numbered by hops made: number 0 is the public start vector, number h + 1 is the
    output of hop h, and hop `(r - 1) * n + p` is that of position p in round r. The last, number `n
    * rounds`, is public too: the starter sends it to all. Each has the shape (T, k) for T
    independent runs. A session that failed lacks the last ones.
    """

    parameters: TopKParameters
    order: tuple[str, ...]
    members: frozenset[str]
    vectors: Mapping[int, Floats]

    @property
    def runs(self) -> int:
        """The number of independent runs (queries) in the vectors, T."""
        return len(self.vectors[0])

    @property
    def seen(self) -> tuple[int, ...]:
        """The numbers of the vectors seen, ascending."""
        return tuple(sorted(self.vectors))

    @property
    def result(self) -> Floats | None:
        """The last vector as the starter sent it, not yet clipped at `upper`; None if not sent."""
        return self.vectors.get(len(self.order) * self.parameters.rounds)

    def last_before(self, hop: int) -> int:
        """Return the number of the last vector seen that was passed on before a hop."""
        return self.seen[bisect_right(self.seen, hop) - 1]

    def hops_of(self, party: str) -> tuple[int, ...]:
        """Return the hops of a party, one per round."""
        require(party in self.order, "party", party, f"one of {', '.join(self.order)}")
        place, n = self.order.index(party), len(self.order)
        return tuple(place + n * turn for turn in range(self.parameters.rounds))


def simulated_view(
    vectors: Floats,
    parameters: TopKParameters,
    order: Sequence[str],
    members: Collection[str],
    failed_after: int | None = None,
) -> TopKView:
    """Return a coalition's view of simulated runs, given all vectors, as of `transcript`.

    The session may have failed after some hops.
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
    """The adversary's belief about the others' values: independent, uniform on [0, upper]."""

    rows_per_party: int
    upper: float = 1.0

    def __post_init__(self) -> None:
        require(self.rows_per_party >= 1, "rows_per_party", self.rows_per_party, "at least 1")
        require(0 < self.upper < np.inf, "upper", self.upper, "a finite number above 0")

    def draw(self, trials: int, parties: int, k: int, rng: np.random.Generator) -> Floats:
        """Return each party's k smallest values, shape (trials, parties, k)."""
        return uniform_values(trials, parties, k, self.rows_per_party, rng, self.upper)


@dataclass(frozen=True, slots=True)
class Success:
    """The quality of claims, over all rounds and runs.

    A *new entry* is one that the simple attack claims. An attack decides for each whether it is
    the victim's own.

    Attributes:
        precision: The fraction of claims that are right; 0 without claims.
        recall: The fraction of the victim's values that were claimed; 0 if it has no values.
        accuracy: The fraction of new entries that were decided correctly, claimed or not; 1 without
            new entries.
    """

    new: float
    claims: float
    precision: float
    recall: float
    accuracy: float
    gain: float


def claim_new(view: TopKView, victim: str) -> Floats:
    """Return the entries that the simple attack claims as the victim's, round by round.

    It claims the entries of the victim's output that are not in the last earlier vector seen by the
    coalition. For a successor alone that is its own previous output, so it claims the insertions of
    any of the n - 1 others. With the predecessor in the coalition it is the victim's input: the
    claims are exactly the victim's insertions, real or noise. The start vector and the result are
    public, so they are used as well.

    Rows of shape (rounds, T, k) ascend and are padded with `+inf`. A round in which the coalition
    did not see the victim's output has no claims.
    """
    require(victim not in view.members, "victim", victim, "a party outside the coalition")
    hops = view.hops_of(victim)
    claims = np.full((len(hops), *view.vectors[0].shape), np.inf)
    for turn, hop in enumerate(hops):
        passed = view.vectors.get(hop + 1)
        if passed is not None:
            claims[turn] = difference(passed, view.vectors[view.last_before(hop)])
    return claims


def owned(claims: Floats, own: Floats) -> Bools:
    """Return whether each claim, (rounds, T, k), is a value of the victim, (T, m)."""
    equal = (claims[..., :, None] == own[:, None, :]).any(axis=-1)
    return np.asarray(equal & np.isfinite(claims))


def judge_claims(claims: Floats, own: Floats, decided: Bools | None = None) -> Success:
    """Compare claims, as of `claim_new`, with the victim's k smallest values, shape (T, k).

    `decided` is whether the attack makes each claim; it makes all of them by default.
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


# Likelihoods that differ by less are equal except for rounding.
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The probability that each candidate owns each value, shape (T, v, candidates).

    It is 0 for all if no candidate fits the observations.
    """

    candidates: tuple[str, ...]
    posterior: Floats

    @property
    def likeliest(self) -> Ints:
        """The index of the most probable owner, shape (T, v)."""
        return np.asarray(self.posterior.argmax(axis=-1))


def recurring(
    sessions: Sequence[TopKView], tolerance: float = 0.0, least: int = 2
) -> tuple[Floats, ...]:
    """Return the values, by run, that a coalition saw in several sessions: they are real.

    Failed sessions count as well. A value must be seen in at least `least` of them. Values within
    the tolerance are treated as equal: the distances of a row to two queries differ by at most the
    distance of the queries. With a tolerance, noise may recur by chance.
    """
    _require_alike(sessions)
    return tuple(
        _recurring_in([_seen_in(session, run) for session in sessions], tolerance, least)
        for run in range(sessions[0].runs)
    )


def find_owners(sessions: Sequence[TopKView], values: Floats, tolerance: float = 0.0) -> Owners:
    """Return the posterior over the owners of real values, such as entries of a public result.

    The values, shape (T, v), are among the k smallest of all and not the coalition's own.
    """
    _require_alike(sessions)
    first = sessions[0]
    candidates = tuple(sorted(set(first.order) - first.members))
    log = sum(
        (_log_likelihood(session, values, candidates, tolerance) for session in sessions),
        start=np.zeros((*values.shape, len(candidates))),
    )
    peak = log.max(axis=-1, keepdims=True)
    weight = np.exp(log - np.where(np.isneginf(peak), 0.0, peak))
    total = weight.sum(axis=-1, keepdims=True)
    return Owners(candidates, weight / np.where(total > 0, total, 1.0))


def expected_hits(posterior: Floats, held: Bools) -> float:
    """Return the expected number of right guesses when a most probable owner is named.

    The posterior, shape (values, candidates), is known up to a factor. No owner is named for a
    value for which all are 0.
    """
    peak = posterior.max(axis=-1, keepdims=True)
    suspects = (posterior >= peak * (1 - ROUNDING)) & (peak > 0)
    chance = suspects / np.maximum(1, suspects.sum(axis=-1, keepdims=True))
    return float((chance * held).sum())


def _log_likelihood(
    session: TopKView, values: Floats, candidates: Sequence[str], tolerance: float
) -> Floats:
    """Return the log-likelihood of each value's first sighting, shape (T, v, candidates)."""
    seen = session.seen
    held = np.stack(
        [
            (np.abs(session.vectors[number][:, None, :] - values[:, :, None]) <= tolerance).any(
                axis=-1
            )
            for number in seen
        ]
    )
    first = np.where(held.any(axis=0), held.argmax(axis=0), len(seen))
    inserted = np.stack([_inserted_before(session, party, seen) for party in candidates], axis=1)
    bounds = np.concatenate([np.zeros_like(inserted[:1]), inserted, np.ones_like(inserted[:1])])
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.diff(bounds, axis=0))[first])


def _inserted_before(session: TopKView, party: str, numbers: Sequence[int]) -> Floats:
    """Return the probability that a party inserted before each of the vectors was passed on."""
    rounds = range(1, session.parameters.rounds + 1)
    noise = np.array([session.parameters.noise_probability(number) for number in rounds])
    by_round = np.concatenate([[0.0], 1 - noise.cumprod()])
    return np.asarray(by_round[np.searchsorted(session.hops_of(party), numbers, side="left")])


def _recurring_in(sessions: Sequence[Floats], tolerance: float, least: int) -> Floats:
    """Return the middle of each cluster of values that comes from enough sessions."""
    pooled = np.concatenate(sessions)
    source = np.repeat(np.arange(len(sessions)), [len(values) for values in sessions])
    by_value = np.argsort(pooled, kind="stable")
    pooled, source = pooled[by_value], source[by_value]
    starts = np.flatnonzero(np.diff(pooled) > tolerance) + 1
    clusters = zip(np.split(pooled, starts), np.split(source, starts), strict=True)
    met = (np.median(values) for values, of in clusters if len(np.unique(of)) >= least)
    return np.fromiter(met, dtype=np.float64)


def _seen_in(session: TopKView, run: int) -> Floats:
    """Return the values that a coalition saw in one run, except padding of the start vector."""
    entries = np.unique([vector[run] for vector in session.vectors.values()])
    return entries[entries < session.parameters.upper]


def _require_alike(sessions: Sequence[TopKView]) -> None:
    if not sessions:
        raise InputError.because("there are no sessions; give at least one", field="sessions")
    alike = {(frozenset(s.order), s.members, s.vectors[0].shape) for s in sessions}
    require_that(
        len(alike) <= 1, "sessions", "the sessions must have the same parties, members and queries"
    )
