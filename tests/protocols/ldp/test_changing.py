"""Answers that change: the losses of one report, and of all reports of all rounds."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.privacy.generators import FALSE_ALARM, follows, seeded
from tests.protocols.ldp.distributions import bernstein
from tests.refusals import require_refused

from veilring.protocols.ldp.algorithm.changing import (
    MEMOISED,
    Loloha,
    MemoisedOracle,
    MemoisedUnary,
)

PAIRS = [(0.5, 1.0), (1.0, 2.0), (2.0, 3.0)]


def flip(wrong: Fraction, one: int, other: int) -> Fraction:
    """Return the probability that a bit becomes another one."""
    return 1 - wrong if one == other else wrong


def bits_of(public: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    """Return how often a bucket is told wrongly: for good, and in a round."""
    own, other = public["permanent_own"], public["permanent_other"]
    return Fraction(other, own + other), 1 - Fraction(public["keep"], 2 ** public["bits"])


def streams(public: Mapping[str, Any], buckets: tuple[int, ...]) -> Iterator[Fraction]:
    """Yield the probability of each stream of reports about buckets, from published numbers."""
    permanent, again = bits_of(public)
    for said in product((0, 1), repeat=len(buckets)):
        yield sum(
            (
                flip(permanent, memo[0], 0)
                * flip(permanent, memo[1], 1)
                * math.prod(
                    (flip(again, memo[own], out) for own, out in zip(buckets, said, strict=True)),
                    start=Fraction(1),
                )
                for memo in product((0, 1), repeat=2)
            ),
            start=Fraction(0),
        )


def loss(public: Mapping[str, Any], one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return the greatest log-ratio of the probabilities of a stream."""
    both = zip(streams(public, one), streams(public, other), strict=True)
    return max(math.log(a / b) for a, b in both)


def pattern(buckets: tuple[int, ...]) -> tuple[bool, ...]:
    """Return at which times a bucket is the first one."""
    return tuple(bucket == buckets[0] for bucket in buckets)


@pytest.mark.parametrize(("epsilon", "permanent"), PAIRS)
def test_no_stream_of_hashed_reports_exceeds_the_lifetime_loss(
    epsilon: float, permanent: float
) -> None:
    """Over all streams of up to four rounds, and buckets that change at the same times."""
    public = Loloha(20, epsilon, permanent).public
    greatest = 0.0
    for rounds in (1, 2, 4):
        every = [*product((0, 1), repeat=rounds)]
        for one, other in product(every, repeat=2):
            if pattern(one) != pattern(other):
                continue
            found, used = loss(public, one, other), len(set(one))
            assert found <= used * permanent * (1 + 1e-12)
            greatest = max(greatest, found)
            if rounds == 1:
                assert found <= epsilon
    assert greatest <= Loloha(20, epsilon, permanent).lifetime_epsilon


@pytest.mark.parametrize(("epsilon", "permanent"), PAIRS)
@pytest.mark.parametrize("kind", [Loloha, MemoisedUnary])
def test_first_reports_and_permanent_answers_spend_what_is_stated(
    kind: type[MemoisedOracle], epsilon: float, permanent: float
) -> None:
    """Both losses are exact, and a twentieth less noise exceeds them."""
    oracle = kind(4, epsilon, permanent)
    public: Mapping[str, Any] = oracle.public
    if kind is Loloha:
        always, again = bits_of(public)
        once = always * (1 - again) + (1 - always) * again
        first = math.log((1 - once) / once)
        forever = math.log((1 - always) / always)
    else:
        q, wrong = (Fraction(public[name], 2 ** public["bits"]) for name in ("permanent_q", "flip"))
        once = q * (1 - wrong) + (1 - q) * wrong
        first, forever = math.log((1 - once) / once), math.log((1 - q) / q)
    assert oracle.exact_epsilon == pytest.approx(first, rel=1e-9)
    assert oracle.permanent_loss == pytest.approx(forever, rel=1e-9)
    assert oracle.exact_epsilon <= epsilon
    assert oracle.permanent_loss <= permanent
    assert oracle.lifetime_epsilon == pytest.approx(oracle.answers * forever, rel=1e-9)
    assert kind(4, 1.05 * epsilon, permanent).exact_epsilon > epsilon
    assert kind(4, epsilon, 1.05 * permanent).permanent_loss > permanent


@pytest.mark.parametrize("kind", [Loloha, MemoisedUnary])
def test_rounds_estimate_answers_that_changed(kind: type[MemoisedOracle]) -> None:
    """Each round has the shares of that round, within Bernstein's bound, of the same clients."""
    oracle, rng, clients = kind(6, 1.0, 2.0), seeded("rounds", kind.name), 20_000
    memos = oracle.draw_permanent(clients, rng)
    assert memos.shape == (clients, oracle.memo_bytes)
    for values in (np.arange(clients) % 3, np.arange(clients) % 6, np.arange(clients) % 6):
        reports = oracle.again(memos, values, rng)
        assert oracle.accept(reports).all()
        found = oracle.estimate(oracle.aggregate(reports), clients).values
        truth = np.bincount(values, minlength=6) / clients
        reach = bernstein(clients * oracle.variance(1.0), oracle.influence, FALSE_ALARM / 36)
        assert np.abs(found - truth).max() <= reach / clients


def test_a_permanent_answer_stays_and_only_noise_is_fresh() -> None:
    """Without fresh noise all rounds are equal; with it, each report is as far as stated."""
    rng, rounds = seeded("stays"), 4000
    oracle = Loloha(9, 1.0, 2.0)
    (memo,) = oracle.draw_permanent(1, rng)
    reports = oracle.again(np.tile(memo, (rounds, 1)), np.full(rounds, 4), rng)
    assert (reports[:, :8] == memo[:8]).all()
    wrong = float(bits_of(oracle.public)[1])
    counts = np.sort(np.bincount(reports[:, 8], minlength=2))
    assert follows(counts, np.array([wrong, 1 - wrong]), 2)
    unary = MemoisedUnary(9, 1.0, 2.0)
    (bitmaps,) = unary.draw_permanent(1, rng)
    drawn = unary.again(np.tile(bitmaps, (rounds, 1)), np.full(rounds, 4), rng)
    flipped = np.unpackbits(drawn ^ bitmaps[8:10], axis=1, count=9).sum()
    public: Mapping[str, Any] = unary.public
    part = public["flip"] / 2 ** public["bits"]
    every = np.array([9 * rounds - flipped, flipped])
    assert follows(every, np.array([1 - part, part]), 2)


def test_invalid_pairs_of_epsilons_are_refused() -> None:
    """The permanent one is above that of the first report; bitmaps are for few values."""
    for kind in MEMOISED.values():
        for permanent in (1.0, 0.5, 21.0, math.nan):
            require_refused("permanent is", kind, 4, 1.0, permanent)
    require_refused("domain is 257", MemoisedUnary, 257, 1.0, 2.0)
    assert Loloha(1000, 1.0, 2.0).lifetime_epsilon == 4.0
    assert MemoisedUnary(256, 1.0, 2.0).memo_bytes == 256 * 32
