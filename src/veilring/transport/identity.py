"""Identities: a party's private key, with a self-signed certificate.

There is no certification authority. A party is identified by its public key, which its peers know
from the roster that all of them have (`veilring.transport.roster`). Keys are on the NIST curve
P-256: every OpenSSL that supports TLS 1.3 has it, in hand-tuned assembly.
"""

import datetime as dt
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilring.errors import InputError

# X.509 allows a common name of 64 characters.
NAME_CHARACTERS_MAX: Final = 64
# Long enough for a study, short enough that a forgotten key expires.
VALID_DAYS: Final = 365
# Clocks differ: a fresh certificate must be valid on a machine that is behind.
_CLOCK_SKEW: Final = dt.timedelta(days=1)
# readable and writable only by the owner
KEY_FILE_MODE: Final = 0o600

# A name becomes a file name and a line in a log, so it may contain nothing special to either.
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_NAME_ALLOWED: Final = f"1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -, a letter or digit first"


@dataclass(frozen=True)
class Identity:
    """A party's own identity; the private key is only ever written to its own key file.

    Attributes:
        name: The party's name, as in the roster; the certificate's common name.
        certificate: The self-signed certificate.
        private_key: The key of the certificate.
    """

    name: str
    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the public key (SubjectPublicKeyInfo, DER), in hexadecimal."""
        return fingerprint_of(self.certificate)

    @property
    def certificate_pem(self) -> str:
        """The certificate as text, as in the roster. It is public."""
        return self.certificate.public_bytes(Encoding.PEM).decode()


def check_name(name: str) -> None:
    """Refuse an invalid name of a party."""
    if not _NAME.fullmatch(name):
        raise InputError.because(
            f"{name!a} is not a name: it must have {_NAME_ALLOWED}", field="name"
        )


def fingerprint_of(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate's SubjectPublicKeyInfo (DER), in hexadecimal.

    It identifies the key, not the certificate: a renewed certificate of the same key keeps it.
    """
    public = certificate.public_key()
    return hashlib.sha256(
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def read_certificate(pem: str) -> tuple[str, x509.Certificate]:
    """Parse a certificate; return its common name and the certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        fingerprint_of(certificate)
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, UnsupportedAlgorithm) as error:
        text = f"{len(pem)} characters"
        raise InputError("certificate", text, "a PEM certificate with a common name") from error
    return str(name.value), certificate


def make_identity(
    name: str, *, valid_days: int = VALID_DAYS, now: dt.datetime | None = None
) -> Identity:
    """Make a new key and a certificate for it.

    Args:
        name: The party's name.
        valid_days: The number of days from `now` for which the certificate is valid, at least 1.
        now: An aware time; by default the present.

    Raises:
        InputError: If the name or the number of days is not allowed.
    """
    check_name(name)
    if valid_days < 1:
        raise InputError("valid_days", valid_days, "at least 1")
    now = now or dt.datetime.now(dt.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=valid_days))
        # not an authority: a party vouches only for itself
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Identity(name, certificate, key)


def save_identity(identity: Identity, directory: Path) -> Path:
    """Write ``<name>.key`` (private key and certificate, mode 0600) and return its path.

    The file is written completely or not at all, and nothing is ever overwritten: a lost key cannot
    be recreated.

    Raises:
        InputError: If the file exists already.
        OSError: If the directory cannot be written.
    """
    path = directory / f"{identity.name}.key"
    # mkstemp makes the file with mode 0600: no other user can open it at any moment
    handle, draft = tempfile.mkstemp(dir=directory, prefix=f".{identity.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(write_identity(identity))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # unlike a rename, this fails if the path exists
    except FileExistsError as error:
        raise InputError("path", path, "a file that does not exist yet") from error
    finally:
        Path(draft).unlink()
    return path


def load_identity(path: Path) -> Identity:
    """Read an identity file written by `save_identity`.

    A key file that others may read is refused rather than warned of, as in `ssh`: others may
    already know its key, and a warning would be overlooked.

    Raises:
        InputError: If others than the owner can read or write the file, or if it does not hold
            one private key on P-256 and the certificate that belongs to it.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError.because(
                f"{path} has the mode {mode:o}, which lets other users access it; run `chmod "
                f"{KEY_FILE_MODE:o}` on it",
                field="path",
            )
        return read_identity(file.read(), str(path))


def write_identity(identity: Identity) -> bytes:
    """Return the PEM text of an identity. It contains the private key: keep it secret."""
    private = identity.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + identity.certificate_pem.encode()


def read_identity(content: bytes, source: str = "this text") -> Identity:
    """Return the identity written by `write_identity`."""
    name, certificate = read_certificate(content.decode(errors="replace"))
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError("path", source, "a file with an unencrypted private key") from error
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != certificate.public_key()
    ):
        raise InputError("path", source, "a P-256 key and the certificate that belongs to it")
    check_name(name)
    return Identity(name, certificate, key)
