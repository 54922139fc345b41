"""All parties in one process: what the network would make of their steps."""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters
from veilring.protocols.noisyvotes.algorithm.releases import VotesAnswer, batch_steps
from veilring.protocols.noisyvotes.algorithm.shares import noisy_counts
from veilring.protocols.rows import Rows


def noisy_votes(
    queries: NDArray[np.float64],
    parts: Sequence[Rows],
    parameters: NoisyVotesParameters,
    rng: Generator,
    *,
    radii: NDArray[np.float64] | None = None,
    missing: int = 0,
) -> VotesAnswer:
    """Label a batch as so many parties would, with the steps that they run.

    The masks of the secure sum cancel in the total and are left out.

    Args:
        queries: Shape (Q, features), in [0, 1].
        parts: The rows of each party, at least 3 parties; any of them may have none.
        parameters: Public.
        rng: Source of all parties' shares of the noise.
        radii: Shape (Q,), if the parameters leave them to whoever asks.
        missing: How many parties, the last ones, add no noise: to see what that does.

    Raises:
        InputError: If queries, radii, parties or rows do not fit the parameters.
    """
    exponent = parameters.exponent(len(parts))
    for rows in parts:
        parameters.check_rows(rows)
    steps = batch_steps(queries, parameters, radii)
    release = next(steps)
    while True:
        total = np.zeros((len(release.plan.epsilons), release.entries), dtype=np.int64)
        for place, rows in enumerate(parts):
            own = release.count(rows)
            adds = place < len(parts) - missing
            total += noisy_counts(own, release.plan.epsilons, exponent, rng) if adds else own
        try:
            release = steps.send(total)
        except StopIteration as done:
            answer: VotesAnswer = done.value
            return answer
