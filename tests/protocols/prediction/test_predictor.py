"""A predictor: equal answers for any blocks, options and devices; no trace of forgotten records."""

import math
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.protocols.prediction.serving import Table, clustered

from veilring.arrays import Floats, Ints
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
    PricedLabel,
    StoredRows,
    answer_query,
)
from veilring.protocols.prediction.algorithm.predictor import Device, Predictor

PARAMETERS = FilterParameters(classes=3, queries=40, budget=0.1, sigma2=0.3)
KERNEL = Kernel("cosine", 0.2)
KERNELS = (KERNEL, Kernel("rbf", 0.7))


TABLE = clustered(360, 24, 3, np.random.default_rng(1))
ROWS, QUERIES = TABLE.take(slice(0, 300)), TABLE.features[300:]
BUDGET = int(PARAMETERS.budget * UNITS)
HASHING = Hashing.draw(24, np.random.default_rng(9), tables=5, bits=4)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"reuse": True},
    {"hashing": HASHING},
    {"hashing": HASHING, "reuse": True},
)
of_kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
of_options = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(options) or "plain"
)


def predictor(
    rows: Table = ROWS, ids: Ints | None = None, kernel: Kernel = KERNEL, **options: Any
) -> Predictor:
    """Return a predictor whose records have full budgets, and the ids 100, 101, ... by default."""
    made = Predictor(PARAMETERS, kernel, rows.features.shape[1], **options)
    names = np.arange(100, 100 + len(rows.labels)) if ids is None else ids
    made.add(names, rows.features, rows.labels, np.full(len(names), BUDGET))
    return made


def answers(
    made: Predictor, queries: NDArray[np.float32], block: int, seed: int = 4
) -> list[PricedLabel]:
    """Answer queries in blocks of the given size."""
    rng, found = np.random.default_rng(seed), list[PricedLabel]()
    for first in range(0, len(queries), block):
        found += made.answer_block(queries[first : first + block], rng)
    return found


def paid(answers: Iterable[PricedLabel]) -> list[tuple[int, dict[int, int]]]:
    """Return the label of each answer, and the payment of each record."""
    return [
        (each.label, dict(zip(each.payers.tolist(), each.units.tolist(), strict=True)))
        for each in answers
    ]


@of_kernels
@of_options
def test_answers_do_not_depend_on_blocks(kernel: Kernel, options: dict[str, Any]) -> None:
    """Blocks of 1, 7 and 1,000 queries give equal labels and payments, to the unit."""
    found = []
    for block in (1, 7, 1000):
        made = predictor(kernel=kernel, **options)
        found.append((paid(answers(made, QUERIES, block)), made.remaining.tolist()))
    assert found[0] == found[1] == found[2]
    assert {label for label, _ in found[0][0]} == {0, 1, 2}


@pytest.mark.parametrize("reuse", [False, True])
def test_a_predictor_is_the_filter_on_exact_kernels(*, reuse: bool) -> None:
    """One query at a time, with 64-bit integers and the filter alone, gives the same.

    With reuse, each query has the kernels of all earlier queries near it, under their labels.
    """
    made, rng = predictor(reuse=reuse), np.random.default_rng(4)
    left, found = np.full(300, BUDGET), list[int]()

    def kernels(one: NDArray[np.float32], query: NDArray[np.float32]) -> Floats:
        dots = one.astype(np.int64) @ query.astype(np.int64)
        return np.asarray(dots / (lengths(one) * lengths(query[None])[0]))

    for answer, query in zip(answers(made, QUERIES, 60), QUERIES, strict=True):
        kappa, again = kernels(ROWS.features, query), kernels(QUERIES[: len(found)], query)
        near, earlier = np.flatnonzero(kappa >= 0.2), again >= 0.2
        votes = np.bincount(np.array(found, int)[earlier], again[earlier], minlength=3)
        released = np.append(votes, earlier.sum()) if reuse else None
        neighbours = Neighbours(near, kappa[near], ROWS.labels[near])
        single = answer_query(PARAMETERS, neighbours, left, rng, released=released)
        assert single.label == answer.label
        assert np.array_equal(single.payers + 100, answer.payers)
        assert np.array_equal(single.units, answer.units)
        found.append(answer.label)
    assert np.array_equal(left, made.remaining)
    assert (left < PARAMETERS.entry_units).any()  # some could vote no more


@of_kernels
@of_options
def test_a_forgotten_record_leaves_no_effect(kernel: Kernel, options: dict[str, Any]) -> None:
    """Answers equal those of a predictor created without it, with the same seed."""
    kept = ~np.isin(np.arange(300), [0, 7, 150, 298, 299])
    made, ids = predictor(kernel=kernel, **options), np.arange(100, 400)
    made.forget(ids[~kept])
    never = predictor(
        Table(ROWS.features[kept], ROWS.labels[kept]), ids[kept], kernel=kernel, **options
    )
    assert paid(answers(made, QUERIES, 16)) == paid(answers(never, QUERIES, 16))
    assert not np.isin(ids[~kept], made.ids).any()


def test_forgetting_in_the_middle_leaves_the_others_budgets() -> None:
    """After a record is forgotten, the others continue with the budgets that they had left."""
    made = predictor()
    answers(made, QUERIES[:20], 20)
    made.forget(np.repeat(np.arange(100, 200), 2))
    left = dict(zip(made.ids.tolist(), made.remaining.tolist(), strict=True))
    taken = predictor(ROWS.take(slice(100, 300)), np.arange(200, 400))
    taken.restock(np.array([left[each] for each in taken.ids.tolist()]))
    assert paid(answers(made, QUERIES[20:], 40)) == paid(answers(taken, QUERIES[20:], 40))


@of_options
def test_nothing_of_a_forgotten_record_is_left(options: dict[str, Any]) -> None:
    """Neither its features nor its kernels are in any array that the predictor holds."""
    made = predictor(**options)
    answers(made, QUERIES, 60)
    rare = ROWS.features[123].tobytes()
    product = inner_products(QUERIES, ROWS.features[123:124]).tobytes()
    assert rare in pickle.dumps(made)
    made.forget(np.array([223]))
    held = pickle.dumps(made)
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
    after = []
    for count in (0, 1, 300):
        rng = np.random.default_rng(4)
        assert len(predictor(ROWS.take(slice(0, count))).answer_block(QUERIES, rng)) == 60
        after.append(rng.random())
    assert len(set(after)) == 1


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
    made = predictor()
    good: dict[str, Any] = {
        "ids": np.array([7, 8]),
        "features": ROWS.features[:2],
        "labels": np.array([0, 1]),
        "remaining": np.array([5, 5]),
    }
    with pytest.raises(InputError) as refused:
        made.add(**(good | change))
    assert refused.value.field == field
    assert len(made) == 300
    made.add(**good)


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
    codes, asked = HASHING.codes(ROWS.features), HASHING.codes(QUERIES)
    for place in range(30):
        among, query = HASHING.candidates(codes, asked[:, place]), QUERIES[place : place + 1]
        assert 0 < len(among) < 300
        few = predictor(Table(ROWS.features[among], ROWS.labels[among]), among + 100)
        hashed = answers(predictor(hashing=HASHING), query, 1, place)
        assert paid(hashed) == paid(answers(few, query, 1, place))


def test_reuse_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers beyond the limit do not vote, for any division of the stream into blocks."""
    monkeypatch.setattr("veilring.protocols.prediction.algorithm.directions.REUSED_MAX", 10)
    found = [paid(answers(predictor(reuse=True), QUERIES, block)) for block in (1, 7, 40)]
    assert found[0] == found[1] == found[2]


MADE, RNG = predictor(), np.random.default_rng(0)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (partial(Hashing.draw, 4, RNG, 0, 8), "tables"),
        *((partial(Hashing.draw, 4, RNG, 3, bits), "bits") for bits in (0, 9)),
        (partial(Predictor, PARAMETERS, KERNEL, 5, hashing=HASHING), "hashing"),
        (partial(MADE.forget, np.array([100, 5])), "unknown id"),
        (partial(MADE.answer_block, QUERIES / np.float32(3), RNG), "queries"),
        (partial(MADE.answer_block, QUERIES[:, 1:], RNG), "queries"),
        (partial(MADE.answer_block, 0 * QUERIES, RNG), "queries"),
    ],
)
def test_invalid_arguments_are_refused(act: Callable[[], object], message: str) -> None:
    """A code is one byte; no unknown record is forgotten; no query divides by zero or rounds."""
    with pytest.raises(InputError, match=message):
        act()
    assert len(MADE) == 300


@pytest.mark.parametrize("library", [np, array_api_strict], ids=["numpy", "array-api-strict"])
def test_a_device_gives_the_same_answers_and_keeps_nothing(library: Any) -> None:
    """Labels and payments are equal after any change, which overwrites its copy of the rows."""
    sent = list[Any]()

    def asarray(array: NDArray[np.float32]) -> Any:
        sent.append(library.asarray(array))
        return sent[-1]

    def copies() -> list[NDArray[np.float32]]:
        return [np.asarray(each) for each in sent if each.shape[0] > 256]  # no query or trial

    device = Device(SimpleNamespace(asarray=asarray, matmul=library.matmul))
    made, new = [predictor(device=each) for each in (None, device)], TABLE.take(slice(330, 360))
    for gone in ([105], [100, 250], []):
        one, other = (answers(each, QUERIES[:30], 16) for each in made)
        assert paid(one) == paid(other)
        assert copies()[-1].any()
        for each in made:
            each.forget(np.array(gone, np.int64))
            if not gone:
                each.add(np.arange(30), new.features, new.labels, np.full(30, BUDGET))
        assert not any(copy.any() for copy in copies())
    one, other = (answers(each, QUERIES[:30], 16) for each in made)
    assert paid(one) == paid(other)
    assert [len(copy) for copy in copies()] == [300, 299, 297, 327]


@pytest.mark.parametrize("features", [16, 64, 768])
def test_a_device_that_rounds_is_refused(features: int) -> None:
    """A device with ten bits of mantissa, like TF32, is detected before any query."""

    def rounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
        bits = np.ascontiguousarray(array).view(np.int32)
        return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(np.float32)

    def matmul(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
        return rounded(one) @ rounded(other)

    coarse = SimpleNamespace(asarray=np.asarray, matmul=matmul)
    rows = clustered(20, features, 3, np.random.default_rng(1)).features
    with pytest.raises(InputError, match="device"):
        Device(coarse).products(rows, rows)
