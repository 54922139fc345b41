"""Balls around queries: the rows in each ball, and the pairs of balls that can share a row.

This module compares floats, and the privacy of a batch depends on one property: if a row is in two
balls *by the comparison that counts it*, the two balls have an edge in the overlap graph. For real
numbers this is the triangle inequality. For floats it needs slack.

Let u = 2^-53. A computed distance is `d (1 + a) + b` of the real one, where `|a| <= (f + 4) u` for
f features: each difference, square, addition and root rounds once, in whatever order the additions
are done. `b` is what squares lose below the smallest normal number, `|b| <= 1e-161 sqrt(f)`. A row
counted by the balls of radius r and s has real distances of at most `(r + |b|) / (1 - |a|)` and
`(s + |b|) / (1 - |a|)`, so the computed distance of the centres is at most::

    (r + s) (1 + |a|) / (1 - |a|) + 4 |b|

The relative part is below `1 + 2.3 (f + 4) u`; with at most `FEATURES_MAX` features that is 1 +
2.6e-11, and the three roundings of the test itself add 3u. So a relative slack of 1e-9 is enough,
together with an absolute one that is far above `b`. Without the absolute one, two balls of radius 0
whose centres are 2e-162 apart could both count a row between them.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from veilring.arrays import Bools, Floats, Ints
from veilring.data.table import Rows, in_unit_cube, is_table, pairwise_distances
from veilring.privacy.checks import require, require_that

# Up to here the derivation above holds with a margin of a factor of 38. No real table is so wide.
FEATURES_MAX: Final = 100_000
# The overlap graph has an entry for each pair of queries: at this limit 128 MiB of distances.
BATCH_MAX: Final = 4096
RELATIVE_SLACK: Final = 1e-9
ABSOLUTE_SLACK: Final = 1e-150
# The count of numbers in memory, such as distances, at a time: 32 MiB.
_CHUNK_ENTRIES: Final = 2**22


def count_votes(queries: Floats, radii: Floats, rows: Rows, classes: int) -> Ints:
    """Return the number of rows of each class in each ball, shape (Q, classes) (Definition 8).

    A row is in a ball if its computed distance is `<=` the radius. The counts are secret: release
    them only through a mechanism.
    """
    require_radii(queries, radii)
    _require_rows(queries, rows, classes)
    votes = np.zeros((len(queries), classes), dtype=np.int64)
    # A chunk has an entry for each query, and one for each class.
    for chunk in row_chunks(len(rows), max(len(queries), classes)):
        inside = pairwise_distances(queries, rows.features[chunk]) <= radii[:, None]
        votes += count_labels(inside, rows.labels[chunk], classes)
    return votes


def count_labels(voting: Bools, labels: Ints, classes: int) -> Ints:
    """Return the number of a chunk's rows that vote for each class, shape (Q, classes)."""
    ballots = np.eye(classes, dtype=np.float32)[labels]
    # A chunk has at most 2^22 rows, so sums of ones are exact in single precision.
    return (voting.astype(np.float32) @ ballots).astype(np.int64)


def overlap_graph(
    queries: Floats,
    radii: Floats,
    *,
    relative_slack: float = RELATIVE_SLACK,
    absolute_slack: float = ABSOLUTE_SLACK,
) -> Bools:
    """Return the region overlap graph as an adjacency matrix, shape (Q, Q) (Definition 10).

    Two queries have an edge if their balls overlap or nearly overlap: the module's docstring
    explains why the slack makes this safe. No query has an edge to itself.

    Args:
        relative_slack: The relative increase of the sum of two radii. Less than the default is
            unsafe.
        absolute_slack: The absolute increase of that sum. Less than the default is unsafe for tiny
            radii.
    """
    require_radii(queries, radii)
    wide = radii.astype(np.float64)  # the error of single precision exceeds the slack
    with np.errstate(over="ignore"):  # an infinite sum correctly overlaps with every ball
        reach = (wide[:, None] + wide[None, :]) * (1.0 + relative_slack) + absolute_slack
    graph = pairwise_distances(queries, queries) <= reach
    np.fill_diagonal(graph, val=False)
    return graph


def row_chunks(rows: int, queries: int) -> Iterator[slice]:
    """Yield slices of the rows, sized so that intermediate results for all queries fit in memory.

    Args:
        queries: The number of queries, or of intermediate numbers per row if that is larger.
    """
    step = max(1, _CHUNK_ENTRIES // max(1, queries))
    return (slice(first, first + step) for first in range(0, rows, step))


def require_queries(queries: Floats) -> None:
    """Check that queries are a batch of points in the unit cube, and not too many."""
    fits = is_table(queries) and 1 <= queries.shape[-1] <= FEATURES_MAX
    shape = f"of shape {queries.shape}"
    require_that(
        fits,
        "queries",
        f"queries has the shape {shape}; it must be (Q, f), with f from 1 to {FEATURES_MAX}",
    )
    require_that(
        len(queries) <= BATCH_MAX,
        "queries",
        f"there are {len(queries)} queries; the limit is {BATCH_MAX} at once",
    )
    require_that(in_unit_cube(queries), "queries", "queries must be numbers from 0 to 1")


def require_radii(queries: Floats, radii: Floats) -> None:
    """Check the queries and the radii of a batch."""
    require_queries(queries)
    fits = radii.shape == queries.shape[:1]
    require_that(fits, "radii", f"radii has the shape {radii.shape}; it must be ({len(queries)},)")
    good = bool((np.isfinite(radii) & (radii >= 0)).all())
    require_that(good, "radii", "radii must be finite numbers of at least 0")


def require_width(queries: Floats, rows: Rows) -> None:
    """Check that queries have as many features as the rows, before computing distances."""
    width = rows.features.shape[1]
    fits = queries.shape[1:] == (width,)
    require_that(fits, "queries", f"queries has the shape {queries.shape}; it must be (Q, {width})")


def _require_rows(queries: Floats, rows: Rows, classes: int) -> None:
    require_width(queries, rows)
    require(classes >= 1, "classes", classes, "a whole number of at least 1")
    known = rows.labels.size == 0 or int(rows.labels.max()) < classes
    require_that(known, "rows.labels", f"labels must be below {classes}, the number of classes")
