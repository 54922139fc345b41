"""A predictor: equal answers for any blocks, options and devices; no trace of forgotten records."""

import math
import pickle
from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.prediction.serving import Table, answers, clustered, predictor, same

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import (
    Hashing,
    Kernel,
    inner_products,
    lengths,
    quantise,
)
from veilring.protocols.prediction.algorithm.filter import (
    FilterParameters,
    Neighbours,
    StoredRows,
    answer_query,
)
from veilring.protocols.prediction.algorithm.predictor import Device, Predictor

PARAMETERS = FilterParameters(classes=3, queries=40, budget=0.1, sigma2=0.3)
KERNEL = Kernel("cosine", 0.2)
KERNELS = (KERNEL, Kernel("rbf", 0.7))


def _tables(seed: int = 1) -> tuple[Table, Table]:
    table = clustered(360, 24, 3, np.random.default_rng(seed))
    return table.take(slice(0, 300)), table.take(slice(300, 360))


def _hashing(bits: int = 4) -> Hashing:
    return Hashing.draw(24, np.random.default_rng(9), tables=5, bits=bits)


OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"reuse": True},
    {"hashing": _hashing()},
    {"hashing": _hashing(), "reuse": True},
)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_answers_do_not_depend_on_blocks(kernel: Kernel, options: dict[str, object]) -> None:
    """Blocks of 1, 7 and 1,000 queries give equal labels and payments, to the unit."""
    rows, queries = _tables()
    found = []
    for block in (1, 7, 1000):
        made = predictor(PARAMETERS, kernel, rows, **options)
        found.append((answers(made, queries.features, block, seed=4), made.remaining))
    for each, remaining in found[1:]:
        assert same(found[0][0], each)
        assert np.array_equal(found[0][1], remaining)
    assert len({answer.label for answer in found[0][0]}) == 3


@pytest.mark.parametrize("reuse", [False, True])
def test_a_predictor_is_the_filter_on_exact_kernels(*, reuse: bool) -> None:
    """One query at a time, with 64-bit integers and the filter alone, gives the same.

    With reuse, each query has the kernels of all earlier queries near it, under their labels.
    """
    rows, queries = _tables()
    made, rng = predictor(PARAMETERS, KERNEL, rows, reuse=reuse), np.random.default_rng(4)
    left, found = np.full(300, int(PARAMETERS.budget * UNITS)), list[int]()

    def kernels(one: NDArray[np.float32], query: NDArray[np.float32]) -> Floats:
        dots = one.astype(np.int64) @ query.astype(np.int64)
        return np.asarray(dots / (lengths(one) * lengths(query[None])[0]))

    for answer, query in zip(answers(made, queries.features, 60, 4), queries.features, strict=True):
        kappa, earlier = kernels(rows.features, query), queries.features[: len(found)]
        near, again = np.flatnonzero(kappa >= 0.2), kernels(earlier, query)
        votes = np.bincount(np.array(found, int)[again >= 0.2], again[again >= 0.2], minlength=3)
        released = np.append(votes, (again >= 0.2).sum())
        neighbours = Neighbours(near, kappa[near], rows.labels[near])
        single = answer_query(
            PARAMETERS, neighbours, left, rng, released=released if reuse else None
        )
        assert single.label == answer.label
        assert np.array_equal(single.payers + 100, answer.payers)
        assert np.array_equal(single.units, answer.units)
        found.append(answer.label)
    assert np.array_equal(left, made.remaining)
    assert (left < PARAMETERS.entry_units).any()  # some could vote no more


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_a_forgotten_record_leaves_no_effect(kernel: Kernel, options: dict[str, Any]) -> None:
    """Answers equal those of a predictor created without it, with the same seed."""
    rows, queries = _tables()
    kept = np.ones(300, np.bool_)
    kept[[0, 7, 150, 298, 299]] = False
    made = predictor(PARAMETERS, kernel, rows, **options)
    made.forget(np.flatnonzero(~kept) + 100)
    never = Predictor(PARAMETERS, kernel, 24, **options)
    budgets = np.full(295, int(PARAMETERS.budget * UNITS))
    never.add(np.flatnonzero(kept) + 100, rows.features[kept], rows.labels[kept], budgets)
    one, other = (answers(each, queries.features, 16, 4) for each in (made, never))
    assert same(one, other)
    assert not np.isin(np.flatnonzero(~kept) + 100, made.ids).any()


def test_forgetting_in_the_middle_leaves_the_others_budgets() -> None:
    """After a record is forgotten, the others continue with the budgets that they had left."""
    rows, queries = _tables()
    made, rng = predictor(PARAMETERS, KERNEL, rows), np.random.default_rng(4)
    made.answer_block(queries.features[:20], rng)
    made.forget(np.arange(100, 200))
    left = dict(zip(made.ids.tolist(), made.remaining.tolist(), strict=True))
    taken = Predictor(PARAMETERS, KERNEL, 24)
    ids = np.arange(200, 400)
    taken.add(ids, rows.features[100:], rows.labels[100:], np.array([left[each] for each in ids]))
    state = rng.bit_generator.state
    one = made.answer_block(queries.features[20:], rng)
    rng.bit_generator.state = state
    assert same(one, taken.answer_block(queries.features[20:], rng))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_nothing_of_a_forgotten_record_is_left(options: dict[str, object]) -> None:
    """Neither its features nor its kernels are in any array that the predictor holds."""
    rows, queries = _tables()
    made = predictor(PARAMETERS, KERNEL, rows, **options)
    made.answer_block(queries.features, np.random.default_rng(4))
    rare = rows.features[123].tobytes()
    product = inner_products(queries.features, rows.features[123:124]).tobytes()
    held = pickle.dumps(made)
    assert rare in held
    made.forget(np.array([223]))
    held = pickle.dumps(made)
    assert rare not in held
    assert rare[:12] not in held
    assert not any(product[at : at + 4] in held for at in range(0, 4 * 60, 4) if product[at + 2])
    assert 223 not in made.ids


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(0, 2**32))
def test_rows_are_those_added_and_not_forgotten(sizes: list[int], seed: int) -> None:
    """After any additions and removals, each id has its row, and free slots are zero."""
    rng, hashing = np.random.default_rng(seed), Hashing.draw(5, np.random.default_rng(0), 3, 4)
    rows, expected, following = StoredRows(5, hashing), dict[int, tuple[bytes, int]](), 1
    for size in sizes:
        before = rows.live.features
        fresh = clustered(size, 5, 3, rng)
        ids = np.arange(following, following + size)
        following += size
        rows.add(ids, fresh.features, fresh.labels, ids * 10)
        for id_, row, label in zip(ids.tolist(), fresh.features, fresh.labels, strict=True):
            expected[id_] = (row.tobytes(), int(label))
        assert not before.any() or np.shares_memory(before, rows.live.features)
        gone = np.flatnonzero(rng.random(len(rows)) < 0.3)
        for id_ in rows.live.ids[gone].tolist():
            del expected[id_]
        whole = rows.live.features
        rows.forget(gone)
        assert not whole[len(rows) :].any()
        live = rows.live
        held = zip(live.ids.tolist(), live.features, live.labels.tolist(), strict=True)
        assert {id_: (row.tobytes(), label) for id_, row, label in held} == expected
        assert np.array_equal(live.remaining, live.ids * 10)
        assert np.array_equal(live.codes, hashing.codes(live.features))
        assert np.array_equal(live.lengths, lengths(live.features))


def test_noise_does_not_depend_on_the_records() -> None:
    """For any table, equal numbers of queries draw equal numbers of random values."""
    rows, queries = _tables()
    after = []
    for count in (0, 1, 300):
        rng = np.random.default_rng(4)
        made = predictor(PARAMETERS, KERNEL, rows.take(slice(0, count)))
        assert len(made.answer_block(queries.features, rng)) == 60
        after.append(rng.random())
    assert len(set(after)) == 1


def test_an_added_record_takes_part_with_its_remaining_budget() -> None:
    """It pays from the next query on; a record without budget does not."""
    rows, queries = _tables()
    made = predictor(PARAMETERS, KERNEL, rows)
    twins = np.vstack([queries.features[:1]] * 2)
    made.add(np.array([1, 2]), twins, np.array([0, 0]), np.array([UNITS, 0]))
    (answer,) = made.answer_block(queries.features[:1], np.random.default_rng(0))
    assert 1 in answer.payers
    assert 2 not in answer.payers


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("ids", {"ids": np.array([100, 7])}),
        ("ids", {"ids": np.array([7, 7])}),
        ("ids", {"ids": np.array([7])}),
        ("labels", {"labels": np.array([0, 3])}),
        ("labels", {"labels": np.array([0, -1])}),
        ("labels", {"labels": np.array([0.0, 1.0])}),
        ("remaining", {"remaining": np.array([0, -1])}),
        ("features", {"features": np.ones((2, 23), np.float32)}),
        ("features", {"features": np.full((2, 24), 0.5, np.float32)}),
        ("features", {"features": np.zeros((2, 24), np.float32)}),
        ("features", {"features": np.full((2, 24), 4096, np.float32)}),
        ("features", {"features": np.full((2, 24), np.nan, np.float32)}),
    ],
)
def test_invalid_rows_are_refused_together(field: str, change: dict[str, Any]) -> None:
    """The error names the field and shows no value, and nothing was added."""
    rows, _ = _tables()
    made = predictor(PARAMETERS, KERNEL, rows)
    good: dict[str, Any] = {
        "ids": np.array([7, 8]),
        "features": rows.features[:2],
        "labels": np.array([0, 1]),
        "remaining": np.array([5, 5]),
    }
    with pytest.raises(InputError) as refused:
        made.add(**(good | change))
    assert refused.value.field == field
    assert len(made) == 300
    made.add(**good)


def test_unknown_records_cannot_be_forgotten() -> None:
    """If any id is unknown, no record is forgotten; an id may be given twice."""
    rows, _ = _tables()
    made = predictor(PARAMETERS, KERNEL, rows)
    with pytest.raises(InputError, match="unknown id"):
        made.forget(np.array([100, 5]))
    assert len(made) == 300
    made.forget(np.array([100, 100]))
    assert len(made) == 299


def test_queries_that_are_not_quantised_are_refused() -> None:
    """No query can cause an inexact product or a division by zero."""
    rows, queries = _tables()
    made = predictor(PARAMETERS, KERNEL, rows)
    for bad in (queries.features / np.float32(3), queries.features[:, 1:], 0 * queries.features):
        with pytest.raises(InputError, match="queries"):
            made.answer_block(bad, np.random.default_rng(0))


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


class _Sent:
    """Keeps the arrays sent to a library."""

    def __init__(self, library: Any) -> None:
        self._library, self.held = library, list[Any]()

    def asarray(self, array: NDArray[np.float32]) -> Any:
        self.held.append(self._library.asarray(array))
        return self.held[-1]

    def matmul(self, one: Any, other: Any) -> Any:
        return self._library.matmul(one, other)


@pytest.mark.parametrize("library", [np, array_api_strict], ids=["numpy", "array-api-strict"])
def test_a_device_gives_the_same_answers(library: Any) -> None:
    """Labels and payments are equal, even after rows were added and forgotten."""
    rng = np.random.default_rng(1)
    rows, queries = clustered(200, 30, 3, rng), clustered(40, 30, 3, rng).features
    made = [
        predictor(PARAMETERS, KERNEL, rows, device=device) for device in (None, Device(library))
    ]
    for change in ([], [105], [100, 250]):
        for each in made:
            each.forget(np.array(change, np.int64))
        one, other = (answers(each, queries, 16, seed=2) for each in made)
        assert same(one, other)


def test_nothing_is_left_on_the_device() -> None:
    """The copy of the rows is overwritten when one of them is forgotten."""
    rng = np.random.default_rng(1)
    rows, queries = clustered(50, 8, 3, rng), clustered(3, 8, 3, rng).features
    sent = _Sent(np)
    made = predictor(PARAMETERS, KERNEL, rows, device=Device(sent))
    answers(made, queries, 3, seed=2)
    copies = [each for each in sent.held if each.shape == (50, 8)]
    assert len(copies) == 1
    assert np.array_equal(copies[0], rows.features)
    made.forget(np.array([110]))
    assert not copies[0].any()
    assert np.array_equal(made.ids[:10], np.arange(100, 110))


@pytest.mark.parametrize("features", [16, 64, 768])
def test_a_device_that_rounds_is_refused(features: int) -> None:
    """A device with ten bits of mantissa, like TF32, is detected before any query."""

    def rounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
        bits = np.ascontiguousarray(array).view(np.int32)
        return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(np.float32)

    coarse = SimpleNamespace(
        asarray=np.asarray, matmul=lambda one, other: rounded(one) @ rounded(other)
    )
    rows = clustered(20, features, 3, np.random.default_rng(1)).features
    with pytest.raises(InputError, match="device"):
        Device(coarse).products(rows, rows)
