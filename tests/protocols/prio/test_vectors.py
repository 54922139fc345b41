"""The draft's test vectors: each step gives their bytes, and each changed bit is noticed."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from tests.protocols.prio.vectors import DATA, NAMES, Batch, batch_of, load, one_bit_each, rows

from veilring.protocols.prio.algorithm.fields import FIELD128, Octets
from veilring.protocols.prio.algorithm.keccak import turbo_shake
from veilring.protocols.prio.algorithm.xof import sample, squeeze


@pytest.mark.parametrize("name", NAMES)
def test_each_step_gives_the_bytes_of_the_draft(name: str) -> None:
    """Shards, preparations, messages, output shares, aggregate shares and totals are equal."""
    vector = load(name)
    prio, nonces = vector.prio, vector.each("nonce")
    public, inputs = prio.shard(vector.measurements, nonces, vector.each("rand"))
    np.testing.assert_array_equal(public, vector.each("public_share"))
    preparations = []
    for aggregator, share in enumerate(inputs):
        np.testing.assert_array_equal(share, vector.of("input_shares", aggregator))
        found = prio.prepare(vector.verify_key, aggregator, nonces, public, share)
        assert found.valid.all()
        np.testing.assert_array_equal(found.prep_shares, vector.of("prep_shares", aggregator))
        preparations.append(found)
    messages, valid = prio.combine(*(found.prep_shares for found in preparations))
    assert valid.all()
    np.testing.assert_array_equal(messages, vector.messages)
    aggregates = []
    for aggregator, found in enumerate(preparations):
        shares, valid = prio.finish(found, messages)
        assert valid.all()
        encoded = prio.field.encode(shares)
        np.testing.assert_array_equal(encoded, vector.of("out_shares", aggregator))
        aggregate = prio.encode_aggregate(prio.aggregate(shares, valid))
        assert aggregate.hex() == vector.data["agg_shares"][aggregator]
        assert len(aggregate) == prio.aggregate_share_size
        aggregates.append(prio.decode_aggregate(aggregate))
    result = vector.data["agg_result"]
    assert prio.unshard(aggregates, len(nonces)) == np.atleast_1d(result).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_of_the_draft(name: str) -> None:
    """The stated sizes are those of the vectors' rows."""
    vector = load(name)
    prio, everyone = vector.prio, range(vector.shares)
    assert prio.rand_size == vector.each("rand").shape[1]
    assert prio.public_share_size == vector.each("public_share").shape[1]
    assert prio.prep_message_size == vector.messages.shape[1]
    assert prio.input_share_sizes == tuple(vector.of("input_shares", i).shape[1] for i in everyone)
    assert {prio.prep_share_size} == {vector.of("prep_shares", i).shape[1] for i in everyone}


def test_expansion_is_that_of_the_draft() -> None:
    """The vector of the XOF gives its seed and its field elements."""
    data = json.loads((DATA / "XofTurboShake128.json").read_text(encoding="utf-8"))
    seed, dst, binder = (bytes.fromhex(data[name]) for name in ("seed", "dst", "binder"))
    message = rows([(bytes([len(dst)]) + dst + seed + binder).hex()])
    derived = bytes.fromhex(data["derived_seed"])
    for xof in (squeeze, turbo_shake):
        assert xof(1, message, 16).tobytes() == derived
    elements, encoded = sample(FIELD128, 1, message, data["length"])
    assert encoded.tobytes().hex() == data["expanded_vec_field128"]
    assert FIELD128.encode(elements).tobytes() == encoded.tobytes()


def changed(rows: list[Octets], which: int, bits: Octets) -> list[Octets]:
    """Return rows of all aggregators, of which those of one are changed."""
    return [each ^ bits if i == which else each for i, each in enumerate(rows)]


def refused(batch: Batch, change: Sequence[Octets] = (), messages: Octets | None = None) -> None:
    """Hold that no report of a batch is accepted."""
    accepted, _ = batch.accepted(change, messages)
    assert not accepted.any()


@pytest.mark.parametrize("name", NAMES)
def test_each_changed_bit_is_refused(name: str) -> None:
    """No report is accepted with one bit changed in any byte of anything that one party sent.

    A byte is one of the public share, an input share, a preparation share or a message, or of the
    nonce or the key at one of the aggregators.
    """
    vector = load(name)
    prio, everyone = vector.prio, range(vector.shares)
    assert batch_of(vector, 0, 1).accepted()[0].all()
    for size in filter(None, [prio.public_share_size]):
        batch = batch_of(vector, 0, size)
        batch.public = [public ^ one_bit_each(size) for public in batch.public]
        refused(batch)
    for size in filter(None, [prio.prep_message_size]):
        refused(batch_of(vector, 0, 1), messages=one_bit_each(size))
    for aggregator in everyone:
        size = prio.input_share_sizes[aggregator]
        batch = batch_of(vector, 0, size)
        batch.inputs = changed(batch.inputs, aggregator, one_bit_each(size))
        refused(batch)
        batch = batch_of(vector, 0, 16)
        batch.nonces = changed(batch.nonces, aggregator, one_bit_each(16))
        refused(batch)
        size = prio.prep_share_size
        nothing = np.zeros((size, size), dtype=np.uint8)
        change = changed([nothing] * vector.shares, aggregator, one_bit_each(size))
        refused(batch_of(vector, 0, 1), change)
    for position in range(16):
        batch = batch_of(vector, 0, 1)
        bits = one_bit_each(16)[position : position + 1]
        batch.keys[0] = (rows([batch.keys[0].hex()]) ^ bits).tobytes()
        refused(batch)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("Prio3Count")])
def test_a_nonce_changed_at_all_aggregators_is_refused(name: str) -> None:
    """The joint randomness binds the nonce, so that a share cannot be sent again under another."""
    batch = batch_of(load(name), 0, 16)
    batch.nonces = [nonces ^ one_bit_each(16) for nonces in batch.nonces]
    refused(batch)


@pytest.mark.parametrize("name", NAMES)
def test_elements_that_are_not_canonical_do_not_decode(name: str) -> None:
    """No position of a leader's share takes the modulus, or the largest number of its bytes."""
    vector = load(name)
    prio = vector.prio
    size, p = prio.field.element_bytes, prio.field.modulus
    leader = prio.input_share_sizes[0] - (prio.prep_message_size)
    count = leader // size
    for number in (p, 256**size - 1):
        batch = batch_of(vector, 0, count)
        shares = batch.inputs[0].copy()
        for i in range(count):
            encoded = number.to_bytes(size, "little")
            shares[i, i * size : (i + 1) * size] = np.frombuffer(encoded, dtype=np.uint8)
        batch.inputs[0] = shares
        accepted, (valid, *others) = batch.accepted()
        assert not accepted.any()
        assert not valid.any()
        assert all(each.all() for each in others)


@pytest.mark.parametrize("name", NAMES)
def test_a_preparation_share_has_one_encoding(name: str) -> None:
    """A share is refused if an element has the modulus added, though the sum is the same."""
    vector = load(name)
    prio = vector.prio
    size, p = prio.field.element_bytes, prio.field.modulus
    shares = [vector.of("prep_shares", i)[:1] for i in range(vector.shares)]
    first, second = (int.from_bytes(share[0, :size].tobytes(), "little") for share in shares[:2])

    def combined(one: int, other: int) -> bool:
        found = [share.copy() for share in shares]
        for share, number in zip(found, (one, other), strict=False):
            share[0, :size] = np.frombuffer(number.to_bytes(size, "little"), dtype=np.uint8)
        return bool(prio.combine(*found)[1][0])

    assert combined(5, (second + first - 5) % p)
    assert not combined(5 + p, (second + first - 5) % p)
