"""The numbers of a view: flat arrays under paths, their places and names, and new entries.

Any value can be converted: a message, an input, a result. New entries of a message are those that
the previous message of its kind does not contain. Masks hide repeated values among words, so only
real numbers are examined. A new entry comes from a party that had the numbers in between, and its
rank among the earlier entries reveals more about it.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.transport.messages import Message

Columns = NDArray[np.float32]
Mask = Bools


class Coordinate(NamedTuple):
    """One number of a view."""

    message: str
    """The message, or the other object, that it belongs to."""
    field: str
    """The field of the message; empty if the number describes the whole message."""
    what: str
    """The name of the number."""
    is_combined: bool = False
    """Whether it is computed from several messages."""

    def __str__(self) -> str:
        field = f", {self.field}" if self.field else ""
        return f"{self.message}{field}: {self.what}"


class Slot(NamedTuple):
    """A message by its place."""

    member: str
    sent: bool
    peer: str
    number: int
    """The number of earlier messages of the channel."""
    kind: str

    def __str__(self) -> str:
        ends = (self.member, self.peer) if self.sent else (self.peer, self.member)
        return f"message {self.number + 1} from {ends[0]} to {ends[1]} ({self.kind})"


class Place(NamedTuple):
    """The origin of numbers in a view."""

    message: str
    field: str
    slot: Slot | None = None
    is_combined: bool = False

    def name(self, what: str) -> Coordinate:
        """Return the coordinate of a number that is computed here."""
        return Coordinate(self.message, self.field, what, self.is_combined)


class Shape(NamedTuple):
    """The number and kind of the numbers in a place."""

    bits: int
    entries: int


@dataclass(frozen=True, slots=True)
class Block:
    """The numbers of one place over some runs.

    Attributes:
        bits: The size of the words, or 0 for real numbers.
        values: Shape (runs, entries), uint64 or float64.
        missing: Whether a run lacks an entry, shape (runs, entries).
        length: The number of entries of each run, shape (runs,); -1 if it lacks the place.
    """

    bits: int
    values: NDArray[Any]
    missing: Mask
    length: Ints

    @property
    def entries(self) -> int:
        """The number of entries."""
        return int(self.values.shape[1])

    def is_like(self, other: "Block") -> bool:
        """Return whether both are words, or both real, with the same number of entries."""
        return self.entries == other.entries > 0 and (self.bits == 0) == (other.bits == 0)

    def plus(self, other: "Block") -> "Block":
        """Return the sums of the entries, as words of this block's size."""
        return self._merged(other, self.values + other.values)

    def minus(self, other: "Block") -> "Block":
        """Return the differences of the entries, as words of this block's size."""
        return self._merged(other, self.values - other.values)

    def _merged(self, other: "Block", values: NDArray[Any]) -> "Block":
        if self.bits > 0:
            values &= np.uint64((1 << self.bits) - 1)
        return Block(
            self.bits, values, self.missing | other.missing, np.minimum(self.length, other.length)
        )


def add_blocks(blocks: Sequence[Block]) -> Block:
    """Return the sum of blocks of the same kind."""
    return reduce(Block.plus, blocks)


_ENTRIES_MAX: Final = 64
"""The size limit of arrays, because each entry is compared with each other one."""


class _New(NamedTuple):
    """The new entries of one message in each run, of shape (runs,) each; NaN in runs without any.

    Attributes:
        beyond: The greatest new entry minus the least entry of the previous message that is gone.
        passed: The number of kept entries above the least new entry.
    """

    number: Floats
    least: Floats
    greatest: Floats
    above: Floats
    beyond: Floats
    passed: Floats


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


_WORD_BITS: Final = 64
_WORD_MAX: Final = (1 << _WORD_BITS) - 1
WORD_BYTES: Final = _WORD_BITS // 8
_DEPTH_MAX: Final = 16  # a structure that contains itself is refused before a stack overflow


class Leaf(NamedTuple):
    """The numbers under one path."""

    bits: int
    """The size of the words, or 0 where the numbers are real."""
    values: NDArray[Any]
    """Shape (entries,), as uint64 or float64."""


def find_leaves(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, Leaf]]:
    """Yield all numbers in a value, with the paths to them.

    Bytes become words of 64 bits, and texts their checksum; both also have a length. Dataclasses,
    mappings, tuples and lists are traversed; a list that contains only numbers or only bytes is one
    leaf.
    """
    if depth > _DEPTH_MAX:
        raise _not_data(value, path)
    match value:
        case None:
            return
        case np.ndarray() | np.generic():
            yield path, _numbers(np.asarray(value), path)
        case bool() | int() | float():
            yield path, _scalars([value])
        case bytes():
            yield path, _words(value)
            yield f"length of {path}", _scalars([len(value)])
        case str():
            yield path, _scalars([zlib.crc32(value.encode())])
            yield f"length of {path}", _scalars([len(value)])
        case _:
            yield from _find_within(value, path, depth)


def _find_within(value: object, path: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    parts = parts_of(value)
    if parts is None:
        raise _not_data(value, path)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        yield f"length of {path}", _scalars([len(value)])
        together = _together(value)
        if together is not None:
            yield path, together
            return
    for name, part in parts.items():
        yield from find_leaves(part, _join(path, name), depth + 1)


def parts_of(value: object) -> Mapping[str, object] | None:
    """Return the parts of a container by the last step of their paths; None for other values."""
    if isinstance(value, Message):
        return dict(zip(value.names, value.fields(), strict=True))
    if isinstance(value, Mapping):
        return {str(key): value[key] for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", [f"[{place}]" for place in range(len(value))])
        return dict(zip(names, value, strict=True))
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return getattr(value, "__dict__", None) or None


def _join(path: str, name: str) -> str:
    return f"{path}{name}" if not path or name.startswith("[") else f"{path}.{name}"


def _together(values: list[Any] | tuple[Any, ...]) -> Leaf | None:
    """Return scalars of one kind as one leaf; None for other values."""
    kinds = {type(value) for value in values}
    if not kinds:
        return None
    if kinds <= {bool, int} or kinds <= {int, float}:
        return _scalars(values)
    if kinds == {bytes}:
        return Leaf(_WORD_BITS, np.array([_words(value).values[0] for value in values], np.uint64))
    return None


def _scalars(values: list[Any] | tuple[Any, ...]) -> Leaf:
    if any(isinstance(value, float) for value in values):
        return Leaf(0, np.array(values, np.float64))
    return Leaf(_WORD_BITS, np.array([value & _WORD_MAX for value in values], np.uint64))


def _words(value: bytes) -> Leaf:
    """Return the first and last eight bytes as words; the bytes between would reveal no more."""
    ends = (value[:WORD_BYTES], value[-WORD_BYTES:])
    return Leaf(_WORD_BITS, np.array([int.from_bytes(end, "big") for end in ends], np.uint64))


def _numbers(array: NDArray[Any], path: str) -> Leaf:
    flat, width = array.ravel(), array.dtype.itemsize
    match array.dtype.kind:
        case "f":
            return Leaf(0, flat.astype(np.float64, copy=False))
        case "b":
            return Leaf(1, flat.astype(np.uint64))
        case "u":
            return Leaf(8 * width, flat.astype(np.uint64, copy=False))
        case "i":
            return Leaf(8 * width, flat.astype(f"u{width}").astype(np.uint64))
    raise _not_data(array, path)


def _not_data(value: object, path: str) -> InputError:
    place = f" at {path}" if path else ""
    return InputError.because(
        f"an audit cannot compare a {type(value).__name__}{place}; give numbers, arrays, bytes, "
        "texts, or containers and dataclasses of these",
        field="value",
    )


def same_leaves(one: object, other: object) -> bool:
    """Return whether two values have the same numbers under the same paths."""
    ours, theirs = dict(find_leaves(one)), dict(find_leaves(other))
    return ours.keys() == theirs.keys() and all(
        leaf.bits == theirs[path].bits and np.array_equal(leaf.values, theirs[path].values)
        for path, leaf in ours.items()
    )
