"""Audit of the masked median, with two claims about the information that it reveals."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from docs.examples.masked_median import BITS, INPUTS, find_by_counts, masked_median

from veilring.testing import RoleClaims, audit


def find_median(inputs: Mapping[str, Sequence[int]]) -> int:
    """Return the right median."""
    numbers = sorted(chain(*inputs.values()))
    return numbers[(len(numbers) - 1) // 2]


def is_median(inputs: Mapping[str, Sequence[int]], results: Mapping[str, int | None]) -> None:
    """Require the median of the parties that took part."""
    for name, found in results.items():
        assert found == find_median(inputs), f"{name} found {found}"  # noqa: S101  (how a test speaks)


THE_COUNTS: Final = RoleClaims(
    masked_median,
    INPUTS,
    is_median,
    other_inputs={**INPUTS, "ben": (7, 6), "cy": (1,)},
    coalition=("ada",),
    permitted=lambda inputs: find_by_counts(chain(*inputs.values()), BITS).counts,
    bits=BITS,
    least=3,
    title="masked median, which states the counts that it reveals",
)
ONLY_THE_MEDIAN: Final = THE_COUNTS.replaced(
    other_inputs={**INPUTS, "cy": (6, 6, 6)},
    permitted=find_median,
    title="masked median, which claims to reveal the median only",
)


def main() -> None:
    """Audit both claims."""
    for claims in (THE_COUNTS, ONLY_THE_MEDIAN):
        print(audit(claims, quick=True), end="\n\n")


if __name__ == "__main__":
    main()
