"""All the vectors of many runs of PP-TopK, in memory-bounded chunks, and inputs to run it on."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm import TopKParameters, run_ring, start_vector
from veilring.protocols.ring.algorithm.checks import require

# A transcript of this many entries takes 64 MiB; more trials are run one chunk after another.
TRANSCRIPT_ENTRIES: Final = 2**23
# Calls cost little beside the work on so many trials, and a hop's vectors still fit a core's cache.
CHUNK_TRIALS: Final = 2**13


def transcript(
    values: NDArray[np.float64], parameters: TopKParameters, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the start vector and then what each hop passed on, shape (hops + 1, T, k).

    The runs are side by side in memory, which is how multisets are compared fastest.
    """
    trials, parties, k = values.shape
    vectors = np.empty((parties * parameters.rounds + 1, k, trials)).transpose(0, 2, 1)
    vectors[0] = start_vector(parameters, trials)

    def observe(
        round_number: int,
        position: int,
        received: NDArray[np.float64],  # noqa: ARG001  (it is what the hop before passed on)
        passed: NDArray[np.float64],
    ) -> None:
        vectors[(round_number - 1) * parties + position + 1] = passed

    run_ring(values, parameters, rng, observe)
    return vectors


def cut_trials(trials: int, entries: int) -> Iterator[slice]:
    """Yield slices of at most `CHUNK_TRIALS` trials whose transcripts fit in `CHUNK_ENTRIES`.

    Args:
        trials: How many in all.
        entries: Of the transcript of one trial.
    """
    step = max(1, min(TRANSCRIPT_ENTRIES // entries, CHUNK_TRIALS))
    return (slice(first, min(first + step, trials)) for first in range(0, trials, step))


def uniform_values(  # noqa: PLR0917  (a shape and a law)
    trials: int,
    parties: int,
    k: int,
    rows_per_party: int,
    rng: np.random.Generator,
    upper: float = 1.0,
) -> NDArray[np.float64]:
    """Return each party's k smallest of independent rows uniform on [0, upper].

    The rows themselves are never drawn: the j-th smallest of N uniforms is the sum of the first j
    of N + 1 exponential variables over the sum of all, and the sum of those beyond k is a gamma.

    Args:
        trials: T, at least 1.
        parties: n, at least 1.
        k: How many of the smallest, at least 1.
        rows_per_party: N, the rows that each party holds, at least 0.
        rng: Source of the rows.
        upper: Positive.

    Returns:
        Shape (trials, parties, k), rows ascending, filled up with `+inf` if N < k.

    Raises:
        InputError: If an argument is outside its range.
    """
    for field, count in (("trials", trials), ("parties", parties), ("k", k)):
        require(count >= 1, field, count, "an integer of at least 1")
    require(rows_per_party >= 0, "rows_per_party", rows_per_party, "an integer of at least 0")
    require(0 < upper < np.inf, "upper", upper, "a finite number above 0")
    kept = min(k, rows_per_party)
    values = rng.standard_exponential((trials, parties, kept))
    # In place, as fresh memory for so many numbers costs as much as the arithmetic.
    np.cumsum(values, axis=2, out=values)
    values /= values[:, :, -1:] + rng.standard_gamma(
        rows_per_party + 1 - kept, (trials, parties, 1)
    )
    values *= upper
    if kept == k:
        return values
    missing = np.full((trials, parties, k - kept), np.inf)
    return np.concatenate((values, missing), axis=2)
