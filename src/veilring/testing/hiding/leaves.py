"""Conversion of any value to flat arrays of numbers under paths: a message, an input, a result."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.transport.messages import Message

_WORD_BITS: Final = 64
_WORD_MAX: Final = (1 << _WORD_BITS) - 1
_WORD_BYTES: Final = _WORD_BITS // 8
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

    Args:
        path: The path to it.
        depth: The number of steps that led here.

    Raises:
        InputError: If a part of the value has another type.
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
    parts = _parts(value)
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


def _parts(value: object) -> Mapping[str, object] | None:
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
    ends = (value[:_WORD_BYTES], value[-_WORD_BYTES:])
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
    """Return whether two values have the same numbers under the same paths.

    Raises:
        InputError: If a part of either value cannot be compared.
    """
    ours, theirs = dict(find_leaves(one)), dict(find_leaves(other))
    return ours.keys() == theirs.keys() and all(
        leaf.bits == theirs[path].bits and np.array_equal(leaf.values, theirs[path].values)
        for path, leaf in ours.items()
    )
