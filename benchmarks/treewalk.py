"""Private walks beside plain searches, and building their tree beside building SciPy's.

Walks are of all levels at once for a batch of queries; `cKDTree` searches for the same batch on one
core.
"""

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.measurement import Bound, Measurement, pairs, ratios, timed
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    bucket_points,
    respond,
    walk,
)
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.randomness import Streams

QUERIES = 100_000
SIZES = (100_000, 1_000_000)
QUICK_SIZES = (20_000,)
SPLITS = 8
# A million comparing walks a second of 17 levels each, one core.
WALK_SECONDS = 1e-6


def measure(*, quick: bool) -> list[Measurement]:
    """Measure in one and two dimensions, among few and many points."""
    sizes, repetitions = (QUICK_SIZES, 3) if quick else (SIZES, 7)
    return [
        measurement
        for dimensions in (1, 2)
        for points in sizes
        for measurement in _measured(dimensions, points, repetitions)
    ]


def _measured(dimensions: int, points: int, repetitions: int) -> list[Measurement]:
    rng = np.random.default_rng(points + dimensions)
    placed, queries = rng.random((points, dimensions)), rng.random((QUERIES, dimensions))
    tree, plain = build_tree(placed), cKDTree(placed)
    coins = Streams(1).generator("coins")
    search = timed(lambda: plain.query(queries))
    distribution = bucket_distribution(tree.depth, SPLITS, 6.0)
    where = f"{points:,} points, {dimensions}-d"

    def responded() -> object:
        return bucket_points(tree, SPLITS, respond(tree.splits, queries, distribution, coins))

    walked = timed(lambda: walk(tree, queries, Comparison(1.0), 0, coins))
    comparing = pairs(walked, search, repetitions)
    responding = pairs(timed(responded), search, repetitions)
    builds = timed(lambda: build_tree(placed)), timed(lambda: cKDTree(placed))
    building = pairs(*builds, max(2, repetitions // 2))
    name = "times faster than a plain search"
    measurements = [
        ratios(f"walks, {where}, {name}", comparing, faster=True, per=QUERIES),
        ratios(f"responses of 256 points, {where}, {name}", responding, faster=True, per=QUERIES),
        ratios(f"building the tree, {where}, times as long as SciPy's", building, per=points),
    ]
    if points == SIZES[0]:
        each = tuple(ours / QUERIES * 1e6 for ours, _ in comparing)
        bound = Bound("at most", WALK_SECONDS * 1e6)
        measurements.append(Measurement(f"a walk, {where}", "us", each, bound))
    return measurements
