"""What an adversary believes of the parties' values before it has seen anything."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.leakage import uniform_values


@dataclass(frozen=True, slots=True)
class UniformPrior:
    """What the adversary believes of the others' values: independent and uniform.

    Attributes:
        rows_per_party: How many rows each party holds, N, at least 1.
        upper: They are uniform on [0, upper]; positive, at most `TopKParameters.upper`.

    Raises:
        InputError: If one is not positive.
    """

    rows_per_party: int
    upper: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is outside the documented ranges."""
        if self.rows_per_party < 1:
            raise InputError("rows_per_party", self.rows_per_party, "at least 1")
        if not 0 < self.upper < np.inf:
            raise InputError("upper", self.upper, "a finite number above 0")

    def draw(
        self, trials: int, parties: int, k: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return each party's k smallest values, shape (trials, parties, k)."""
        return uniform_values(trials, parties, k, self.rows_per_party, rng, self.upper)
