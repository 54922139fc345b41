"""PP-TopK's step, compared with the paper's multiset, and the distribution of its noise."""

import math
from collections import Counter
from dataclasses import asdict, replace
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from veilring.arrays import Bools, Floats
from veilring.errors import InputError
from veilring.protocols.ring.algorithm import topk
from veilring.protocols.ring.algorithm.topk import (
    TopKParameters,
    final_result,
    highest_entry,
    own_smallest,
    require_bounded,
    run_ring,
    start_vector,
    topk_step,
)

FALSE_ALARM = 1e-6
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
    return topk_step(G, V, fresh, 1, parameters, np.random.default_rng(seed))


def check_against_reference(G: list[list[float]], V: list[list[float]]) -> None:
    """Compare a batch of honest and of noisy steps with the reference."""
    k = len(G[0])
    vectors, own = np.array(G), np.array(V)
    honest, inserted = step(vectors, own, replace(HONEST, k=k))
    noisy, never = step(vectors, own, replace(NOISY, k=k))
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


@pytest.mark.parametrize("k", [1, 2, 3])
def test_step_is_the_multiset_algorithm_on_all_small_vectors(k: int) -> None:
    """For every G and V over a few values, ties and padding included, G', m and noise are right."""
    vectors = [list(row) for row in combinations_with_replacement([0.0, 1.0, 2.0, 3.0], k)]
    own = [list(row) for row in combinations_with_replacement([0.0, 1.0, 2.0, math.inf], k)]
    pairs = list(product(vectors, own))
    check_against_reference([G for G, _ in pairs], [V for _, V in pairs])


@given(
    k=st.integers(1, 12),
    runs=st.lists(
        st.tuples(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9))), min_size=1, max_size=5
    ),
)
def test_step_is_the_multiset_algorithm(k: int, runs: list[tuple[list[int], list[int]]]) -> None:
    """For any vectors with ties and padding, the step is the multiset algorithm."""
    G = [sorted([float(x) for x in row] + [HONEST.upper] * k)[:k] for row, _ in runs]
    V = [padded([float(x) for x in row], k) for _, row in runs]
    check_against_reference(G, V)


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
    none, rng = np.zeros(runs, dtype=np.bool_), np.random.default_rng(round_number)
    passed, inserted = topk_step(G, V, none, round_number, parameters, rng)
    assert ((passed == V).all(axis=1) == inserted).all()
    expected = 0.8 * 0.4 ** (round_number - 1)
    assert parameters.noise_probability(round_number) == pytest.approx(expected, rel=1e-15)
    noisy = int((~inserted).sum())
    assert stats.binomtest(noisy, runs, expected).pvalue > FALSE_ALARM


def test_a_party_that_has_inserted_passes_on_unchanged() -> None:
    """After inserting, or with nothing to contribute, a party passes G on and draws nothing."""
    G, V = start_vector(NOISY, 2), np.array([[1.0, 2.0, 3.0], [math.inf] * 3])
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    passed, inserted = topk_step(G, V, np.array([True, False]), 1, NOISY, rng)
    assert (passed == G).all()
    assert inserted.tolist() == [True, False]
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("parameters", [HONEST, NOISY])
def test_step_does_not_modify_its_inputs(parameters: TopKParameters) -> None:
    """The step returns new arrays, and never writes to its arguments."""
    G, V = start_vector(parameters, 4), np.tile([1.0, 2.0, math.inf], (4, 1))
    inserted = np.array([False, True, False, True])
    for array in (G, V, inserted):
        array.flags.writeable = False
    passed, after = topk_step(G, V, inserted, 1, parameters, np.random.default_rng(0))
    assert not np.shares_memory(passed, G)
    assert not np.shares_memory(after, inserted)


def test_step_of_a_batch_draws_for_its_runs_in_order() -> None:
    """Equal seeds and data give equal bits."""
    rng = np.random.default_rng(5)
    G, V = start_vector(NOISY, 50), np.sort(rng.uniform(0, 9, (50, 3)), axis=1)
    half = replace(NOISY, P0=0.5)
    first, second = step(G, V, half, seed=1), step(G, V, half, seed=1)
    assert first[0].tobytes() == second[0].tobytes()
    assert (first[1] == second[1]).all()


def test_blocks_of_runs_draw_like_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any block size, equal seeds give equal bits."""
    rng = np.random.default_rng(6)
    G, V = start_vector(NOISY, 50), np.sort(rng.uniform(0, 9, (50, 3)), axis=1)
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


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_own_smallest_refuses_nan(bad: float) -> None:
    """A NaN or `-inf` among a party's values is refused at once."""
    with pytest.raises(InputError, match="values must be numbers"):
        own_smallest(np.array([[1.0, bad]]), 1)


def test_own_smallest_refuses_other_shapes() -> None:
    """Values without a leading axis of runs, or k below 1, are refused by name."""
    with pytest.raises(InputError, match=r"values has the shape \(3,\)"):
        own_smallest(np.zeros(3), 1)
    with pytest.raises(InputError, match="k is 0"):
        own_smallest(np.zeros((1, 3)), 0)


def test_values_outside_the_public_bounds_are_refused_without_being_shown() -> None:
    """A value outside [lower, upper] is refused without being shown; padding passes."""
    require_bounded(np.array([0.0, 9.0, math.inf]), HONEST)
    for bad in (-0.125, 9.125, math.nan, -math.inf):
        with pytest.raises(InputError) as caught:
            require_bounded(np.array([1.0, bad]), HONEST, "distances")
        assert caught.value.field == "distances"
        assert "9.125" not in str(caught.value)
        assert "0.125" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", 0),
        ("P0", -0.1),
        ("P0", 1.1),
        ("P0", math.nan),
        ("d", 0.0),
        ("d", 1.5),
        ("rounds", 0),
        ("delta", 0.0),
        ("delta", math.inf),
        ("delta", math.nan),
        ("lower", -math.inf),
        ("lower", math.nan),
        ("upper", 0.0),
        ("upper", math.inf),
        ("upper", math.nan),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    """Each public parameter outside its range is refused with an error that names it."""
    fields: dict[str, Any] = {**asdict(HONEST), field: value}
    with pytest.raises(InputError) as caught:
        TopKParameters(**fields)
    assert caught.value.field == field


def test_parameters_whose_noise_would_overflow_are_refused() -> None:
    """Bounds so large that the noise could become infinite are refused."""
    with pytest.raises(InputError, match="upper is"):
        TopKParameters(k=2, P0=1, d=1, rounds=1, delta=1e308, upper=1e308)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_no_honest_vector_exceeds_the_highest_entry(rows: int) -> None:
    """Entry j never exceeds upper + min(hops, j) delta, for any number of rows."""
    rng = np.random.default_rng(rows)
    parameters = TopKParameters(k=6, P0=1.0, d=1.0, rounds=5, delta=0.3, upper=1.0)
    values = own_smallest(rng.uniform(0.9, 1.0, (8_000, rows)), 6).reshape(2_000, 4, 6)

    def observe(round_number: int, position: int, received: Floats, passed: Floats) -> None:
        hops = (round_number - 1) * 4 + position
        assert received.max() <= highest_entry(parameters, hops)
        for j in range(1, 7):
            entry = highest_entry(replace(parameters, k=j), hops + 1)
            assert passed[:, j - 1].max() <= entry

    result = run_ring(values, parameters, rng, observe)
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
    assert highest_entry(parameters, 0) == 1.0
    assert highest_entry(parameters, 1) == 1.5
    assert highest_entry(parameters, 1000) == 2.0
    with pytest.raises(InputError, match="hops is -1"):
        highest_entry(parameters, -1)


def test_final_result_is_clipped_at_the_public_bound() -> None:
    """Entries above upper represent missing values and are clipped."""
    cut = final_result(np.array([[1.0, 9.0, 9.25]]), HONEST)
    assert cut.tolist() == [[1.0, 9.0, 9.0]]
