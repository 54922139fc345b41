"""Identities: keys, certificates and their files."""

import datetime as dt
import hashlib
import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from veilring.errors import InputError
from veilring.transport.roster import (
    KEY_FILE_MODE,
    NAME_CHARACTERS_MAX,
    Identity,
    load_identity,
    make_identity,
    read_certificate,
    save_identity,
)

NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def test_fingerprint_is_that_of_the_public_key() -> None:
    """It is the SHA-256 of the SubjectPublicKeyInfo, in hexadecimal."""
    identity = make_identity("alice")
    public = identity.private_key.public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert identity.fingerprint == hashlib.sha256(spki).hexdigest()
    assert identity.fingerprint != make_identity("alice").fingerprint


def test_certificate_has_name_and_validity() -> None:
    """It is valid from a day before until `valid_days` after, and is not an authority."""
    identity = make_identity("alice", valid_days=10, now=NOON)
    name, certificate = read_certificate(identity.certificate_pem)
    assert name == "alice"
    assert certificate.not_valid_before_utc == NOON - dt.timedelta(days=1)
    assert certificate.not_valid_after_utc == NOON + dt.timedelta(days=10)
    certificate.verify_directly_issued_by(certificate)


def test_the_key_is_not_shown() -> None:
    """The printed form of an identity contains no part of its key."""
    assert "private_key" not in repr(make_identity("alice"))


@pytest.mark.parametrize(
    "name", ["", ".hidden", "-option", "a/b", "a b", "a\n", "é", "x" * (NAME_CHARACTERS_MAX + 1)]
)
def test_unfit_names_are_refused(name: str) -> None:
    """A name contains no characters special in file names or logs, and is not too long."""
    with pytest.raises(InputError, match=r"is not a name: it must have 1 to 64 of"):
        make_identity(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * NAME_CHARACTERS_MAX])
def test_names_at_the_limits_are_accepted(name: str) -> None:
    """Names of the minimum and the maximum length are valid."""
    assert make_identity(name).name == name


def test_validity_is_at_least_a_day() -> None:
    """A certificate with an empty validity is refused."""
    with pytest.raises(InputError, match="valid_days is 0"):
        make_identity("alice", valid_days=0)


def test_saved_identities_are_restored(tmp_path: Path) -> None:
    """A saved identity is loaded from one file that only its owner can read."""
    identity = make_identity("alice")
    path = save_identity(identity, tmp_path)
    assert path == tmp_path / "alice.key"
    assert stat.S_IMODE(path.stat().st_mode) == KEY_FILE_MODE
    assert list(tmp_path.iterdir()) == [path]
    back = load_identity(path)
    assert (back.name, back.certificate) == ("alice", identity.certificate)
    assert back.private_key.private_numbers() == identity.private_key.private_numbers()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """An existing key file is left unchanged, and no draft is left beside it."""
    path = save_identity(make_identity("alice"), tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="does not exist yet"):
        save_identity(make_identity("alice"), tmp_path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_accessible_to_others_is_refused(mode: int, tmp_path: Path) -> None:
    """A key file with any permission for group or others is not loaded."""
    path = save_identity(make_identity("alice"), tmp_path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"mode {mode:o}, .*chmod 600"):
        load_identity(path)


def write(path: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    path.touch(mode=KEY_FILE_MODE)
    path.write_text(text)
    return path


def test_a_broken_key_file_is_refused(tmp_path: Path) -> None:
    """A file without a key or a certificate, or with a mismatch of both, is refused."""
    good = save_identity(make_identity("alice"), tmp_path).read_text()
    other = save_identity(make_identity("bob"), tmp_path).read_text()
    key, certificate = re.findall(r"-----BEGIN.*?-----END [A-Z ]+-----\n", good, re.DOTALL)
    bad = {"no key": certificate, "no certificate": key, "noise": "\x00\x01",
           "mixed": key + other[other.index("-----BEGIN CERT"):]}  # fmt: skip
    for number, text in enumerate(bad.values()):
        with pytest.raises(InputError):
            load_identity(write(tmp_path / f"{number}.key", text))


def test_a_key_on_another_curve_is_refused(tmp_path: Path) -> None:
    """Only P-256 keys are loaded, and the certificate's curve is checked too."""
    alice = make_identity("alice")
    strange = Identity("alice", alice.certificate, ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(InputError, match="P-256"):
        load_identity(save_identity(strange, tmp_path))
