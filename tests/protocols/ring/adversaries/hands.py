"""A ring with some parties controlled by an adversary, and the honest parties' findings."""

from collections.abc import Mapping

import numpy as np

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import ProtocolViolation, RunFailed, Tampered, VeilringError
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.protocols.ring import (
    KNNAnswer,
    KNNParameters,
    SumMethod,
    TopKParameters,
    pooled_knn,
    pp_topk,
    private_knn,
)

NAMES = [f"party-{n}" for n in range(5)]
RING = Ring([NAMES[n] for n in (3, 0, 4, 1, 2)])
STARTER, LAST = RING.order[0], RING.order[-1]
METHODS = [SumMethod(), SumMethod("cycles", 2), SumMethod("shares"), SumMethod("masks")]

RNG = np.random.default_rng(20)
FEATURES, LABELS = RNG.random((150, 3)), RNG.integers(0, 3, 150)
QUERIES = RNG.random((40, 3))
ROWS = [Rows(FEATURES[n::5], LABELS[n::5]) for n in range(5)]
# So many rounds that an inexact result would be a false alarm of less than 1e-6: there are 200
# distances and 800 values to be found, each passed over with probability 2^-36.
KNN = KNNParameters(features=3, classes=3, k=5, rounds=9, delta=0.005)
POOLED = pooled_knn(QUERIES, FEATURES, LABELS, classes=3, k=5)

VALUES = [np.sort(RNG.random((200, 4)), axis=1) for _ in NAMES]
SMALLEST = np.sort(np.concatenate(VALUES, axis=1), axis=1)[:, :4]
TOPK = TopKParameters(k=4, P0=0.5, d=0.5, rounds=8, delta=0.005, upper=1.0)


async def knn(
    adversaries: Mapping[str, Adversary], parameters: KNNParameters = KNN
) -> Run[KNNAnswer]:
    """Label the queries in a ring with some parties controlled by an adversary."""
    async with Cluster(NAMES, own=ROWS, seed=5) as cluster:
        return await cluster.run(
            private_knn,
            only={"party-0": {"queries": QUERIES}},
            client="party-0",
            parameters=parameters,
            ring=RING,
            adversaries=adversaries,
        )


async def topk(
    adversaries: Mapping[str, Adversary], parameters: TopKParameters = TOPK
) -> Run[Floats]:
    """Find the smallest values in a ring with some parties controlled by an adversary."""
    async with Cluster(NAMES, own=VALUES, seed=5) as cluster:
        return await cluster.run(pp_topk, ring=RING, parameters=parameters, adversaries=adversaries)


def accusations(failed: RunFailed, liar: str) -> list[VeilringError]:
    """Return the accusations made by honest parties."""
    honest = (error for name, error in failed.errors.items() if name != liar)
    return [error for error in honest if isinstance(error, ProtocolViolation | Tampered)]


def is_among(liar: str, error: VeilringError) -> bool:
    """Return whether an accusation includes the liar."""
    if isinstance(error, Tampered):
        return liar in error.suspects
    return isinstance(error, ProtocolViolation) and error.culprit == liar


def agreement(run: Run[KNNAnswer], liar: str) -> float:
    """Return the fraction of queries that honest parties label like the pooled classifier."""
    return float(np.mean([labels == POOLED for labels in honest_labels(run, liar)]))


def honest_labels(run: Run[KNNAnswer], liar: str) -> list[Ints]:
    """Return the results of all parties except one."""
    return [answer.labels for name, answer in run.results.items() if name != liar]
