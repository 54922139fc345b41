"""Seeds expanded into bytes and field elements, by TurboSHAKE128 (section "XofTurboShake128").

Each report has an expansion of its own, so all inputs and outputs are rows, one a report.
"""

from typing import Final

import numpy as np

from veilring.extras import name_missing_extras
from veilring.protocols.prio.algorithm.fields import Elements, Field, Octets

with name_missing_extras():
    from Crypto.Hash import TurboSHAKE128

DST_BYTES_MAX: Final = 255


def squeeze(domain: int, messages: Octets, length: int) -> Octets:
    """Return the TurboSHAKE128 of each row, shape (reports, length).

    Args:
        domain: The domain byte.
        messages: Shape (reports, bytes).
    """
    size = messages.shape[1]
    data = memoryview(np.ascontiguousarray(messages).reshape(-1))
    found = bytearray()
    for start in range(0, len(data), size):
        shake = TurboSHAKE128.new(domain=domain, data=data[start : start + size])
        found += shake.read(length)
    return np.frombuffer(found, dtype=np.uint8).reshape(len(messages), length)


def expand(field: Field, domain: int, messages: Octets, length: int) -> tuple[Elements, Octets]:
    """Return vectors of uniform elements, and their bytes (function `next_vec`).

    The draft takes the next bytes instead of a number that is not below the modulus.

    Args:
        messages: Shape (reports, bytes).
        length: The number of elements.
    """
    rows = squeeze(domain, messages, length * field.element_bytes)
    elements, canonical = field.decode(rows)
    for row in np.flatnonzero(~canonical):  # one element in 2^32 for Field64, in 2^59 for Field128
        rows[row] = _resample(field, domain, messages[row : row + 1], length)
        elements[..., row : row + 1], _ = field.decode(rows[row : row + 1])
    return elements, rows


def _resample(field: Field, domain: int, message: Octets, length: int) -> Octets:
    """Return the encoding of the first elements of an expansion that are below the modulus."""
    drawn = length
    while True:
        drawn += 1
        stream = squeeze(domain, message, drawn * field.element_bytes)
        elements, _ = field.decode(stream)
        kept = elements[:, field.is_canonical(elements)[:, 0]]
        if kept.shape[1] >= length:
            return field.encode(kept[:, :length])
