"""Hybrid public key encryption to an aggregator: base mode of RFC 9180, one message a key.

The primitives are those of `cryptography`. Its own HPKE takes no associated data, which DAP needs,
so the schedule of the key is computed here. `pycryptodome` draws the sender's key itself, so that a
seeded client could not repeat its report, and takes ten times as long; tests compare with it.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

KEM: Final = 0x0020  # DHKEM(X25519, HKDF-SHA256)
KDF: Final = 0x0001  # HKDF-SHA256
KEY_BYTES: Final = 32
"""The size of a public key, a private key, and an encapsulated key (Npk, Nsk, Nenc)."""
TAG_BYTES: Final = 16
"""The number of bytes by which a ciphertext is longer than its plaintext (Nt)."""
_NONCE_BYTES: Final = 12
_HASH: Final = "sha256"
_BASE: Final = b"\x00"  # mode_base
_KEM_SUITE: Final = b"KEM" + KEM.to_bytes(2, "big")


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Aead:
    key_bytes: int
    cipher: Callable[[bytes], _Cipher]


AES_128_GCM: Final = 0x0001
AES_256_GCM: Final = 0x0002
CHACHA20_POLY1305: Final = 0x0003
AEADS: Final[Mapping[int, _Aead]] = {
    AES_128_GCM: _Aead(16, AESGCM),
    AES_256_GCM: _Aead(32, AESGCM),
    CHACHA20_POLY1305: _Aead(32, ChaCha20Poly1305),
}
"""The ciphers that a key may be used with, by their numbers (RFC 9180, section 7.3)."""


def seal(
    public_key: bytes, info: bytes, aad: bytes, plaintext: bytes, *, aead: int, ephemeral: bytes
) -> tuple[bytes, bytes]:
    """Encrypt one message (`SealBase`, RFC 9180, section 6.1).

    Args:
        public_key: The recipient's key.
        ephemeral: `KEY_BYTES` random bytes, used for this message only.

    Returns:
        The encapsulated key and the ciphertext.

    Raises:
        ValueError: If the public key is not a point of large order.
    """
    secret_key = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = secret_key.public_key().public_bytes_raw()
    dh = secret_key.exchange(X25519PublicKey.from_public_bytes(public_key))
    cipher, nonce = _schedule(dh, enc + public_key, info, aead)
    return enc, cipher.encrypt(nonce, plaintext, aad)


def is_public_key(public_key: bytes) -> bool:
    """Return whether messages can be sealed to bytes: they are a point of large order."""
    try:
        seal(public_key, b"", b"", b"", aead=AES_128_GCM, ephemeral=bytes(KEY_BYTES))
    except ValueError:
        return False
    return True


def open_sealed(
    key: "PrivateKey", enc: bytes, info: bytes, aad: bytes, ciphertext: bytes, *, aead: int
) -> bytes | None:
    """Decrypt one message (`OpenBase`, RFC 9180, section 6.1); return nothing if that fails."""
    try:
        dh = key.secret.exchange(X25519PublicKey.from_public_bytes(enc))
        cipher, nonce = _schedule(dh, enc + key.public, info, aead)
        return cipher.decrypt(nonce, ciphertext, aad)
    except (ValueError, InvalidTag):
        return None


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key to which messages are sealed.

    Attributes:
        public: The public key that belongs to it.
    """

    secret: X25519PrivateKey
    public: bytes

    @classmethod
    def of(cls, raw: bytes) -> "PrivateKey":
        """Return the key of `KEY_BYTES` random bytes."""
        secret = X25519PrivateKey.from_private_bytes(raw)
        return cls(secret, secret.public_key().public_bytes_raw())


def _schedule(dh: bytes, kem_context: bytes, info: bytes, aead: int) -> tuple[_Cipher, bytes]:
    """Return the cipher of the first message and its nonce (RFC 9180, sections 4.1 and 5.1)."""
    eae_prk = _extract(_KEM_SUITE, b"", b"eae_prk", dh)
    shared_secret = _expand(_KEM_SUITE, eae_prk, b"shared_secret", kem_context, KEY_BYTES)
    suite = b"HPKE" + b"".join(each.to_bytes(2, "big") for each in (KEM, KDF, aead))
    psk_id_hash = _extract(suite, b"", b"psk_id_hash", b"")
    context = _BASE + psk_id_hash + _extract(suite, b"", b"info_hash", info)
    secret = _extract(suite, shared_secret, b"secret", b"")
    key = _expand(suite, secret, b"key", context, AEADS[aead].key_bytes)
    base_nonce = _expand(suite, secret, b"base_nonce", context, _NONCE_BYTES)
    return AEADS[aead].cipher(key), base_nonce  # the nonce of sequence number 0 is the base itself


def _extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    """Return `LabeledExtract(salt, label, ikm)`."""
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, _HASH)


def _expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """Return `LabeledExpand(prk, label, info, length)`, of at most one block of 32 bytes."""
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labelled + b"\x01", _HASH)[:length]
