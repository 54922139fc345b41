"""Pairwise masks: session keys, cancelling masks, and words that are meaningful only together."""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import Lie, add_one

import veilring as vr
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import RuntimeName
from veilring.nodes.journal import Journal
from veilring.nodes.run import Outcome
from veilring.protocols.digests import DIGEST_BYTES, digest_of
from veilring.protocols.masks import (
    KEY_BYTES,
    KeyPair,
    MaskedTotals,
    MaskedWords,
    MaskKey,
    PairwiseKeys,
    agree_secrets,
    chacha20_stream,
    derive_secret,
    keys_cost,
    masked_cost,
    neighbours_each_side,
)
from veilring.testing import assert_cost

Words = NDArray[np.integer[Any]]
DTYPES = [f"{order}{kind}" for order in "<>" for kind in ("u1", "u2", "u4", "u8", "i2", "i8")]
P = 2**255 - 19
# The u-coordinates of all points of Curve25519 and its twist whose order divides 8, and the same
# modulo p in another way (RFC 7748, Section 6.1, and D. J. Bernstein, "Curve25519: new
# Diffie-Hellman speed records", 2006).
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
)
ZERO = bytes(DIGEST_BYTES)


def keys_among(names: list[str]) -> list[PairwiseKeys]:
    """Return each party's keys as if they had been agreed."""
    shared = {frozenset(pair): digest_of(*map(str.encode, pair)) for pair in combinations(names, 2)}
    return [
        PairwiseKeys(me, {peer: shared[frozenset((me, peer))] for peer in names if peer != me})
        for me in names
    ]


def modular(words: Sequence[Words]) -> Words:
    """Add up words modulo their size; NumPy would use larger words by default."""
    return np.asarray(np.add.reduce(words, dtype=words[0].dtype.type))


async def add(party: vr.Party, own: Words, *, adder: str | None = None) -> Words:
    """Agree on keys, and add up."""
    return await vr.masked_sum(party, own, adder=adder)


def run_on(runtime: RuntimeName, role: Any, parties: int, **given: Any) -> vr.Run[Any]:
    """Run a role once in memory or on the simulated clock."""

    async def play() -> vr.Run[Any]:
        async with vr.Cluster(parties, runtime=runtime, seed=3) as cluster:
            return await cluster.run(role, **given)

    return vr.simulate(play()) if runtime == "simulated" else asyncio.run(play())


@given(
    data=st.data(),
    parties=st.integers(3, 30),
    dtypes=st.lists(st.sampled_from(["<u1", "<u2", "<u4", "<u8"]), min_size=1, max_size=3),
)
def test_masks_cancel(data: st.DataObject, parties: int, dtypes: list[str]) -> None:
    """This holds for any number of parties, words of any size, and arrays of any shape."""
    shapes = [data.draw(hnp.array_shapes(min_dims=0, min_side=0)) for _ in dtypes]
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    own = [
        tuple(
            rng.integers(0, np.iinfo(t).max, shape, np.dtype(t), endpoint=True)
            for t, shape in zip(dtypes, shapes, strict=True)
        )
        for _ in range(parties)
    ]
    keys = keys_among([f"party-{n}" for n in range(parties)])
    masked = [mine.mask(arrays, ZERO) for mine, arrays in zip(keys, own, strict=True)]
    for plain, hidden in zip(zip(*own, strict=True), zip(*masked, strict=True), strict=True):
        np.testing.assert_array_equal(modular(plain), modular(hidden))


def test_masks_of_parties_with_different_inputs_do_not_cancel() -> None:
    """With one different hash, 100 words of 0 do not have totals of 0.

    Four of them have totals of 0 by chance in one run of 1e31.
    """
    own = (np.zeros(100, "<u4"),)
    digests = (ZERO, ZERO, digest_of(b"other"))
    keys = keys_among(["a", "b", "c"])
    masked = [mine.mask(own, digest) for mine, digest in zip(keys, digests, strict=True)]
    assert np.count_nonzero(np.add.reduce([words for (words,) in masked])) > 96


def test_a_mask_is_used_once() -> None:
    """Equal words under an equal hash are masked differently each time, in a copy."""
    (keys, *_), own = keys_among(["a", "b", "c"]), (np.arange(50, dtype="<u8"),)
    sent = {keys.mask(own, ZERO)[0].tobytes() for _ in range(20)}
    assert len(sent) == 20
    assert own[0].tolist() == list(range(50))


@pytest.mark.parametrize("runtime", ["memory", "simulated"])
@pytest.mark.parametrize("adder", [None, "party-1"])
@pytest.mark.parametrize(
    ("parties", "shape"),
    [
        *((n, (3, 2)) for n in (3, 8, 30)),
        *((3, each) for each in ((), (0,), (0, 4), (2, 1, 3))),
        (3, (1_100_000,)),  # larger than a frame, whatever the type
    ],
)
def test_all_parties_have_the_total(
    parties: int, shape: tuple[int, ...], adder: str | None, runtime: RuntimeName
) -> None:
    """It has the shape and type of the input, modulo its word size, at the known cost."""
    dtype, rng = DTYPES[parties % len(DTYPES)], np.random.default_rng(parties)
    own = [np.array(rng.integers(0, 100, shape), dtype) for _ in range(parties)]
    run = run_on(runtime, add, parties, own=own, adder=adder)
    for total in run.results.values():
        assert (total.dtype, total.shape) == (np.dtype(dtype), shape)
        np.testing.assert_array_equal(total, modular(own))
    forecast = masked_cost(parties, [own[0]], star=adder is not None)
    assert run.cost.setup == keys_cost(parties)
    assert_cost(run, rounds=forecast.rounds, messages=forecast.traffic.messages)
    assert run.cost.bytes == forecast.traffic.bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adder", [None, "party-0"])
def test_every_integer_type_is_added(dtype: str, adder: str | None) -> None:
    """The extremes of each type are added, in both byte orders."""
    ends = np.iinfo(dtype)
    own = [np.array(values, dtype) for values in ([ends.max, 1], [ends.min, 2], [0, 3])]
    total = run_on("memory", add, 3, own=own, adder=adder).result
    assert (total.tolist(), total.dtype) == ([int(ends.max) + int(ends.min), 6], np.dtype(dtype))


def test_consecutive_sums_share_keys() -> None:
    """Three sums of one session need one key agreement, and continue counting rounds."""

    async def add_three_times(party: vr.Party) -> tuple[list[int], int]:
        sums = vr.MaskedSums(party, await vr.agree_keys(party), adder="party-2")
        own = np.array([party.parties.position(party.me)], np.uint16)
        seen = [int((await sums.add((own * number,)))[0][0]) for number in (1, 2, 3)]
        return seen, sums.next_round

    run = run_on("memory", add_three_times, 4)
    assert run.result == ([6, 12, 18], 7)
    assert_cost(run, rounds=6, messages=3 * 2 * 3)
    assert run.cost.setup == keys_cost(4)


NUMBERS = np.ones(2, np.int64)


@pytest.mark.parametrize(
    ("own", "parties", "adder", "field"),
    [
        *((own, 3, None, "own") for own in (np.ones(2), np.ones(2, np.bool_), np.array(["x"]))),
        *((NUMBERS, parties, None, "parties") for parties in (1, 2)),
        (NUMBERS, 3, "somebody", "adder"),
    ],
)
def test_invalid_arguments_are_refused_before_a_message_is_sent(
    own: NDArray[Any], parties: int, adder: str | None, field: str
) -> None:
    """Reals must be converted to fixed point first, and the adder must be a party.

    Each of two parties would know the input of the other from the total.
    """
    journal = Journal()
    with pytest.raises(vr.RunFailed) as failed:
        run_on("memory", add, parties, trace=journal, own=[own] * parties, adder=adder)
    assert not journal.messages
    assert isinstance(failed.value.root, vr.InputError)
    assert failed.value.root.field == field


def root_of(
    change: Callable[[vr.Message], vr.Message], kind: type[vr.Message], adder: str | None = None
) -> BaseException | None:
    """Return the error that ends a sum of three parties of which party-2 lies."""
    kinds = (MaskKey,) if kind is MaskKey else (MaskedWords, MaskedTotals)
    lie, own = {"party-2": Alter(change, only=kinds)}, [np.ones(2, np.uint16)] * 3
    with pytest.raises(vr.RunFailed) as failed:
        run_on("memory", add, 3, own=own, adversaries=lie, adder=adder)
    return failed.value.root


in_every_topology = pytest.mark.parametrize("adder", [None, "party-0", "party-2"])


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_point_of_low_order_is_refused(point: int) -> None:
    """A public key that makes the secret known to everyone is blamed on its sender."""
    key = MaskKey(public=point.to_bytes(KEY_BYTES, "little"))
    root = root_of(lambda _message: key, MaskKey)
    assert isinstance(root, vr.ProtocolViolation)
    assert root.culprit == "party-2"


@in_every_topology
@pytest.mark.parametrize(
    "words",
    [(), (np.ones(3, "<u2"),), (np.ones(2, "<u4"),), (np.ones(2, "<u2"), np.ones(2, "<u2"))],
)
def test_words_of_another_shape_are_refused(words: tuple[Words, ...], adder: str | None) -> None:
    """Words of a wrong length or size name their sender."""
    root = root_of(lambda m: m.model_copy(update={"words": words}), MaskedWords, adder)
    assert isinstance(root, vr.ProtocolViolation)
    assert root.culprit == "party-2"


@in_every_topology
def test_a_different_hash_ends_the_sum(adder: str | None) -> None:
    """The parties' public inputs differ, and no party can know which are right."""
    other = {"digest": digest_of(b"other")}
    root = root_of(lambda m: m.model_copy(update=other), MaskedWords, adder)
    assert isinstance(root, vr.Tampered)
    assert "party-2" in root.suspects


# RFC 7748, Section 6.1: the private keys of two parties, and the secret that they agree on.
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
AGREED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")


def secret(
    me: tuple[str, bytes] = ("alice", ALICE),
    peer: tuple[str, bytes] = ("bob", BOB_PUBLIC),
    session: bytes = b"session",
) -> bytes:
    """Return the secret of a party, with its private key, and a peer."""
    return derive_secret(session, (me[0], KeyPair.of(me[1])), peer)


def expanded(key: bytes, info: bytes) -> bytes:
    """Return the first 32 bytes of the expansion of RFC 5869, Section 2.3."""
    return hmac.digest(key, info + b"\1", "sha256")


def test_both_ends_share_a_secret_that_differs_per_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parties have three secrets of their session, each known to two of them."""
    sessions = list[bytes]()

    def derive(session: bytes, own: Any, peer: Any) -> bytes:
        sessions.append(session)
        return derive_secret(session, own, peer)

    async def agree(party: vr.Party) -> tuple[bytes, dict[str, bytes]]:
        return party.session, await agree_secrets(party)

    monkeypatch.setattr("veilring.protocols.masks.derive_secret", derive)
    found = run_on("memory", agree, 3).results
    assert set(sessions) == {session for session, _ in found.values()}
    for one, other in combinations(found, 2):
        assert found[one][1][other] == found[other][1][one]
    assert len({secret for _, each in found.values() for secret in each.values()}) == 3


def test_a_secret_is_that_of_the_standards() -> None:
    """HKDF of RFC 5869 over the secret of RFC 7748, with session, names and public keys.

    So another session, other names, and swapped public keys, which agree on the same point, give
    different secrets.
    """
    info = digest_of(b"alice", b"bob") + digest_of(ALICE_PUBLIC, BOB_PUBLIC)
    assert secret() == expanded(hmac.digest(b"session", AGREED, "sha256"), info)
    assert secret(("bob", BOB), ("alice", ALICE_PUBLIC)) == secret()
    assert secret(session=b"other") != secret()
    assert secret(peer=("ben", BOB_PUBLIC)) != secret()
    assert secret(("alice", BOB), ("bob", ALICE_PUBLIC)) != secret()


@given(
    key=st.binary(min_size=32, max_size=32), info=st.binary(max_size=64), size=st.integers(0, 200)
)
def test_a_stream_is_that_of_the_standards(key: bytes, info: bytes, size: int) -> None:
    """A mask is ChaCha20 (RFC 8439) from block 0 under the nonce 0 and a key from HKDF."""
    stream = Cipher(ChaCha20(expanded(key, info), bytes(16)), mode=None).encryptor()
    assert bytes(chacha20_stream(key, info, size)) == stream.update(bytes(size))


def test_words_are_read_from_the_stream_in_order() -> None:
    """The party with the lesser name adds its stream, array by array, lowest byte first."""
    keys = PairwiseKeys("a", {"b": bytes(32)}, stream=lambda _key, _info, size: bytes(range(size)))
    masked = keys.mask((np.zeros(2, "<u2"), np.ones((1, 1), "<u4"), np.zeros(1, "|u1")), ZERO)
    assert [each.tolist() for each in masked] == [[0x0100, 0x0302], [[0x07060504 + 1]], [8]]


def test_two_parties_share_a_stream_for_each_hash() -> None:
    """Both ends read equal bytes however they are divided, other ones under another hash or key."""
    ours, theirs = (PairwiseKeys(me, {other: bytes(32)}) for me, other in (("a", "b"), ("b", "a")))
    stream = theirs.stream("a", ZERO)
    expected = ours.stream("b", ZERO)(20)
    assert stream(13) + stream(7) == expected
    assert ours.stream("b", bytes([1]) * 32)(20) != expected
    assert PairwiseKeys("a", {"b": bytes([1]) * 32}).stream("b", ZERO)(20) != expected


def apart(honest: set[int], parties: int, each_side: int) -> bool:
    """Return whether masks fail to connect all honest parties of a circle."""
    reached = {min(honest)}
    edge = list(reached)
    while edge:
        at = edge.pop()
        near = {(at + step) % parties for step in range(-each_side, each_side + 1)}
        edge += (near & honest) - reached
        reached |= near & honest
    return reached != honest


@pytest.mark.parametrize("each_side", [1, 2])
@pytest.mark.parametrize("colluding", [2, 4, 6])
def test_honest_parties_are_separated_at_most_at_the_stated_rate(
    colluding: int, each_side: int
) -> None:
    """Of all coalitions of eleven parties, at most the bounded fraction separates others."""
    parties = 11
    everybody = set(range(parties))
    parted = [
        apart(everybody - set(bad), parties, each_side)
        for bad in combinations(range(parties), colluding)
    ]
    bound = parties**2 / 2 * (colluding / parties) ** (2 * each_side)
    assert sum(parted) / len(parted) <= bound
    assert any(parted) == (colluding >= 2 * each_side)


def test_few_parties_share_masks_with_all() -> None:
    """If half collude, fewer than 78 parties need masks with all others."""
    assert neighbours_each_side(8, 3) is None
    assert neighbours_each_side(74, 36) is None
    assert neighbours_each_side(5000, 2499) == 44
    for parties, colluding in ((100, 49), (1000, 300), (5000, 10)):
        each = neighbours_each_side(parties, colluding)
        assert each is not None
        assert parties**2 / 2 * (colluding / parties) ** (2 * each) <= 2.0**-64


async def add_as_neighbours(
    party: vr.Party, own: Words, *, adder: str | None
) -> tuple[tuple[str, ...], int]:
    """Return the neighbours, and a confirmed total under masks of neighbours, without colluders."""
    keys = await vr.agree_keys(party, colluding=0)
    sums = vr.MaskedSums(party, keys, adder)
    (total,) = await sums.add((own,))
    await sums.confirm()
    return keys.peers, int(total[0])


@pytest.mark.parametrize("adder", [None, "party-3"])
def test_sums_with_masks_of_neighbours_are_those_of_all_parties(adder: str | None) -> None:
    """Masks of neighbours cancel, and keys have the forecast cost."""
    own = [np.array([n]) for n in range(9)]
    run = run_on("simulated", add_as_neighbours, 9, own=own, adder=adder)
    assert [total for _, total in run.results.values()] == [36] * 9
    assert run.cost.setup == keys_cost(9, 0)
    assert keys_cost(9, 0).messages == 18


def test_only_neighbours_of_a_party_with_other_totals_notice() -> None:
    """It and its neighbours end with an error, and the others may have finished before."""

    async def run() -> list[Outcome]:
        own = [np.array([n]) for n in range(9)]
        async with vr.Cluster(9, runtime=vr.Simulated(), own=own, seed=1) as cluster:
            lie = {"party-0": Lie(MaskedTotals, add_one, to=("party-4",))}
            return await cluster.play(add_as_neighbours, adversaries=lie, adder="party-0")

    outcomes = {each.party: each for each in vr.simulate(run())}
    noticed = {name for name, each in outcomes.items() if isinstance(each.error, vr.Tampered)}
    results = {name: each.result for name, each in outcomes.items() if name not in noticed}
    assert "party-4" in noticed
    assert len(noticed) == 3
    assert all("party-4" not in peers and total == 36 for peers, total in results.values())
