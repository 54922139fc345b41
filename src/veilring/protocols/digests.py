"""Hashes of public inputs, which detect a party that sends different data to different parties.

A party that received different queries, parameters or totals than the others has another hash.
Parts are hashed with their lengths, so no two lists of parts have the same bytes. A public file is
hashed as canonical JSON.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from veilring.data.table import OPTIONAL

DIGEST_BYTES: Final = 32  # SHA-256's
_NO_NAMES: Final[Mapping[str, str]] = {}

Digest = Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
"""The hash of the sender's public inputs."""


def digest_of(*parts: bytes) -> bytes:
    """Return the SHA-256 of the parts and their lengths."""
    return hashlib.sha256(b"".join([len(p).to_bytes(8, "big") + p for p in parts])).digest()


def digests_of_each(data: bytes, size: int) -> list[bytes]:
    """Return `digest_of` each part of a size: thousands of small ones, in a third of the time."""
    head, starts = size.to_bytes(8, "big"), range(0, len(data), size)
    return [hashlib.sha256(head + data[start : start + size]).digest() for start in starts]


def digest_of_names(parties: Iterable[str]) -> bytes:
    """Return the hash of the names of parties, in their order."""
    return digest_of(*(name.encode() for name in parties))


def written(value: object, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Serialise public parameters so that equal ones give equal text, whatever types numbers have.

    Args:
        names: The names to use for renamed classes, because the hash of parameters is part of a
            protocol.
    """
    if is_dataclass(value):
        held = [(field.metadata, getattr(value, field.name)) for field in fields(value)]
        kept = (each for marks, each in held if each is not None or OPTIONAL not in marks)
        parts = ", ".join(written(each, names) for each in kept)
        name = type(value).__name__
        return f"{names.get(name, name)}({parts})"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return str(Fraction(float(value)))
    if value is None or isinstance(value, str):
        return repr(value)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays, in full
        return repr(value)


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """Return JSON whose bytes are equal if and only if the contents are equal.

    Raises:
        TypeError: If a value is not plain data.
        ValueError: If a number is not finite.
    """
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
    )
    return text.encode()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
