"""Random hyperplanes: only rows that share a code with a query are looked at.

The planes do not depend on the rows, so a row's codes are its own: it can be added or forgotten
without touching another, and the individual accounting stays as it is. An index that was trained on
the rows would break it. What is hashed away is only a neighbour less: the filter runs on the
candidates as it does on all rows. (Algorithm 4 of the paper mixes a charge with a bound in its line
12 and votes unclipped in its line 15, by which an epsilon of 0.5 becomes 1.38. It is not used.)
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.features import inner_products, quantise

HASH_TABLES: Final = 30
"""L in the paper's experiments."""
HASH_BITS: Final = 8
"""b in the paper's experiments."""
BITS_MAX: Final = 8  # a code is one byte


@dataclass(frozen=True, slots=True, eq=False)
class Hashing:
    """L tables of b hyperplanes through the origin. Make it with `draw`.

    Attributes:
        planes: Quantised normals, shape (tables * bits, features): signs are exact.
        tables: L.
    """

    planes: NDArray[np.float32]
    tables: int

    @classmethod
    def draw(
        cls, features: int, rng: Generator, tables: int = HASH_TABLES, bits: int = HASH_BITS
    ) -> Self:
        """Draw hyperplanes, uniformly among all directions.

        Args:
            features: Of a row.
            rng: May be public.
            tables: L, at least 1: more find more of the neighbours.
            bits: b, from 1 to 8: more give fewer candidates.

        Raises:
            InputError: If a number is out of range.
        """
        if tables < 1:
            raise InputError("tables", tables, "a whole number of at least 1")
        if not 1 <= bits <= BITS_MAX:
            raise InputError("bits", bits, f"1 to {BITS_MAX}")
        return cls(quantise(rng.standard_normal((tables * bits, features))), tables)

    def codes(self, rows: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the code of each row in each table, shape (tables, rows)."""
        above = inner_products(self.planes, rows) >= 0
        bits = len(self.planes) // self.tables
        packed = np.packbits(above.reshape(self.tables, bits, len(rows)), axis=1)
        return np.ascontiguousarray(packed[:, 0])

    def candidates(self, rows: NDArray[np.uint8], query: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return which rows share a code with the query in at least one table, ascending.

        Args:
            rows: Codes, shape (tables, rows).
            query: Codes, shape (tables,).
        """
        found = np.zeros(rows.shape[1], np.bool_)
        for table, code in zip(rows, query, strict=True):
            found |= table == code
        return np.flatnonzero(found)
