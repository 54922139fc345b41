"""Hashes of what all parties hold to be public, by which a lie told to some of them is found.

A party that is sent other queries, parameters or totals than the rest has another hash. Parts are
hashed with their lengths, so that no two lists of parts have the same bytes.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from numbers import Integral, Real
from types import MappingProxyType
from typing import Annotated, Final

import numpy as np
from pydantic import Field

DIGEST_BYTES: Final = 32  # SHA-256's
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})

Digest = Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
"""The hash of what its sender holds to be public."""


def digest_of(*parts: bytes) -> bytes:
    """Return the SHA-256 of the parts and their lengths."""
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()


def digest_of_names(parties: Iterable[str]) -> bytes:
    """Return the hash of the names of parties, in their order."""
    return digest_of(*(name.encode() for name in parties))


def written(value: object, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Write public parameters so that equal ones read the same, whatever types numbers have.

    Args:
        value: A dataclass of parameters, or one of its values.
        names: The names under which classes are written whose own names were changed: the hash of
            parameters is part of a protocol.
    """
    if is_dataclass(value):
        parts = ", ".join(written(getattr(value, field.name), names) for field in fields(value))
        name = type(value).__name__
        return f"{names.get(name, name)}({parts})"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return str(Fraction(float(value)))
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays, to the last number
        return repr(value)
