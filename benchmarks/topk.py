"""The five smallest of 5n values among n processes: PP-TopK, beside MPyC's secure computation.

Both over mutual TLS on loopback, both timed from asking all parties to having all answers, long
after start-up. They promise different things: MPyC shows nothing but the result and stands a
minority of colluders; PP-TopK hides in noise, and is exact but for one run in a million.
"""

import asyncio
import functools
import time

import numpy as np

from benchmarks.measurement import Bound, Measurement, pairs, ratios
from benchmarks.mpyc_ring import METHODS, MpycParties
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import deal_ring
from veilring.protocols.ring import TopKParameters, pp_topk, rounds_for

K = 5
RUNS = 10  # of PP-TopK in each repetition: one takes milliseconds, less than the machine's hiccups
ERROR = 1e-6
UPPER = 1 << 20  # whole numbers below this, so that both compute on the same values
TIMES_FASTER = {3: 30.0, 5: 60.0, 9: 400.0}


def measure(*, quick: bool) -> list[Measurement]:
    """Compare the two for 3, 5 and 9 parties."""
    repetitions = 3 if quick else 7
    return [
        measurement
        for parties, at_least in TIMES_FASTER.items()
        for measurement in _compare(parties, at_least, repetitions)
    ]


def _compare(parties: int, at_least: float, repetitions: int) -> list[Measurement]:
    rng = np.random.default_rng(parties)
    values = np.sort(rng.choice(UPPER, size=(parties, K), replace=False))
    expected = np.sort(values, axis=None)[:K].tolist()
    rounds = rounds_for(ERROR, K, P0=1.0, d=0.5)
    parameters = TopKParameters(k=K, P0=1.0, d=0.5, rounds=rounds, delta=1.0, upper=float(UPPER))
    own = [row.reshape(1, K).astype(np.float64) for row in values]
    with MpycParties(parties) as mpyc, asyncio.Runner() as runner:
        cluster = Cluster(parties, runtime="processes", own=own)
        runner.run(cluster.__aenter__())
        ring = deal_ring(cluster.parties, rng)

        def ours() -> float:
            start = time.perf_counter()
            runs = [
                runner.run(cluster.run(pp_topk, ring=ring, parameters=parameters))
                for _ in range(RUNS)
            ]
            seconds = time.perf_counter() - start
            for run in runs:
                _check("PP-TopK", run.result[0].tolist(), expected)
            return seconds / RUNS

        def mpyc_by(method: str) -> float:
            start = time.perf_counter()
            smallest = mpyc.smallest(method, values.tolist())
            seconds = time.perf_counter() - start
            _check("MPyC", smallest, expected)
            return seconds

        timed = {
            method: pairs(ours, functools.partial(mpyc_by, method), repetitions)
            for method in METHODS
        }
        runner.run(cluster.__aexit__(None, None, None))
    bound = Bound("at least", at_least)
    return [
        ratios(
            f"top-5, {parties} processes: times faster than {what}",
            timed[method],
            held_to,
            faster=True,
        )
        for method, what, held_to in (
            ("sort", "MPyC's sort", bound),
            ("merge", "our merge on MPyC", None),
        )
    ]


def _check(who: str, found: list[float] | list[int], expected: list[int]) -> None:
    if found != expected:
        raise RuntimeError(f"{who} computed something else than the {K} smallest values")
