"""What a classifier promises, to whom, and what it has spent: one form for all families."""

from dataclasses import dataclass
from typing import Final

RANGES_TELL: Final = (
    "The ranges were taken from the rows and reveal something of them, so that no ε holds: "
    "give public ranges."
)
"""A sentence of a note, where ranges are those of private rows."""
SEED_TELLS: Final = (
    "The noise is that of a seed, so that no ε holds against a reader who knows the seed: "
    "leave out random_state."
)
"""A sentence of a note, where an ε would rest on seeded noise."""


class PrivacyLeakWarning(UserWarning):
    """Shown where an estimator reveals more than its ε says: by its ranges, a seed, or a δ."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """A promise of privacy, in the words of the family that makes it.

    Two of these are comparable only where `protects`, `against`, `unit` and `measure` agree.

    Attributes:
        protects: Whose what.
        against: Whom it is hidden from.
        trusts: What is assumed of whom.
        epsilon: What has been spent since `fit`; none where nothing bounds what is leaked.
        delta: The probability that comes with it; 0 where the promise is pure.
        unit: What the promise is about: one row, one report or one query.
        measure: The kind of promise.
        note: What else has to be known.
    """

    protects: str
    against: str
    trusts: str
    epsilon: float | None
    delta: float
    unit: str
    measure: str
    note: str = ""
