"""The public rules: how each system's parameters follow from public numbers alone.

Whoever tries parameters on private rows and keeps the best has told something of the rows that no
account knows of. So nothing here looks at a row: rules know the number of rows, of features and of
classes, which count as public. They are the same for all data. They were found once, by trying them
on public tables (wine, breast-cancer, digits, iris, glass, banknote; for categories car and
mushroom) at ε = 0.5, 1 and 2: there, results are a little better than on a table that nobody has
tried.
"""

from typing import Final

from veilring.scenarios.comparison.comparison import Facts

TEST_SHARE: Final = 0.25
"""The share of rows that is held out of each split."""

_RADIUS_SHARE: Final = 10.0
_RADIUS_ROWS: Final = 100.0
# Rows that differ in one category are sqrt(2) apart, and in two of them 2.
_RADIUS_CATEGORIES: Final = 1.5

BINS: Final = 3
"""For local naive Bayes: into how many equal parts each feature's public range is cut."""

SIGMA2: Final = 1.0
TAU: Final = 0.8
"""Of Ind-KNN, with the cosine about the middle of the public ranges."""
CENTRE: Final = 0.5
"""That middle, of features scaled into [0, 1]."""

DELTA: Final = 1e-5
"""Where a promise has a δ: far below one in the number of rows, for up to some ten thousand."""


def public_radius(features: int, rows: int, *, categories: bool = False) -> float:
    """Return within which distance rows vote under noise: f^(3/4) / 10 * (100 / n)^(1 / (f + 4)).

    Two random points of the unit cube are sqrt(f / 6) apart, and the more features, the less does
    that vary about its mean: so a ball that holds the same share of rows grows faster than the
    root. The second factor is the rate at which any kernel's best width falls with the rows. Where
    all columns are categories it is at least 1.5, so that rows vote which differ in one of them.

    Args:
        features: f, at least 1.
        rows: n, of all parties, at least 1.
        categories: Whether all columns are categories, which a schema says.
    """
    falling = (_RADIUS_ROWS / rows) ** (1.0 / (features + 4))
    radius = float(features**0.75 / _RADIUS_SHARE * falling)
    return max(radius, _RADIUS_CATEGORIES) if categories else radius


def rules_said(facts: Facts, k: int) -> tuple[tuple[str, str], ...]:
    """Return each rule in words, with its value for this table.

    Args:
        facts: What is public about it.
        k: As it was asked for.
    """
    features, rows = facts.features, facts.train
    value = public_radius(features, rows, categories=facts.categorical)
    least = f", and at least {_RADIUS_CATEGORIES:g} for categories" if facts.categorical else ""
    radius = f"r = f^(3/4) / 10 · (100 / n)^(1 / (f + 4)){least}"
    rate = f"cosine about the middle of the ranges, τ = {TAU:g}, σ2 = {SIGMA2:g}"
    return (
        (
            "ranges",
            "features go into [0, 1] by public ranges; what lies outside is moved to an end",
        ),
        ("pooled kNN and PP-kNN", f"k = {k}, as asked; exact but for one query in 10⁶"),
        (
            "r-N and noisy votes",
            f"{radius} = {value:.3g} for f = {features} features and n = {rows} rows",
        ),
        ("LDP naive Bayes", f"{BINS} equal parts of each range; optimized unary encoding"),
        ("Ind-KNN", f"{rate}; the stream is as long as a batch"),
        ("δ", f"{DELTA:g}, where a promise has one"),
    )
