"""The task of a verified sum: what clients report, to which two aggregators, and until when.

Both aggregators and each client hold the same canonical bytes, and a report is bound to their hash.
A page in a browser hashes the bytes as they are; it never encodes a task itself.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, model_validator

from veilring.config import Section, scenario_error
from veilring.errors import InputError
from veilring.protocols.digests import canonical_json
from veilring.protocols.prio.algorithm.circuits import BITS_MAX, LENGTH_MAX

TASK_ID_BYTES: Final = 32  # DAP-09, section 4.2: the size of SHA-256
# DAP-09, section 4: `opaque Url<1..2^16-1>`; no address of a server is as long as this.
URL_BYTES_MAX: Final = 1 << 11
CLOCK_SKEW_SECONDS: Final = 300
"""A report may be of a time so far ahead of the leader's clock (DAP-09, section 4.4.2)."""
TIME_MAX: Final = 1 << 40
"""Later times are mistakes; any time below is exact in JavaScript, too."""

_Size = Annotated[int, Field(ge=1, le=LENGTH_MAX)]
_AN_URL: Final = (
    "an https:// address, such as https://leader.example/; on this machine also http://"
)


def is_loopback(host: str | None) -> bool:
    """Return whether a host of a URL is certainly this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    if not (url.isascii() and url.isprintable() and url.endswith("/") and _is_base(url)):
        raise InputError("url", url, f"{_AN_URL}, which ends with a slash")
    return url


def _is_base(url: str) -> bool:
    """Return whether resources may be relative to a URL; plain HTTP is for loopback only."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    allowed = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    more = parts.query or parts.fragment or parts.username is not None or len(url) > URL_BYTES_MAX
    return allowed and bool(parts.hostname) and port != 0 and not more


Url = Annotated[str, AfterValidator(_checked_url), Field(description=_AN_URL)]
"""The base URL of an aggregator, to which its resources are relative."""


class Vdaf(Section):
    """The kind of the reports and its parameters (VDAF-08, section 7.4).

    Attributes:
        kind: Prio3 for one bit (`count`), one number (`sum`), a vector of numbers (`sumvec`), one
            of several answers (`histogram`), or a vector of numbers over the field of 64 bits with
            several proofs (`sumvec64`).
        bits: The number of bits of each number, for `sum`, `sumvec` and `sumvec64`.
        length: The number of entries, for all but `count` and `sum`.
        chunk_length: The number of entries of each call of the gadget, for the same kinds.
        proofs: The number of proofs, for `sumvec64`.
    """

    kind: Literal["count", "sum", "sumvec", "histogram", "sumvec64"]
    bits: Annotated[int, Field(ge=1, le=BITS_MAX)] | None = None
    length: _Size | None = None
    chunk_length: _Size | None = None
    proofs: Annotated[int, Field(ge=2, le=255)] | None = None

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters of this kind, by their names."""
        given = self.model_dump(exclude={"kind"}, exclude_none=True)
        return dict(given)

    @model_validator(mode="after")
    def _has_its_parameters(self) -> Self:
        due = PARAMETERS[self.kind]
        if set(self.parameters) != set(due):
            raise InputError.because(
                f"a {self.kind} has the parameters {', '.join(due) or '(none)'}, not"
                f" {', '.join(self.parameters) or '(none)'}",
                field="vdaf",
            )
        return self


PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "count": (),
    "sum": ("bits",),
    "sumvec": ("bits", "length", "chunk_length"),
    "histogram": ("length", "chunk_length"),
    "sumvec64": ("bits", "length", "chunk_length", "proofs"),
}
"""The parameters that each kind of report has."""


class Task(Section):
    """The public description of a verified sum (DAP-09, section 4.2).

    Attributes:
        format: The version of the encoding.
        leader: The base URL of the leader, to which clients upload.
        helper: The base URL of the helper.
        vdaf: The kind of the reports.
        time_precision: Clients round the times of their reports down to a multiple of this number
            of seconds.
        minimum: The smallest number of reports of a batch (`min_batch_size`). If totals have noise,
            batches after the end of the task may be smaller.
        closes: The end of the task, in seconds since 1970 (UTC): no report of this time or a later
            time is accepted (`task_expiration`).
        epsilon: The ε of each report, by the noise of either aggregator alone; without one, totals
            are exact.
        norm: The L1 norm of the report of a client that follows the terms, for which the noise is
            made; by default that of any valid report.
        terms: The questions, for the people who answer and for the estimates. They are plain data.
    """

    format: Literal[1] = 1
    leader: Url
    helper: Url
    vdaf: Vdaf
    time_precision: int = Field(ge=1, le=TIME_MAX)
    minimum: int = Field(ge=1)
    closes: int | None = Field(None, ge=0, le=TIME_MAX)
    epsilon: float | None = Field(None, gt=0)
    norm: int | None = Field(None, ge=1)
    terms: Mapping[str, Any] = {}

    @cached_property
    def encoded(self) -> bytes:
        """The task in canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))

    @cached_property
    def task_id(self) -> bytes:
        """The SHA-256 hash of `encoded`, to which each report is bound."""
        return hashlib.sha256(self.encoded).digest()

    @property
    def name(self) -> str:
        """The task id as it is written in addresses: see `name_task`."""
        return name_task(self.task_id)

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Return the task of its canonical bytes.

        Raises:
            InputError: If they are not the bytes of `encoded`.
        """
        try:
            task = cls.model_validate_json(encoded)
            canonical = task.encoded
        except ValidationError as error:
            raise scenario_error(error, cls) from None
        except ValueError:
            canonical = b""  # a number in `terms` is not finite
        if canonical != encoded:
            raise InputError.because("the task is not in its canonical form; get it again")
        return task


def name_task(task_id: bytes) -> str:
    """Return the name of a task in addresses: URL-safe Base64 without padding (RFC 4648)."""
    return base64.urlsafe_b64encode(task_id).rstrip(b"=").decode()


def read_task_name(name: str) -> bytes | None:
    """Return the task id of a name, or nothing if the name is not exactly that of an id."""
    try:
        task_id = base64.urlsafe_b64decode(f"{name}=")
    except ValueError:
        return None
    return task_id if len(task_id) == TASK_ID_BYTES and name_task(task_id) == name else None
