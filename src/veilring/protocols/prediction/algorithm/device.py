"""Kernels on an accelerator that the user has, through the array API standard.

Since features are whole numbers, a device gives the bits that NumPy gives, or it is no device for
this: one that multiplies in fewer digits, as GPUs do in TF32, is found out and refused. Only
inner products are computed there; the filter stays where the budgets are.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.features import inner_products, quantise

# Rows of the product that a device has to get right: libraries multiply small ones in other ways.
_TRIAL: Final = 256


class Device:
    """A copy of the rows on a device, made anew after each change.

    Args:
        namespace: Of a library that follows the standard: `numpy`, `cupy`, `torch`.
        device: As that library calls it, such as `"cuda"`; its default if none.
    """

    def __init__(self, namespace: Any, device: Any = None) -> None:  # noqa: ANN401 (any library's)
        self._namespace, self._device = namespace, device
        self._rows: Any = None

    def products(
        self, queries: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the exact inner products, shape (queries, rows).

        Args:
            queries: Quantised.
            rows: Quantised, and those of the last time unless `clear` was called since.

        Raises:
            InputError: If the device does not multiply exactly.
        """
        if self._rows is None:
            self._try(rows.shape[1])
            self._rows = self._sent(rows)
        return self._multiplied(self._sent(queries), self._rows)

    def clear(self) -> None:
        """Overwrite the copy on the device, and drop it."""
        if self._rows is not None:
            self._rows[...] = 0
            self._rows = None

    def _try(self, features: int) -> None:
        # TF32 holds all whole numbers up to 2048; heavy tails make some larger at any width.
        drawn = quantise(np.random.default_rng(0).standard_cauchy((_TRIAL, features)))
        found = self._multiplied(self._sent(drawn), self._sent(drawn))
        if not np.array_equal(found, inner_products(drawn, drawn)):
            allowed = "one that multiplies whole numbers of 24 bits exactly: switch TF32 off"
            raise InputError("device", "not exact in single precision", allowed)

    def _sent(self, rows: NDArray[np.float32]) -> Any:  # noqa: ANN401 (an array of any library)
        copied = np.array(rows)
        if self._device is None:
            return self._namespace.asarray(copied)
        return self._namespace.asarray(copied, device=self._device)

    def _multiplied(self, queries: Any, rows: Any) -> NDArray[np.float32]:  # noqa: ANN401 (as above)
        found = self._namespace.matmul(queries, rows.T)
        # The standard has no word for the way back; these are CuPy's and PyTorch's.
        for way in ("get", "cpu"):
            if hasattr(found, way):
                found = getattr(found, way)()
        return np.asarray(found)
