"""Secure aggregation: each pair of parties shares a key, and their masks cancel in the sum.

Party i sends `value_i + Σ_{j>i} PRG(k_ij) - Σ_{j<i} PRG(k_ij)` modulo the size of a word. A
coalition learns only the sum of the parties outside it, as far as the generator is pseudorandom: up
to n - 2 colluders, including the party that adds up. With n - 1 colluders, that sum is the last
party's input.

Two rules are essential. *A mask is used once*: the keys of a session are drawn only for it, and a
counter enters the mask of each sum; the bytes of a stream are read once. *A mask is bound to the
public inputs*: the hash of these enters it too, so parties that received different inputs have
masks that do not cancel, and nothing is opened. Otherwise a client that sends two parties different
thresholds, or an adder that sends two parties different totals, could read individual counts.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS
2017, for the masks; the sums here end with an error if a party is lost, and those of
`veilring.protocols.dropouts` do not.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, log2
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from numpy.typing import NDArray
from pydantic import Field

from veilring.errors import InputError, ProtocolViolation, Tampered
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import PARTIES_MIN
from veilring.pairs import of_pair
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of, digest_of_names
from veilring.protocols.promise import Forecast, repeated, total_cost
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Array, Message

KEY_BYTES: Final = 32  # X25519's and ChaCha20's
APART_BITS: Final = 64
"""The probability that masks with neighbours separate honest parties is at most `2**-64`."""
KEYS_AT_ONCE: Final = 16
"""The number of neighbours to send a key to before reading theirs: if thousands of parties sent all
keys at once, hundreds of thousands of messages would be in flight."""
_NONCE: Final = bytes(16)  # a key of ChaCha20 makes one stream, so its nonce may be constant
_WORD_KINDS: Final = {"u", "i"}  # NumPy's letters for whole numbers of a fixed size

_W = TypeVar("_W", bound=np.integer[Any])
_B = TypeVar("_B", bound="Bound")
Unsigned = NDArray[np.unsignedinteger[Any]]
"""Words to which masks are added."""
Words = NDArray[np.integer[Any]]
"""Whole numbers, added modulo 2 to the number of their bits."""
WordArray = Annotated[Unsigned, Array("|u1 <u2 <u4 <u8", 1)]
"""Unsigned words of one size, shape (entries,)."""
Stream = Callable[[bytes, bytes, int], bytes]
"""Returns the mask for a secret key and public info, of the given number of bytes."""


class MaskKey(Message, kind="masks.key"):
    """A party's public key for this session, sent to each peer."""

    public: Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class Bound(Message, kind="masks.bound"):
    """The base class of messages that are bound to public inputs; see `receive_bound`.

    Attributes:
        digest: The hash of the sender's public inputs.
    """

    digest: Digest


class MaskedWords(Bound, kind="masks.words"):
    """A party's masked words, to all parties or to the one that adds up.

    Attributes:
        words: One array for each summand, flattened.
    """

    words: tuple[WordArray, ...]


class MaskedTotals(Bound, kind="masks.totals"):
    """The totals, from the party that adds up to all others; fields as in `MaskedWords`."""

    words: tuple[WordArray, ...]


class Confirmed(Bound, kind="masks.confirmed"):
    """A party's confirmation of all totals, after the last sum, to those that compare theirs."""


class Public(NamedTuple):
    """A party's public inputs at the beginning of a sum."""

    digest: bytes
    """Its hash."""
    tellers: Collection[str]
    """The parties that could have sent different values to different parties."""

    def sent_by(self, parties: Collection[str]) -> Self:
        """Return this with further parties that sent public inputs."""
        if all(party in self.tellers for party in parties):
            return self  # rather than a separate set for each of thousands of parties
        return self._replace(tellers=frozenset(self.tellers).union(parties))

    def accusation(self, party: Party, sender: str) -> Tampered | ProtocolViolation:
        """Return the error for a peer with another hash: it or a sender of inputs is malicious."""
        suspects = tuple(peer for peer in party.peers if peer in {sender, *self.tellers})
        if len(suspects) == 1:
            return ProtocolViolation(sender, "uses public inputs different from the others'")
        return Tampered(suspects, "made parties use different public inputs")


async def receive_bound(
    party: Party, message_type: type[_B], *, sender: str, public: Public, due: int
) -> _B:
    """Wait for a message of a peer with equal public inputs, like `Party.receive`.

    A peer with other inputs may be honest but at another point of the protocol, so the hash is
    checked before the type. Either it or another sender of inputs is accused.
    """
    message = await party.receive(Bound, sender=sender, due=due)
    if message.digest != public.digest:
        party.accuse(public.accusation(party, sender))
    if not isinstance(message, message_type):
        reason = f"sent {message.kind} where {message_type.kind} was expected"
        raise ProtocolViolation(sender, reason)
    return message


def chacha20_stream(key: bytes, info: bytes, size: int) -> bytes:
    """Return a mask: the ChaCha20 stream of the key that HKDF expands from `key` and `info`."""
    return of_pair((key, info, size), lambda: continued_stream(key, info)(size))


def continued_stream(key: bytes, info: bytes) -> Callable[[int], bytes]:
    """Return a source of the next bytes of the stream of `chacha20_stream`, by their number."""
    own = HKDFExpand(SHA256(), KEY_BYTES, info).derive(key)
    encryptor = Cipher(ChaCha20(own, _NONCE), mode=None).encryptor()
    return lambda size: encryptor.update(bytes(size))


class PairwiseKeys:
    """The keys that a party shares with each other party of a session.

    Args:
        keys: A secret of `KEY_BYTES` for each peer, by its name.
        stream: The generator of the masks of sums, which proofs replace by random functions.
    """

    def __init__(
        self, me: str, keys: Mapping[str, bytes], *, stream: Stream = chacha20_stream
    ) -> None:
        self._me = me
        self._keys = dict(keys)
        self._stream = stream
        self._sums = 0

    @property
    def peers(self) -> tuple[str, ...]:
        """The parties with which masks are shared."""
        return tuple(self._keys)

    def mask(self, arrays: Sequence[Unsigned], digest: bytes) -> tuple[Unsigned, ...]:
        """Return masked arrays of words for the next sum, in the byte order of the wire."""
        self._sums += 1
        masked = tuple(array.copy() for array in arrays)
        info = b"veilring mask" + self._sums.to_bytes(8, "big") + digest
        size = sum(array.nbytes for array in masked)
        for peer, key in self._keys.items():
            stream = self._stream(key, info, size)
            put_mask(masked, stream, np.add if self._me < peer else np.subtract)
        return masked

    def stream(self, peer: str, digest: bytes) -> Callable[[int], bytes]:
        """Return the bytes shared with a peer that has public inputs of this hash.

        Equal hashes give equal streams, so a hash must be used once.
        """
        return continued_stream(self._keys[peer], b"veilring stream" + digest)


def put_mask(arrays: Sequence[Unsigned], stream: bytes, add: np.ufunc) -> None:
    """Add a mask to arrays of words on the wire in place, or subtract it."""
    start = 0
    for array in arrays:
        words = np.frombuffer(stream, array.dtype.newbyteorder("<"), array.size, start)
        add(array, words.reshape(array.shape), out=array)
        start += array.nbytes


def neighbours_each_side(parties: int, colluding: int) -> int | None:
    """Return the number of parties on either side with which a party has masks, or None for all.

    The parties form a circle, in an order drawn after the colluders are fixed, and each has masks
    with the h parties before it and the h behind it. The honest parties split into groups, whose
    sums the coalition learns, only if two runs of at least h colluders separate them: with
    probability at most `n**2 / 2 * (c / n)**(2 h)`. That is at most `2**-64` here.

    Source: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS
    2020, for the graph.

    Args:
        colluding: The maximum number of colluding parties, c, below n.
    """
    if colluding == 0:
        return 1 if parties > PARTIES_MIN else None
    needed = APART_BITS + 2 * log2(parties) - 1
    each = ceil(needed / (2 * log2(parties / colluding)))
    return each if 2 * each < parties - 1 else None


def neighbours_in_circle(party: Party, each_side: int) -> tuple[str, ...]:
    """Return the parties with which a party has masks, in a circle drawn from the session's name.

    The party that names a session could redraw many times, which is why the probability of a bad
    draw is as small as in `neighbours_each_side`.
    """
    lots = {name: digest_of(party.session, name.encode()) for name in party.parties}
    circle = sorted(lots, key=lots.__getitem__)
    at, n = circle.index(party.me), len(circle)
    # Nearest first, so that two neighbours reach each other at the same place of their lists.
    steps = (sign * step for step in range(1, each_side + 1) for sign in (-1, 1))
    return tuple(circle[(at + step) % n] for step in steps)


async def agree_keys(party: Party, *, due: int = 0, colluding: int | None = None) -> PairwiseKeys:
    """Agree on a key with each other party, as `agree_secrets` does.

    Args:
        due: As in `agree_secrets`. With neighbours, earlier groups of keys take earlier steps.
        colluding: The maximum number of colluding parties, if it is bounded: with many parties,
            keys with neighbours then suffice; see `neighbours_each_side`.
    """
    each = None if colluding is None else neighbours_each_side(len(party.parties), colluding)
    among = party.peers if each is None else neighbours_in_circle(party, each)
    return PairwiseKeys(party.me, await agree_secrets(party, due=due, among=among))


async def agree_secrets(
    party: Party, *, due: int = 0, among: Sequence[str] | None = None
) -> dict[str, bytes]:
    """Agree on a secret with each other party in one step of set-up, or with some, in several.

    Uses X25519 with keys of this session only, over authenticated connections. A secret also
    depends on the session, and on the names and the public keys of its two parties.

    Some peers get their keys in groups of `KEYS_AT_ONCE`. A party sends to a group once it has the
    keys of the previous one, so each group has its own step of set-up. Otherwise a party that waits
    for a silent one would be blamed for not sending to its next group.

    Args:
        due: The step of set-up in which the last keys are sent, from 0 backwards.
        among: The peers; all by default. Each of them has this party among its own, in the same
            group of `KEYS_AT_ONCE`.

    Returns:
        A secret of `KEY_BYTES` for each of these peers, by its name.

    Raises:
        ProtocolViolation: If a peer sent an invalid key.
    """
    if len(party.parties) < PARTIES_MIN:
        raise InputError("parties", len(party.parties), f"at least {PARTIES_MIN}")
    keys = KeyPair.of(party.rng.bytes(KEY_BYTES))
    own = MaskKey(public=keys.public)
    peers, at_once = (party.peers, len(party.peers)) if among is None else (among, KEYS_AT_ONCE)
    groups = [peers[start : start + at_once] for start in range(0, len(peers), at_once)]
    secrets = {}
    for step, group in enumerate(groups, start=due + 1 - len(groups)):
        await broadcast(party, own, group)
        for peer in group:
            public = (await party.receive(MaskKey, sender=peer, due=step)).public
            try:
                secrets[peer] = derive_secret(party.session, (party.me, keys), (peer, public))
            except ValueError as error:
                raise ProtocolViolation(peer, "sent a key that makes no shared secret") from error
    return secrets


class KeyPair(NamedTuple):
    """The keys of a party for one session."""

    private: X25519PrivateKey
    public: bytes

    @classmethod
    def of(cls, seed: bytes) -> Self:
        """Return the keys that a seed of `KEY_BYTES` makes."""
        private = X25519PrivateKey.from_private_bytes(seed)
        return cls(private, private.public_key().public_bytes_raw())


def derive_secret(session: bytes, own: tuple[str, KeyPair], peer: tuple[str, bytes]) -> bytes:
    """Return the secret of two parties of a session, of `KEY_BYTES`."""
    (me, keys), (name, public) = own, peer
    ends = sorted([(me, keys.public), (name, public)])

    def derive() -> bytes:
        secret = keys.private.exchange(X25519PublicKey.from_public_bytes(public))
        info = digest_of_names(end for end, _ in ends) + digest_of(*(key for _, key in ends))
        return HKDF(SHA256(), KEY_BYTES, session, info).derive(secret)

    return of_pair((session, *ends), derive)


async def masked_sum(
    party: Party,
    own: NDArray[_W],
    *,
    keys: PairwiseKeys | None = None,
    adder: str | None = None,
    digest: bytes = bytes(DIGEST_BYTES),
    first_round: int = 1,
) -> NDArray[_W]:
    """Add up one array of each party, revealing only the total.

    Args:
        own: Its summand: whole numbers of 8, 16, 32 or 64 bits, of any shape. If it does not fit a
            frame, each part takes the rounds and messages of a sum.
        keys: The result of `agree_keys`; by default keys are agreed first, in set-up.
        adder: The party that adds up and sends the total to the others, in two rounds of n - 1
            messages. By default each party sends its masked words to all: one round, n(n - 1)
            messages.
        digest: The hash of the public inputs of all parties.
        first_round: The communication round in which the first message is sent.

    Returns:
        The total modulo 2 to the number of bits, of the same shape and type, equal at all parties.

    Raises:
        InputError: If `own` has another type, or there are too few parties or no such adder.
            Nothing was sent then.
        ProtocolViolation: If a peer sent arrays of the wrong shape.
        Tampered: If a peer has other public inputs.
    """
    as_words(own)
    if adder is not None and adder not in party.parties:
        raise InputError("adder", adder, f"one of {', '.join(party.parties)}")
    keys = await agree_keys(party) if keys is None else keys
    (total,) = await masked_sums(
        party,
        (own,),
        keys=keys,
        adder=adder,
        public=Public(digest, party.parties),
        first_round=first_round,
    )
    return np.asarray(total, own.dtype)


async def masked_sums(
    party: Party,
    own: Sequence[Words],
    *,
    keys: PairwiseKeys,
    adder: str | None,
    public: Public,
    first_round: int,
) -> tuple[Words, ...]:
    """Add up several arrays of each party, like `masked_sum`: in one message, if they fit it."""
    pieces: list[list[Unsigned]] = [[] for _ in own]
    for number, part in enumerate(_parts(own)):
        masked = keys.mask([words for _, words in part], public.digest)
        due = first_round + number * _rounds(adder)
        party.round(due)
        if adder is None:
            totals = await _add_all(party, masked, public, due)
        else:
            totals = await _add_at(party, masked, adder, public, due)
        for (place, _), total in zip(part, totals, strict=True):
            pieces[place].append(total)
    return tuple(
        np.concatenate(found).reshape(array.shape).astype(array.dtype)
        for found, array in zip(pieces, own, strict=True)
    )


def _parts(own: Sequence[Words]) -> list[list[tuple[int, Unsigned]]]:
    """Return arrays as flat words, each with its place, in parts that fit a frame.

    There is one part, unless the arrays are too large together; then each piece is a part.
    """
    flat = [as_words(array).ravel() for array in own]
    if _fit_together(own):
        return [list(enumerate(flat))]
    return [[(place, piece)] for place, words in enumerate(flat) for piece in slices(words)]


def _fit_together(arrays: Sequence[Words]) -> bool:
    return sum([array.nbytes for array in arrays]) <= CONTENT_BYTES_MAX


def slices(words: NDArray[_W]) -> list[NDArray[_W]]:
    """Return a vector in pieces that fit a frame, at least one."""
    most = CONTENT_BYTES_MAX // words.itemsize
    return [words[start : start + most] for start in range(0, max(1, len(words)), most)]


class MaskedSums:
    """Successive masked sums, each bound to all earlier public inputs.

    Args:
        keys: The result of `agree_keys`.
        adder: The party that adds up, if there is one; see `masked_sum`.
        first_round: The communication round of the first sum.
        public: The public inputs so far; none by default.
    """

    def __init__(
        self,
        party: Party,
        keys: PairwiseKeys,
        adder: str | None = None,
        first_round: int = 1,
        *,
        public: Public | None = None,
    ) -> None:
        self._party, self._keys, self._adder = party, keys, adder
        self._public = public or Public(bytes(DIGEST_BYTES), party.parties)
        self._round = first_round

    @property
    def public(self) -> Public:
        """The public inputs to which the next sum is bound."""
        return self._public

    @property
    def next_round(self) -> int:
        """The communication round in which the next sum begins."""
        return self._round

    @property
    def parties_in(self) -> tuple[str, ...]:
        """The parties whose values are in the totals: all of them."""
        return self._party.parties

    def bind(self, *public: bytes) -> None:
        """Bind all further sums to public inputs, equal at all parties."""
        self._public = self._public._replace(digest=digest_of(self._public.digest, *public))

    async def add(self, own: Sequence[Words]) -> tuple[Words, ...]:
        """Add up arrays of each party, and bind later sums to their totals; see `masked_sum`."""
        totals = await masked_sums(
            self._party,
            own,
            keys=self._keys,
            adder=self._adder,
            public=self._public,
            first_round=self._round,
        )
        self._round += masked_rounds(self._adder, own)
        told = self._party.parties if self._adder is None else (self._adder,)
        self._public = self._public.sent_by(told)
        self.bind(*(total.tobytes() for total in totals))
        return totals

    async def confirm(self) -> None:
        """Confirm all totals to the parties with masks, and wait for their confirmations.

        Each sum confirms the totals before it, so this confirms those of the last one. Masks
        connect the honest parties, so if two of them have different totals, some honest party has
        others than a neighbour of its own, and ends the session. A party without such a neighbour
        may have finished before, with its totals. If all parties share masks, every honest party
        notices.

        Raises:
            Tampered: If a peer has other totals: it or a sender of words is malicious.
            ProtocolViolation: If only the peer can be.
        """
        due, peers = self._round, self._keys.peers
        self._party.round(due)
        await broadcast(self._party, Confirmed(digest=self._public.digest), peers)
        for peer in peers:
            await receive_bound(self._party, Confirmed, sender=peer, public=self._public, due=due)
        self._round += 1


def masked_rounds(adder: str | None, own: Sequence[Words] = ()) -> int:
    """Return the number of communication rounds of a masked sum of arrays.

    Args:
        own: The arrays; by default they fit a frame.
    """
    return _rounds(adder) * (1 if _fit_together(own) else len(_parts(own)))


def _rounds(adder: str | None) -> int:
    return 1 if adder is None else 2


def keys_cost(parties: int, colluding: int | None = None) -> Traffic:
    """Forecast `agree_keys`: n(n - 1) messages of set-up, or fewer with neighbours."""
    return repeated(_pairs(parties, colluding), MaskKey(public=bytes(KEY_BYTES)))


def confirming_cost(parties: int, colluding: int | None = None) -> Forecast:
    """Forecast a confirmation of totals: one round, with a message for each key."""
    message = Confirmed(digest=bytes(DIGEST_BYTES))
    return Forecast(1, repeated(_pairs(parties, colluding), message))


def _pairs(parties: int, colluding: int | None) -> int:
    """Return the number of ordered pairs of parties that share masks."""
    each = None if colluding is None else neighbours_each_side(parties, colluding)
    return parties * (parties - 1 if each is None else 2 * each)


def masked_cost(parties: int, arrays: Sequence[Words], *, star: bool) -> Forecast:
    """Forecast a masked sum: n(n - 1) messages in one round, or 2(n - 1) in two if one adds up.

    Arrays that do not fit a frame take as many for each part.

    Args:
        arrays: Arrays of the shapes and types of the summands.
    """
    parts = [tuple(words for _, words in part) for part in _parts(arrays)]
    return total_cost(*(_part_cost(parties, words, star=star) for words in parts))


def _part_cost(parties: int, words: Sequence[Unsigned], *, star: bool) -> Forecast:
    words, digest = tuple(words), bytes(DIGEST_BYTES)
    if not star:
        each = parties * (parties - 1)
        return Forecast(1, repeated(each, MaskedWords(digest=digest, words=words)))
    sent = repeated(parties - 1, MaskedWords(digest=digest, words=words))
    return Forecast(2, sent.plus(repeated(parties - 1, MaskedTotals(digest=digest, words=words))))


async def _add_all(
    party: Party, masked: Sequence[Unsigned], public: Public, number: int
) -> tuple[Unsigned, ...]:
    await broadcast(party, MaskedWords(digest=public.digest, words=flat_words(masked)))
    return await _add_up(party, masked, public, number)


async def _add_at(
    party: Party, masked: Sequence[Unsigned], adder: str, public: Public, number: int
) -> tuple[Unsigned, ...]:
    if party.me == adder:
        totals = await _add_up(party, masked, public, number)
        party.round(number + 1)
        await broadcast(party, MaskedTotals(digest=public.digest, words=totals))
        return totals
    await party.send(adder, MaskedWords(digest=public.digest, words=flat_words(masked)))
    party.round(number + 1)
    return await receive_words(party, MaskedTotals, adder, masked, public, number + 1)


async def _add_up(
    party: Party, masked: Sequence[Unsigned], public: Public, number: int
) -> tuple[Unsigned, ...]:
    totals = tuple(array.flatten() for array in masked)
    for peer in party.peers:
        given = await receive_words(party, MaskedWords, peer, masked, public, number)
        for total, words in zip(totals, given, strict=True):
            np.add(total, words, out=total)
    return totals


async def receive_words(  # noqa: PLR0917  (which message, and what it has to hold)
    party: Party,
    kind: type[MaskedWords | MaskedTotals],
    sender: str,
    shaped: Sequence[Unsigned],
    public: Public,
    due: int,
) -> tuple[Unsigned, ...]:
    """Wait for a peer's words, of the given shapes and types, like `receive_bound`.

    Args:
        public: This participant's public inputs.

    Returns:
        The peer's arrays, flattened.

    Raises:
        ProtocolViolation: If the arrays or the message differ.
        Tampered: If the peer has other public inputs.
    """
    message = await receive_bound(party, kind, sender=sender, public=public, due=due)
    if [(a.dtype, a.size) for a in message.words] != [(a.dtype, a.size) for a in shaped]:
        raise ProtocolViolation(sender, "sent arrays of masked words of the wrong shape")
    return message.words


def as_words(array: Words) -> Unsigned:
    """Return whole numbers as unsigned words in the byte order of the wire."""
    if array.dtype.kind not in _WORD_KINDS:
        raise InputError.because(
            f"a masked sum adds whole numbers, not {array.dtype}; encode reals in fixed point",
            field="own",
        )
    return array.astype(f"<u{array.dtype.itemsize}", copy=False)


def flat_words(arrays: Sequence[Unsigned]) -> tuple[Unsigned, ...]:
    """Return arrays in the form of a message, of shape (entries,) each."""
    return tuple(array.ravel() for array in arrays)
