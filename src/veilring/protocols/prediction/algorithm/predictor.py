"""A predictor: rows, their remaining budgets, and answers to a stream of queries (Algorithm 3).

Answers do not depend on the division of the stream into blocks: kernels are exact, the filter
processes queries one after the other, and the number of random draws per query does not depend on
the rows. A `Device` computes the inner products on an accelerator, with identical bits.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.protocols.prediction.algorithm.directions import (
    Hashing,
    Kernel,
    ReleasedAnswers,
    inner_products,
    product_blocks,
    quantise,
    require_quantised,
)
from veilring.protocols.prediction.algorithm.filter import (
    FilterParameters,
    Neighbours,
    PricedLabel,
    StoredRows,
    answer_query,
)

# The rows of the trial product of a device; libraries use other algorithms for small products.
_TRIAL: Final = 256
# The products if no answers are reused.
_NO_PRODUCTS: Final = np.zeros((0, 0), np.float32)


class Device:
    """A copy of the rows on an accelerator, through the array API standard.

    Features are whole numbers, so a device gives the same bits as NumPy. A device that multiplies
    with less precision, such as a GPU in TF32 mode, is detected and refused. The device computes
    inner products only; the filter runs on the host. Rows are copied again after each change.
    """

    def __init__(self, namespace: Any, device: Any = None) -> None:  # noqa: ANN401  (any library's)
        self._namespace, self._device = namespace, device
        self._rows: Any = None

    def products(
        self, queries: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the exact inner products, shape (queries, rows).

        Args:
            rows: The quantised rows, equal to those of the last call unless it was cleared.
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
        # TF32 is exact for whole numbers up to 2048; heavy tails give larger ones at any width.
        drawn = quantise(np.random.default_rng(0).standard_cauchy((_TRIAL, features)))
        found = self._multiplied(self._sent(drawn), self._sent(drawn))
        if not np.array_equal(found, inner_products(drawn, drawn)):
            raise InputError.because(
                "the device is not exact in single precision: it must multiply whole "
                "numbers of 24 bits exactly; switch TF32 off",
                field="device",
            )

    def _sent(self, rows: NDArray[np.float32]) -> Any:  # noqa: ANN401  (an array of any library)
        copied = np.array(rows)
        if self._device is None:
            return self._namespace.asarray(copied)
        return self._namespace.asarray(copied, device=self._device)

    def _multiplied(self, queries: Any, rows: Any) -> NDArray[np.float32]:  # noqa: ANN401  (as above)
        found = self._namespace.matmul(queries, rows.T)
        # The standard does not define the copy to the host; these are CuPy's and PyTorch's methods.
        for way in ("get", "cpu"):
            if hasattr(found, way):
                found = getattr(found, way)()
        return np.asarray(found)


class Predictor:
    """A predictor that answers queries on private rows and can forget a row immediately.

    It has a working copy of the remaining budgets. The caller makes each charge durable before it
    releases the answer, in a ledger whose slots can serve as ids here.

    Args:
        hashing: The hyperplanes for selecting candidates; queries are then answered one at a time.
            This pays off for single adaptive queries, and for very many rows.
        reuse: Whether answers join the neighbours of later queries, without payment or noise.
        device: An accelerator for the inner products with all rows; the host multiplies hashed
            candidates. Answers are identical.
    """

    def __init__(
        self,
        parameters: FilterParameters,
        kernel: Kernel,
        features: int,
        *,
        hashing: Hashing | None = None,
        reuse: bool = False,
        device: Device | None = None,
    ) -> None:
        require(features >= 1, "features", features, "a whole number of at least 1")
        if hashing is not None and hashing.planes.shape[1] != features:
            raise InputError.because(
                f"the hyperplanes of the hashing have {hashing.planes.shape[1]} features; "
                f"the rows have {features}",
                field="hashing",
            )
        self.parameters, self.kernel = parameters, kernel
        self._features, self._hashing, self._device = features, hashing, device
        self._rows = StoredRows(features, hashing)
        self._released = ReleasedAnswers(features, parameters.classes) if reuse else None
        self._room = np.zeros(0, np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ids(self) -> Ints:
        """A copy of the ids of all records, in the same arbitrary order as `remaining`."""
        return self._rows.live.ids.copy()

    @property
    def remaining(self) -> Ints:
        """A copy of the units that each record has left. They and any summary are secret."""
        return self._rows.live.remaining.copy()

    def add(self, ids: Ints, features: NDArray[np.float32], labels: Ints, remaining: Ints) -> None:
        """Add records, which take part from the next query on."""
        for field, column in (("ids", ids), ("labels", labels), ("remaining", remaining)):
            if column.shape != (len(features),) or column.dtype != np.int64:
                given = f"{column.dtype} of shape {column.shape}"
                raise InputError.because(
                    f"{field} are {given}; they must be int64 of the shape ({len(features)},)",
                    field=field,
                )
        if len(np.unique(ids)) < len(ids) or np.isin(ids, self._rows.live.ids).any():
            raise InputError.because(
                "an id exists already, or occurs twice; each record needs a new one", field="ids"
            )
        if not np.all((labels >= 0) & (labels < self.parameters.classes)):
            raise InputError.because(
                f"labels must be from 0 to {self.parameters.classes - 1}", field="labels"
            )
        if not np.all(remaining >= 0):
            raise InputError.because("remaining must be units of at least 0", field="remaining")
        self._rows.add(ids, features, labels, remaining)
        self._clear()

    def restock(self, remaining: Ints) -> None:
        """Set the remaining budgets in the order of `ids`, from a ledger or for another client."""
        self._rows.live.remaining[:] = remaining

    def forget(self, ids: Ints) -> None:
        """Forget records: all their data here is overwritten before this returns.

        The data includes features, labels, budgets, codes, and inner products with queries.
        """
        gone = np.flatnonzero(np.isin(self._rows.live.ids, ids))
        if len(gone) < len(np.unique(ids)):
            raise InputError.because("there is an unknown id; add it first", field="ids")
        self._rows.forget(gone)
        self._clear()

    def answer_block(self, queries: NDArray[np.float32], rng: Generator) -> list[PricedLabel]:
        """Answer queries one after the other, and charge the working copy.

        Returns:
            The label of each query with its price; `payers` are ids.
        """
        long = require_quantised("queries", queries, self._features)
        answers: list[PricedLabel] = []
        for block in product_blocks(len(queries), len(self._rows)):
            answers += self._answer(queries[block], long[block], rng)
        return answers

    def _answer(
        self, queries: NDArray[np.float32], long: Floats, rng: Generator
    ) -> Iterator[PricedLabel]:
        near = (
            self._among_all(queries, long)
            if self._hashing is None
            else self._among_candidates(self._hashing, queries, long)
        )
        public = _NO_PRODUCTS if self._released is None else self._released.products(queries)
        for place, neighbours in enumerate(near):
            votes = None
            if self._released is not None:
                votes = self._released.votes(self.kernel, public[place], float(long[place]))
            found = answer_query(
                self.parameters, neighbours, self._rows.live.remaining, rng, released=votes
            )
            if self._released is not None:
                self._released.join(queries[place], float(long[place]), found.label)
            yield replace(found, payers=self._rows.live.ids[found.payers])

    def _among_all(self, queries: NDArray[np.float32], long: Floats) -> Iterator[Neighbours]:
        rows = self._rows.live
        products = self._scratch(len(queries), len(self._rows))
        if self._device is None:
            np.matmul(queries, rows.features.T, out=products)
        else:
            products[:] = self._device.products(queries, rows.features)
        for row, length in zip(products, long.tolist(), strict=True):
            near, kappa = self.kernel.neighbours(row, rows.lengths, length)
            yield Neighbours(near, kappa, rows.labels[near])

    def _among_candidates(
        self, hashing: Hashing, queries: NDArray[np.float32], long: Floats
    ) -> Iterator[Neighbours]:
        rows = self._rows.live
        codes = hashing.codes(queries)
        for query, code, length in zip(queries, codes.T, long.tolist(), strict=True):
            among = hashing.candidates(rows.codes, code)
            copy = self._scratch(len(among), self._features)
            np.take(rows.features, among, axis=0, out=copy, mode="clip")  # "clip" avoids a buffer
            near, kappa = self.kernel.neighbours(copy @ query, rows.lengths[among], length)
            yield Neighbours(among[near], kappa, rows.labels[among[near]])

    def _clear(self) -> None:
        """Overwrite data derived from rows: the buffer of products, and a device's copy."""
        self._room.fill(0)
        if self._device is not None:
            self._device.clear()

    def _scratch(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a buffer for data derived from rows, which `forget` can overwrite."""
        if self._room.size < rows * columns:
            self._room.fill(0)
            self._room = np.zeros(rows * columns, np.float32)
        return self._room[: rows * columns].reshape(rows, columns)
