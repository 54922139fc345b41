"""Hybrid public key encryption, compared with another library."""

import pytest
from Crypto.Protocol import DH, HPKE
from hypothesis import given
from hypothesis import strategies as st

from veilring.protocols.prio.hpke import AEADS, AES_128_GCM, PrivateKey, open_sealed, seal

INFO, AAD, PLAINTEXT = b"info", b"associated", b"a message"
THEIRS = dict(
    zip(
        AEADS,
        (HPKE.AEAD.AES128_GCM, HPKE.AEAD.AES256_GCM, HPKE.AEAD.CHACHA20_POLY1305),
        strict=True,
    )
)
KEYS = st.binary(min_size=32, max_size=32)


@given(
    st.tuples(KEYS, KEYS),
    st.sampled_from(sorted(AEADS)),
    st.binary(min_size=1),
    st.binary(),
    st.binary(),
)
def test_agreement_with_another_library(
    keys: tuple[bytes, bytes], aead: int, info: bytes, aad: bytes, plaintext: bytes
) -> None:
    """Either opens the messages that the other seals, with each cipher."""
    key = PrivateKey.of(keys[0])
    theirs = DH.import_x25519_private_key(keys[0])
    enc, ours = seal(key.public, info, aad, plaintext, aead=aead, ephemeral=keys[1])
    recipient = HPKE.new(receiver_key=theirs, aead_id=THEIRS[aead], enc=enc, info=info)
    assert recipient.unseal(ours, aad) == plaintext
    sender = HPKE.new(receiver_key=theirs.public_key(), aead_id=THEIRS[aead], info=info)
    sealed = sender.seal(plaintext, aad)
    assert open_sealed(key, sender.enc, info, aad, sealed, aead=aead) == plaintext


@given(st.data())
def test_a_changed_message_is_not_opened(data: st.DataObject) -> None:
    """One flipped bit in any input of the recipient makes opening fail, without an error."""
    key = PrivateKey.of(b"k" * 32)
    sealed = seal(key.public, INFO, AAD, PLAINTEXT, aead=AES_128_GCM, ephemeral=b"e" * 32)
    given_parts = [sealed[0], INFO, AAD, sealed[1]]
    which = data.draw(st.integers(0, 3))
    bit = data.draw(st.integers(0, 8 * len(given_parts[which]) - 1))
    changed = bytearray(given_parts[which])
    changed[bit // 8] ^= 1 << bit % 8
    given_parts[which] = bytes(changed)
    enc, info, aad, ciphertext = given_parts
    assert open_sealed(key, enc, info, aad, ciphertext, aead=AES_128_GCM) is None


@pytest.mark.parametrize("enc", [bytes(32), b"\x01" + bytes(31), b"", b"a" * 31, b"a" * 33])
def test_a_worthless_key_is_not_used(enc: bytes) -> None:
    """A point of small order, or a key of another size, opens nothing."""
    key = PrivateKey.of(b"k" * 32)
    assert open_sealed(key, enc, INFO, AAD, b"c" * 40, aead=AES_128_GCM) is None
