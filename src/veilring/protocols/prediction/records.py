"""Records as a curator hands them over: an id, a direction and a label each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.protocols.prediction.algorithm.rows import require_quantised

# A hash in hexadecimal has 64 characters, and a UUID 36; each record keeps this much room for it.
ID_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Records:
    """Some records. Their values are never shown.

    Attributes:
        ids: Whose each is: 1 to `ID_BYTES_MAX` bytes of printable UTF-8, each once.
        features: Quantised directions, shape (records, features).
        labels: Class numbers from 0, shape (records,).

    Raises:
        InputError: If the shapes do not fit, an id is none, or a row is not quantised.
    """

    ids: tuple[str, ...]
    features: NDArray[np.int16]
    labels: NDArray[np.uint16]

    def __post_init__(self) -> None:
        count = len(self.ids)
        fits = self.features.ndim == 2 and len(self.features) == count  # noqa: PLR2004 (a table has two axes)
        require(fits, "features", f"of shape {self.features.shape}", f"({count}, features)")
        shape = self.labels.shape
        require(shape == (count,), "labels", f"of shape {shape}", f"({count},)")
        require_ids(self.ids)
        require_quantised("features", self.directions, self.features.shape[1])

    @classmethod
    def of(
        cls, ids: Sequence[str], quantised: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> Self:
        """Return records of what `quantise` gave.

        Raises:
            InputError: As above, or if a label has no two bytes.
        """
        fits = not labels.size or (labels.min() >= 0 and labels.max() <= np.iinfo(np.uint16).max)
        require(fits, "labels", "out of range", "class numbers from 0")
        return cls(tuple(ids), quantised.astype(np.int16), labels.astype(np.uint16))

    @property
    def directions(self) -> NDArray[np.float32]:
        """The features as a predictor takes them."""
        return self.features.astype(np.float32)

    def take(self, places: Sequence[int]) -> "Records":
        """Return some of them."""
        ids = tuple(self.ids[place] for place in places)
        return Records(ids, self.features[places], self.labels[places])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Records({len(self)} of {self.features.shape[1]} features)"


def require_ids(ids: Sequence[str]) -> None:
    """Refuse ids that are none, or that occur twice.

    Raises:
        InputError: It says at which place, and not which.
    """
    for place, name in enumerate(ids):
        if not (name.isprintable() and 0 < len(name.encode(errors="replace")) <= ID_BYTES_MAX):
            allowed = f"1 to {ID_BYTES_MAX} bytes that can be printed"
            raise InputError("ids", f"no id at place {place + 1}", allowed)
    if len(set(ids)) < len(ids):
        raise InputError("ids", "not all different", "each once")
