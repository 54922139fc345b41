"""The record of a member's random draws."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator

from veilring.testing.hiding.worlds import DRAWS_MAX, RecordingGenerator


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.integers(1 << 16),
        lambda rng: rng.integers(0, 1 << 64, 5, np.uint64),
        lambda rng: rng.random((2, 3)),
        lambda rng: rng.normal(size=4),
        lambda rng: rng.choice(7),
        lambda rng: rng.permutation(6),
        lambda rng: rng.laplace(),
    ],
)
def test_a_record_has_the_numbers_of_the_same_stream(draw: Callable[[Generator], object]) -> None:
    """Recording changes no draw, and a caller that changes an array does not change the record."""
    recorder = RecordingGenerator(np.random.PCG64(7))
    expected = draw(np.random.default_rng(np.random.PCG64(7)))
    drawn = draw(recorder)
    np.testing.assert_array_equal(drawn, expected)
    if isinstance(drawn, np.ndarray):
        drawn[...] = 0
    (kept,) = recorder.drawn
    np.testing.assert_array_equal(kept, expected)


def test_a_record_leaves_out_keys_and_later_draws() -> None:
    """Bytes, texts and draws after the first `DRAWS_MAX` are not recorded."""
    recorder = RecordingGenerator(np.random.PCG64(7))
    recorder.bytes(32)
    recorder.choice(["a", "b"])
    for _ in range(DRAWS_MAX + 1):
        recorder.integers(9)
    assert len(recorder.drawn) == DRAWS_MAX
