"""The attack over repetitions: the same query asked again, with a fresh ring and fresh noise.

Real values recur exactly, noise never does: a value seen in two sessions is real. Each session also
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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import TopKParameters, true_topk
from veilring.protocols.ring.attacks.views import TopKView, UniformPrior, simulated_view
from veilring.protocols.ring.leakage import transcript

# Likelihoods that differ by less are equal except for rounding.
ROUNDING: Final = 1e-9

# Queries that are asked together share their rings, so their results are dependent; a few of them
# cost hardly more than one, and many would make the estimate look more precise than it is.
QUERIES_TOGETHER: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The owners of values, as far as a coalition can infer them after some sessions.

    Attributes:
        candidates: The honest parties, by name.
        posterior: The probability that each candidate owns each value, shape (T, v, candidates);
            all 0 if no candidate fits the observations.
    """

    candidates: tuple[str, ...]
    posterior: NDArray[np.float64]

    @property
    def likeliest(self) -> NDArray[np.int64]:
        """The index of the most probable owner, shape (T, v)."""
        return np.asarray(self.posterior.argmax(axis=-1))


def recurring(
    sessions: Sequence[TopKView], tolerance: float = 0.0, least: int = 2
) -> tuple[NDArray[np.float64], ...]:
    """Return the values that a coalition saw in several sessions, and so knows to be real.

    Args:
        sessions: The coalition's view of each session, for the same T queries. Failed sessions
            count as well.
        tolerance: The distance up to which values are treated as equal; 0 for the same query. The
            distances of a row to two queries differ by at most the distance of the queries. With a
            tolerance, noise may recur by chance.
        least: The minimum number of sessions in which a value must be seen.

    Returns:
        For each of the T runs the values, ascending.

    Raises:
        InputError: If there is no session, or they are of different coalitions or shapes.
    """
    _require_alike(sessions)
    return tuple(
        _recurring_in([_seen_in(session, run) for session in sessions], tolerance, least)
        for run in range(sessions[0].runs)
    )


def find_owners(
    sessions: Sequence[TopKView], values: NDArray[np.float64], tolerance: float = 0.0
) -> Owners:
    """Return the posterior over the owners of real values.

    Args:
        sessions: As for `recurring`.
        values: Values among the k smallest of all parties and not the coalition's own, shape
            (T, v): entries of a public result, for instance.
        tolerance: As for `recurring`.

    Raises:
        InputError: As in `recurring`.
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


def tracing_success(
    parties: int,
    parameters: TopKParameters,
    prior: UniformPrior,
    *,
    coalition: int,
    sessions: int,
    batches: int,
    rng: np.random.Generator,
    failed_after: int | None = None,
) -> NDArray[np.float64]:
    """Return the fraction of values whose owner is found, after 1, 2, … sessions.

    The same queries are asked in each session, with a fresh ring, coins and noise. The coalition
    names the most probable owner of each true result that is not its own, at random in a tie; a
    blind guess is right with probability `1 / (parties - coalition)`.

    Args:
        parties: The number of parties, n, at least 3.
        prior: The distribution of all values.
        coalition: The number of parties that collude, 1 to n - 1; their positions are drawn with
            each ring.
        sessions: The number of sessions, at least 1.
        batches: The number of independent batches of `QUERIES_TOGETHER` queries, at least 1.
        rng: The source of all randomness.
        failed_after: The number of hops after which the first session failed, if it did.

    Returns:
        Shape (sessions,); NaN if no true result was an honest party's.

    Raises:
        InputError: If the coalition is empty or has all parties.
    """
    if not 1 <= coalition < parties:
        raise InputError("coalition", coalition, f"1 to {parties - 1} of {parties} parties")
    found = np.zeros(sessions)
    honest_values = 0
    for _ in range(batches):
        values = prior.draw(QUERIES_TOGETHER, parties, parameters.k, rng)
        top = true_topk(values, parameters)
        owner = (values[:, :, None] == top[:, None, :, None]).any(axis=-1).argmax(axis=1)
        honest = owner >= coalition
        honest_values += int(honest.sum())
        held = np.eye(parties, dtype=np.bool_)[owner[honest], coalition:]
        likelihood = np.ones(held.shape)
        for number in range(sessions):
            places = rng.permutation(parties)
            vectors = transcript(values[:, places], parameters, rng)
            # Names whose order is that of their numbers, so that candidate j is party coalition +
            # j.
            order = [f"{place:06}" for place in places]
            members = [name for name in order if int(name) < coalition]
            failed = None if number else failed_after
            view = simulated_view(vectors, parameters, order, members, failed)
            # All are equally likely beforehand, so the posteriors of single sessions multiply.
            likelihood *= find_owners([view], top).posterior[honest]
            likelihood /= likelihood.max(axis=-1, keepdims=True)  # otherwise many would underflow
            found[number] += expected_hits(likelihood, held)
    return found / honest_values if honest_values else np.full(sessions, np.nan)


def expected_hits(posterior: NDArray[np.float64], held: NDArray[np.bool_]) -> float:
    """Return the expected number of right guesses when a most probable owner is named.

    Args:
        posterior: The probability that each candidate owns each value, up to a factor, shape
            (values, candidates); no owner is named for a value for which all are 0.
        held: Whether each candidate owns it, same shape.

    Returns:
        The expected number.
    """
    peak = posterior.max(axis=-1, keepdims=True)
    suspects = (posterior >= peak * (1 - ROUNDING)) & (peak > 0)
    chance = suspects / np.maximum(1, suspects.sum(axis=-1, keepdims=True))
    return float((chance * held).sum())


def _log_likelihood(
    session: TopKView,
    values: NDArray[np.float64],
    candidates: Sequence[str],
    tolerance: float,
) -> NDArray[np.float64]:
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


def _inserted_before(session: TopKView, party: str, numbers: Sequence[int]) -> NDArray[np.float64]:
    """Return the probability that a party inserted before each of the vectors was passed on."""
    rounds = range(1, session.parameters.rounds + 1)
    noise = np.array([session.parameters.noise_probability(number) for number in rounds])
    by_round = np.concatenate([[0.0], 1 - noise.cumprod()])
    return np.asarray(by_round[np.searchsorted(session.hops_of(party), numbers, side="left")])


def _recurring_in(
    sessions: Sequence[NDArray[np.float64]], tolerance: float, least: int
) -> NDArray[np.float64]:
    """Return the middle of each cluster of values that comes from enough sessions."""
    pooled = np.concatenate(sessions)
    source = np.repeat(np.arange(len(sessions)), [len(values) for values in sessions])
    by_value = np.argsort(pooled, kind="stable")
    pooled, source = pooled[by_value], source[by_value]
    starts = np.flatnonzero(np.diff(pooled) > tolerance) + 1
    clusters = zip(np.split(pooled, starts), np.split(source, starts), strict=True)
    met = (np.median(values) for values, of in clusters if len(np.unique(of)) >= least)
    return np.fromiter(met, dtype=np.float64)


def _seen_in(session: TopKView, run: int) -> NDArray[np.float64]:
    """Return the values that a coalition saw in one run, except padding of the start vector."""
    entries = np.unique([vector[run] for vector in session.vectors.values()])
    return entries[entries < session.parameters.upper]


def _require_alike(sessions: Sequence[TopKView]) -> None:
    if not sessions:
        raise InputError.because("there are no sessions; give at least one", field="sessions")
    alike = {(frozenset(s.order), s.members, s.vectors[0].shape) for s in sessions}
    if len(alike) > 1:
        raise InputError.because(
            "the sessions must have the same parties, members and queries", field="sessions"
        )
