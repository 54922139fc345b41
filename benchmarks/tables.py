"""The data that benchmarks label: the wine table, scaled to the unit cube and dealt to parties."""

import numpy as np

from veilring.data import load_table, partition, scale_to_unit
from veilring.protocols.ring import KNNParameters
from veilring.protocols.rows import Rows

__all__ = ("dealt_wine",)


def dealt_wine(parties: int, rng: np.random.Generator) -> tuple[list[Rows], KNNParameters]:
    """Return each party's share of the 178 rows, and the parameters that fit them."""
    table = scale_to_unit(load_table("wine"))
    shares = partition(table.labels, parties, rng)
    rows = [Rows(table.features[share], table.labels[share]) for share in shares]
    features, classes = len(table.feature_names), len(table.class_names)
    return rows, KNNParameters(features=features, classes=classes)
