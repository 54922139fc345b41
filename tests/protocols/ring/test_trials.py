"""The whole ring in many trials: its order, its result and its observer's view."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    own_smallest,
    run_ring,
    start_vector,
    topk_step,
    true_topk,
)

HONEST = TopKParameters(k=3, P0=0.0, d=0.5, rounds=1, delta=0.5, upper=9.0)
NOISY = TopKParameters(k=3, P0=1.0, d=0.5, rounds=12, delta=0.5, upper=9.0)


@given(
    rows=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=3, max_size=6),
    parameters=st.sampled_from([HONEST, NOISY]),
)
def test_the_ring_finds_the_k_smallest_of_the_union(
    rows: list[list[int]], parameters: TopKParameters
) -> None:
    """After enough rounds the result is the union's k smallest, ties and short unions included.

    The error bound at 12 rounds is below 1e-19 per run.
    """
    values = np.stack([own_smallest(np.array([row], dtype=np.float64), 3) for row in rows], axis=1)
    expected = (sorted(float(x) for row in rows for x in row) + [9.0] * 3)[:3]
    assert run_ring(values, parameters, np.random.default_rng(0)).tolist() == [expected]
    assert true_topk(values, parameters).tolist() == [expected]


def test_the_ring_is_the_step_in_ring_order() -> None:
    """The driver is a loop over a networked party's step, draw for draw."""
    data = np.random.default_rng(3)
    parameters = TopKParameters(k=2, P0=0.9, d=0.7, rounds=3, delta=0.1, upper=1.0)
    values = np.sort(data.random((40, 4, 2)), axis=2)
    seen: list[tuple[int, int]] = []
    G, rng = start_vector(parameters, 40), np.random.default_rng(7)
    done = [np.zeros(40, dtype=np.bool_) for _ in range(4)]

    def observe(round_number: int, position: int, received: Floats, passed: Floats) -> None:
        nonlocal G
        assert (received == G).all()
        own = values[:, position]
        G, done[position] = topk_step(G, own, done[position], round_number, parameters, rng)
        assert (passed == G).all()
        seen.append((round_number, position))

    result = run_ring(values, parameters, np.random.default_rng(7), observe)
    assert seen == [(r, p) for r in (1, 2, 3) for p in range(4)]
    assert (result == np.minimum(G, 1.0)).all()


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.zeros((5, 2, 3)), id="two-parties"),
        pytest.param(np.zeros((5, 3, 2)), id="wrong-k"),
        pytest.param(np.zeros((5, 3)), id="no-k"),
        pytest.param(np.tile([2.0, 1.0, 3.0], (5, 3, 1)), id="unsorted"),
        pytest.param(np.full((5, 3, 3), 9.5), id="above-upper"),
        pytest.param(np.full((5, 3, 3), -0.5), id="below-lower"),
        pytest.param(np.full((5, 3, 3), math.nan), id="nan"),
    ],
)
def test_invalid_values_are_refused(values: Floats) -> None:
    """Values of a wrong shape, out of order or out of bounds are refused before any step."""
    with pytest.raises(InputError) as caught:
        run_ring(values, HONEST, np.random.default_rng(0))
    assert caught.value.field == "values"
