"""The messages of an upload, byte by byte as in the draft DAP-09 of the IETF.

Encodings are strict: a message has one encoding, within the bounds of the draft, and nothing
follows it. Decoding anything else raises `FrameError`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeVar

from veilring.errors import FrameError

VERSION: Final = "dap-09"
REPORT_MEDIA_TYPE: Final = "application/dap-report"
CONFIGS_MEDIA_TYPE: Final = "application/dap-hpke-config-list"
REPORT_ID_BYTES: Final = 16
_TIME_BYTES: Final = 8

CLIENT: Final = 1
LEADER: Final = 2
HELPER: Final = 3
"""The roles of the sender and of the two recipients of a report (section 4)."""
Recipient = Literal[2, 3]
RECIPIENTS: Final[tuple[Recipient, Recipient]] = (LEADER, HELPER)
"""The aggregators in the order of their shares."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HpkeConfig:
    """A public key of an aggregator, with its number and its algorithms (section 4.4.1)."""

    config_id: int
    kem_id: int
    kdf_id: int
    aead_id: int
    public_key: bytes

    def encode(self) -> bytes:
        """Return the `HpkeConfig`."""
        algorithms = b"".join(_uint(each, 2) for each in (self.kem_id, self.kdf_id, self.aead_id))
        return _uint(self.config_id, 1) + algorithms + _opaque(self.public_key, 2)

    @classmethod
    def read(cls, reader: "_Reader") -> Self:
        """Read the next `HpkeConfig`."""
        config_id, kem_id, kdf_id, aead_id = (reader.uint(size) for size in (1, 2, 2, 2))
        return cls(config_id, kem_id, kdf_id, aead_id, reader.opaque(2, least=1))


def encode_configs(configs: Iterable[HpkeConfig]) -> bytes:
    """Return an `HpkeConfigList`, in decreasing order of preference."""
    return _opaque(b"".join(each.encode() for each in configs), 2)


def decode_configs(message: bytes) -> tuple[HpkeConfig, ...]:
    """Return the configurations of an `HpkeConfigList`: at least one, each with its own id."""
    configs = _decode(message, lambda reader: reader.items(HpkeConfig.read, least=1))
    if len({each.config_id for each in configs}) < len(configs):
        raise FrameError("two HPKE configurations have the same id")
    return configs


@dataclass(frozen=True, slots=True)
class Ciphertext:
    """A share that is encrypted to an aggregator (`HpkeCiphertext`, section 4).

    Attributes:
        config_id: The id of the recipient's configuration.
        enc: The encapsulated key.
    """

    config_id: int
    enc: bytes
    payload: bytes

    def encode(self) -> bytes:
        """Return the `HpkeCiphertext`."""
        return _uint(self.config_id, 1) + _opaque(self.enc, 2) + _opaque(self.payload, 4)

    @classmethod
    def read(cls, reader: "_Reader") -> Self:
        """Read the next `HpkeCiphertext`."""
        return cls(reader.uint(1), reader.opaque(2, least=1), reader.opaque(4, least=1))

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Return the ciphertext of an `HpkeCiphertext`."""
        return _decode(message, cls.read)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The public facts of a report (`ReportMetadata`, section 4.4.2).

    Attributes:
        report_id: 16 random bytes, which are also the nonce of Prio3.
        time: The time of the report in seconds since 1970 (UTC), 0 to 2^64 - 1.
    """

    report_id: bytes
    time: int

    def encode(self) -> bytes:
        """Return the `ReportMetadata`."""
        return _sized(self.report_id, REPORT_ID_BYTES) + _uint(self.time, _TIME_BYTES)

    @classmethod
    def read(cls, reader: "_Reader") -> Self:
        """Read the next `ReportMetadata`."""
        return cls(reader.take(REPORT_ID_BYTES), reader.uint(_TIME_BYTES))


@dataclass(frozen=True, slots=True)
class Report:
    """A report as it is uploaded (section 4.4.2).

    Attributes:
        leader: The leader's input share.
        helper: The helper's input share.
    """

    metadata: Metadata
    public_share: bytes
    leader: Ciphertext
    helper: Ciphertext

    def encode(self) -> bytes:
        """Return the `Report`."""
        public_share = _opaque(self.public_share, 4)
        shares = self.leader.encode() + self.helper.encode()
        return self.metadata.encode() + public_share + shares

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Return the report of a `Report`."""
        return _decode(message, cls._read)

    @classmethod
    def _read(cls, reader: "_Reader") -> Self:
        metadata, public_share = Metadata.read(reader), reader.opaque(4)
        return cls(metadata, public_share, Ciphertext.read(reader), Ciphertext.read(reader))


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension of an upload (section 4.4.3), of which we know no type."""

    extension_type: int
    data: bytes

    def encode(self) -> bytes:
        """Return the `Extension`."""
        return _uint(self.extension_type, 2) + _opaque(self.data, 2)

    @classmethod
    def read(cls, reader: "_Reader") -> Self:
        """Read the next `Extension`."""
        return cls(reader.uint(2), reader.opaque(2))


@dataclass(frozen=True, slots=True)
class PlaintextShare:
    """A share before it is encrypted (`PlaintextInputShare`, section 4.4.2).

    Attributes:
        payload: The input share of Prio3.
    """

    payload: bytes
    extensions: tuple[Extension, ...] = ()

    def encode(self) -> bytes:
        """Return the `PlaintextInputShare`."""
        extensions = b"".join(each.encode() for each in self.extensions)
        return _opaque(extensions, 2) + _opaque(self.payload, 4)

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Return the share of a `PlaintextInputShare`."""
        return _decode(message, cls._read)

    @classmethod
    def _read(cls, reader: "_Reader") -> Self:
        extensions = reader.items(Extension.read)
        return cls(reader.opaque(4), extensions)


def share_aad(task_id: bytes, metadata: Metadata, public_share: bytes) -> bytes:
    """Return the data to which an encrypted share is bound (`InputShareAad`, section 4.4.2)."""
    return task_id + metadata.encode() + _opaque(public_share, 4)


def share_info(recipient: Recipient) -> bytes:
    """Return the application information of an encrypted share (section 4.4.2)."""
    return f"{VERSION} input share".encode() + bytes((CLIENT, recipient))


def _uint(value: int, size: int) -> bytes:
    """Return a number in `size` bytes."""
    if not 0 <= value < 1 << 8 * size:
        raise FrameError(f"{value} does not fit in {size} bytes")
    return value.to_bytes(size, "big")


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise FrameError(f"{len(value)} bytes are given instead of {size}")
    return value


def _opaque(value: bytes, size: int) -> bytes:
    """Return bytes after their length, which has `size` bytes."""
    return _uint(len(value), size) + value


def _decode(message: bytes, read: "Callable[[_Reader], _T]") -> _T:
    """Return the value of a whole message."""
    reader = _Reader(message)
    found = read(reader)
    if reader.left:
        raise FrameError(f"{reader.left} bytes follow the message")
    return found


class _Reader:
    """Reads the parts of a message in their order."""

    def __init__(self, message: bytes) -> None:
        self._message, self._place = message, 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._message) - self._place

    def take(self, size: int) -> bytes:
        """Read the given number of bytes."""
        if size > self.left:
            raise FrameError(f"the message ends {size - self.left} bytes early")
        self._place += size
        return self._message[self._place - size : self._place]

    def uint(self, size: int) -> int:
        """Read a number of the given size in bytes."""
        return int.from_bytes(self.take(size), "big")

    def opaque(self, size: int, *, least: int = 0) -> bytes:
        """Read bytes after their length, which has the given size in bytes."""
        length = self.uint(size)
        if length < least:
            raise FrameError(f"a part of the message has fewer than {least} bytes")
        return self.take(length)

    def items(self, read: "Callable[[_Reader], _T]", *, least: int = 0) -> tuple[_T, ...]:
        """Read a list whose length in bytes has two bytes."""
        inner = _Reader(self.opaque(2, least=least))
        found = []
        while inner.left:
            found.append(read(inner))
        return tuple(found)
