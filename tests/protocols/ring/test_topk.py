"""PP-TopK: its step, the ring in many trials, its exactness, and limits on honest hops."""

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.generators import pretended
from tests.protocols.ring.worlds import FALSE_ALARM, rng

from veilring.arrays import Bools, Floats
from veilring.protocols.ring.algorithm import consistency, topk
from veilring.protocols.ring.algorithm.classify import Weights, local_votes
from veilring.protocols.ring.algorithm.consistency import (
    could_be_totals,
    could_become,
    difference,
    multiset_size,
    overlap,
)
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    exactness_bound,
    final_result,
    highest_entry,
    own_smallest,
    rounds_for,
    run_ring,
    start_vector,
    topk_step,
    true_topk,
)

HONEST = TopKParameters(k=3, P0=0.0, d=0.5, rounds=2, delta=0.5, upper=9.0)
NOISY = replace(HONEST, P0=1.0)


def padded(row: list[float], k: int) -> list[float]:
    """Return the k smallest of a row, sorted and padded with +inf."""
    return (sorted(row) + [math.inf] * k)[:k]


def reference(G: list[float], V: list[float]) -> tuple[list[float], int]:
    """Return G' and m as in Algorithm 2, with multisets."""
    merged = sorted(G + [value for value in V if value < math.inf])[: len(G)]
    return merged, (Counter(merged) - Counter(G)).total()


def step(G: Floats, V: Floats, parameters: TopKParameters, seed: int = 0) -> tuple[Floats, Bools]:
    """Run round 1 of the step for parties that have not inserted."""
    fresh = np.zeros(len(G), dtype=np.bool_)
    return topk_step(G, V, fresh, 1, parameters, rng(seed))


@given(
    k=st.integers(1, 12),
    runs=st.lists(
        st.tuples(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9))), min_size=1, max_size=5
    ),
)
def test_step_is_the_multiset_algorithm(k: int, runs: list[tuple[list[int], list[int]]]) -> None:
    """For any G and V with ties and padding, G', m and the range of the noise are right."""
    G = [sorted([float(x) for x in row] + [HONEST.upper] * k)[:k] for row, _ in runs]
    V = [padded([float(x) for x in row], k) for _, row in runs]
    honest, inserted = step(np.array(G), np.array(V), replace(HONEST, k=k))
    noisy, never = step(np.array(G), np.array(V), replace(NOISY, k=k))
    assert not never.any()
    for row, (old, values) in enumerate(zip(G, V, strict=True)):
        merged, m = reference(old, values)
        assert honest[row].tolist() == merged
        assert inserted[row] == (m > 0)
        assert noisy[row, : k - m].tolist() == old[: k - m]
        if m:
            noise = noisy[row, k - m :].tolist()
            assert noise == sorted(noise)
            assert noise[0] >= merged[-1]
            assert noise[-1] <= max(merged[-1] + NOISY.delta, old[k - m])


@pytest.mark.parametrize(
    ("delta", "highest"),
    [pytest.param(0.5, 8.0, id="entry-above"), pytest.param(7.0, 9.0, id="delta-above")],
)
def test_noise_is_uniform_and_independent(delta: float, highest: float) -> None:
    """The m noise values are independent uniforms on the paper's interval (false alarm 1e-6)."""
    runs, m = 30_000, 3
    G = np.tile([0.0, 1.0, 8.0, 8.5, 9.0], (runs, 1))
    V = np.tile([0.5, 1.5, 2.0, 8.7, math.inf], (runs, 1))
    passed, _ = step(G, V, replace(NOISY, k=5, delta=delta))
    assert (passed[:, :2] == [0.0, 1.0]).all()
    uniforms = (passed[:, -m:] - 2.0) / (highest - 2.0)
    assert stats.kstest(uniforms.ravel(), "uniform").pvalue > FALSE_ALARM / 3
    least, greatest = stats.beta(1, m), stats.beta(m, 1)
    assert stats.kstest(uniforms[:, 0], least.cdf).pvalue > FALSE_ALARM / 3
    assert stats.kstest(uniforms[:, -1], greatest.cdf).pvalue > FALSE_ALARM / 3


@pytest.mark.parametrize("round_number", [1, 2, 3])
def test_noise_has_its_probability(round_number: int) -> None:
    """In round r a contributor answers with noise with probability P0 d^(r-1) (alarm 1e-6)."""
    runs, parameters = 50_000, replace(HONEST, P0=0.8, d=0.4)
    G, V = start_vector(parameters, runs), np.tile([1.0, 2.0, 3.0], (runs, 1))
    none, draws = np.zeros(runs, dtype=np.bool_), rng(round_number)
    passed, inserted = topk_step(G, V, none, round_number, parameters, draws)
    assert ((passed == V).all(axis=1) == inserted).all()
    expected = 0.8 * 0.4 ** (round_number - 1)
    assert parameters.noise_probability(round_number) == pytest.approx(expected, rel=1e-15)
    noisy = int((~inserted).sum())
    assert stats.binomtest(noisy, runs, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("parameters", [HONEST, NOISY])
def test_a_party_that_has_inserted_passes_on_unchanged(parameters: TopKParameters) -> None:
    """After inserting, or with nothing to contribute, it passes G on and draws nothing.

    The step returns new arrays, and never writes to its arguments.
    """
    G, V = start_vector(parameters, 3), np.tile([1.0, 2.0, math.inf], (3, 1))
    V[1], done, draws = math.inf, np.array([True, False, False]), rng()
    for array in (G, V, done):
        array.flags.writeable = False
    before = draws.bit_generator.state
    passed, after = topk_step(G[:2], V[:2], done[:2], 1, parameters, draws)
    assert (passed == G[:2]).all()
    assert after.tolist() == [True, False]
    assert draws.bit_generator.state == before
    passed, after = topk_step(G, V, done, 1, parameters, draws)
    assert not np.shares_memory(passed, G)
    assert not np.shares_memory(after, done)


def test_blocks_of_runs_draw_like_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any block size, equal seeds give equal bits."""
    draws = rng(6)
    G, V = start_vector(NOISY, 50), np.sort(draws.uniform(0, 9, (50, 3)), axis=1)
    half = replace(NOISY, P0=0.5)
    whole = step(G, V, half, seed=1)
    monkeypatch.setattr(topk, "BLOCK_ENTRIES", 10)
    parts = step(G, V, half, seed=1)
    assert whole[0].tobytes() == parts[0].tobytes()
    assert (whole[1] == parts[1]).all()


@given(k=st.integers(1, 8), row=st.lists(st.floats(-1e6, 1e6), max_size=20))
def test_own_smallest_is_sorted_and_padded(k: int, row: list[float]) -> None:
    """A party's contribution is its k smallest, ascending, padded with +inf."""
    got = own_smallest(np.array([row, row[::-1]], dtype=np.float64), k)
    assert got.tolist() == [padded(row, k)] * 2


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_no_honest_vector_exceeds_the_highest_entry(rows: int) -> None:
    """Entry j never exceeds upper + min(hops, j) delta, for any number of rows."""
    draws = rng(rows)
    parameters = TopKParameters(k=6, P0=1.0, d=1.0, rounds=5, delta=0.3, upper=1.0)
    values = own_smallest(draws.uniform(0.9, 1.0, (8_000, rows)), 6).reshape(2_000, 4, 6)

    def observe(round_number: int, position: int, received: Floats, passed: Floats) -> None:
        hops = (round_number - 1) * 4 + position
        assert received.max() <= highest_entry(parameters, hops)
        for j in range(1, 7):
            entry = highest_entry(replace(parameters, k=j), hops + 1)
            assert passed[:, j - 1].max() <= entry

    result = run_ring(values, parameters, draws, observe)
    assert result.max() <= parameters.upper


def test_the_highest_entry_is_approached() -> None:
    """Two noisy hops can lift the greatest of two entries by almost two delta, never by three.

    It ends at 1 + (M + U)/2, where U is uniform and M the smaller of two uniforms: above 1.95 with
    probability 0.1^3 / 3, so that none of 50,000 is above with probability 6e-8.
    """
    parameters = TopKParameters(k=2, P0=1.0, d=1.0, rounds=1, delta=0.5, upper=1.0)
    pair, single = np.tile([1.0 - 1e-9] * 2, (50_000, 1)), np.tile([0.5, math.inf], (50_000, 1))
    passed, _ = step(start_vector(parameters, 50_000), pair, parameters, seed=1)
    passed, _ = step(passed, single, parameters, seed=2)
    assert 1.95 < passed.max() <= highest_entry(parameters, 2) == 2.0
    assert [highest_entry(parameters, hops) for hops in (0, 1, 1000)] == [1.0, 1.5, 2.0]


@given(
    rows=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=3, max_size=6),
    parameters=st.sampled_from([HONEST, replace(NOISY, rounds=12)]),
)
def test_the_ring_finds_the_k_smallest(rows: list[list[int]], parameters: TopKParameters) -> None:
    """After enough rounds the result is the union's k smallest, ties and short unions included.

    The error bound at 12 rounds is below 1e-19 per run.
    """
    values = np.stack([own_smallest(np.array([row], dtype=np.float64), 3) for row in rows], axis=1)
    expected = (sorted(float(x) for row in rows for x in row) + [9.0] * 3)[:3]
    assert run_ring(values, parameters, rng(0)).tolist() == [expected]
    assert true_topk(values, parameters).tolist() == [expected]


def test_the_ring_is_the_step_in_ring_order() -> None:
    """The driver is a loop over a networked party's step, draw for draw."""
    data = rng(3)
    parameters = TopKParameters(k=2, P0=0.9, d=0.7, rounds=3, delta=0.1, upper=1.0)
    values = np.sort(data.random((40, 4, 2)), axis=2)
    seen: list[tuple[int, int]] = []
    G, draws = start_vector(parameters, 40), rng(7)
    done = [np.zeros(40, dtype=np.bool_) for _ in range(4)]

    def observe(round_number: int, position: int, received: Floats, passed: Floats) -> None:
        nonlocal G
        assert (received == G).all()
        own = values[:, position]
        G, done[position] = topk_step(G, own, done[position], round_number, parameters, draws)
        assert (passed == G).all()
        seen.append((round_number, position))

    result = run_ring(values, parameters, rng(7), observe)
    assert seen == [(r, p) for r in (1, 2, 3) for p in range(4)]
    assert (result == np.minimum(G, 1.0)).all()


TRIALS = 100_000


def error_in_decimals(k: int, P0: float, d: float, rounds: int) -> Decimal:
    """Return 1 - (1 - P0^r d^(r(r-1)/2))^k with 120 digits."""
    with localcontext(prec=120):
        always_noise = Decimal(P0) ** rounds * Decimal(d) ** (rounds * (rounds - 1) // 2)
        return 1 - (1 - always_noise) ** k


@pytest.mark.parametrize(
    ("P0", "d", "rounds", "k"),
    [(1.0, 0.5, 2, 1), (1.0, 0.5, 2, 5), (1.0, 0.5, 4, 3), (0.5, 1.0, 3, 4), (0.9, 0.8, 1, 2)],
)
def test_the_result_is_exact_at_the_stated_rate(P0: float, d: float, rounds: int, k: int) -> None:
    """Over 100,000 rings the bound holds, and with c contributors its formula is exact in c."""
    draws = rng(rounds, k)
    parameters = TopKParameters(k=k, P0=P0, d=d, rounds=rounds, delta=0.05, upper=1.0)
    values = np.sort(draws.random((TRIALS, 4, k)), axis=2)
    truth = true_topk(values, parameters)
    exact = (run_ring(values, parameters, draws) == truth).all(axis=1)
    contributors = (values[:, :, 0] <= truth[:, -1:]).sum(axis=1)
    bound = exactness_bound(k, P0, d, rounds)
    test = stats.binomtest(int(exact.sum()), TRIALS, bound, alternative="less")
    assert test.pvalue > FALSE_ALARM / 2
    for c in np.unique(contributors):
        among = exact[contributors == c]
        bound = exactness_bound(int(c), P0, d, rounds)
        assert stats.binomtest(int(among.sum()), among.size, bound).pvalue > FALSE_ALARM / (2 * k)


@given(
    exponent=st.floats(0.01, 60),
    k=st.integers(1, 100),
    P0=st.floats(0.0, 1.0),
    d=st.floats(1e-3, 1.0),
)
def test_rounds_for_returns_the_minimum(exponent: float, k: int, P0: float, d: float) -> None:
    """It gives the least r with at most the accepted error, down to 1e-60, by the bound's form."""
    assume(P0 < 0.999 or d < 0.999)
    error = 10.0**-exponent
    rounds = rounds_for(error, k, P0, d)
    slack = Decimal("1e-10")
    for r in (1, rounds):
        expected = 1 - float(error_in_decimals(k, P0, d, r))
        assert exactness_bound(k, P0, d, r) == pytest.approx(expected, rel=1e-12)
    assert error_in_decimals(k, P0, d, rounds) <= Decimal(error) * (1 + slack)
    if rounds > 1:
        assert error_in_decimals(k, P0, d, rounds - 1) > Decimal(error) * (1 - slack)


def test_rounds_for_agrees_with_the_papers_numbers() -> None:
    """With P0 = 1 and d = 1/2, an error of 1e-3 at k = 5 needs 6 rounds; honesty needs one."""
    assert rounds_for(1e-3, 5, 1.0, 0.5) == 6
    assert rounds_for(1e-300, 5, 0.0, 0.5) == 1
    assert rounds_for(0.5, 1, 1 - 2**-40, 1.0) == math.ceil(math.log(0.5) / math.log1p(-(2**-40)))


def undoubted(
    values: Floats, parameters: TopKParameters, draws: np.random.Generator, most: int
) -> list[Floats]:
    """Return all vectors of a run, none of which is doubted up to a number of hops later."""
    vectors = [start_vector(parameters, len(values))]
    run_ring(values, parameters, draws, lambda _round, _place, _got, passed: vectors.append(passed))
    for hop, after in enumerate(vectors):
        for gap in range(min(hop, most) + 1):
            assert could_become(vectors[hop - gap], after, gap, parameters).all()
    return vectors


def own_values(
    draws: np.random.Generator, shape: tuple[int, int, int], kind: str, upper: float
) -> Floats:
    """Return sorted values of all parties: continuous, with many ties, or half missing."""
    values = draws.random(shape) * upper
    if kind == "ties":
        values = np.round(values / upper * 4) / 4 * upper
    if kind == "padding":
        values[draws.random(shape) < 0.5] = np.inf
    return np.sort(values, axis=2)


@pytest.mark.parametrize("kind", ["continuous", "ties", "padding"])
@pytest.mark.parametrize("delta", [1e-9, 0.1, 50.0])
@pytest.mark.parametrize("P0", [0.0, 0.7, 1.0])
def test_no_honest_run_is_doubted(kind: str, delta: float, P0: float) -> None:
    """In 27 x 4,000 honest runs no vector is impossible, between any two hops."""
    draws = rng(int(delta), int(P0 * 10), len(kind))
    for n, k, d in ((3, 1, 1.0), (4, 3, 0.5), (6, 8, 0.9), (9, 2, 1.0)):
        parameters = TopKParameters(k, P0, d, rounds=3, delta=delta, upper=3.6)
        values = own_values(draws, (1000, n, k), kind, 3.6)
        vectors = undoubted(values, parameters, draws, n)
        end = final_result(vectors[-1], parameters)
        assert could_become(vectors[-n], end, n - 1, parameters).all()


@given(
    values=st.lists(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), min_size=3, max_size=6),
    k=st.integers(1, 3),
    P0=st.sampled_from([0.0, 0.5, 1.0]),
    d=st.floats(0.1, 1.0),
    delta=st.floats(1e-300, 1e300),
    seed=st.integers(0, 2**32),
)
def test_rounding_never_makes_an_honest_run_doubtful(
    *, values: list[list[float]], k: int, P0: float, d: float, delta: float, seed: int
) -> None:
    """For any magnitudes, no honest vector exceeds the bound by even one bit."""
    own = np.sort(np.array([values]), axis=2)[..., :k]
    parameters = TopKParameters(k, P0, d, rounds=3, delta=delta, upper=1e9, lower=-1e9)
    undoubted(own, parameters, rng(seed), 2 * len(values))


@pytest.mark.parametrize("hops", [1, 2, 7, 400])
def test_honest_hops_can_attain_the_bound(hops: int) -> None:
    """Parties with values just below the entry lift it by delta each."""
    parameters = TopKParameters(k=1, P0=1.0, d=1.0, rounds=1, delta=0.1, upper=1e3)
    G = before = np.array([[0.3]])
    highest = pretended(random=lambda size: np.full(size, np.nextafter(1.0, 0.0)))
    for _ in range(hops):
        G, _ = topk_step(G, np.nextafter(G, 0), np.zeros(1, np.bool_), 1, parameters, highest)
    assert could_become(before, G, hops, parameters).all()
    assert G[0, 0] == pytest.approx(0.3 + hops * 0.1, rel=1e-12)
    assert not could_become(before, G * (1 + 1e-9), hops, parameters).any()


@pytest.mark.parametrize(
    ("before", "after", "hops", "P0", "doubtful"),
    [
        # Entries leave from the top only, and noise lifts the last one by delta per hop.
        ([1, 2, 3], [0.1, 0.2, 0.3], 1, 1, False),  # a party with smaller values may insert them
        ([1, 2, 3], [1, 2, 3.5], 1, 1, False),
        ([1, 2, 3], [1, 2, 3.51], 1, 1, True),
        ([1, 2, 3], [1, 2, 4], 2, 1, False),
        ([1, 2, 3], [1.5, 2, 3], 1, 1, True),  # the 1.0 is gone, and the last is not below 1.5
        ([1, 2, 3], [1, 2.4, 2.5], 1, 1, False),
        ([1, 2, 3], [1, 2.4, 2.6], 1, 1, True),  # the 2.0 is gone
        ([1, 1, 3], [1, 2, 3], 1, 1, True),  # one of two equal entries is gone
        # Without noise the bound is exact, for any number of hops.
        ([1, 2, 3], [0.5, 1, 2], 9, 0, False),
        ([1, 2, 3], [0.5, 1, 1.5], 9, 0, False),
        ([1, 2, 3], [1, 2.5, 2.6], 9, 0, True),
        ([1, 2, 3], [1, 2, math.nextafter(3, 4)], 9, 0, True),
        # Two views of a vector are equal if there is no hop between them.
        ([1, 2], [1, 2], 0, 1, False),
        ([1, 2], [0.5, 1], 0, 1, True),
    ],
)
def test_an_entry_far_below_the_last_one_must_stay(
    before: list[float], after: list[float], hops: int, P0: float, doubtful: bool
) -> None:
    """A vector is doubted exactly if noise of at most 0.5 per hop does not explain it."""
    parameters = TopKParameters(len(before), P0, 0.5, rounds=2, delta=0.5, upper=9.0)
    vectors = np.array([before], dtype=np.float64), np.array([after], dtype=np.float64)
    assert could_become(*vectors, hops, parameters).tolist() == [not doubtful]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_no_honest_totals_are_doubted(weights: Weights, rounds: int) -> None:
    """For any noise in the result, honest votes pass every party's check."""
    draws, (queries, parties, rows, classes) = rng(rounds), (5000, 4, 3, 3)
    labels = draws.integers(0, classes, (parties, rows))
    for k, kind in ((1, "ties"), (4, "continuous"), (20, "continuous"), (4, "padding")):
        distances = own_values(draws, (queries, parties, rows), kind, 3.0)
        parameters = TopKParameters(k, 1.0, 0.5, rounds, delta=0.1, upper=3.0)
        own = np.full((queries, parties, k), np.inf)
        own[:, :, : min(rows, k)] = distances[:, :, :k]
        result = run_ring(own, parameters, draws)
        votes = [
            local_votes(distances[:, party], labels[party], result, classes, weights)
            for party in range(parties)
        ]
        for mine in votes:
            assert could_be_totals(np.sum(votes, axis=0), mine, result, weights, 3.0).all()


@pytest.mark.parametrize(
    ("totals", "own", "weights", "upper", "doubtful"),
    [
        ([1.0, 2.0], [1.0, 2.0], "uniform", 3.0, False),
        ([5.0, 1.0], [1.0, 2.0], "uniform", 3.0, True),  # below the party's own votes
        ([1.5, 2.0], [1.0, 2.0], "uniform", 3.0, True),  # a fraction of a vote
        ([1.5, 2.0], [1.0, 2.0], "distance", 3.0, False),
        ([1.0, 1.0], [0.0, 0.0], "uniform", 3.0, True),  # three rows are within 0.3
        ([1.0, 1.0], [0.0, 0.0], "uniform", 0.3, False),  # there may be fewer than three rows
    ],
)
def test_impossible_totals_are_doubted(
    totals: list[float], own: list[float], weights: Weights, upper: float, doubtful: bool
) -> None:
    """Totals below a party's own votes or below k, or fractions of a vote, are impossible."""
    nearest = np.array([[0.1, 0.2, 0.3]])
    possible = could_be_totals(np.array([totals]), np.array([own]), nearest, weights, upper)
    assert possible.tolist() == [not doubtful]


Bags = list[tuple[list[int], list[int]]]
BAGS: st.SearchStrategy[Bags] = st.lists(
    st.tuples(st.lists(st.integers(-3, 3), max_size=6), st.lists(st.integers(-3, 3), max_size=4)),
    min_size=1,
    max_size=6,
)


def rows(bags: list[list[int]], width: int) -> Floats:
    """Return sorted rows padded with +inf."""
    return np.array([sorted(map(float, bag)) + [math.inf] * (width - len(bag)) for bag in bags])


@pytest.mark.parametrize("compared", [0, 48])
@given(bags=BAGS, width=st.sampled_from([6, 9]))
def test_difference_and_overlap_are_of_multisets(compared: int, bags: Bags, width: int) -> None:
    """By comparing pairs or by searching, copies are counted row by row, without the padding."""
    A, B = rows([a for a, _ in bags], 6), rows([b for _, b in bags], width)
    expected = [sorted((Counter(a) - Counter(b)).elements()) for a, b in bags]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "COMPARED_WIDTH_MAX", compared)
        assert (difference(A, B) == rows(expected, 6)).all()
        assert overlap(A, B).tolist() == [(Counter(a) & Counter(b)).total() for a, b in bags]
    assert multiset_size(A).tolist() == [len(a) for a, _ in bags]
