"""Rank search beside top-k on MPyC: seconds and bytes a query, among 3, 5 and 9 processes."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from benchmarks.measurement import Bound, Measurement, pairs, ratios
from benchmarks.mpyc_ring import MpycParties
from benchmarks.ranksearch import FEATURES, Dealt, asked, simulate
from veilring.arrays import Ints
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.system import RankSearch

QUERIES: Final = 1_000
MPYC_QUERIES: Final[Mapping[int, int]] = MappingProxyType({3: 100, 5: 30, 9: 4})
"""In a batch of MPyC, by the number of parties: some seconds on free cores."""
MPYC_STEPS: Final = 2**30  # of the whole numbers that distances are rounded to: 32 bits with a sign
WAYS: Final[Mapping[str, RankSearch]] = MappingProxyType(
    {reveal: RankSearch(reveal=reveal) for reveal in ("totals", "label")}
)
TIMES_FASTER: Final = Bound("at least", 200.0)  # at nine parties, for labels alone


def measure(*, quick: bool) -> list[Measurement]:
    """Compare a query in a batch of 1,000 with one in a batch of MPyC's; few if it has to be quick.

    Both on loopback, rank search over mutual TLS. MPyC only finds the k smallest of the parties' k
    smallest distances, of 32 bits, and tells them: our merge on its arrays, since its own sort
    takes longer. Rank search compares 64 bits, and votes and labels besides.
    """
    sizes = {3: 2} if quick else MPYC_QUERIES
    return [
        measurement
        for parties, queries in sizes.items()
        for measurement in _compare(parties, queries, 20 if quick else QUERIES, 1 if quick else 3)
    ]


def _compare(parties: int, mpyc_queries: int, queries: int, repetitions: int) -> list[Measurement]:
    dealt, results = Dealt.draw(parties, queries, ties=False), []
    smallest = _own_smallest(dealt, mpyc_queries)
    expected = np.sort(np.concatenate(smallest, axis=1), axis=1)[:, : smallest.shape[2]]
    sent = []
    with MpycParties(parties) as mpyc:

        def reference() -> float:
            start = time.perf_counter()
            found = mpyc.smallest(smallest)
            seconds = time.perf_counter() - start
            if (found.values != expected).any():
                raise RuntimeError("MPyC found other values than the smallest")
            sent.append(found.bytes / mpyc_queries)
            return seconds / mpyc_queries

        for name, system in WAYS.items():
            with asked(dealt, system) as label:
                timed = pairs(lambda: label() / queries, reference, repetitions)
            title = f"rank search, {name}, {parties} processes: times faster a query than MPyC"
            bound = TIMES_FASTER if (name, parties) == ("label", 9) else None
            results.append(ratios(title, timed, bound, faster=True))
            ours = simulate(system, dealt, latency=0.0).cost.bytes / queries
            fewer = f"{ours:,.0f} beside {sent[-1]:,.0f} bytes"
            title = f"rank search, {name}, {parties} processes: times fewer bytes a query"
            results.append(Measurement(title, "x", (sent[-1] / ours,), None, fewer, faster=True))
    return results


def _own_smallest(dealt: Dealt, queries: int) -> Ints:
    """Return each party's k smallest distances in MPyC's steps, shape (parties, queries, k)."""
    system = RankSearch()
    upper = np.sqrt(FEATURES)
    near = [
        nearest_rows(dealt.queries[:queries], rows, system.k).distances[:, : system.k]
        for rows in dealt.parts.values()
    ]
    return np.asarray(np.rint(np.stack(near) * (MPYC_STEPS / upper)), dtype=np.int64)
