"""Random draws of a coalition's members: a record of them, and what they remove from a view.

A member knows its own draws and can subtract them from whatever contains them: a number that it
added to a total, or a mask of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import numpy as np
from numpy.random import BitGenerator, Generator

from veilring.testing.hiding.places import Block, Place

DRAWS_MAX: Final = 8
"""The number of draws of a member that are recorded: coordinates share the rate of false alarms."""
_NUMERIC: Final = "biuf"
# Keys are drawn as bytes, and `stripping` removes the masks that are derived from them.
_NOT_NUMBERS: Final = frozenset({"bytes", "shuffle", "spawn"})


class RecordingGenerator(Generator):
    """A generator that keeps a copy of the numbers that it draws, call by call.

    Args:
        bit_generator: The source of randomness; its stream is the same as without a record.

    Attributes:
        drawn: The first `DRAWS_MAX` results that are numbers or arrays of numbers.
    """

    def __init__(self, bit_generator: BitGenerator) -> None:
        super().__init__(bit_generator)
        self.drawn: list[object] = []
        self._is_drawing = False


def _recorded(draw: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(draw)
    def record(self: RecordingGenerator, *args: Any, **options: Any) -> object:
        if self._is_drawing:  # NumPy's methods call one another; only the caller's result counts
            return draw(self, *args, **options)
        self._is_drawing = True
        try:
            result = draw(self, *args, **options)
        finally:
            self._is_drawing = False
        if len(self.drawn) < DRAWS_MAX and np.asarray(result).dtype.kind in _NUMERIC:
            self.drawn.append(np.copy(result))
        return result

    return record


for _name, _draw in vars(Generator).items():
    if callable(_draw) and not _name.startswith("_") and _name not in _NOT_NUMBERS:
        setattr(RecordingGenerator, _name, _recorded(_draw))


def subtract_draws(
    targets: Mapping[Place, Block], draws: Mapping[str, Sequence[Block]]
) -> Iterator[tuple[Place, Block]]:
    """Yield numbers of the view minus each draw of the members, and minus sums of their draws.

    Args:
        targets: The numbers that may contain draws.
        draws: The draws of each member in order.
    """
    for name, known in _subtrahends(draws):
        for place, block in targets.items():
            if block.is_like(known):
                where = f"{place.message} minus {name}"
                yield Place(where, place.field, place.slot, is_combined=True), block.minus(known)


def _subtrahends(draws: Mapping[str, Sequence[Block]]) -> Iterator[tuple[str, Block]]:
    """Yield each draw, then the sums of the members' draws of one number and of all draws."""
    for member, drawn in draws.items():
        for number, block in enumerate(drawn, start=1):
            yield f"draw {number} of {member}", block
    if len(draws) > 1:
        for number, together in enumerate(zip(*draws.values(), strict=False), start=1):
            yield from _sum(f"draw {number} of all members", together)
    if any(len(drawn) > 1 for drawn in draws.values()):
        yield from _sum(
            "all draws of the members", [each for own in draws.values() for each in own]
        )


def _sum(name: str, blocks: Sequence[Block]) -> Iterator[tuple[str, Block]]:
    first, *others = blocks
    if all(first.is_like(other) for other in others):
        for other in others:
            first = first.plus(other)
        yield name, first
