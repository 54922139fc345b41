"""Hybrid public key encryption, compared with RFC 9180 and with another library."""

import pytest
from Crypto.Protocol import DH, HPKE
from hypothesis import given
from hypothesis import strategies as st

from veilring.protocols.prio.hpke import (
    AEADS,
    AES_128_GCM,
    CHACHA20_POLY1305,
    PrivateKey,
    open_sealed,
    seal,
)

INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
PLAINTEXT = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
AAD = b"Count-0"
# RFC 9180, appendices A.1.1 and A.2.1, sequence number 0: skEm, pkEm, skRm, ct
VECTORS = {
    AES_128_GCM: (
        "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
        "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
    ),
    CHACHA20_POLY1305: (
        "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600",
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a",
        "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
    ),
}
THEIRS = dict(
    zip(
        AEADS,
        (HPKE.AEAD.AES128_GCM, HPKE.AEAD.AES256_GCM, HPKE.AEAD.CHACHA20_POLY1305),
        strict=True,
    )
)
KEYS = st.binary(min_size=32, max_size=32)


@pytest.mark.parametrize("aead", VECTORS)
def test_the_vectors_of_the_rfc(aead: int) -> None:
    """A message is sealed to the bytes of RFC 9180, and opened again."""
    ephemeral, enc, secret, ciphertext = map(bytes.fromhex, VECTORS[aead])
    key = PrivateKey.of(secret)
    sealed = seal(key.public, INFO, AAD, PLAINTEXT, aead=aead, ephemeral=ephemeral)
    assert sealed == (enc, ciphertext)
    assert open_sealed(key, enc, INFO, AAD, ciphertext, aead=aead) == PLAINTEXT


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
