"""Seeds expanded into seeds and field elements, by `XofTurboShake128` (section of that name).

Each report has an expansion of its own, so all inputs and outputs are rows, one a report. An input
may also be bytes, which are those of every report.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from veilring.extras import name_missing_extras
from veilring.protocols.prio.algorithm.drafts import Draft
from veilring.protocols.prio.algorithm.fields import Elements, Field, Octets
from veilring.protocols.prio.algorithm.keccak import permutations, turbo_shake

with name_missing_extras():
    from Crypto.Hash import TurboSHAKE128

# From this number of reports on, the permutations of short messages take less time at once than
# the calls of the library take.
MANY: Final = 256
SHORT: Final = 3


@dataclass(frozen=True)
class Xof:
    """The expansions of one scheme.

    Attributes:
        draft: The constants of the draft.
        algorithm_id: The code point of the scheme.
    """

    draft: Draft
    algorithm_id: int

    def derive(self, usage: int, seeds: Octets | bytes, *binder: Octets | bytes) -> Octets:
        """Return a seed for each report (function `derive_seed`).

        Args:
            usage: The number of the purpose in the draft.
            seeds: The seeds to derive from.
            binder: The parts of the string that the result depends on.
        """
        messages = self._messages(usage, seeds, *binder)
        return squeeze(self.draft.xof_domain, messages, self.draft.seed_bytes)

    def expand(
        self, usage: int, seeds: Octets | bytes, *binder: Octets | bytes, field: Field, length: int
    ) -> tuple[Elements, Octets]:
        """Return uniform vectors, and their encoding (function `expand_into_vec`).

        Args:
            usage: The number of the purpose in the draft.
            seeds: The seeds to expand.
            binder: The parts of the string that the result depends on.
            field: The field of the elements.
            length: The number of elements.
        """
        messages = self._messages(usage, seeds, *binder)
        return sample(field, self.draft.xof_domain, messages, length)

    def _messages(self, usage: int, *parts: Octets | bytes) -> Octets:
        """Return the input of TurboSHAKE128: the domain separation tag, the seed and the binder."""
        tag = (
            self.draft.version.to_bytes(1)
            + self.draft.algorithm_class.to_bytes(1)
            + self.algorithm_id.to_bytes(4)
            + usage.to_bytes(2)
        )
        rows = [
            np.frombuffer(part, dtype=np.uint8)[None] if isinstance(part, bytes) else part
            for part in (len(tag).to_bytes(1) + tag, *parts)
        ]
        reports = max(map(len, rows)) if all(map(len, rows)) else 0
        return np.hstack([np.broadcast_to(row, (reports, row.shape[1])) for row in rows])


def squeeze(domain: int, messages: Octets, length: int) -> Octets:
    """Return the TurboSHAKE128 of each row, shape (reports, length).

    Args:
        domain: The domain byte.
        messages: Shape (reports, bytes).
        length: The number of bytes of a result, at least 1.
    """
    reports, size = messages.shape
    if reports >= MANY and permutations(size, length) <= SHORT:
        return turbo_shake(domain, messages, length)
    data, shake = messages.tobytes(), TurboSHAKE128.new(domain=domain)
    rows = [
        shake.new(data[start : start + size]).read(length) for start in range(0, len(data), size)
    ]
    return np.frombuffer(bytearray().join(rows), dtype=np.uint8).reshape(reports, length)


def sample(field: Field, domain: int, messages: Octets, length: int) -> tuple[Elements, Octets]:
    """Return vectors of uniform elements, and their encoding (function `next_vec`).

    If a number is not below the modulus, the next bytes replace it.

    Args:
        field: The field of the elements.
        domain: The domain byte.
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
        elements, _ = field.decode(squeeze(domain, message, drawn * field.element_bytes))
        kept = elements[:, field.is_canonical(elements)[:, 0]]
        if kept.shape[1] >= length:
            return field.encode(kept[:, :length])
