"""How far the attack over repetitions gets, by the number of sessions."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.algorithm import TopKParameters, true_topk
from veilring.protocols.ring.attacks.intersection import expected_hits, find_owners
from veilring.protocols.ring.attacks.prior import UniformPrior
from veilring.protocols.ring.attacks.views import simulated_view
from veilring.protocols.ring.leakage.transcripts import transcript

# Queries that are asked together share their rings, so their fates are alike; a few of them cost
# hardly more than one, and many would make the estimate look better than it is.
QUERIES_TOGETHER: Final = 4


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
    """Return how often the owner of a value in the result is found, after 1, 2, … sessions.

    The same queries are asked in each session, with a fresh ring, coins and noise. The coalition
    names the likeliest owner of each true result that is not its own, and any if several are
    equally likely; guessing would be right once in `parties - coalition` times.

    Args:
        parties: How many, n, at least 3.
        parameters: Public.
        prior: The law of all values.
        coalition: How many parties collude, 1 to n - 1; their places are drawn with each ring.
        sessions: How many there are, at least 1.
        batches: How many independent batches of `QUERIES_TOGETHER` queries to try, at least 1.
        rng: Source of everything.
        failed_after: If given, the first session failed after so many hops.

    Returns:
        Shape (sessions,); NaN if no true result was an honest party's.

    Raises:
        InputError: If the coalition is empty or everybody.
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
            # Names that sort as their numbers do, so that candidate j is party coalition + j.
            order = [f"{place:06}" for place in places]
            members = [name for name in order if int(name) < coalition]
            failed = None if number else failed_after
            view = simulated_view(vectors, parameters, order, members, failed)
            # All are equally likely beforehand, so the posteriors of single sessions multiply.
            likelihood *= find_owners([view], top).posterior[honest]
            likelihood /= likelihood.max(axis=-1, keepdims=True)  # or many would underflow
            found[number] += expected_hits(likelihood, held)
    return found / honest_values if honest_values else np.full(sessions, np.nan)
