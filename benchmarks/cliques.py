"""Seconds a batch: omega of every query by our bitsets, beside networkx's list of all cliques.

Crescents in the plane, and a cloud in four dimensions; 15 rows a ball. And all of a private label:
graph, cliques, counts and votes, beside counting alone.
"""

from functools import partial

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import Measurement, pairs, ratios, timed
from veilring.data.table import Rows
from veilring.protocols.radius.algorithm.allocation import largest_cliques
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph, pairwise_distances
from veilring.protocols.radius.algorithm.voting import RNParameters, label_within

PER_BALL = 15
ROWS = 4000

Batch = tuple[NDArray[np.float64], NDArray[np.float64], Rows]


def measure(*, quick: bool) -> list[Measurement]:
    """Compare batches of 800 queries; 200 if it has to be quick."""
    queries, repetitions = (200, 3) if quick else (800, 5)
    found = []
    for name, features in (("the plane", 2), ("four dimensions", 4)):
        points, radii, rows = _batch(queries, features)
        graph = overlap_graph(points, radii)
        seconds = pairs(
            timed(partial(largest_cliques, graph)),
            timed(partial(_all_cliques, nx.from_numpy_array(graph))),
            repetitions,
        )
        title = f"largest cliques of {queries} queries in {name}, times faster than networkx"
        found.append(ratios(title, seconds, faster=True))
        rng, parameters = np.random.default_rng(1), RNParameters(1.0, 2)
        seconds = pairs(
            timed(partial(label_within, points, radii, rows, parameters, rng)),
            timed(partial(count_votes, points, radii, rows, 2)),
            repetitions,
        )
        title = f"private labels of {queries} queries in {name}, times as long as counting"
        found.append(ratios(title, seconds))
    return found


def _batch(queries: int, features: int) -> Batch:
    """Return a batch around the same clusters as the rows, with a radius for 15 rows a ball."""
    rng = np.random.default_rng(0)
    centres = rng.random((6, features))
    near = centres[rng.integers(6, size=ROWS + queries)]
    points = np.clip(near + rng.normal(0, 0.12, near.shape), 0, 1)
    rows = Rows(points[queries:], rng.integers(2, size=ROWS))
    away = np.sort(pairwise_distances(points[:queries], rows.features), axis=None)
    return points[:queries], np.full(queries, away[PER_BALL * queries]), rows


def _all_cliques(graph: "nx.Graph[int]") -> int:
    """List all maximal cliques, as the largest through every vertex would be taken from."""
    return sum(1 for _ in nx.find_cliques(graph))
