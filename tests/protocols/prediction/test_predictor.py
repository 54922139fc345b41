"""A predictor and its kernels: exact for any blocks and devices; nothing forgotten is left."""

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
from veilring.privacy.accounting import ZCDP
from veilring.privacy.budgets import UNITS, to_units
from veilring.protocols.prediction.algorithm.directions import (
    LENGTH,
    LENGTH_MAX,
    WIDTH_MAX,
    Hashing,
    Kernel,
    inner_products,
    lengths,
    private_mean,
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
    made.forget(np.repeat(ids[~kept], 2))
    never = predictor(
        Table(ROWS.features[kept], ROWS.labels[kept]), ids[kept], kernel=kernel, **options
    )
    assert paid(answers(made, QUERIES, 16)) == paid(answers(never, QUERIES, 16))
    assert not np.isin(ids[~kept], made.ids).any()


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


ONES = np.ones((1, 2))
UNKNOWN: Any = "k"
MADE, RNG = predictor(), np.random.default_rng(0)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (partial(quantise, np.zeros((2, 3))), "features"),
        (partial(quantise, np.full((1, 3), np.nan)), "features"),
        (partial(quantise, np.zeros(3)), "features"),
        (partial(quantise, np.ones((2, 0))), "features"),
        (partial(quantise, np.array([["3", "secret"]], object)), "features must be numbers"),
        (partial(quantise, ONES, np.zeros(3)), "origin must be finite"),
        (partial(private_mean, ONES, 0.0, np.random.default_rng(0)), "sigma"),
        (partial(Kernel, tau=0.0), "tau"),
        (partial(Kernel, tau=1.1), "tau"),
        (partial(Kernel, width=0.0), "width"),
        (partial(Kernel, width=1e13), "width"),
        (partial(Kernel, UNKNOWN), "kernel"),
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
    """The error names the field and shows no value, not even through NumPy's own error.

    A row that is not a neighbour must not vote, so τ is above 0; a code is one byte; no query
    divides by zero; and no record is forgotten beside an unknown one.
    """
    with pytest.raises(InputError, match=message) as refused:
        act()
    assert refused.value.__context__ is None
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
    added = (np.arange(30), new.features, new.labels, np.full(30, BUDGET))
    for change, arguments in (
        (Predictor.forget, (np.array([105]),)),
        (Predictor.forget, (np.array([100, 250]),)),
        (Predictor.add, added),
        (Predictor.forget, (np.arange(30),)),
    ):
        one, other = (paid(answers(each, QUERIES[:30], 16)) for each in made)
        assert one == other
        assert copies()[-1].any()
        for each in made:
            change(each, *arguments)
        assert not any(copy.any() for copy in copies())
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


def _rows(seed: int, rows: int, features: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return quantise(rng.standard_normal((rows, features)) * rng.exponential(1, (rows, 1)))


def _neighbours(
    kernel: Kernel, query: NDArray[np.float32], rows: NDArray[np.float32]
) -> tuple[list[int], list[float]]:
    products, length = inner_products(query, rows)[0], float(lengths(query)[0])
    near, kappa = kernel.neighbours(products, lengths(rows), length)
    return near.tolist(), kappa.tolist()


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 400))
def test_every_partial_sum_fits_single_precision(seed: int, rows: int, features: int) -> None:
    """Rows are integers of bounded length, so no subset of terms exceeds 2**24."""
    whole = _rows(seed, rows, features)
    assert np.array_equal(whole, np.rint(whole))
    assert (lengths(whole) <= LENGTH_MAX).all()
    terms = whole.astype(np.int64)[:, None] * whole.astype(np.int64)[None]
    assert max(terms.clip(min=0).sum(axis=2).max(), -terms.clip(max=0).sum(axis=2).min()) <= 2**24


def test_a_row_too_long_after_rounding_is_shortened() -> None:
    """Entries of 7.505 rounded to 8 would make a row of length 4360, and become 7."""
    assert LENGTH_MAX < 8 * 297_000**0.5
    assert np.array_equal(quantise(np.ones((1, 297_000))), np.full((1, 297_000), 7))


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_products_are_exact_for_any_block(seed: int, rows: int) -> None:
    """One query, a block, some rows only, and 64-bit integers give equal bits."""
    whole, queries = _rows(seed, rows, 129), _rows(seed + 1, 9, 129)
    exact = queries.astype(np.int64) @ whole.astype(np.int64).T
    block = inner_products(queries, whole)
    assert block.dtype == np.float32
    assert np.array_equal(block, exact)
    single = np.vstack([inner_products(query[None], whole) for query in queries])
    assert block.tobytes() == single.tobytes()
    assert np.array_equal(inner_products(queries, whole[::2]), exact[:, ::2])


def test_directions_are_kept_to_a_step() -> None:
    """A quantised row is within half a step of the scaled row, in every feature."""
    rows = np.random.default_rng(3).standard_normal((500, 64))
    scaled = rows * (LENGTH / np.linalg.norm(rows, axis=1, keepdims=True))
    assert np.abs(quantise(rows) - scaled).max() <= 0.5
    assert np.array_equal(quantise(rows), quantise(rows.astype(np.float64) * 7))


def test_an_origin_is_subtracted_from_unit_rows() -> None:
    """Directions are those from the origin, which is in the unit of directions."""
    rows, origin = np.array([[3.0, 4.0], [10.0, 0.0]]), np.array([0.6, 0.0])
    assert np.array_equal(quantise(rows, origin), [[0, LENGTH], [LENGTH, 0]])


def test_a_row_moves_the_mean_by_at_most_its_sensitivity() -> None:
    """The sum of directions and the count change by √2 in L2, up to the longest quantised row."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((200, 17))
    for left_out in range(20):
        fewer = np.delete(rows, left_out, axis=0)
        sums = [np.append(quantise(each).sum(axis=0) / LENGTH, len(each)) for each in (rows, fewer)]
        # The noise is scaled by LENGTH_MAX / LENGTH, which is more than this ever exceeds √2.
        assert np.linalg.norm(sums[0] - sums[1]) <= np.sqrt(2) * LENGTH_MAX / LENGTH


def test_the_mean_is_charged_and_unbiased() -> None:
    """Its price is that of a Gaussian of its sensitivity, and its error that of the noise."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((4000, 50)) + 2
    released = private_mean(rows, 20.0, rng)
    assert released.units == to_units(ZCDP.of_gaussian(20.0, np.sqrt(2)).rho)
    assert 1 / 400 <= released.price <= 1 / 400 + 1e-11
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    error = released.mean - unit.mean(axis=0)
    # Noise alone: 50 coordinates of 20 / 4000, and the count's; Laurent and Massart 2000 bound a
    # chi-square of 51 by 51 + 2 sqrt(51 x) + 2 x, except with probability e**-x, at x = 14 (1e-6).
    limit = (LENGTH_MAX / LENGTH * 20 / 4000) * np.sqrt(51 + 2 * np.sqrt(51 * 14) + 28)
    assert np.linalg.norm(error) <= limit + 50**0.5 / LENGTH
    assert np.linalg.norm(error) > 0


@pytest.mark.parametrize("width", [1.0, 1e3, WIDTH_MAX])
def test_no_neighbour_depends_on_other_rows(width: float) -> None:
    """Rows at the very edge are judged alone as among others, up to the widest kernel."""
    features, rng = 50, np.random.default_rng(0)
    query = quantise(rng.standard_normal((1, features)))
    unit = query / np.linalg.norm(query)
    aside = rng.standard_normal((1, features))
    aside -= (aside @ unit.T) * unit
    edge = 0.3 * unit + math.sqrt(1 - 0.3**2) * aside / np.linalg.norm(aside)
    rows = quantise(edge + rng.standard_normal((4000, features)) * 2e-4)
    kernel = Kernel("rbf", math.exp(2 * (0.3 - 1) / width), width)
    together, _ = _neighbours(kernel, query, rows)
    alone = [
        place for place in range(len(rows)) if _neighbours(kernel, query, rows[[place]])[0] == [0]
    ]
    assert together == alone
    assert 1000 < len(alone) < 3000


@given(
    st.integers(0, 2**32),
    st.integers(0, 80),
    st.integers(1, 6),
    st.builds(
        Kernel, st.sampled_from(["cosine", "rbf"]), st.floats(1e-6, 1.0), st.floats(0.05, 20)
    ),
)
def test_neighbours_are_all_rows_with_a_kernel_of_at_least_tau(
    seed: int, rows: int, features: int, kernel: Kernel
) -> None:
    """Sorting rows out beforehand neither omits nor adds a neighbour."""
    rng = np.random.default_rng(seed)
    table, query = (quantise(rng.standard_normal((count, features))) for count in (rows, 1))
    products = inner_products(query, table)[0].astype(np.float64)
    values = products / (lengths(table) * lengths(query)[0])
    if kernel.name == "rbf":  # exp(-|x - q|² / ν²) of unit vectors
        values = np.array([math.exp(2 * (each - 1) / kernel.width) for each in values.tolist()])
    near, kappa = _neighbours(kernel, query, table)
    assert near == np.flatnonzero(values >= kernel.tau).tolist()
    assert kappa == values[near].tolist()


def test_a_row_at_the_threshold_is_a_neighbour() -> None:
    """κ ≥ τ includes equality: a query with itself at τ = 1, and right angles in an RBF.

    The paper's ν² is e^1.5.
    """
    itself = quantise(np.array([[3.0, 4.0]]))
    assert _neighbours(Kernel("cosine", 1.0), itself, itself)[0] == [0]
    right = Kernel("rbf", math.exp(-2 / 3.0), 3.0)
    near, _ = right.neighbours(np.zeros(1, np.float32), np.array([4090.0]), 4090.0)
    assert near.tolist() == [0]
    assert Kernel("rbf").width == math.exp(1.5)


@pytest.mark.parametrize("width", [5e-324, 1e-20, 1e-15])
def test_a_narrow_kernel_is_at_most_one_for_rounded_cosines(width: float) -> None:
    """Rounding makes some cosines larger than 1; their kernels neither overflow nor exceed 1."""
    rows = quantise(np.random.default_rng(0).standard_normal((3000, 5)))
    assert (np.square(rows).sum(axis=1) / np.square(lengths(rows)) > 1).any()
    for row in rows[:, None]:
        _, values = _neighbours(Kernel("rbf", 0.5, width), row, row)
        assert max(values, default=0.0) <= 1.0
