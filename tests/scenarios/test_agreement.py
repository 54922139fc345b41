"""Private and pooled kNN agree on every row of real data sets."""

import numpy as np
import pytest

from veilring.data.sources import load
from veilring.data.table import Rows, partition, scale_to_unit
from veilring.nodes.cluster import Cluster
from veilring.protocols.promise import Facts
from veilring.protocols.ring import pooled_knn, private_knn
from veilring.protocols.ring.system import PrivateKNN

PARTIES = 8


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("source", ["wine", "breast-cancer", "digits"])
async def test_private_and_pooled_knn_agree_on_every_row(source: str, k: int) -> None:
    """With rounds for an error of 1e-6 and uniform votes, all labels of the data set agree."""
    table = scale_to_unit(load(source))
    dealt = partition(table.y, PARTIES, np.random.default_rng(k))
    facts = Facts.of(PARTIES, table.features, len(table.features.classes))
    parameters = PrivateKNN(k=k).bind(facts)
    size = parameters.queries_max
    async with Cluster(
        PARTIES, own=[Rows(table.X[rows], table.y[rows]) for rows in dealt], seed=k
    ) as cluster:
        for first in range(0, len(table), size):
            queries = table.X[first : first + size]
            run = await cluster.run(
                private_knn,
                only={"party-0": {"queries": queries}},
                client="party-0",
                parameters=parameters,
            )
            pooled = pooled_knn(
                queries, table.X, table.y, parameters.facts.classes, k=k, weights="uniform"
            )
            np.testing.assert_array_equal(run.result.labels, pooled)
