"""Prio3: totals are plain sums, steps agree with the draft's listing, arguments are checked."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from Crypto.Hash import TurboSHAKE128
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.protocols.prio.reference import P64, P128, Reference, Valid
from tests.protocols.prio.reference import turbo_shake as listed_shake

from veilring.errors import InputError
from veilring.protocols.prio.algorithm import prio3, xof
from veilring.protocols.prio.algorithm.circuits import Circuit
from veilring.protocols.prio.algorithm.fields import FIELD64, Octets
from veilring.protocols.prio.algorithm.keccak import turbo_shake
from veilring.protocols.prio.algorithm.prio3 import Preparation, Prio3
from veilring.protocols.prio.algorithm.proofs import proof_length, query
from veilring.protocols.prio.algorithm.xof import sample

KEY = bytes(range(16))
PRIVATE = 0xFFFFFFFF
# Each scheme with its listing, and a measurement's shape and largest number.
SCHEMES: dict[str, tuple[Prio3, Reference, tuple[int, ...], int]] = {
    "count": (Prio3.count(), Reference(Valid("count", P64, 1), 0), (), 1),
    "sum": (Prio3.sum_(63), Reference(Valid("sum", P128, 1, bits=63), 1), (), 2**63 - 1),
    "sum_vec": (
        Prio3.sum_vec(3, 30, 7),
        Reference(Valid("sum_vec", P128, 3, 30, 7), 2),
        (3,),
        2**30 - 1,
    ),
    "sum_vec_multiproof": (
        Prio3.sum_vec_multiproof(5, 3, 4, 3),
        Reference(Valid("sum_vec", P64, 5, 3, 4), PRIVATE, 3),
        (5,),
        7,
    ),
    "histogram": (
        Prio3.histogram(11, 3),
        Reference(Valid("histogram", P128, 11, chunk=3), 3),
        (),
        10,
    ),
}
EACH = pytest.mark.parametrize("name", SCHEMES)


def uniform(rng: np.random.Generator, prio: Prio3, reports: int) -> tuple[Octets, Octets]:
    """Return the nonces and the randomness of reports."""
    nonces = rng.integers(0, 256, (reports, 16), dtype=np.uint8)
    return nonces, rng.integers(0, 256, (reports, prio.rand_size), dtype=np.uint8)


def prepared(
    prio: Prio3, nonces: Octets, public: Octets, shares: tuple[Octets, ...]
) -> list[Preparation]:
    """Return the preparations of all aggregators."""
    return [prio.prepare(KEY, i, nonces, public, share) for i, share in enumerate(shares)]


def totals(prio: Prio3, measurements: Any, rng: np.random.Generator) -> list[int]:
    """Return the totals of measurements, all of which are accepted."""
    nonces, rand = uniform(rng, prio, len(measurements))
    public, shares = prio.shard(measurements, nonces, rand)
    preparations = prepared(prio, nonces, public, shares)
    messages, valid = prio.combine(*(each.prep_shares for each in preparations))
    aggregates = []
    for preparation in preparations:
        out_shares, finished = prio.finish(preparation, messages)
        assert (valid & finished).all()
        aggregates.append(prio.aggregate(out_shares, valid & finished))
    return prio.unshard(aggregates, len(measurements))


@EACH
@given(data=st.data(), seed=st.integers(0, 2**32), reports=st.integers(0, 4))
@settings(max_examples=15, deadline=None)
def test_totals_are_plain_sums(name: str, data: st.DataObject, seed: int, reports: int) -> None:
    """Any valid measurements, also none, are accepted, and their total is their sum."""
    prio, _, shape, most = SCHEMES[name]
    size = reports * int(np.prod(shape))
    numbers = data.draw(st.lists(st.integers(0, most), min_size=size, max_size=size))
    measurements = np.array(numbers, dtype=np.int64).reshape(reports, *shape)
    found = totals(prio, measurements, np.random.default_rng(seed))
    if name == "histogram":
        assert found == np.bincount(measurements, minlength=11).tolist()
    else:
        assert found == np.atleast_1d(measurements.astype(object).sum(axis=0)).tolist()


def test_several_ones_add_up() -> None:
    """A histogram of several ones a report counts each of them."""
    rng = np.random.default_rng(3)
    measurements = (rng.random((20, 9)).argsort(axis=1) < rng.integers(0, 5, (20, 1))).astype(int)
    prio = Prio3.multi_hot_histogram(9, 4, 3)
    assert totals(prio, measurements, rng) == measurements.sum(axis=0).tolist()


@EACH
def test_each_step_agrees_with_the_listing(name: str) -> None:
    """Shares, preparations and messages of random measurements are those of the draft's listing."""
    prio, listing, shape, most = SCHEMES[name]
    rng = np.random.default_rng(5)
    measurements = rng.integers(0, most, (2, *shape), endpoint=True)
    nonces, rand = uniform(rng, prio, 2)
    public, shares = prio.shard(measurements, nonces, rand)
    preparations = prepared(prio, nonces, public, shares)
    messages, valid = prio.combine(*(each.prep_shares for each in preparations))
    for i in range(2):
        nonce = nonces[i].tobytes()
        theirs = listing.shard(measurements[i].tolist(), nonce, rand[i].tobytes())
        assert (public[i].tobytes(), tuple(share[i].tobytes() for share in shares)) == theirs
        prep_shares = []
        for aggregator, share in enumerate(theirs[1]):
            of_one = preparations[aggregator]
            out, seed, prep_share = listing.prep_init(KEY, aggregator, nonce, theirs[0], share)
            assert prio.field.integers(of_one.out_shares[..., i]) == out
            assert of_one.joint_seeds[i].tobytes() == seed
            assert of_one.prep_shares[i].tobytes() == prep_share
            prep_shares.append(prep_share)
        assert listing.prep_shares_to_prep(*prep_shares) == messages[i].tobytes()
    assert valid.all()


def test_reports_do_not_depend_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's bytes are the same alone, in a block, and beside reports that do not decode."""
    prio, reports = Prio3.histogram(11, 3), 7
    rng = np.random.default_rng(6)
    nonces, rand = uniform(rng, prio, reports)
    buckets = rng.integers(0, 11, reports)
    public, shares = prio.shard(buckets, nonces, rand)
    first, second = prepared(prio, nonces, public, shares)
    messages, _ = prio.combine(first.prep_shares, second.prep_shares)

    monkeypatch.setattr(prio3, "BLOCK_REPORTS_MAX", 2)
    monkeypatch.setattr(xof, "MANY", 1)
    broken = shares[0].copy()
    broken[3] = 0xFF
    again, whole = prio.shard(buckets, nonces, rand)
    np.testing.assert_array_equal(again, public)
    np.testing.assert_array_equal(whole[0], shares[0])
    leader = prio.prepare(KEY, 0, nonces, public, broken)
    kept = np.arange(reports) != 3
    np.testing.assert_array_equal(leader.valid, kept)
    np.testing.assert_array_equal(leader.prep_shares[kept], first.prep_shares[kept])
    assert not leader.prep_shares[3].any()
    assert not leader.out_shares[..., 3].any()
    found, valid = prio.combine(leader.prep_shares, second.prep_shares)
    np.testing.assert_array_equal(valid, kept)
    np.testing.assert_array_equal(found[kept], messages[kept])
    aggregates = []
    for preparation in (leader, second):
        out_shares, finished = prio.finish(preparation, found)
        np.testing.assert_array_equal(finished, kept)
        aggregates.append(prio.aggregate(out_shares, finished))
    expected = np.bincount(buckets[kept], minlength=11).tolist()
    assert prio.unshard(aggregates, reports - 1) == expected


@EACH
def test_any_bytes_are_refused_without_an_error(name: str) -> None:
    """Rows of random, of zero and of the largest bytes are refused, at each step."""
    prio, rng, reports = SCHEMES[name][0], np.random.default_rng(14), 6

    def junk(size: int) -> Octets:
        found = rng.integers(0, 256, (reports, size), dtype=np.uint8)
        found[0], found[1], found[2:4, :-1] = 0, 255, 255
        return found

    nonces, public = junk(16), junk(prio.public_share_size)
    preparations = prepared(prio, nonces, public, tuple(map(junk, prio.input_share_sizes)))
    messages, valid = prio.combine(*(each.prep_shares for each in preparations))
    accepted = valid & preparations[0].valid & preparations[1].valid
    for each in preparations:
        accepted &= prio.finish(each, messages)[1]
    assert not accepted.any()
    found, valid = prio.combine(junk(prio.prep_share_size), junk(prio.prep_share_size))
    # Two preparation shares of zeros prove 0, if nothing else tells that they are made up.
    assert not valid[1:].any()
    assert not prio.finish(preparations[1], found)[1].any() or not prio.prep_message_size


def test_a_number_above_the_modulus_is_replaced() -> None:
    """An expansion skips numbers that are not below the modulus, and takes the next bytes."""
    # The last of this seed's first 140 numbers is too large: the draft's repository lists it.
    seed = bytes.fromhex("d195ec90c1bcf1f2cb2c7e74c5c5f6da")
    message = np.frombuffer(b"\0" + seed, dtype=np.uint8)[None]
    elements, encoded = sample(FIELD64, 1, np.repeat(message, 2, axis=0), 140)
    for report in range(2):
        assert FIELD64.integers(elements[..., report])[-1] == 9734340616212735019
        assert encoded[report].tobytes() == FIELD64.encode(elements)[report].tobytes()
    shorter, _ = sample(FIELD64, 1, message, 139)
    np.testing.assert_array_equal(shorter, elements[:, :139, :1])


@pytest.mark.parametrize(
    ("size", "length"), [(0, 16), (1, 168), (166, 169), (167, 16), (168, 336), (335, 337), (700, 1)]
)
def test_short_messages_at_once_give_what_the_library_gives(size: int, length: int) -> None:
    """TurboSHAKE128 of rows is the library's, and the listing's, at all ends of its blocks."""
    messages = np.random.default_rng(size).integers(0, 256, (3, size), dtype=np.uint8)
    found = turbo_shake(1, messages, length)
    for row, message in zip(found, messages, strict=True):
        expected = TurboSHAKE128.new(domain=1, data=message.tobytes()).read(length)
        assert row.tobytes() == expected == listed_shake(message.tobytes(), 1, length)


@pytest.mark.parametrize("name", ["sum_vec", "sum_vec_multiproof", "histogram"])
def test_wires_at_a_point_are_sums_of_wires(name: str) -> None:
    """The short cut of the verifiers gives what the general formula gives."""
    circuit, rng = SCHEMES[name][0].circuit, np.random.default_rng(8)

    def drawn(length: int) -> Any:
        return rng.integers(0, 2**62, (circuit.field.words, length, 3), dtype=np.uint64)

    given = drawn(circuit.calls), drawn(circuit.length), drawn(circuit.joint_length)
    found = circuit.wires_at(*given, 2)
    np.testing.assert_array_equal(found, Circuit.wires_at(circuit, *given, 2))


def test_a_point_that_would_reveal_an_output_is_refused() -> None:
    """A query at a root of unity, which shows an output of the gadget, may not be answered."""
    circuit = Prio3.histogram(11, 3).circuit
    field = circuit.field
    points = [field.root(8), pow(field.root(8), 3, field.modulus), 1, 2, 0]
    t = field.elements(points)[:, None]
    x, r = field.zeros(circuit.length, 5), field.zeros(circuit.joint_length, 5)
    _, hiding = query(circuit, x, field.zeros(proof_length(circuit), 5), t, r, shares=2)
    assert hiding.tolist() == [False, False, False, True, True]


def test_each_single_share_is_uniform() -> None:
    """Equal measurements give shares whose elements are uniform, each for itself.

    A chi-square test of each element's highest byte has a false alarm for all of them once in 10^6
    seeds. It refuses the encoded measurements themselves.
    """
    prio, reports = Prio3.sum_vec_multiproof(2, 2, 2, 2), 5000
    nonces, rand = uniform(np.random.default_rng(9), prio, reports)
    _, shares = prio.shard(np.full((reports, 2), 3), nonces, rand)
    tops = [*shares[0][:, 7:-16:8].T, *shares[0][:, -16:].T, *shares[1].T]
    limit = stats.chi2.isf(1e-6 / len(tops), 255)

    def statistic(found: Any) -> float:
        return float(stats.chisquare(np.bincount(found, minlength=256)).statistic)

    assert max(map(statistic, tops)) < limit
    encoded = prio.field.encode(prio.circuit.encode(np.full((reports, 2), 3)))
    assert statistic(encoded[:, 7]) > limit


def test_memory_of_a_preparation_is_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many reports take only the memory of four times the results."""
    monkeypatch.setattr(prio3, "BLOCK_REPORTS_MAX", 128)
    prio = Prio3.sum_vec_multiproof(10, 8, 8, 1)
    peaks = []
    for reports in (256, 1024):
        nonces = np.zeros((reports, 16), dtype=np.uint8)
        share = np.zeros((reports, prio.input_share_sizes[1]), dtype=np.uint8)
        public = np.zeros((reports, prio.public_share_size), dtype=np.uint8)
        tracemalloc.start()
        found = prio.prepare(KEY, 1, nonces, public, share)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        result = found.out_shares.nbytes + found.prep_shares.nbytes + found.joint_seeds.nbytes
    assert peaks[1] - peaks[0] < 2 * result


def test_noise_in_an_aggregate_may_make_a_total_negative() -> None:
    """An aggregate share takes noise, and a total below zero is read as such."""
    prio = Prio3.histogram(3, 2)
    shares = [prio.field.elements([5, 0, 7]), prio.field.elements([-6, 0, -7])]
    noisy = prio.field.add(shares[0], prio.field.elements([0, -2, 4]))
    assert prio.unshard([noisy, shares[1]], 3) == [-1, -2, 4]


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("bits", lambda: Prio3.sum_(0)),
    ("bits", lambda: Prio3.sum_(64)),
    ("bits", lambda: Prio3.sum_vec(2, 64, 1)),
    ("length", lambda: Prio3.sum_vec(0, 8, 1)),
    ("length", lambda: Prio3.histogram(2**20 + 1, 1)),
    ("chunk_length", lambda: Prio3.histogram(4, 5)),
    ("chunk_length", lambda: Prio3.sum_vec(2, 2, 0)),
    ("ones_max", lambda: Prio3.multi_hot_histogram(4, 5, 2)),
    ("proofs", lambda: Prio3.sum_vec_multiproof(2, 2, 2, 256)),
    ("shares", lambda: Prio3.count(shares=1)),
    ("reports", lambda: Prio3.sum_vec_multiproof(1, 63, 8, 2).unshard([], 2)),
    ("shares", lambda: Prio3.count().unshard([Prio3.count().field.zeros(1)], 2)),
]


@pytest.mark.parametrize(("field", "make"), REFUSED)
def test_bad_parameters_are_named(field: str, make: Callable[[], object]) -> None:
    """A parameter out of range is an error that names it."""
    with pytest.raises(InputError) as error:
        make()
    assert error.value.field == field


def test_bad_arguments_are_named() -> None:
    """Arguments of wrong shapes and measurements out of range are errors that name them."""
    prio = Prio3.histogram(4, 2)
    nonces, rand = uniform(np.random.default_rng(0), prio, 2)
    buckets = np.array([0, 3])
    public, shares = prio.shard(buckets, nonces, rand)
    preparation = prio.prepare(KEY, 0, nonces, public, shares[0])
    several = Prio3.multi_hot_histogram(4, 2, 2)
    one = uniform(np.random.default_rng(0), several, 1)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("measurements", lambda: prio.shard(np.array([0, 4]), nonces, rand)),
        ("measurements", lambda: prio.shard(np.array([0, -1]), nonces, rand)),
        ("measurements", lambda: prio.shard(np.array([0.0, 1.0]), nonces, rand)),
        ("measurements", lambda: prio.shard(buckets[:1], nonces, rand)),
        ("measurements", lambda: prio.shard(np.zeros((2, 4), dtype=int), nonces, rand)),
        ("measurements", lambda: several.shard(np.ones((1, 4), dtype=int), *one)),
        ("nonces", lambda: prio.shard(buckets, nonces[:, 1:], rand)),
        ("rand", lambda: prio.shard(buckets, nonces, rand.astype(np.int64))),
        ("verify_key", lambda: prio.prepare(KEY[1:], 0, nonces, public, shares[0])),
        ("aggregator", lambda: prio.prepare(KEY, 2, nonces, public, shares[0])),
        ("input_shares", lambda: prio.prepare(KEY, 1, nonces, public, shares[0])),
        ("public_shares", lambda: prio.prepare(KEY, 0, nonces, public[:1], shares[0])),
        ("prep_shares", lambda: prio.combine(preparation.prep_shares)),
        ("prep_shares", lambda: prio.combine(preparation.prep_shares, public)),
        ("messages", lambda: prio.finish(preparation, public)),
        ("encoded", lambda: prio.decode_aggregate(bytes(63))),
        ("encoded", lambda: prio.decode_aggregate(b"\xff" * 64)),
    ]
    for field, call in calls:
        with pytest.raises(InputError) as error:
            call()
        assert error.value.field == field
