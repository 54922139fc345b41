"""Parties of rank search on a table with many ties, and batches for them."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch import SearchParameters
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.system import together

NAMES: Final = tuple(f"party-{n}" for n in range(4))
QUERIES: Final = np.random.default_rng(2).integers(0, 4, (12, 3)) / 3


def bound(features: int, classes: int, **settings: Any) -> SearchParameters:
    """Return rank search with the given options for rows of this shape."""
    return RankSearch(**settings).bind(Facts(5, features, classes))


def rows_of(parties: int, each: int = 30) -> list[Rows]:
    """Return rows of each party on a coarse grid, so that many distances are equal."""
    rng = np.random.default_rng(1)
    return [
        Rows(rng.integers(0, 4, (each, 3)) / 3, rng.integers(0, 3, each)) for _ in range(parties)
    ]


def set_up(names: tuple[str, ...] = NAMES, **settings: Any) -> SearchSetup:
    """Return parties that are ready to search; their votes tie unless k prevents it."""
    parts = dict(zip(names, rows_of(len(names)), strict=True))
    system = RankSearch(**{"k": 3, **settings})
    return system.setup(parts, Facts(parties=len(names), features=3, classes=3))


def options(
    setup: SearchSetup, among: tuple[str, ...], queries: Floats = QUERIES
) -> Mapping[str, Any]:
    """Return the options for a cluster's run in which the first party asks."""
    play = setup.play(queries, among=among)
    return {"only": play.only, **play.public}


def pooled(setup: SearchSetup, among: tuple[str, ...]) -> Ints:
    """Return the labels of a classifier with the rows of some parties in one place."""
    return setup.search(QUERIES, [together(setup.parts, among)]).votes.labels
