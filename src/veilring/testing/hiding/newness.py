"""New entries of a message: those that the previous message of its kind does not contain.

Masks hide repeated values among words, so only real numbers are examined. A new entry comes from a
party that had the numbers in between, and its rank among the earlier entries reveals more about it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.testing.hiding.places import Block, Columns, Coordinate, Place, Slot

_ENTRIES_MAX: Final = 64
"""The size limit of arrays, because each entry is compared with each other one."""


class _New(NamedTuple):
    """The new entries of one message in each run, of shape (runs,) each; NaN in runs without any.

    Attributes:
        number: The number of new entries.
        least: The least new entry.
        greatest: The greatest new entry.
        above: The least new entry minus the greatest entry of the previous message.
        beyond: The greatest new entry minus the least entry of the previous message that is gone.
        passed: The number of kept entries above the least new entry.
    """

    number: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    above: NDArray[np.float64]
    beyond: NDArray[np.float64]
    passed: NDArray[np.float64]


_NAMES: Final = (
    "number of new entries",
    "least new entry",
    "greatest new entry",
    "least new entry minus the greatest entry of the previous message",
    "greatest new entry minus the least entry that is gone",
    "number of kept entries above the least new entry",
)
"""The names of the fields of `_New`."""


def columns_of_new(blocks: Mapping[Place, Block]) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the new entries of each received message, and of the last one of each channel."""
    last: dict[tuple[str, str, int], Block] = {}
    channels: dict[tuple[str, str, str, str], list[_New]] = {}
    final: dict[int, Block] = {}
    for place, slot, block in _arrays(blocks):
        key = slot.kind, place.field, block.entries
        before, last[key], final[block.entries] = last.get(key), block, block
        if slot.sent:
            continue
        new = _new_in(block, before)
        for what, values in zip(_NAMES, new, strict=True):
            yield place.name(what), _column(values)
        channels.setdefault((slot.member, slot.peer, slot.kind, place.field), []).append(new)
    for (member, peer, kind, field), found in channels.items():
        where = Place(f"the last {kind} message from {peer} to {member} with a new entry", field)
        yield from _last_of(where, found, final)


def _arrays(blocks: Mapping[Place, Block]) -> Iterator[tuple[Place, Slot, Block]]:
    for place, block in blocks.items():
        slot = place.slot
        lengths = place.field.startswith("length of")
        if (
            slot is not None
            and not lengths
            and not block.bits
            and 0 < block.entries <= _ENTRIES_MAX
        ):
            yield place, slot, block


def _new_in(block: Block, before: Block | None) -> _New:
    there = ~block.missing
    ceiling = gone = np.full(len(block.values), np.nan)
    new = there
    if before is not None:
        known = ~before.missing
        equal = block.values[:, :, None] == before.values[:, None, :]
        equal &= known[:, None, :] & there[:, :, None]
        new = there & ~equal.any(axis=2)
        ceiling = np.where(known, before.values, -np.inf).max(axis=1)
        gone = np.where(known & ~equal.any(axis=1), before.values, np.inf).min(axis=1)
    some = new.any(axis=1)
    least = np.where(some, np.where(new, block.values, np.inf).min(axis=1), np.nan)
    greatest = np.where(some, np.where(new, block.values, -np.inf).max(axis=1), np.nan)
    passed = (there & ~new & (block.values > least[:, None])).sum(axis=1)
    number = new.sum(axis=1).astype(np.float64)
    return _New(
        number, least, greatest, least - ceiling, greatest - gone, passed.astype(np.float64)
    )


def _last_of(
    where: Place, found: Sequence[_New], final: Mapping[int, Block]
) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the new entries of the last message of a channel that has any."""
    some = np.stack([new.number > 0 for new in found])
    at = len(found) - 1 - some[::-1].argmax(axis=0)
    earlier = np.arange(len(found))[:, None] < at
    least = np.stack([new.least for new in found])
    floor = np.where(some & earlier, least, np.inf).min(axis=0)
    run = np.arange(some.shape[1])
    nothing = np.asarray(~some.any(axis=0))
    picked = _New(*(np.stack(each)[at, run] for each in zip(*found, strict=True)))
    for what, values in zip(_NAMES, picked, strict=True):
        yield where.name(what), _column(np.where(nothing, np.nan, values))
    yield where.name("number of this message"), _column(np.where(nothing, np.nan, at))
    for end, values in (("least", picked.least), ("greatest", picked.greatest)):
        what = f"{end} new entry minus the least earlier new entry"
        yield where.name(what), _column(np.where(nothing, np.nan, values - floor))
    for block in final.values():
        entries = np.where(block.missing, np.nan, block.values)
        kept = (entries == picked.greatest[:, None]).any(axis=1)
        below = (entries < picked.greatest[:, None]).sum(axis=1)
        ends = f"the last array of {block.entries} entries"
        yield (
            where.name(f"whether the greatest new entry is in {ends}"),
            _column(np.where(nothing, np.nan, kept)),
        )
        yield (
            where.name(f"rank of the greatest new entry in {ends}"),
            _column(np.where(nothing, np.nan, below)),
        )


def _column(values: NDArray[np.generic]) -> Columns:
    """Return finite numbers unchanged, and -1 where no entry is new or no message came before."""
    return np.where(np.isfinite(values), values, -1.0).astype(np.float32)
