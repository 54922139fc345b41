"""MPyC parties as processes on loopback, over mutual TLS, that find the smallest of all values."""

import datetime as dt
import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from benchmarks.measurement import Skipped
from veilring.arrays import Ints

METHODS = ("sort", "merge")
"""The search path on which MPyC finds them; `mpyc_party` documents each of them."""

# Among more parties MPyC is faster without pseudo-random sharing: each of nine has 70 keys for it,
# and finds the five smallest of batched queries in a quarter of the time without.
_PRSS_PARTIES_MAX = 5
_PARTY = Path(__file__).with_name("mpyc_party.py")
_VALID = dt.timedelta(days=1)


class Smallest(NamedTuple):
    """The result and the cost of MPyC's parties.

    Attributes:
        values: The k smallest values of each query, shape (queries, k).
        bytes: The bytes sent by all parties, without TLS.
    """

    values: Ints
    bytes: int


class MpycParties:
    """A context manager over running parties that are connected with each other.

    Args:
        count: The number of parties.

    Raises:
        Skipped: If MPyC is not installed.
    """

    def __init__(self, count: int) -> None:
        if importlib.util.find_spec("mpyc") is None:
            raise Skipped("MPyC is not installed; pip install '.[benchmark]'")
        self._count = count
        self._stack = ExitStack()
        self._parties: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        with self._stack:
            home = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            _write_certificates(home / ".config", self._count)
            addresses = [
                word for port in _ports(self._count) for word in ("-P", f"localhost:{port}")
            ]
            prss = () if self._count <= _PRSS_PARTIES_MAX else ("--no-prss",)
            for index in range(self._count):
                options = ("--ssl", "--no-log", *prss, *addresses, "-I", str(index))
                process = subprocess.Popen(
                    [sys.executable, str(_PARTY), *options],
                    cwd=home,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                self._parties.append(self._stack.enter_context(process))
                # Closing all inputs ends all parties; Popen waits for each.
            for process in self._parties:
                if _read(process) != "ready":
                    raise RuntimeError("a party of MPyC did not start")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._parties:
            if process.stdin is not None:
                process.stdin.close()
        self._stack.close()

    def smallest(self, method: str, own: Ints) -> Smallest:
        """Return the k smallest of all values for each query.

        Args:
            method: One of `METHODS`.
            own: Each party's values, shape (parties, queries, k), ascending for each query.
        """
        for process, values in zip(self._parties, own, strict=True):
            if process.stdin is not None:
                process.stdin.write(json.dumps({"method": method, "own": values.tolist()}) + "\n")
                process.stdin.flush()
        answers: list[dict[str, Any]] = [json.loads(_read(process)) for process in self._parties]
        values = np.array([answer["smallest"] for answer in answers])
        if (values != values[0]).any():
            raise RuntimeError("parties of MPyC have found different values")
        return Smallest(values[0], sum(answer["bytes"] for answer in answers))


def _read(process: subprocess.Popen[str]) -> str:
    return "" if process.stdout is None else process.stdout.readline().strip()


def _ports(count: int) -> list[int]:
    """Return free ports; MPyC takes no sockets, so that another program may be faster."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def _write_certificates(directory: Path, count: int) -> None:
    """Write what MPyC expects: an authority, and for each party a certificate and a key."""
    directory.mkdir()
    authority, key = _certificate("MPyC Certification Authority", None)
    (directory / "mpyc_ca.crt").write_bytes(authority.public_bytes(Encoding.PEM))
    for index in range(count):
        certificate, own = _certificate(f"MPyC party {index}", (authority, key))
        pem = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (directory / f"party_{index}.key").write_bytes(pem)
        (directory / f"party_{index}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))


def _certificate(
    name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signed_by, signing = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .add_extension(_usage(authority=issuer is None), critical=True)
    )
    if issuer is not None:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
    return builder.sign(signing, hashes.SHA256()), key


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
