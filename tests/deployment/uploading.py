"""A leader and a helper that serve uploads on loopback, with a certificate of their own."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.protocols.prio.reports import NOW, VDAFS, Aggregators, make_task

from veilring.deployment.surveys.upload import Site, UploadServer, load_certificate
from veilring.protocols.prio.store import Added, Upload
from veilring.protocols.prio.task import Vdaf
from veilring.protocols.prio.uploads import Intake
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

PATH = "/dap/"
"""The path of both base URLs."""


@dataclass
class Serving:
    """Both aggregators while they serve.

    Attributes:
        tls: The settings of both servers; none without TLS.
        trust: The settings of a client that trusts the certificate.
    """

    parties: Aggregators
    intake: Intake
    leader: UploadServer
    helper: UploadServer
    tls: ssl.SSLContext | None
    trust: ssl.SSLContext | None

    @property
    def upload_url(self) -> str:
        """The address of uploads."""
        return f"{self.parties.task.leader}tasks/{self.parties.task.name}/reports"

    @property
    def configs_url(self) -> str:
        """The address of the leader's keys."""
        return f"{self.parties.task.leader}hpke_config?task_id={self.parties.task.name}"


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for loopback that a client can trust, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    paths[1].write_bytes(private)
    return paths


@asynccontextmanager
async def serving(
    vdaf: Vdaf = VDAFS["count"],
    *,
    certificate: tuple[Path, Path] | None = None,
    now: Callable[[], float] = lambda: NOW,
    add: Callable[[Sequence[Upload]], Sequence[Added]] | None = None,
    state: Path | None = None,
    **given: Any,
) -> AsyncIterator[Serving]:
    """Serve a task on two free ports of loopback.

    Args:
        add: Stores uploads in place of the leader's store.
        state: See `Aggregators`.
        given: Other values of the task.
    """
    socks = bind(LOOPBACK, 0), bind(LOOPBACK, 0)
    scheme = "http" if certificate is None else "https"
    bases = [f"{scheme}://{LOOPBACK}:{each.getsockname()[1]}{PATH}" for each in socks]
    parties = Aggregators(make_task(vdaf, leader=bases[0], helper=bases[1], **given), state)
    tls = None if certificate is None else load_certificate(*certificate)
    trust = None if certificate is None else ssl.create_default_context(cafile=certificate[0])
    async with Intake(parties.door, add or parties.store.add, now) as intake:
        leader = Site(parties.task, bases[0], parties.leader, intake)
        helper = Site(parties.task, bases[1], parties.helper)
        async with (
            UploadServer(leader, socks[0], tls) as first,
            UploadServer(helper, socks[1], tls) as second,
        ):
            yield Serving(parties, intake, first, second, tls, trust)
    parties.store.file.close()
