"""Limits on honest hops: no honest run is ever doubted, and the bound is tight."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.ring.algorithm import consistency
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
    final_result,
    run_ring,
    start_vector,
    topk_step,
)

Vectors = list[Floats]


def hops_of(values: Floats, parameters: TopKParameters, rng: np.random.Generator) -> Vectors:
    """Return all vectors of a run, the start vector first."""
    vectors = [start_vector(parameters, len(values))]
    run_ring(values, parameters, rng, lambda _round, _place, _got, passed: vectors.append(passed))
    return vectors


def own_values(
    rng: np.random.Generator, shape: tuple[int, int, int], kind: str, upper: float
) -> Floats:
    """Return sorted values of all parties: continuous, with many ties, or half missing."""
    values = rng.random(shape) * upper
    if kind == "ties":
        values = np.round(values / upper * 4) / 4 * upper
    if kind == "padding":
        values[rng.random(shape) < 0.5] = np.inf
    return np.sort(values, axis=2)


@pytest.mark.parametrize("kind", ["continuous", "ties", "padding"])
@pytest.mark.parametrize("delta", [1e-9, 0.1, 50.0])
@pytest.mark.parametrize("P0", [0.0, 0.7, 1.0])
def test_no_honest_run_is_doubted(kind: str, delta: float, P0: float) -> None:
    """In 27 x 4,000 honest runs no vector is impossible, between any two hops."""
    rng = np.random.default_rng([int(delta), int(P0 * 10), len(kind)])
    for n, k, d in ((3, 1, 1.0), (4, 3, 0.5), (6, 8, 0.9), (9, 2, 1.0)):
        parameters = TopKParameters(k, P0, d, rounds=3, delta=delta, upper=3.6)
        vectors = hops_of(own_values(rng, (1000, n, k), kind, 3.6), parameters, rng)
        for hop, after in enumerate(vectors):
            for gap in range(min(hop, n) + 1):
                assert could_become(vectors[hop - gap], after, gap, parameters).all()
        assert could_become(
            vectors[-n], final_result(vectors[-1], parameters), n - 1, parameters
        ).all()


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
    vectors = hops_of(own, parameters, np.random.default_rng(seed))
    for hop, after in enumerate(vectors):
        for gap in range(min(hop, 2 * len(values)) + 1):
            assert could_become(vectors[hop - gap], after, gap, parameters).all()


class _AlwaysHigh(np.random.Generator):
    """A generator of the greatest possible uniform."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, size: int) -> Floats:  # type: ignore[override]  # all that a step asks for
        """Return the greatest double below 1."""
        return np.full(size, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("hops", [1, 2, 7, 400])
def test_honest_hops_can_attain_the_bound(hops: int) -> None:
    """Parties with values just below the entry lift it by delta each."""
    parameters = TopKParameters(k=1, P0=1.0, d=1.0, rounds=1, delta=0.1, upper=1e3)
    G = before = np.array([[0.3]])
    for _ in range(hops):
        V = np.nextafter(G, 0)
        G, _ = topk_step(G, V, np.zeros(1, dtype=np.bool_), 1, parameters, _AlwaysHigh())
    assert could_become(before, G, hops, parameters).all()
    assert G[0, 0] == pytest.approx(0.3 + hops * 0.1, rel=1e-12)
    assert not could_become(before, G * (1 + 1e-9), hops, parameters).any()


def doubted(before: Sequence[float], after: Sequence[float], hops: int, P0: float = 1.0) -> bool:
    """Return whether one vector cannot have become another, with noise of at least 0.5."""
    parameters = TopKParameters(len(before), P0, 0.5, rounds=2, delta=0.5, upper=9.0)
    return not bool(could_become(np.array([before]), np.array([after]), hops, parameters)[0])


def test_an_entry_far_below_the_last_one_must_stay() -> None:
    """Entries leave from the top only, and noise lifts the last one by delta per hop."""
    before = [1.0, 2.0, 3.0]
    assert not doubted(before, [0.1, 0.2, 0.3], 1)  # a party with smaller values may insert them
    assert not doubted(before, [1.0, 2.0, 3.5], 1)
    assert doubted(before, [1.0, 2.0, 3.51], 1)
    assert not doubted(before, [1.0, 2.0, 4.0], 2)
    assert doubted(before, [1.5, 2.0, 3.0], 1)  # the 1.0 is gone, and the last is not below 1.5
    assert not doubted(before, [1.0, 2.4, 2.5], 1)
    assert doubted(before, [1.0, 2.4, 2.6], 1)  # the 2.0 is gone
    assert doubted([1.0, 1.0, 3.0], [1.0, 2.0, 3.0], 1)  # one of two equal entries is gone


def test_without_noise_each_entry_below_the_last_must_stay() -> None:
    """With P0 = 0 the bound is exact, for any number of hops."""
    assert not doubted([1.0, 2.0, 3.0], [0.5, 1.0, 2.0], 9, P0=0.0)
    assert not doubted([1.0, 2.0, 3.0], [0.5, 1.0, 1.5], 9, P0=0.0)
    assert doubted([1.0, 2.0, 3.0], [1.0, 2.5, 2.6], 9, P0=0.0)
    assert doubted([1.0, 2.0, 3.0], [1.0, 2.0, np.nextafter(3.0, 4.0)], 9, P0=0.0)


def test_a_vector_without_hops_is_unchanged() -> None:
    """Two views of a vector are equal if there is no hop between them."""
    assert not doubted([1.0, 2.0], [1.0, 2.0], 0)
    assert doubted([1.0, 2.0], [0.5, 1.0], 0)
    with pytest.raises(InputError, match="hops is -1"):
        doubted([1.0], [1.0], -1)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_no_honest_totals_are_doubted(weights: Weights, rounds: int) -> None:
    """For any noise in the result, honest votes pass every party's check."""
    rng = np.random.default_rng(rounds)
    queries, parties, rows, classes = 5000, 4, 3, 3
    labels = rng.integers(0, classes, (parties, rows))
    for k, kind in ((1, "ties"), (4, "continuous"), (20, "continuous"), (4, "padding")):
        distances = own_values(rng, (queries, parties, rows), kind, 3.0)
        parameters = TopKParameters(k, 1.0, 0.5, rounds, delta=0.1, upper=3.0)
        own = np.full((queries, parties, k), np.inf)
        own[:, :, : min(rows, k)] = distances[:, :, :k]
        result = run_ring(own, parameters, rng)
        votes = [
            local_votes(distances[:, party], labels[party], result, classes, weights)
            for party in range(parties)
        ]
        for mine in votes:
            assert could_be_totals(np.sum(votes, axis=0), mine, result, weights, 3.0).all()


def test_impossible_totals_are_doubted() -> None:
    """Totals below a party's own votes or below k, or fractions of a vote, are impossible."""
    own, nearest = np.array([[1.0, 2.0]]), np.array([[0.1, 0.2, 0.3]])

    def doubt(totals: list[float], weights: Weights = "uniform", upper: float = 3.0) -> bool:
        possible = could_be_totals(np.array([totals]), own, nearest, weights, upper)
        return not bool(possible[0])

    assert not doubt([1.0, 2.0])
    assert doubt([5.0, 1.0])
    assert doubt([1.5, 2.0])
    assert not doubt([1.5, 2.0], weights="distance")
    own = np.zeros((1, 2))
    assert doubt([1.0, 1.0])  # three rows are within 0.3
    assert not doubt([1.0, 1.0], upper=0.3)  # there may be fewer than three rows


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
def test_difference_and_overlap_equal_those_of_multisets(
    compared: int, bags: Bags, width: int
) -> None:
    """By comparing pairs or by searching, copies are counted row by row, without the padding."""
    A, B = rows([a for a, _ in bags], 6), rows([b for _, b in bags], width)
    expected = [sorted((Counter(a) - Counter(b)).elements()) for a, b in bags]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "COMPARED_WIDTH_MAX", compared)
        assert (difference(A, B) == rows(expected, 6)).all()
        assert overlap(A, B).tolist() == [(Counter(a) & Counter(b)).total() for a, b in bags]
    assert multiset_size(A).tolist() == [len(a) for a, _ in bags]
