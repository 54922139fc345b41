"""A predictor: equal answers for any blocks, and no trace of forgotten records."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.prediction.streams import Table, answers, clustered, predictor, same

from veilring.errors import InputError
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import (
    Hashing,
    Kernel,
    inner_products,
    lengths,
)
from veilring.protocols.prediction.algorithm.filter import (
    FilterParameters,
    Neighbours,
    StoredRows,
    answer_query,
)
from veilring.protocols.prediction.algorithm.predictor import Predictor

PARAMETERS = FilterParameters(classes=3, queries=40, budget=0.1, sigma2=0.3)
KERNELS = (Kernel("cosine", 0.2), Kernel("rbf", 0.7))


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


def test_a_predictor_is_the_filter_on_exact_kernels() -> None:
    """One query at a time, with 64-bit integers and the filter alone, gives the same."""
    rows, queries = _tables()
    made, rng = predictor(PARAMETERS, KERNELS[0], rows), np.random.default_rng(4)
    left = np.full(300, int(PARAMETERS.budget * UNITS))
    for answer, query in zip(answers(made, queries.features, 60, 4), queries.features, strict=True):
        dots = rows.features.astype(np.int64) @ query.astype(np.int64)
        kappa = dots / (lengths(rows.features) * lengths(query[None])[0])
        near = np.flatnonzero(kappa >= 0.2)
        single = answer_query(
            PARAMETERS, Neighbours(near, kappa[near], rows.labels[near]), left, rng
        )
        assert single.label == answer.label
        assert np.array_equal(single.payers + 100, answer.payers)
        assert np.array_equal(single.units, answer.units)
    assert np.array_equal(left, made.remaining)


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
    made, rng = predictor(PARAMETERS, KERNELS[0], rows), np.random.default_rng(4)
    made.answer_block(queries.features[:20], rng)
    made.forget(np.arange(100, 200))
    left = dict(zip(made.ids.tolist(), made.remaining.tolist(), strict=True))
    taken = Predictor(PARAMETERS, KERNELS[0], 24)
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
    made = predictor(PARAMETERS, KERNELS[0], rows, **options)
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
        before = rows.features
        fresh = clustered(size, 5, 3, rng)
        ids = np.arange(following, following + size)
        following += size
        rows.add(ids, fresh.features, fresh.labels, ids * 10)
        for id_, row, label in zip(ids.tolist(), fresh.features, fresh.labels, strict=True):
            expected[id_] = (row.tobytes(), int(label))
        assert not before.any() or np.shares_memory(before, rows.features)
        gone = np.flatnonzero(rng.random(len(rows)) < 0.3)
        for id_ in rows.ids[gone].tolist():
            del expected[id_]
        whole = rows.features
        rows.forget(gone)
        assert not whole[len(rows) :].any()
        held = zip(rows.ids.tolist(), rows.features, rows.labels.tolist(), strict=True)
        assert {id_: (row.tobytes(), label) for id_, row, label in held} == expected
        assert np.array_equal(rows.remaining, rows.ids * 10)
        assert np.array_equal(rows.codes, hashing.codes(rows.features))
        assert np.array_equal(rows.lengths, lengths(rows.features))


def test_noise_does_not_depend_on_the_records() -> None:
    """For any table, equal numbers of queries draw equal numbers of random values."""
    rows, queries = _tables()
    after = []
    for count in (0, 1, 300):
        rng = np.random.default_rng(4)
        made = predictor(PARAMETERS, KERNELS[0], rows.take(slice(0, count)))
        assert len(made.answer_block(queries.features, rng)) == 60
        after.append(rng.random())
    assert len(set(after)) == 1


def test_an_added_record_takes_part_with_its_remaining_budget() -> None:
    """It pays from the next query on; a record without budget does not."""
    rows, queries = _tables()
    made = predictor(PARAMETERS, KERNELS[0], rows)
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
    made = predictor(PARAMETERS, KERNELS[0], rows)
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
    made = predictor(PARAMETERS, KERNELS[0], rows)
    with pytest.raises(InputError, match="unknown id"):
        made.forget(np.array([100, 5]))
    assert len(made) == 300
    made.forget(np.array([100, 100]))
    assert len(made) == 299


def test_queries_that_are_not_quantised_are_refused() -> None:
    """No query can cause an inexact product or a division by zero."""
    rows, queries = _tables()
    made = predictor(PARAMETERS, KERNELS[0], rows)
    for bad in (queries.features / np.float32(3), queries.features[:, 1:], 0 * queries.features):
        with pytest.raises(InputError, match="queries"):
            made.answer_block(bad, np.random.default_rng(0))
