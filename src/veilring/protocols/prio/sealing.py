"""Keys to which clients seal the shares of their reports, and the opening of these shares.

An aggregator may hold several keys. It advertises those in use, and keeps opening reports to a
retired key for as long as clients may have its configuration in their caches.
"""

import base64
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import tomli_w
from pydantic import Field

from veilring.config import Section, read_toml
from veilring.errors import FrameError, InputError, VeilringError
from veilring.privacy.files import require_private, write_whole
from veilring.protocols.prio.dap import (
    Ciphertext,
    HpkeConfig,
    Metadata,
    PlaintextShare,
    Recipient,
    encode_configs,
    share_aad,
    share_info,
)
from veilring.protocols.prio.hpke import (
    AEADS,
    AES_128_GCM,
    CHACHA20_POLY1305,
    KDF,
    KEM,
    KEY_BYTES,
    TAG_BYTES,
    PrivateKey,
    is_public_key,
    open_sealed,
    seal,
)

CACHE_SECONDS: Final = 86_400
"""The time for which clients may cache the configurations of an aggregator (section 4.4.1)."""
RETIRED_SECONDS: Final = 2 * CACHE_SECONDS
"""The time for which reports to a retired key have to be opened (section 4.4.1)."""
CONFIG_IDS: Final = 256

AeadName = Literal["AES-128-GCM", "ChaCha20-Poly1305"]
_AEAD_IDS: Final[Mapping[AeadName, int]] = {
    "AES-128-GCM": AES_128_GCM,  # which each client of DAP has
    "ChaCha20-Poly1305": CHACHA20_POLY1305,
}


class Problem(StrEnum):
    """The types of the problem documents of an upload (DAP-09, section 3.2).

    Attributes:
        meaning: The type in words.
    """

    meaning: str
    INVALID_MESSAGE = "invalidMessage", "The message is malformed."
    UNRECOGNIZED_TASK = "unrecognizedTask", "There is no such task here."
    MISSING_TASK_ID = "missingTaskID", "The request names no task."
    OUTDATED_CONFIG = "outdatedConfig", "The report is sealed to an unknown or old key."
    REPORT_REJECTED = "reportRejected", "The report cannot be accepted."
    REPORT_TOO_EARLY = "reportTooEarly", "The report is of a time in the future."

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Return the type with its words."""
        problem = str.__new__(cls, value)
        problem._value_, problem.meaning = value, meaning
        return problem


@dataclass(eq=False, repr=False)
class ReportRefused(VeilringError):
    """Raised if a report cannot be accepted; the fault is its client's.

    Attributes:
        problem: The type of the refusal.
        detail: A sentence, which depends on public values only.
    """

    problem: Problem
    detail: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.detail}"


class ReceivingKey(NamedTuple):
    """A key to which clients seal shares.

    Attributes:
        is_retired: Whether it is advertised no longer.
    """

    config: HpkeConfig
    private: PrivateKey
    is_retired: bool = False


def make_key(
    config_id: int, secret: bytes, aead: AeadName = "AES-128-GCM", *, is_retired: bool = False
) -> ReceivingKey:
    """Return the key of 32 random bytes."""
    private = PrivateKey.of(secret)
    config = HpkeConfig(config_id, KEM, KDF, _AEAD_IDS[aead], private.public)
    return ReceivingKey(config, private, is_retired)


class Keyring:
    """The keys of an aggregator.

    Args:
        keys: The keys in decreasing order of preference, each with its own id.
    """

    def __init__(self, keys: Iterable[ReceivingKey]) -> None:
        keys = tuple(keys)
        self._keys = {key.config.config_id: key for key in keys}
        current = [key.config for key in keys if not key.is_retired]
        if len(self._keys) < len(keys) or not current:
            raise InputError.because(
                "an aggregator needs at least one key that is not retired, and each has its own id",
                field="keys",
            )
        self.advertised = encode_configs(current)
        """The `HpkeConfigList` for clients."""

    def renew(self, fresh: "Keyring") -> None:
        """Use the keys of another keyring from now on."""
        vars(self).update(vars(fresh))

    def open(
        self,
        recipient: Recipient,
        task_id: bytes,
        metadata: Metadata,
        public_share: bytes,
        sealed: Ciphertext,
    ) -> bytes:
        """Return the input share that a client has sealed to this aggregator.

        Raises:
            ReportRefused: If it was not sealed to one of the keys, for this report and this task,
                or has extensions, of which we know no type.
        """
        key = self._keys.get(sealed.config_id)
        if key is None:
            detail = f"there is no key with the id {sealed.config_id}; get the keys again"
            raise ReportRefused(Problem.OUTDATED_CONFIG, detail)
        plaintext = open_sealed(
            key.private,
            sealed.enc,
            share_info(recipient),
            share_aad(task_id, metadata, public_share),
            sealed.payload,
            aead=key.config.aead_id,
        )
        if plaintext is None:
            detail = "the input share cannot be decrypted; seal it to the advertised key"
            raise ReportRefused(Problem.REPORT_REJECTED, detail)
        return _read_share(plaintext)


def _read_share(plaintext: bytes) -> bytes:
    try:
        share = PlaintextShare.decode(plaintext)
    except FrameError as error:
        detail = f"the input share is malformed: {error}"
        raise ReportRefused(Problem.INVALID_MESSAGE, detail) from None
    if share.extensions:
        detail = "the input share has extensions, and none is known here; leave them out"
        raise ReportRefused(Problem.INVALID_MESSAGE, detail)
    return share.payload


def is_supported(config: HpkeConfig) -> bool:
    """Return whether shares can be sealed to a configuration here."""
    algorithms = (config.kem_id, config.kdf_id) == (KEM, KDF) and config.aead_id in AEADS
    return algorithms and is_public_key(config.public_key)


def seal_share(
    config: HpkeConfig, recipient: Recipient, aad: bytes, share: bytes, *, ephemeral: bytes
) -> Ciphertext:
    """Seal an input share to an aggregator.

    Args:
        config: One that is supported.
        aad: See `share_aad`.
        ephemeral: 32 random bytes, used for this share only.
    """
    plaintext = PlaintextShare(share).encode()
    info, aead = share_info(recipient), config.aead_id
    sealed = seal(config.public_key, info, aad, plaintext, aead=aead, ephemeral=ephemeral)
    return Ciphertext(config.config_id, *sealed)


def sealed_bytes(share_bytes: int) -> int:
    """Return the size of the payload of a sealed share without extensions."""
    return len(PlaintextShare(b"").encode()) + share_bytes + TAG_BYTES


class _KeySection(Section):
    """A key in a file.

    Attributes:
        id: The number by which clients name it.
        aead: The cipher.
        secret: The private key, in Base64.
        retired: The time at which a newer key took its place, in seconds since 1970 (UTC).
    """

    id: int = Field(ge=0, lt=CONFIG_IDS)
    aead: AeadName
    secret: str = Field(pattern=r"^[A-Za-z0-9+/]{43}=$", description="44 characters of Base64")
    retired: int | None = Field(None, ge=0)


class _KeyFile(Section):
    keys: tuple[_KeySection, ...] = Field(strict=False, description="a list of tables")


def load_keys(path: Path) -> Keyring:
    """Read a file of keys written by `add_key`.

    Raises:
        InputError: If other users can read or write the file, or it has a mistake.
        OSError: If it cannot be read.
    """
    return _keyring(_read_keys(path))


def add_key(path: Path, now: float, aead: AeadName = "AES-128-GCM") -> Keyring:
    """Draw a key, and write it to a file in front of the earlier keys, which it retires.

    Keys that have been retired for `RETIRED_SECONDS` are deleted, so that nobody can open the
    reports to them any more.

    Args:
        path: The file, which may be new. Its former content is replaced completely or not at all.
        now: The time in seconds since 1970 (UTC).
    """
    earlier = _read_keys(path) if path.exists() else ()
    used = {key.id for key in earlier}
    # A random id: a client that has cached a lost key learns that it is outdated.
    config_id = secrets.choice([each for each in range(CONFIG_IDS) if each not in used])
    secret = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    retired = (
        key if key.retired is not None else key.model_copy(update={"retired": int(now)})
        for key in earlier
    )
    kept = (key for key in retired if now - (key.retired or 0) < RETIRED_SECONDS)
    keys = (_KeySection(id=config_id, aead=aead, secret=secret), *kept)
    text = tomli_w.dumps({"keys": [key.model_dump(exclude_defaults=True) for key in keys]})
    write_whole(path, text, private=True)
    return _keyring(keys)


def _read_keys(path: Path) -> tuple[_KeySection, ...]:
    with path.open("rb") as file:
        require_private(file, path)
    return read_toml(path, _KeyFile).keys


def _keyring(keys: Iterable[_KeySection]) -> Keyring:
    return Keyring(
        make_key(key.id, base64.b64decode(key.secret), key.aead, is_retired=key.retired is not None)
        for key in keys
    )
