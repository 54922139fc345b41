"""Kernels on a device: equal bits, no trace of forgotten records, no inexact device."""

from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.prediction.streams import answers, clustered, predictor, same

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import Kernel
from veilring.protocols.prediction.algorithm.filter import FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Device

PARAMETERS = FilterParameters(classes=3, queries=40, budget=0.1, sigma2=0.3)


class _Sent:
    """Keeps the arrays sent to a library."""

    def __init__(self, library: Any) -> None:
        self._library, self.held = library, list[Any]()

    def asarray(self, array: NDArray[np.float32]) -> Any:
        self.held.append(self._library.asarray(array))
        return self.held[-1]

    def matmul(self, one: Any, other: Any) -> Any:
        return self._library.matmul(one, other)


@pytest.mark.parametrize("library", [np, array_api_strict], ids=["numpy", "array-api-strict"])
def test_a_device_gives_the_same_answers(library: Any) -> None:
    """Labels and payments are equal, even after rows were added and forgotten."""
    rng = np.random.default_rng(1)
    rows, queries = clustered(200, 30, 3, rng), clustered(40, 30, 3, rng).features
    made = [
        predictor(PARAMETERS, Kernel("cosine", 0.2), rows, device=device)
        for device in (None, Device(library))
    ]
    for change in ([], [105], [100, 250]):
        for each in made:
            each.forget(np.array(change, np.int64))
        one, other = (answers(each, queries, 16, seed=2) for each in made)
        assert same(one, other)


def test_nothing_is_left_on_the_device() -> None:
    """The copy of the rows is overwritten when one of them is forgotten."""
    rng = np.random.default_rng(1)
    rows, queries = clustered(50, 8, 3, rng), clustered(3, 8, 3, rng).features
    sent = _Sent(np)
    made = predictor(PARAMETERS, Kernel("cosine", 0.2), rows, device=Device(sent))
    answers(made, queries, 3, seed=2)
    copies = [each for each in sent.held if each.shape == (50, 8)]
    assert len(copies) == 1
    assert np.array_equal(copies[0], rows.features)
    made.forget(np.array([110]))
    assert not copies[0].any()
    assert np.array_equal(made.ids[:10], np.arange(100, 110))


@pytest.mark.parametrize("features", [16, 64, 768])
def test_a_device_that_rounds_is_refused(features: int) -> None:
    """A device with ten bits of mantissa, like TF32, is detected before any query."""

    def rounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
        bits = np.ascontiguousarray(array).view(np.int32)
        return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(np.float32)

    coarse = SimpleNamespace(
        asarray=np.asarray, matmul=lambda one, other: rounded(one) @ rounded(other)
    )
    rows = clustered(20, features, 3, np.random.default_rng(1)).features
    with pytest.raises(InputError, match="device"):
        Device(coarse).products(rows, rows)
