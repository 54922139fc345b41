"""Many independent runs of the whole ring at once, and the result that they should have.

This is the Monte Carlo driver of PP-TopK: it calls the same `topk_step` that a networked party
calls, so what is estimated is what is deployed.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.algorithm.checks import SMALLEST_RING, require
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    final_result,
    require_bounded,
    start_vector,
    topk_step,
)

HopObserver = Callable[[int, int, NDArray[np.float64], NDArray[np.float64]], None]
"""Called for every hop of `run_ring` with round (1-based), position, received and passed (T, k)."""


def run_ring(
    values: NDArray[np.float64],
    parameters: TopKParameters,
    rng: np.random.Generator,
    observe: HopObserver | None = None,
) -> NDArray[np.float64]:
    """Run the whole ring T times and return the public result of each run, shape (T, k).

    Args:
        values: Each party's own k smallest, shape (T, n, k) with n >= 3, rows ascending and
            padded with `+inf`. Axis 1 is the ring's order, its index 0 the starter.
        parameters: The public parameters.
        rng: One source for all parties.
        observe: Called after every hop, in order. It must not change what it is given.

    Raises:
        InputError: If the shape is wrong, a row is not ascending or a value is out of bounds.
    """
    _require_ring(values, parameters)
    runs, parties, _ = values.shape
    G = start_vector(parameters, runs)
    inserted = np.zeros((parties, runs), dtype=np.bool_)
    for round_number in range(1, parameters.rounds + 1):
        for position in range(parties):
            passed, inserted[position] = topk_step(
                G, values[:, position], inserted[position], round_number, parameters, rng
            )
            if observe is not None:
                observe(round_number, position, G, passed)
            G = passed
    return final_result(G, parameters)


def true_topk(values: NDArray[np.float64], parameters: TopKParameters) -> NDArray[np.float64]:
    """Return the k smallest of the union, shape (T, k), filled up with `upper`.

    Args:
        values: Each party's own k smallest, shape (T, n, k), padded with `+inf`.
        parameters: The public parameters.
    """
    union = values.reshape(len(values), -1)
    smallest = np.sort(np.partition(union, parameters.k - 1, axis=1)[:, : parameters.k], axis=1)
    return final_result(smallest, parameters)


def _require_ring(values: NDArray[np.float64], parameters: TopKParameters) -> None:
    shape = f"(runs, parties >= {SMALLEST_RING}, k = {parameters.k})"
    fits = values.ndim == 3 and values.shape[1] >= SMALLEST_RING  # noqa: PLR2004  (the axes named in `shape`)
    fits = fits and values.shape[2] == parameters.k
    require(fits, "values", f"of shape {values.shape}", f"shape {shape}")
    ascending = bool((values[..., :-1] <= values[..., 1:]).all())
    require(ascending, "values", "not ascending in some row", "rows sorted ascending")
    require_bounded(values, parameters)
