"""Verified sums: seconds of one core for a report, beside the draft's listing in plain integers.

The listing is `tests/protocols/prio/reference.py`, with the draft's own TurboSHAKE128 or with the
library's. Verification is both aggregators' part: preparation, combination and end.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from Crypto.Hash import TurboSHAKE128
from numpy.typing import NDArray
from tests.protocols.prio.reference import P128, Reference, Valid, turbo_shake

from benchmarks.measurement import Bound, Measurement, ratios
from veilring.protocols.prio.algorithm import xof
from veilring.protocols.prio.algorithm.fields import Octets
from veilring.protocols.prio.algorithm.prio3 import Preparation, Prio3

KEY = bytes(16)
BUCKETS, BUCKETS_CHUNK = 100, 10
ENTRIES, BITS, ENTRIES_CHUNK, PROOFS = 100, 8, 28, 3
MILLION = 1_000_000
LISTED = 5  # reports that the listing verifies, some 10 ms each
TIMES_FASTER = 100
SECONDS_OF_A_MILLION = 600
MILLISECONDS_OF_A_CLIENT = 50


def measure(*, quick: bool) -> list[Measurement]:
    """Measure histograms of 100 buckets, and vectors of 100 entries of 8 bits."""
    reports, repetitions = (2048, 3) if quick else (8192, 7)
    return [*_histogram(reports, repetitions), *_vectors(reports // 4, repetitions)]


def _histogram(reports: int, repetitions: int) -> list[Measurement]:
    prio = Prio3.histogram(BUCKETS, BUCKETS_CHUNK)
    batch = _Batch(prio, np.arange(reports) % BUCKETS)
    valid = Valid("histogram", P128, BUCKETS, chunk=BUCKETS_CHUNK)
    listings = {
        "listing": Reference(valid, prio.algorithm_id, shake=turbo_shake),
        "listing with the library's XOF": Reference(valid, prio.algorithm_id, shake=_library),
    }
    turns = []
    for _ in range(1 + repetitions):
        ours = _core(batch.verify) / reports
        theirs = {name: _core(partial(batch.verify_by, it)) for name, it in listings.items()}
        turns.append((ours, {name: seconds / LISTED for name, seconds in theirs.items()}))
    found = [
        ratios(
            f"histogram of {BUCKETS}, verification: times faster than the {name}",
            [(ours, theirs[name]) for ours, theirs in turns[1:]],
            Bound("at least", TIMES_FASTER) if name == "listing" else None,
            faster=True,
        )
        for name in listings
    ]
    speeds = tuple(1 / ours for ours, _ in turns[1:])
    shares = tuple(100 * batch.expansion() for _ in range(repetitions))
    name = f"histogram of {BUCKETS}"
    found.append(Measurement(f"{name}: verified reports a second", "/s", speeds))
    found.append(Measurement(f"{name}: part of verification that expands seeds", "%", shares))
    return found


def _vectors(reports: int, repetitions: int) -> list[Measurement]:
    prio = Prio3.sum_vec_multiproof(ENTRIES, BITS, ENTRIES_CHUNK, PROOFS)
    measurements = np.arange(reports * ENTRIES).reshape(reports, ENTRIES) % (1 << BITS)
    batch = _Batch(prio, measurements)
    batch.verify()
    seconds, clients = [], []
    for _ in range(repetitions):
        # Each aggregator has a core, and one of them combines the shares, too.
        slowest = max(_core(partial(batch.prepare, i)) for i in range(2))
        seconds.append((slowest + _core(batch.combine)) * MILLION / reports)
        clients.append(1000 * _core(batch.shard_one))
    name = f"vector of {ENTRIES} x {BITS} bits, {PROOFS} proofs"
    return [
        Measurement(
            f"{name}: a million reports, two cores",
            "s",
            tuple(seconds),
            Bound("at most", SECONDS_OF_A_MILLION),
        ),
        Measurement(
            f"{name}: a client's report",
            "ms",
            tuple(clients),
            Bound("at most", MILLISECONDS_OF_A_CLIENT),
        ),
    ]


class _Batch:
    """Reports of clients, and the steps of their aggregators."""

    def __init__(self, prio: Prio3, measurements: NDArray[np.int64]) -> None:
        rng, reports = np.random.default_rng(0), len(measurements)
        self.prio, self.measurements = prio, measurements
        self.nonces = rng.integers(0, 256, (reports, 16), dtype=np.uint8)
        self.rand = rng.integers(0, 256, (reports, prio.rand_size), dtype=np.uint8)
        self.public, self.shares = prio.shard(measurements, self.nonces, self.rand)
        self.preparations = [self.prepare(aggregator) for aggregator in range(2)]

    def prepare(self, aggregator: int) -> Preparation:
        share = self.shares[aggregator]
        return self.prio.prepare(KEY, aggregator, self.nonces, self.public, share)

    def combine(self) -> None:
        messages, valid = self.prio.combine(*(each.prep_shares for each in self.preparations))
        for preparation in self.preparations:
            valid = valid & self.prio.finish(preparation, messages)[1]
        assert valid.all()  # noqa: S101  (what is measured has to be right)

    def verify(self) -> None:
        self.preparations = [self.prepare(aggregator) for aggregator in range(2)]
        self.combine()

    def verify_by(self, listing: Reference) -> None:
        for i in range(LISTED):
            prepared = []
            for aggregator, share in enumerate(self.shares):
                rows = self.nonces[i], self.public[i], share[i]
                nonce, public, of_one = (row.tobytes() for row in rows)
                prepared.append(listing.prep_init(KEY, aggregator, nonce, public, of_one))
            (_, first, leader), (_, second, helper) = prepared
            message = listing.prep_shares_to_prep(leader, helper)
            assert message == first == second  # noqa: S101  (likewise)

    def shard_one(self) -> None:
        self.prio.shard(self.measurements[:1], self.nonces[:1], self.rand[:1])

    def expansion(self) -> float:
        """Return the part of the time of a verification in which seeds are expanded."""
        squeeze, spent = xof.squeeze, list[float]()

        def measured(domain: int, messages: Octets, length: int) -> Octets:
            start = time.process_time()
            found = squeeze(domain, messages, length)
            spent.append(time.process_time() - start)
            return found

        xof.squeeze = measured
        try:
            whole = _core(self.verify)
        finally:
            xof.squeeze = squeeze
        return sum(spent) / whole


def _library(message: bytes, domain: int, length: int) -> bytes:
    return TurboSHAKE128.new(domain=domain, data=message).read(length)


def _core(act: Callable[[], object]) -> float:
    """Return the seconds that a core computes, which other work on the machine hardly changes."""
    start = time.process_time()
    act()
    return time.process_time() - start
