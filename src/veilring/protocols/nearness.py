"""Public rules for the radius within which rows vote, without looking at rows.

The features of real tables are correlated. Rows are closer together than predicted by a rule that
knows only the number of features. Such a rule is right for independent features, but with the 384
features of a text's embedding, its ball contains every row. Queries, however, have the same
distribution as rows, and are known to all parties that answer them or choose a radius. A rule
therefore uses distances among the queries of a batch as a substitute for distances to rows, and
only has to set the share of rows that should vote.

A client may send any queries: no privacy guarantee depends on such a rule, only accuracy.
"""

from typing import Final

import numpy as np

from veilring.arrays import Floats

NEAR_QUERIES_MIN: Final = 10
"""The minimum number of different queries to use as a sample of rows."""
_SHARE_MAX: Final = 0.6
# Beyond this the exponent would hardly fall, and rows with more features lie near surfaces of fewer
# dimensions.
_FEATURES_MAX: Final = 8


def near_share(rows: int, features: int, factor: float) -> float:
    """Return the share of all rows that should vote: factor * n^(-4 / (min(f, 8) + 4)), up to 0.6.

    The best width of a kernel falls with the number of rows as n^(-1 / (f + 4)) (Scott 1992), and
    the share of rows in a ball of that radius as n^(-f / (f + 4)). This rule falls faster with many
    features and more slowly with few, because noise needs many votes if rows are few.

    Args:
        rows: n, the number of rows of all parties, at least 1.
        features: f, at least 1.
        factor: Above 0.
    """
    exponent = 4.0 / (min(features, _FEATURES_MAX) + 4)
    return float(min(_SHARE_MAX, factor * rows**-exponent))


def smallest_among(distances: Floats, share: float) -> float:
    """Return the distance within which a share of all pairs lies.

    Args:
        distances: The pairwise distances, shape (queries, queries), with at least two queries.
        share: From 0 to 1.
    """
    pairs = distances[np.triu_indices(len(distances), k=1)]
    return float(np.quantile(pairs, share))
