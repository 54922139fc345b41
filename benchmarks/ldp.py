"""Frequency oracles, from the clients' values to estimates, beside two libraries.

A million clients of ours, and as many of theirs as take about a second: their time grows with the
number of clients, and a million of their reports would not fit in memory. All times are scaled to a
million clients. The reference of a repetition is the faster of the two libraries.
"""

import functools
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from benchmarks.ldp_libraries import LIBRARIES, Library
from benchmarks.measurement import Bound, Measurement, Timed, ratios
from veilring.protocols.ldp.algorithm.planner import ORACLES
from veilring.randomness import Streams

EPSILON = 1.0
DOMAINS = (4, 32, 128, 1024)
MILLION = 1_000_000
# At least half of what a plain NumPy trial reached, at the largest domain.
TIMES_FASTER = {"de": 14.0, "oue": 14.0, "olh": 80.0, "hr": 80.0}
TIMES_FASTER_CRYPTOGRAPHIC = 5.0
# The packed reports of OUE with 1,024 values are 122 MiB; what else is needed does not grow.
PEAK_MIB = Bound("at most", 147.0)
_BYTES_IN_MIB = 1 << 20


def measure(*, quick: bool) -> list[Measurement]:
    """Compare four oracles for four domains, with both generators for the largest."""
    repetitions = 3 if quick else 5
    with ExitStack() as stack:
        libraries = [stack.enter_context(Library(name)) for name in LIBRARIES]
        found = [
            measurement
            for oracle in TIMES_FASTER
            for domain in DOMAINS
            for measurement in _compare(oracle, domain, libraries, repetitions)
        ]
    return [*found, *_peaks()]


def _compare(
    oracle: str, domain: int, libraries: list[Library], repetitions: int
) -> list[Measurement]:
    """Time all in turns: ours with either generator, and each library that has the oracle."""
    largest = domain == DOMAINS[-1]
    theirs: Mapping[str, Timed] = {
        library.name: functools.partial(library.seconds, oracle, domain, EPSILON, MILLION)
        for library in libraries
        if library.has(oracle)
    }
    ours: dict[str, Timed] = {"": functools.partial(_ours, oracle, domain, Streams(0))}
    if largest:
        ours[", ChaCha20"] = functools.partial(_ours, oracle, domain, Streams())
    everyone = {**ours, **theirs}
    turns = [{who: run() for who, run in everyone.items()} for _ in range(1 + repetitions)]
    bounds = {"": TIMES_FASTER[oracle], ", ChaCha20": TIMES_FASTER_CRYPTOGRAPHIC}
    return [
        ratios(
            f"{oracle}, d = {domain}{how}: times faster",
            [(turn[how], min(turn[who] for who in theirs)) for turn in turns[1:]],
            Bound("at least", bounds[how]) if largest else None,
            faster=True,
        )
        for how in ours
    ]


def _ours(name: str, domain: int, streams: Streams) -> float:
    oracle, rng = ORACLES[name](domain, EPSILON), streams.generator("clients")
    values = np.random.default_rng(0).integers(domain, size=MILLION)
    start = time.perf_counter()
    reports = oracle.perturb(values, rng)
    oracle.estimate(oracle.aggregate(reports), MILLION)
    return time.perf_counter() - start


def _peaks() -> list[Measurement]:
    """Return the most memory that a million clients take, apart from their values."""
    return [
        Measurement(
            f"{oracle}, d = {domain}: peak memory",
            "MiB",
            (_peak(oracle, domain),),
            PEAK_MIB if (oracle, domain) == ("oue", DOMAINS[-1]) else None,
        )
        for oracle in TIMES_FASTER
        for domain in DOMAINS
    ]


def _peak(name: str, domain: int) -> float:
    values = np.arange(MILLION) % domain
    oracle, rng = ORACLES[name](domain, EPSILON), Streams(0).generator("clients")
    tracemalloc.start()
    try:
        oracle.estimate(oracle.aggregate(oracle.perturb(values, rng)), MILLION)
        return tracemalloc.get_traced_memory()[1] / _BYTES_IN_MIB
    finally:
        tracemalloc.stop()
