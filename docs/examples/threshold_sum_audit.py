"""Audit of the threshold sum, with one colluder and with one too many, and a hasty variant."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from docs.examples.threshold_sum import (
    INPUTS,
    PRIME,
    Chosen,
    Elements,
    Total,
    deal,
    numbers,
    open_sum,
    threshold_sum,
)

from veilring import Party
from veilring.testing import RoleClaims, audit


async def hasty_sum(party: Party, own: Elements, *, threshold: int) -> Total:
    """Add up the numbers whose shares arrived at this party, in two rounds: a mistake."""
    held = await deal(party, own, threshold)
    arrived = tuple(name for name in party.parties if name in held)
    mine = Chosen(dealers=arrived, holders=party.parties)
    return await open_sum(party, held, mine, threshold, number=2)


def add_up(inputs: Mapping[str, Elements], dealers: Iterable[str]) -> tuple[int, ...]:
    """Return the right sums of some parties' numbers."""
    return tuple((np.add.reduce([inputs[name] for name in dealers]) % PRIME).tolist())


def is_total(inputs: Mapping[str, Elements], results: Mapping[str, Total]) -> None:
    """Require that all parties have the sums of the same dealers."""
    for name, (found, dealers) in results.items():
        right = add_up(inputs, dealers)
        assert found == right, f"{name} found {found}, not {right}"  # noqa: S101  (how a test speaks)
    assert len(set(results.values())) <= 1, f"parties have {set(results.values())}"  # noqa: S101  (as above)


ONE_COLLUDER: Final = RoleClaims(
    threshold_sum,
    INPUTS,
    is_total,
    other_inputs={**INPUTS, "cy": numbers(0), "dee": numbers(5)},
    coalition=("ada",),
    permitted=lambda inputs: add_up(inputs, inputs),
    threshold=1,
    least=3,
    title="threshold sum with threshold 1, one colluder",
)
TWO_COLLUDERS: Final = ONE_COLLUDER.replaced(
    coalition=("ada", "ben"), title="threshold sum with threshold 1, two colluders"
)
HASTY: Final = ONE_COLLUDER.replaced(role=hasty_sum, title="threshold sum without agreement")


def main() -> None:
    """Audit the sum against one colluder, and against two."""
    for claims in (ONE_COLLUDER, TWO_COLLUDERS):
        print(audit(claims, quick=True), end="\n\n")


if __name__ == "__main__":
    main()
