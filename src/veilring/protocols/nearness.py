"""How near a row has to be to vote: public rules, which look at no row.

The features of real tables are correlated. Their rows lie closer together than a rule says that
knows no more than the number of features: it is right where those vary independently, and with the
384 features of a text's embedding a ball of such a radius holds every row. But queries lie where
rows lie, and all who answer them, or choose a radius for them, know them. So distances among the
queries of a batch stand in for distances to rows, and what is left to a rule is which share of all
rows shall vote.

A client may ask what it likes: no promise of privacy rests on such a rule, only accuracy does.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

NEAR_QUERIES_MIN: Final = 10
"""The least number of different queries that are taken for a sample of rows."""
_SHARE_MAX: Final = 0.6
# Beyond so many the exponent would hardly fall, and rows with more lie near surfaces of fewer.
_FEATURES_MAX: Final = 8


def near_share(rows: int, features: int, factor: float) -> float:
    """Return the share of all rows that shall vote: factor * n^(-4 / (min(f, 8) + 4)), up to 0.6.

    The best width of a kernel falls with the number of rows as n^(-1 / (f + 4)) (Scott 1992), and
    a ball of that radius holds a share that falls as n^(-f / (f + 4)). This falls faster with many
    features and more slowly with few: noise needs many votes wherever rows are few.

    Args:
        rows: n, the number of rows of all parties, at least 1.
        features: f, at least 1.
        factor: Above 0.
    """
    exponent = 4.0 / (min(features, _FEATURES_MAX) + 4)
    return float(min(_SHARE_MAX, factor * rows**-exponent))


def smallest_among(distances: NDArray[np.float64], share: float) -> float:
    """Return the distance within which a share of all pairs lie.

    Args:
        distances: Of each to each, shape (queries, queries), with at least two queries.
        share: From 0 to 1.
    """
    pairs = distances[np.triu_indices(len(distances), k=1)]
    return float(np.quantile(pairs, share))
