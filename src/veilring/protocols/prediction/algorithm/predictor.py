"""A predictor: rows, what each has left, and the answers to a stream of queries (Algorithm 3).

Answers do not depend on how the stream is cut into blocks: kernels are exact, the filter takes one
query after the other, and a query draws as many random numbers whatever the rows are.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.device import Device
from veilring.protocols.prediction.algorithm.features import blocks
from veilring.protocols.prediction.algorithm.filter import Answer, IndKNN, Neighbours, answer_query
from veilring.protocols.prediction.algorithm.hashing import Hashing
from veilring.protocols.prediction.algorithm.kernels import Kernel
from veilring.protocols.prediction.algorithm.reuse import Released
from veilring.protocols.prediction.algorithm.rows import Rows, require_quantised

# Stands where nothing is reused.
_NO_PRODUCTS: Final = np.zeros((0, 0), np.float32)


class Predictor:
    """Answers queries on private rows, and forgets a row at once.

    It holds a working copy of what each record has left. Whoever lets an answer leave makes its
    charge durable before, in a ledger whose slots may serve as the ids here.

    Args:
        parameters: Public.
        kernel: Public.
        features: Of a row and of a query.
        hashing: To look at candidates only; then queries are answered one at a time. It pays for
            single queries that depend on earlier answers, and for very many rows.
        reuse: Whether answers join the neighbours of later queries, without pay and noise.
        device: To multiply on; hashed candidates are multiplied here. Answers are the same.

    Raises:
        InputError: If the hashing is for other features.
    """

    def __init__(
        self,
        parameters: IndKNN,
        kernel: Kernel,
        features: int,
        *,
        hashing: Hashing | None = None,
        reuse: bool = False,
        device: Device | None = None,
    ) -> None:
        if features < 1:
            raise InputError("features", features, "a whole number of at least 1")
        if hashing is not None and hashing.planes.shape[1] != features:
            allowed = f"hyperplanes of {features} features"
            raise InputError("hashing", f"of {hashing.planes.shape[1]} features", allowed)
        self.parameters, self.kernel = parameters, kernel
        self._features, self._hashing, self._device = features, hashing, device
        self._rows = Rows(features, hashing)
        self._released = Released(features, parameters.classes) if reuse else None
        self._room = np.zeros(0, np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of all records: a copy, in no particular order, that of `remaining`."""
        return self._rows.ids.copy()

    @property
    def remaining(self) -> NDArray[np.int64]:
        """What each record has left, in units: a copy. It is secret, and so is any summary."""
        return self._rows.remaining.copy()

    def add(
        self,
        ids: NDArray[np.int64],
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        remaining: NDArray[np.int64],
    ) -> None:
        """Add records; they take part from the next query on.

        Args:
            ids: Names of them, none of which is here, shape (m,).
            features: From `quantise`, shape (m, features).
            labels: From 0 to the number of classes, shape (m,).
            remaining: What the ledger says that each has left, in units, shape (m,).

        Raises:
            InputError: If one of these is out of range; nothing is added then.
        """
        for field, column in (("ids", ids), ("labels", labels), ("remaining", remaining)):
            if column.shape != (len(features),) or column.dtype != np.int64:
                given = f"{column.dtype} of shape {column.shape}"
                raise InputError(field, given, f"int64 of shape ({len(features)},)")
        if len(np.unique(ids)) < len(ids) or np.isin(ids, self._rows.ids).any():
            raise InputError("ids", "not all new", "each once, and none that is here")
        if not np.all((labels >= 0) & (labels < self.parameters.classes)):
            raise InputError("labels", "out of range", f"0 to {self.parameters.classes - 1}")
        if not np.all(remaining >= 0):
            raise InputError("remaining", "out of range", "units of at least 0")
        self._rows.add(ids, features, labels, remaining)
        self._clear()

    def restock(self, remaining: NDArray[np.int64]) -> None:
        """Set what each record has left: what a ledger says, or says of another querier.

        Args:
            remaining: In units, in the order of `ids`, shape (records,).
        """
        self._rows.remaining[:] = remaining

    def forget(self, ids: NDArray[np.int64]) -> None:
        """Forget records at once: what is held of them here is overwritten before this returns.

        That is their features, labels, budgets, codes, and their inner products with queries.

        Args:
            ids: Shape (m,).

        Raises:
            InputError: If one is not here; nothing is forgotten then.
        """
        gone = np.flatnonzero(np.isin(self._rows.ids, ids))
        if len(gone) < len(np.unique(ids)):
            raise InputError("ids", "not all known", "ids that were added")
        self._rows.forget(gone)
        self._clear()

    def answer_block(self, queries: NDArray[np.float32], rng: Generator) -> list[Answer]:
        """Answer queries one after the other, and charge the working copy.

        Args:
            queries: From `quantise`, shape (queries, features).
            rng: The server's secret randomness.

        Returns:
            One for each query; `payers` are ids.

        Raises:
            InputError: If the queries are not quantised, or of other features.
        """
        long = require_quantised("queries", queries, self._features)
        answers: list[Answer] = []
        for block in blocks(len(queries), len(self._rows)):
            answers += self._answer(queries[block], long[block], rng)
        return answers

    def _answer(
        self, queries: NDArray[np.float32], long: NDArray[np.float64], rng: Generator
    ) -> Iterator[Answer]:
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
                self.parameters, neighbours, self._rows.remaining, rng, released=votes
            )
            if self._released is not None:
                self._released.join(queries[place], float(long[place]), found.label)
            yield replace(found, payers=self._rows.ids[found.payers])

    def _among_all(
        self, queries: NDArray[np.float32], long: NDArray[np.float64]
    ) -> Iterator[Neighbours]:
        rows = self._rows
        products = self._scratch(len(queries), len(rows))
        if self._device is None:
            np.matmul(queries, rows.features.T, out=products)
        else:
            products[:] = self._device.products(queries, rows.features)
        for row, length in zip(products, long.tolist(), strict=True):
            near, kappa = self.kernel.neighbours(row, rows.lengths, length)
            yield Neighbours(near, kappa, rows.labels[near])

    def _among_candidates(
        self, hashing: Hashing, queries: NDArray[np.float32], long: NDArray[np.float64]
    ) -> Iterator[Neighbours]:
        rows = self._rows
        codes = hashing.codes(queries)
        for query, code, length in zip(queries, codes.T, long.tolist(), strict=True):
            among = hashing.candidates(rows.codes, code)
            copy = self._scratch(len(among), self._features)
            np.take(rows.features, among, axis=0, out=copy, mode="clip")  # unbuffered so
            near, kappa = self.kernel.neighbours(copy @ query, rows.lengths[among], length)
            yield Neighbours(among[near], kappa, rows.labels[among[near]])

    def _clear(self) -> None:
        """Overwrite what is derived from rows: the room for products, and a device's copy."""
        self._room.fill(0)
        if self._device is not None:
            self._device.clear()

    def _scratch(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return room for what is derived from rows, which `forget` can overwrite."""
        if self._room.size < rows * columns:
            self._room.fill(0)
            self._room = np.zeros(rows * columns, np.float32)
        return self._room[: rows * columns].reshape(rows, columns)
