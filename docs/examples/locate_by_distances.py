"""Location of the nearest row of all parties from its distances to f + 1 queries.

All parties of PP-kNN learn the k smallest distances to each query, as the protocol intends. In f
dimensions the distances of one row to f + 1 queries are linear equations for its place.
"""

import asyncio

import numpy as np
from numpy.typing import NDArray

from veilring import Cluster, PrivateKNN, Rows
from veilring.protocols.promise import Facts
from veilring.protocols.ring.roles import private_knn

QUERIES = np.array([[0.30, 0.40, 0.50], [0.31, 0.40, 0.50], [0.30, 0.41, 0.50], [0.30, 0.40, 0.51]])


async def ask() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the nearest distances that every party learns, and the row that has them."""
    rng = np.random.default_rng(1)
    tables = [Rows(rng.random((40, 3)), rng.integers(0, 2, 40)) for _ in range(3)]
    parameters = PrivateKNN(k=1, rounds=8).bind(Facts(parties=3, features=3, classes=2))
    async with Cluster(3, own=tables, seed=7) as cluster:
        run = await cluster.run(
            private_knn,
            client="party-0",
            parameters=parameters,
            only={"party-0": {"queries": QUERIES}},
        )
    rows = np.vstack([table.features for table in tables])
    return run.result.nearest[:, 0], rows[np.linalg.norm(rows - QUERIES[0], axis=1).argmin()]


def locate(queries: NDArray[np.float64], distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the one point that has these distances to f + 1 queries."""
    first, others = queries[0], queries[1:]
    squares = (others**2).sum(axis=1) - (first**2).sum()
    return np.linalg.solve(2 * (others - first), squares - distances[1:] ** 2 + distances[0] ** 2)


def main() -> None:
    """Locate a row."""
    distances, row = asyncio.run(ask())
    print("nearest distances", distances.round(6))
    print("located at       ", locate(QUERIES, distances).round(6))
    print("the row itself   ", row.round(6))


if __name__ == "__main__":
    main()
