"""The ways to compute a secure sum; how each is run is in `ring.roles.sums`."""

from dataclasses import dataclass
from typing import Literal

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.checks import SMALLEST_RING


@dataclass(frozen=True, slots=True)
class SumMethod:
    """How a sum is computed.

    Attributes:
        name: `ring`, `cycles` or `shares`.
        cycles: How many edge-disjoint cycles `cycles` uses: at least 2, and at most
            `(n - 1) // 2` for n parties. The others leave it at 1.

    Raises:
        InputError: If the two do not fit.
    """

    name: Literal["ring", "cycles", "shares"] = "ring"
    cycles: int = 1

    def __post_init__(self) -> None:
        if self.name not in {"ring", "cycles", "shares"}:
            raise InputError("sum.name", self.name, "ring, cycles or shares")
        if (self.name == "cycles") != (self.cycles > 1) or self.cycles < 1:
            raise InputError("sum.cycles", self.cycles, "2 or more for cycles, 1 for the others")

    def check(self, parties: int) -> None:
        """Refuse a number of parties that the method cannot serve.

        Raises:
            InputError: If there are fewer than three, or too few for so many cycles.
        """
        if parties < SMALLEST_RING:
            raise InputError("parties", parties, f"at least {SMALLEST_RING}")
        most = (parties - 1) // 2
        if self.cycles > most:
            raise InputError("sum.cycles", self.cycles, f"at most {most} for {parties} parties")
