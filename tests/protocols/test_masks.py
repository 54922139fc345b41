"""Pairwise masks: session keys, cancelling masks, and words that are meaningful only together."""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import Lie, add_one

import veilring as vr
from veilring import simulation
from veilring.errors import InputError, ProtocolViolation, RunFailed, Tampered
from veilring.nodes.adversary import Alter
from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.nodes.journal import Journal
from veilring.nodes.party import Party
from veilring.nodes.run import Outcome, Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.digests import DIGEST_BYTES, digest_of
from veilring.protocols.masks import (
    KEY_BYTES,
    MaskedSums,
    MaskedTotals,
    MaskedWords,
    MaskKey,
    PairwiseKeys,
    agree_keys,
    agree_secrets,
    chacha20_stream,
    derive_secret,
    keys_cost,
    masked_cost,
    masked_sum,
    neighbours_each_side,
)
from veilring.testing import assert_cost
from veilring.transport.messages import Message

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
    shared = {
        frozenset((a, b)): hashlib.sha256(f"{a} {b}".encode()).digest()
        for a in names
        for b in names
        if a < b
    }
    return [
        PairwiseKeys(me, {peer: shared[frozenset((me, peer))] for peer in names if peer != me})
        for me in names
    ]


def modular(words: Sequence[Words]) -> Words:
    """Add up words modulo their size; NumPy would use larger words by default."""
    return np.asarray(np.add.reduce(words, dtype=words[0].dtype.type))


async def add(party: Party, own: Words, *, adder: str | None = None) -> Words:
    """Agree on keys, and add up."""
    return await vr.masked_sum(party, own, adder=adder)


def run_on(runtime: RuntimeName, role: Any, parties: int, **given: Any) -> Run[Any]:
    """Run a role once in memory or on the simulated clock."""

    async def play() -> Run[Any]:
        async with Cluster(parties, runtime=runtime, seed=3) as cluster:
            return await cluster.run(role, **given)

    return simulation.simulate(play()) if runtime == "simulated" else asyncio.run(play())


class TestMasks:
    """Masks of all parties add up to 0, and single masks do not."""

    @given(
        data=st.data(),
        parties=st.integers(3, 30),
        dtypes=st.lists(st.sampled_from(["<u1", "<u2", "<u4", "<u8"]), min_size=1, max_size=3),
    )
    def test_masks_cancel(self, data: st.DataObject, parties: int, dtypes: list[str]) -> None:
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

    def test_masks_of_parties_with_different_inputs_do_not_cancel(self) -> None:
        """With one different hash, 100 words of 0 do not have totals of 0.

        Four of them have totals of 0 by chance in one run of 1e31.
        """
        own = (np.zeros(100, "<u4"),)
        one, two, three = keys_among(["a", "b", "c"])
        masked = [one.mask(own, ZERO), two.mask(own, ZERO), three.mask(own, digest_of(b"other"))]
        assert np.count_nonzero(np.add.reduce([words for (words,) in masked])) > 96

    def test_a_mask_is_used_once(self) -> None:
        """Equal words under an equal hash are masked differently each time."""
        (keys, *_), own = keys_among(["a", "b", "c"]), (np.arange(50, dtype="<u8"),)
        sent = {keys.mask(own, ZERO)[0].tobytes() for _ in range(20)}
        assert len(sent) == 20

    def test_own_words_are_not_modified(self) -> None:
        """Masking copies the words."""
        own = np.arange(5, dtype="<u2")
        keys_among(["a", "b", "c"])[0].mask((own,), ZERO)
        assert own.tolist() == [0, 1, 2, 3, 4]


class TestSums:
    """`masked_sum` among real parties."""

    @pytest.mark.parametrize("runtime", ["memory", "simulated"])
    @pytest.mark.parametrize("adder", [None, "party-1"])
    @pytest.mark.parametrize("parties", [3, 8, 30])
    def test_all_parties_have_the_total(
        self, parties: int, adder: str | None, runtime: RuntimeName
    ) -> None:
        """It has the shape and type of the input, modulo its word size, at the known cost."""
        dtype = DTYPES[parties % len(DTYPES)]
        own = np.random.default_rng(parties).integers(0, 100, (parties, 3, 2)).astype(dtype)
        run = run_on(runtime, add, parties, own=list(own), adder=adder)
        for total in run.results.values():
            assert (total.dtype, total.shape) == (own.dtype, (3, 2))
            np.testing.assert_array_equal(total, modular(list(own)))
        forecast = masked_cost(parties, [own[0]], star=adder is not None)
        assert run.cost.setup == keys_cost(parties)
        assert_cost(run, rounds=forecast.rounds, messages=forecast.traffic.messages)
        assert run.cost.bytes == forecast.traffic.bytes

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("adder", [None, "party-0"])
    def test_every_integer_type_is_added(self, dtype: str, adder: str | None) -> None:
        """The extremes of each type are added, in both byte orders."""
        ends = np.iinfo(dtype)
        own = [np.array(values, dtype) for values in ([ends.max, 1], [ends.min, 2], [0, 3])]
        run = run_on("memory", add, 3, own=own, adder=adder)
        expected = [int(ends.max) + int(ends.min), 6]
        assert run.result.tolist() == expected
        assert run.result.dtype == np.dtype(dtype)

    @pytest.mark.parametrize("shape", [(), (0,), (0, 4), (2, 1, 3)])
    def test_every_shape_is_added(self, shape: tuple[int, ...]) -> None:
        """Arrays of every shape are added, including scalars and empty ones."""
        run = run_on("memory", add, 3, own=[np.full(shape, n, np.uint8) for n in (1, 2, 3)])
        np.testing.assert_array_equal(run.result, np.full(shape, 6))

    def test_consecutive_sums_share_keys(self) -> None:
        """Three sums of one session need one key agreement, and continue counting rounds."""
        run = run_on("memory", add_three_times, 4)
        assert run.result == ([6, 12, 18], 7)
        assert_cost(run, rounds=6, messages=3 * 2 * 3)
        assert run.cost.setup == keys_cost(4)

    @pytest.mark.parametrize("own", [np.ones(2), np.ones(2, np.bool_), np.array(["x"])])
    def test_a_non_integer_is_refused(self, own: NDArray[Any]) -> None:
        """Reals must be converted to fixed point first."""
        assert refused(own=[own] * 3) == "own"

    @pytest.mark.parametrize("parties", [1, 2])
    def test_fewer_than_three_parties_are_refused(self, parties: int) -> None:
        """Each of two would know the input of the other from the total."""
        assert refused(parties=parties, own=[np.ones(2, np.int64)] * parties) == "parties"

    def test_an_unknown_adder_is_refused(self) -> None:
        """An adder that is not a party is refused."""
        assert refused(own=[np.ones(2, np.int64)] * 3, adder="somebody") == "adder"


def refused(parties: int = 3, **given: Any) -> str:
    """Return the argument that every party refuses before a message is sent."""
    journal = Journal()
    with pytest.raises(RunFailed) as failed:
        run_on("memory", add, parties, trace=journal, **given)
    assert not journal.messages
    assert isinstance(failed.value.root, InputError)
    return failed.value.root.field


async def add_three_times(party: Party) -> tuple[list[int], int]:
    """Return three totals, each of the previous result, and the next round."""
    sums = MaskedSums(party, await agree_keys(party), adder="party-2")
    seen: list[int] = []
    own = np.array([party.parties.position(party.me)], np.uint16)
    for _ in range(3):
        (total,) = await sums.add((own * (len(seen) + 1),))
        seen.append(int(total[0]))
    return seen, sums.next_round


def root_of(change: Callable[[Message], Message], kind: Any, **given: Any) -> BaseException:
    """Return the error that ends a sum of three parties of which party-2 lies."""
    lie, own = Alter(change, only=kind), [np.ones(2, np.uint16)] * 3
    with pytest.raises(RunFailed) as failed:
        run_on("memory", add, 3, own=own, adversaries={"party-2": lie}, **given)
    root = failed.value.root
    assert root is not None
    return root


WORDS = (MaskedWords, MaskedTotals)
in_every_topology = pytest.mark.parametrize("adder", [None, "party-0", "party-2"])


class TestPeersThatCheat:
    """Messages that no honest party sends."""

    @pytest.mark.parametrize("point", LOW_ORDER)
    def test_a_point_of_low_order_is_refused(self, point: int) -> None:
        """A public key that makes the secret known to everyone is blamed on its sender."""
        key = MaskKey(public=point.to_bytes(KEY_BYTES, "little"))
        root = root_of(lambda _message: key, (MaskKey,))
        assert isinstance(root, ProtocolViolation)
        assert root.culprit == "party-2"

    @in_every_topology
    @pytest.mark.parametrize(
        "words",
        [(), (np.ones(3, "<u2"),), (np.ones(2, "<u4"),), (np.ones(2, "<u2"), np.ones(2, "<u2"))],
    )
    def test_words_of_another_shape_are_refused(
        self, words: tuple[Words, ...], adder: str | None
    ) -> None:
        """Words of a wrong length or size name their sender."""
        root = root_of(lambda m: m.model_copy(update={"words": words}), WORDS, adder=adder)
        assert isinstance(root, ProtocolViolation)
        assert root.culprit == "party-2"

    @in_every_topology
    def test_a_different_hash_ends_the_sum(self, adder: str | None) -> None:
        """The parties' public inputs differ, and no party can know which are right."""
        other = {"digest": digest_of(b"other")}
        root = root_of(lambda m: m.model_copy(update=other), WORDS, adder=adder)
        assert isinstance(root, Tampered)
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
    return derive_secret(session, (me[0], X25519PrivateKey.from_private_bytes(me[1])), peer)


async def agree(party: Party) -> tuple[bytes, dict[str, bytes]]:
    """Return the session, and the secrets that are agreed in it."""
    return party.session, await agree_secrets(party)


class TestKeys:
    """A secret depends on a session, two names and two public keys."""

    def test_both_ends_share_a_secret_that_differs_per_pair(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three parties have three secrets of their session, each known to two of them."""
        sessions = list[bytes]()

        def derive(session: bytes, own: Any, peer: Any) -> bytes:
            sessions.append(session)
            return derive_secret(session, own, peer)

        monkeypatch.setattr("veilring.protocols.masks.derive_secret", derive)
        found = run_on("memory", agree, 3).results
        assert set(sessions) == {session for session, _ in found.values()}
        for one, other in combinations(found, 2):
            assert found[one][1][other] == found[other][1][one]
        assert len({secret for _, each in found.values() for secret in each.values()}) == 3

    def test_a_secret_is_that_of_the_standards(self) -> None:
        """HKDF of RFC 5869 over the secret of RFC 7748, with session, names and public keys."""
        info = digest_of(b"alice", b"bob") + digest_of(ALICE_PUBLIC, BOB_PUBLIC)
        assert secret() == hkdf_expand(hkdf_extract(b"session", AGREED), info, 32)
        assert secret(("bob", BOB), ("alice", ALICE_PUBLIC)) == secret()

    @pytest.mark.parametrize(
        "other",
        [
            secret(session=b"other"),
            secret(peer=("ben", BOB_PUBLIC)),
            secret(("alice", BOB), ("bob", ALICE_PUBLIC)),  # which agree on the same point
        ],
        ids=["session", "names", "keys"],
    )
    def test_a_secret_depends_on_all_of_them(self, other: bytes) -> None:
        """Another session, other names and swapped public keys give different secrets."""
        assert secret() != other


class TestStream:
    """The generator of masks is ChaCha20 under a key from HKDF, as standardised."""

    def test_hkdf_of_the_test_is_right(self) -> None:
        """It passes RFC 5869, test case 1."""
        extracted = hkdf_extract(bytes(range(13)), b"\x0b" * 22)
        expected = (
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        )
        assert hkdf_expand(extracted, bytes(range(0xF0, 0xFA)), 42).hex() == expected

    def test_chacha20_of_the_test_is_right(self) -> None:
        """It passes RFC 8439, appendix A.1, test vectors 1 and 2: two blocks of the key 0."""
        first = (
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        )
        second = (
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
        )
        assert chacha20(bytes(32), 128).hex() == first + second

    @given(
        key=st.binary(min_size=32, max_size=32),
        info=st.binary(max_size=64),
        size=st.integers(0, 200),
    )
    def test_a_stream_is_that_of_the_standards(self, key: bytes, info: bytes, size: int) -> None:
        """For any key, info and size, it equals a computation from hashes and words alone."""
        assert bytes(chacha20_stream(key, info, size)) == chacha20(hkdf_expand(key, info, 32), size)

    def test_words_are_read_from_the_stream_in_order(self) -> None:
        """The party with the lesser name adds its stream, array by array, lowest byte first."""
        keys = PairwiseKeys(
            "a", {"b": bytes(32)}, stream=lambda _key, _info, size: bytes(range(size))
        )
        masked = keys.mask((np.zeros(2, "<u2"), np.ones((1, 1), "<u4"), np.zeros(1, "|u1")), ZERO)
        assert masked[0].tolist() == [0x0100, 0x0302]
        assert masked[1].tolist() == [[0x07060504 + 1]]
        assert masked[2].tolist() == [8]


def hkdf_extract(salt: bytes, secret: bytes) -> bytes:
    """Return the extraction of RFC 5869, Section 2.2, from a secret."""
    return hmac.digest(salt, secret, "sha256")


def hkdf_expand(key: bytes, info: bytes, size: int) -> bytes:
    """Return the expansion of RFC 5869, Section 2.3, of a key."""
    blocks = [b""]
    while sum(map(len, blocks)) < size:
        blocks.append(hmac.digest(key, blocks[-1] + info + bytes([len(blocks)]), "sha256"))
    return b"".join(blocks)[:size]


def chacha20(key: bytes, size: int) -> bytes:
    """Return the key stream of RFC 8439, Section 2.4, with the nonce 0 and from block 0."""
    words = np.frombuffer(b"expand 32-byte k" + key, "<u4")
    blocks = []
    for number in range(-(-size // 64)):
        start = np.concatenate([words, np.array([number, 0, 0, 0], "<u4")])
        blocks.append((chacha20_rounds(start) + start).tobytes())
    return b"".join(blocks)[:size]


def chacha20_rounds(start: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the state after ten double rounds: columns first, then diagonals."""
    state = start.reshape(4, 4).copy()
    for _ in range(10):
        for shift in (1, -1):
            quarter_rounds(state)
            for row in range(1, 4):
                state[row] = np.roll(state[row], -shift * row)
    return state.ravel()


def quarter_rounds(state: NDArray[np.uint32]) -> None:
    """Change the four columns of the state at once, as RFC 8439, Section 2.1."""
    for add_to, turned, added, bits in ((0, 3, 1, 16), (2, 1, 3, 12), (0, 3, 1, 8), (2, 1, 3, 7)):
        state[add_to] += state[added]
        mixed = state[turned] ^ state[add_to]
        state[turned] = mixed << bits | mixed >> (32 - bits)


def apart(honest: set[int], parties: int, each_side: int) -> bool:
    """Return whether masks fail to connect all honest parties of a circle."""
    reached = {min(honest)}
    edge = list(reached)
    while edge:
        at = edge.pop()
        for step in (*range(-each_side, 0), *range(1, each_side + 1)):
            other = (at + step) % parties
            if other in honest and other not in reached:
                reached.add(other)
                edge.append(other)
    return reached != honest


class TestNeighbours:
    """Masks with neighbours only, for many parties."""

    @pytest.mark.parametrize("each_side", [1, 2])
    @pytest.mark.parametrize("colluding", [2, 4, 6])
    def test_honest_parties_are_separated_at_most_at_the_stated_rate(
        self, colluding: int, each_side: int
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

    def test_few_parties_share_masks_with_all(self) -> None:
        """If half collude, fewer than 78 parties need masks with all others."""
        assert neighbours_each_side(8, 3) is None
        assert neighbours_each_side(74, 36) is None
        assert neighbours_each_side(5000, 2499) == 44
        for parties, colluding in ((100, 49), (1000, 300), (5000, 10)):
            each = neighbours_each_side(parties, colluding)
            assert each is not None
            assert parties**2 / 2 * (colluding / parties) ** (2 * each) <= 2.0**-64

    @pytest.mark.parametrize("adder", [None, "party-3"])
    def test_sums_are_those_of_all_parties(self, adder: str | None) -> None:
        """Masks of neighbours cancel, and keys have the forecast cost."""
        run = run_on(
            "simulated", add_as_neighbours, 9, own=[np.array([n]) for n in range(9)], adder=adder
        )
        assert [int(total[0]) for total in run.results.values()] == [36] * 9
        assert run.cost.setup == keys_cost(9, 0)
        assert keys_cost(9, 0).messages == 18

    def test_only_neighbours_of_a_party_with_other_totals_notice(self) -> None:
        """It and its neighbours end with an error, and the others may have finished before."""

        async def run() -> list[Outcome]:
            own = [np.array([n]) for n in range(9)]
            async with Cluster(9, runtime=Simulated(), own=own, seed=1) as cluster:
                lie = {"party-0": Lie(MaskedTotals, add_one, to=("party-4",))}
                return await cluster.play(add_and_confirm, adversaries=lie)

        outcomes = {each.party: each for each in simulation.simulate(run())}
        noticed = {name for name, each in outcomes.items() if isinstance(each.error, Tampered)}
        results = {name: each.result for name, each in outcomes.items() if name not in noticed}
        assert "party-4" in noticed
        assert len(noticed) == 3
        assert all("party-4" not in peers and total == 36 for peers, total in results.values())


async def add_and_confirm(party: Party, own: Words) -> tuple[tuple[str, ...], int]:
    """Return the neighbours, and a confirmed total that party-0 adds up."""
    keys = await agree_keys(party, colluding=0)
    sums = MaskedSums(party, keys, "party-0")
    (total,) = await sums.add((own,))
    await sums.confirm()
    return keys.peers, int(total[0])


async def add_as_neighbours(party: Party, own: Words, *, adder: str | None) -> Words:
    """Add up with masks of neighbours, without colluders."""
    keys = await agree_keys(party, colluding=0)
    return await masked_sum(party, own, keys=keys, adder=adder)
