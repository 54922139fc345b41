"""Figure 6: what a party reveals to its successor, by three estimators."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.random import Generator

from veilring.data import Table
from veilring.protocols.ring.algorithm import smallest_distances
from veilring.scenarios.figures.measured import Key
from veilring.scenarios.figures.model import Observe
from veilring.scenarios.figures.ring.dealt import deal, parameters_for
from veilring.scenarios.leakage import leakage_among

ESTIMATORS: Final = ("exposure", "claim", "lop")
# Of each split: with 100 splits the estimates rest on 10,000 runs of each ring.
QUERIES: Final = 100


def leakage_over_k(d: float, rounds: int, parties: Sequence[int]) -> Observe:
    """Return what measures the three estimators at each k, one curve for each number of parties.

    Args:
        d: Of PP-TopK.
        rounds: Of PP-TopK.
        parties: The numbers of parties, each at least 3.
    """

    def observe(table: Table, x: Sequence[float], rng: Generator) -> Mapping[Key, Sequence[float]]:
        curves: dict[Key, list[float]] = {}
        for n in parties:
            dealt = deal(table, rng, n, QUERIES)
            for k in map(int, x):
                own = np.stack([smallest_distances(rows, k) for rows in dealt.to_rows], axis=1)
                topk = parameters_for(table, k, d, rounds).topk
                found = leakage_among(own, topk, QUERIES, rng)
                for name in ESTIMATORS:
                    curve = curves.setdefault(Key(name, f"n = {n}"), [])
                    curve.append(getattr(found, name).value)
        return curves

    return observe
