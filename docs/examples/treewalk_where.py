"""A map of a server's belief about a query after one answer: `treewalk_where.py MAP.png`."""

import sys
from pathlib import Path

import numpy as np

from veilring.protocols.treewalk import Comparison, build_tree
from veilring.protocols.treewalk.algorithm.mechanisms import bucket_distribution
from veilring.protocols.treewalk.leakage import overheard_response, overheard_walk
from veilring.randomness import Streams
from veilring.scenarios.charts import CELLS, beliefs_after, draw_beliefs

SPLITS = 5  # buckets of 32 places
SHARE = 0.01  # of the map


def show(paths: list[Path]) -> None:
    """Print how certain the server is, and draw maps to the given paths."""
    rng = Streams(3).generator("where")
    towns = rng.random((12, 2)) * 10
    places = towns[rng.integers(len(towns), size=1000)] + rng.normal(0, 0.6, (1000, 2))
    query, tree = towns[0], build_tree(places)
    queries = {
        f"response, epsilon {epsilon:g}": overheard_response(
            tree, bucket_distribution(tree.depth, SPLITS, epsilon)
        )
        for epsilon in (2.0, 6.0, 12.0)
    }
    steps = Comparison(2 * 6.0 / (tree.depth - SPLITS))
    queries["walk, epsilon 6"] = overheard_walk(tree, steps, SPLITS)
    beliefs = beliefs_after(queries, places, query, rng)
    here = np.square(beliefs.cells - query).sum(axis=1).argmin()
    print("after one query         probability in likeliest 1% of map   posterior / prior at query")
    for name, shares in beliefs.shares.items():
        top = np.sort(shares)[-round(SHARE * len(shares)) :].sum()
        print(f"{name:22}  {top:34.1%}   {shares[here] * CELLS**2:26.2f}")
    if paths:
        draw_beliefs(beliefs, places, paths, title="The server's posterior after one query")


if __name__ == "__main__":
    show([Path(path) for path in sys.argv[1:]])
