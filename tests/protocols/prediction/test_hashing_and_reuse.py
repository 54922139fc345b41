"""The two options of a predictor: hashed candidates, and answers that vote."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.protocols.prediction.streams import answers, clustered, predictor, same

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import Hashing, Kernel, lengths, quantise
from veilring.protocols.prediction.algorithm.filter import (
    FilterParameters,
    Neighbours,
    answer_query,
)
from veilring.protocols.prediction.algorithm.predictor import Predictor

PARAMETERS = FilterParameters(classes=3, queries=40, budget=0.1, sigma2=0.3)
KERNEL = Kernel("cosine", 0.2)


def test_codes_are_the_sides_of_the_planes() -> None:
    """A bit is 1 above or on its plane, and a candidate agrees in all bits of a table."""
    rng = np.random.default_rng(1)
    hashing, rows = Hashing.draw(12, rng, tables=6, bits=3), clustered(50, 12, 3, rng).features
    sides = (rows.astype(np.int64) @ hashing.planes.astype(np.int64).T >= 0).reshape(50, 6, 3)
    codes = hashing.codes(rows)
    for query in range(50):
        shared = (sides == sides[query]).all(axis=2).any(axis=1)
        found = hashing.candidates(codes, codes[:, query])
        assert np.array_equal(found, np.flatnonzero(shared))


def test_near_rows_collide_at_the_rate_of_their_angle() -> None:
    """Two rows share a code in a table with probability (1 - angle / π)^b."""
    tables, angle = 20_000, 0.7
    hashing = Hashing.draw(4, np.random.default_rng(2), tables=tables, bits=8)
    pair = quantise(np.array([[1.0, 0, 0, 0], [math.cos(angle), math.sin(angle), 0, 0]]))
    one, other = hashing.codes(pair).T
    expected = (1 - angle / math.pi) ** 8
    low, high = (stats.binom.isf(q, tables, expected) for q in (1 - 5e-7, 5e-7))
    assert low <= (one == other).sum() <= high


def test_hashing_is_algorithm_3_on_the_candidates() -> None:
    """A query's answer and prices equal those of a table of its candidates only."""
    rng = np.random.default_rng(3)
    rows, queries = clustered(400, 16, 3, rng), clustered(30, 16, 3, rng).features
    hashing = Hashing.draw(16, rng, tables=4, bits=5)
    codes, asked = hashing.codes(rows.features), hashing.codes(queries)
    for place in range(30):
        among = hashing.candidates(codes, asked[:, place])
        assert 0 < len(among) < 400
        few = Predictor(PARAMETERS, KERNEL, 16)
        budgets = np.full(len(among), 10**11)
        few.add(among + 100, rows.features[among], rows.labels[among], budgets)
        query = queries[place : place + 1]
        hashed = answers(predictor(PARAMETERS, KERNEL, rows, hashing=hashing), query, 1, place)
        assert same(hashed, answers(few, query, 1, place))


def test_released_answers_vote_like_neighbours() -> None:
    """Each later query has the kernels of all nearby earlier queries, under their labels."""
    rng = np.random.default_rng(4)
    rows, queries = clustered(60, 8, 3, rng), clustered(90, 8, 3, rng).features
    made = predictor(PARAMETERS, KERNEL, rows, reuse=True)
    found = answers(made, queries, 90, seed=6)
    left, noise = np.full(60, 10**11), np.random.default_rng(6)
    cosines = {
        (a, b): float(x.astype(float) @ y.astype(float)) / (lengths(x[None]) * lengths(y[None]))[0]
        for a, x in enumerate(queries)
        for b, y in enumerate(queries)
    }
    for place, query in enumerate(queries):
        released = np.zeros(4)
        for earlier in range(place):
            if (kappa := cosines[place, earlier]) >= 0.2:
                released[found[earlier].label] += kappa
                released[-1] += 1
        exact = rows.features.astype(float) @ query.astype(float)
        kappa = exact / (lengths(rows.features) * lengths(query[None])[0])
        near = np.flatnonzero(kappa >= 0.2)
        neighbours = Neighbours(near, kappa[near], rows.labels[near])
        one = answer_query(PARAMETERS, neighbours, left, noise, released=released)
        assert one.label == found[place].label
    assert (made.remaining < PARAMETERS.entry_units).any()  # some could vote no more


def test_reuse_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers beyond the limit do not vote, for any division of the stream into blocks."""
    monkeypatch.setattr("veilring.protocols.prediction.algorithm.directions.REUSED_MAX", 10)
    rng = np.random.default_rng(4)
    rows, queries = clustered(60, 8, 3, rng), clustered(40, 8, 3, rng).features
    found = [
        answers(predictor(PARAMETERS, KERNEL, rows, reuse=True), queries, block, 6)
        for block in (1, 7, 40)
    ]
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize(
    ("field", "given"), [("tables", (0, 8)), ("bits", (3, 9)), ("bits", (3, 0))]
)
def test_invalid_hashing_is_refused(field: str, given: tuple[int, int]) -> None:
    """A code is one byte, there is at least one table, and planes match the features."""
    with pytest.raises(InputError, match=field):
        Hashing.draw(4, np.random.default_rng(0), *given)
    with pytest.raises(InputError, match="hashing"):
        Predictor(PARAMETERS, KERNEL, 5, hashing=Hashing.draw(4, np.random.default_rng(0)))
