"""Coordinates of a coalition's view: the numbers that a test, a classifier or a reader examines.

A layout is fixed on a few runs before any run is tested: the messages that a member receives and
sends, by their place in their channel, their fields, and numbers computed from these. If a run
differs from the layout in a size or a number, separate coordinates show that.

The coordinates are:

- for each message, its size, its instant and its place among all messages;
- for each array, its length, the places of its extremes, the number of its different entries, and
  the number of its entries that are the member's own or in other messages;
- for each entry, its value, its value modulo powers of two (for a real number, its lowest bits),
  its rank among the member's own numbers, whether another message has it, and its difference from
  the entry before;
- for each array, its entries in ascending order; for real numbers, also which of them are new.

Words are also compared after subtracting the previous message, after subtracting the coalition's
messages to that party, after adding them up over all parties, and as stripped by the coalition. The
words that one party sent to two members are added and subtracted, also with one of them doubled, as
for two of Shamir's shares. On request, the members' random draws are subtracted from received
messages, totals and results.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats, Ints
from veilring.nodes.journal import Seen
from veilring.testing.hiding.leaves import (
    Block,
    Columns,
    Coordinate,
    Leaf,
    Mask,
    Place,
    Shape,
    Slot,
    add_blocks,
    columns_of_new,
    find_leaves,
)
from veilring.testing.hiding.worlds import Arrival, MemberView, Played, subtract_draws

Strip = Callable[[Mapping[str, MemberView]], Mapping[str, object]]
"""Computes more from all members' views, by name: words minus the masks that members know."""
# The number of entries of an array that are examined, spaced evenly over a longer array.
ENTRIES_MAX: Final = 16
# Coordinates share the rate of false alarms, and a hundred thousand runs of these take 400 MB. Of
# more coordinates, those that vary come first, and each field keeps its first ones.
COORDINATES_MAX: Final = 1_024
_READ_AT_ONCE: Final = 1_000  # the number of runs whose views are held at once, in a few MB
_MODULI: Final = (2, 16, 256)
_MODULI_COMBINED: Final = (16,)
# The messages of a channel that are combined in each way, and that draws are subtracted from: masks
# are swapped, then used.
_COMBINED_MAX: Final = 2
# Pairs of members whose messages from one party are combined: all of a coalition of three.
_PAIRS_MAX: Final = 3
_LOW_BITS: Final = 256
_WORD_MAX: Final = (1 << 64) - 1
# The entries of other messages that a message is compared with, spread over all of them.
_KNOWN_MAX: Final = 128

_INPUT: Final = "the input of "
_RESULT: Final = "the result of "
_STRIPPED: Final = "what the coalition can strip"
_DRAW: Final = "random draws of "
_TOTAL: Final = "the sum over "

_Held = tuple[Slot, str, Block]
"""A message, one of its fields, and the numbers there."""


class _Alike(NamedTuple):
    """The properties that arrays must share to be added."""

    member: str
    bits: int
    entries: int


def _stack(leaves: Sequence[Leaf | None], shape: Shape) -> Block:
    """Return the leaves of one place in the shape that the layout fixes."""
    dtype = np.float64 if shape.bits == 0 else np.uint64
    values = np.zeros((len(leaves), shape.entries), dtype)
    missing = np.ones(values.shape, np.bool_)
    length = np.full(len(leaves), -1)
    for run, leaf in enumerate(leaves):
        if leaf is not None and (leaf.bits == 0) == (shape.bits == 0):
            here = min(len(leaf.values), shape.entries)
            values[run, :here], missing[run, :here] = leaf.values[:here], False
            length[run] = len(leaf.values)
    return Block(shape.bits, values, missing, length)


class _Parts(NamedTuple):
    """The messages, counts and other values of one run."""

    slots: dict[tuple[str, bool, str, int], tuple[Seen, Floats]]
    """The messages, with their metadata in the order of `Arrival`."""
    counts: dict[str, float]
    """The number of messages of each channel."""
    others: dict[Place, Leaf]
    """The inputs, the results, the stripped values, and the members' random draws."""


def _take_apart(played: Played, strip: Strip | None, *, with_draws: bool) -> _Parts:
    slots, counts = {}, Counter[str]()
    for member, view in played.views.items():
        for sent, seen, arrivals in (
            (False, view.received, view.received_at),
            (True, view.sent, view.sent_at),
        ):
            numbers = Counter[str]()
            for message, arrival in zip(seen, arrivals, strict=True):
                key = (member, sent, message.sender, numbers[message.sender])
                slots[key] = (message, np.array(arrival, np.float64))
                numbers[message.sender] += 1
            for peer, number in numbers.items():
                ends = (member, peer) if sent else (peer, member)
                counts[f"the channel from {ends[0]} to {ends[1]}"] = number
    others: dict[Place, Leaf] = {}
    for member in played.views:
        others |= _of(_INPUT + member, played.inputs[member])
    for party, result in played.results.items():
        others |= _of(_RESULT + party, result)
    if strip is not None:
        others |= _of(_STRIPPED, strip(played.views))
    if with_draws:
        for member, view in played.views.items():
            others |= _of(_DRAW + member, dict(enumerate(view.drawn)))
    return _Parts(slots, dict(counts), others)


def _of(message: str, value: object) -> dict[Place, Leaf]:
    return {Place(message, path): leaf for path, leaf in find_leaves(value)}


class Layout:
    """The coordinates of views, fixed on runs that are not tested.

    Attributes:
        coordinates: The names of the coordinates, at most `COORDINATES_MAX`.
    """

    def __init__(
        self,
        pilot: Sequence[Played],
        strip: Strip | None = None,
        *,
        with_sent: bool = True,
        with_times: bool = True,
        with_draws: bool = False,
    ) -> None:
        self._strip, self._with_draws = strip, with_draws
        self._with_sent, self._with_times = with_sent, with_times
        self._members = tuple(pilot[0].views)
        parts = [self._take(played) for played in pilot]
        self._slots = _slots_of(parts)
        self._channels = sorted({channel for part in parts for channel in part.counts})
        self._shapes = _shapes_of(self._leaves(parts))
        self._entries = ENTRIES_MAX
        columns = self._columns(parts)
        while len(columns) > COORDINATES_MAX and self._entries > 1:
            self._entries //= 2
            columns = self._columns(parts)
        different = _without_copies(columns)
        varied, constant = _divided(different, columns)
        kept = _shared_out(varied, COORDINATES_MAX)
        kept += _shared_out(constant, COORDINATES_MAX - len(kept))
        self.left_out = len(different) - len(kept)
        self.coordinates: tuple[Coordinate, ...] = tuple(kept)

    def read(self, played: Iterable[Played]) -> Columns:
        """Return the coordinates of runs, shape (runs, coordinates); NaN marks absent values."""
        left = iter(played)
        parts = [np.empty((0, len(self.coordinates)), np.float32)]
        while chunk := [self._take(each) for each in islice(left, _READ_AT_ONCE)]:
            columns = self._columns(chunk)
            parts.append(np.stack([columns[name] for name in self.coordinates], axis=1))
        return np.concatenate(parts)

    def of_outputs(self, members: Iterable[str]) -> Mask:
        """Return whether each coordinate belongs to an input or a result of a member."""
        known = {start + member for start in (_INPUT, _RESULT) for member in members}
        return np.array([name.message in known for name in self.coordinates])

    def of_views(self, members: Iterable[str]) -> Mask:
        """Return whether members see each coordinate: all but other parties' results."""
        known = self.of_outputs(members)
        others = np.array([name.message.startswith(_RESULT) for name in self.coordinates])
        return np.asarray(known | ~others)

    def _take(self, played: Played) -> _Parts:
        parts = _take_apart(played, self._strip, with_draws=self._with_draws)
        if self._with_sent:
            return parts
        slots = {key: seen for key, seen in parts.slots.items() if not key[1]}
        return parts._replace(slots=slots)

    def _leaves(self, parts: Sequence[_Parts]) -> dict[Place, list[Leaf | None]]:
        """Return the leaves of all runs by their place."""
        found: dict[Place, list[Leaf | None]] = {}
        for run, part in enumerate(parts):
            here = dict(part.others)
            for slot in self._slots:
                seen = part.slots.get(slot[:4])
                if seen is not None and seen[0].message.kind == slot.kind:
                    for path, leaf in find_leaves(seen[0].message):
                        here[Place(str(slot), path, slot)] = leaf
            for place, leaf in here.items():
                found.setdefault(place, [None] * len(parts))[run] = leaf
        return found

    def _columns(self, parts: Sequence[_Parts]) -> dict[Coordinate, Columns]:
        columns: dict[Coordinate, Columns] = {}
        for channel in self._channels:
            counts = [part.counts.get(channel, 0) for part in parts]
            columns[Coordinate(channel, "", "number of messages")] = np.array(counts, np.float32)
        for slot in self._slots:
            seen = [part.slots.get(slot[:4]) for part in parts]
            columns |= _outside(slot, seen, with_times=self._with_times)
        leaves, none = self._leaves(parts), [None] * len(parts)
        blocks = {
            place: _stack(leaves.get(place, none), shape) for place, shape in self._shapes.items()
        }
        draws = {member: _pop_draws(blocks, member) for member in self._members}
        columns |= self._inside(blocks)
        columns |= dict(columns_of_new(blocks))
        combined = dict(_combine(blocks))
        targets = {
            place: block
            for place, block in (blocks | combined).items()
            if self._may_contain_draws(place)
        }
        for place, block in chain(combined.items(), subtract_draws(targets, draws)):
            columns |= dict(_words_of(place, block, self._entries))
        return columns

    def _may_contain_draws(self, place: Place) -> bool:
        """Return whether members' draws are subtracted here: in what they receive or compute."""
        if place.field.startswith("length of"):
            return False
        if place.slot is not None:
            early = place.slot.number < _COMBINED_MAX
            return early and not place.slot.sent and not place.is_combined
        results = {_RESULT + member for member in self._members}
        return place.message in {*results, _STRIPPED} or place.message.startswith(_TOTAL)

    def _inside(self, blocks: Mapping[Place, Block]) -> dict[Coordinate, Columns]:
        """Return the coordinates of each place, alone and relative to the coalition's knowledge."""
        columns: dict[Coordinate, Columns] = {}
        own = [block for place, block in blocks.items() if place.message.startswith(_INPUT)]
        within = {
            place: block
            for place, block in blocks.items()
            if place.slot is not None and not place.field.startswith("length of")
        }
        for place, block in blocks.items():
            if place.message.startswith(_INPUT):
                columns |= dict(_values_of(place, block, self._entries))
            else:
                columns |= dict(_entries_of(place, block, self._entries))
            if place in within:
                others = [each for at, each in within.items() if at.slot != place.slot]
                columns |= dict(_beside(place, block, own, others, self._entries))
        return columns


def _slots_of(parts: Sequence[_Parts]) -> tuple[Slot, ...]:
    """Return the messages of all runs in their most common order, that of all members together."""
    kinds: dict[tuple[str, bool, str, int], Counter[str]] = {}
    ticks: dict[tuple[str, bool, str, int], list[float]] = {}
    for part in parts:
        for key, (seen, at) in part.slots.items():
            kinds.setdefault(key, Counter())[seen.message.kind] += 1
            ticks.setdefault(key, []).append(float(at[3]))
    ordered = sorted(kinds, key=lambda key: (float(np.median(ticks[key])), key))
    return tuple(Slot(*key, kind=kinds[key].most_common(1)[0][0]) for key in ordered)


def _shapes_of(leaves: Mapping[Place, Sequence[Leaf | None]]) -> dict[Place, Shape]:
    shapes = {}
    for place, found in leaves.items():
        known = [leaf for leaf in found if leaf is not None]
        entries = max(len(leaf.values) for leaf in known)
        shapes[place] = Shape(max(leaf.bits for leaf in known), entries)
    return shapes


def _pop_draws(blocks: dict[Place, Block], member: str) -> list[Block]:
    """Remove the draws of a member from the blocks, and return them in order."""
    places = [place for place in blocks if place.message == _DRAW + member]
    return [blocks.pop(place) for place in sorted(places, key=lambda place: int(place.field))]


def _without_copies(columns: Mapping[Coordinate, Columns]) -> list[Coordinate]:
    """Return the coordinates without those that vary and always equal an earlier one."""
    kept, met = [], set[bytes]()
    for name, values in columns.items():
        if len(np.unique(values)) == 1:
            kept.append(name)
        elif (key := values.tobytes()) not in met:
            met.add(key)
            kept.append(name)
    return kept


def _divided(
    names: Iterable[Coordinate], columns: Mapping[Coordinate, Columns]
) -> tuple[list[Coordinate], list[Coordinate]]:
    """Return the coordinates that vary in the pilot runs, and those that are constant."""
    parts = list[Coordinate](), list[Coordinate]()
    for name in names:
        parts[len(np.unique(columns[name])) == 1].append(name)
    return parts


def _shared_out(names: Sequence[Coordinate], most: int) -> list[Coordinate]:
    """Return at most a given number of coordinates, in order: as many of each field as fit."""
    numbers = Counter[tuple[str, str]]()
    turns = []
    for place, name in enumerate(names):
        of = name.message, name.field
        turns.append((numbers[of], place))
        numbers[of] += 1
    return [names[place] for place in sorted(place for _, place in sorted(turns)[:most])]


def _outside(
    slot: Slot, seen: Sequence[tuple[Seen, Floats] | None], *, with_times: bool
) -> dict[Coordinate, Columns]:
    """Return the coordinates of a message's metadata."""
    fits = np.array([each is not None and each[0].message.kind == slot.kind for each in seen])
    none = np.full(len(Arrival._fields), np.nan)
    at = np.stack([none if each is None else each[1] for each in seen]).astype(np.float32)
    columns = {"presence": fits.astype(np.float32), "size": at[:, 1]}
    if with_times:
        columns |= {"instant": at[:, 0], "place among all messages": at[:, 2]}
    return {Coordinate(str(slot), "", what): values for what, values in columns.items()}


def _picked(entries: int, most: int) -> Ints:
    return np.unique(np.linspace(0, entries - 1, min(entries, most)).round().astype(np.int64))


def _column(values: NDArray[Any], missing: Mask) -> Columns:
    return np.where(missing, np.nan, values).astype(np.float32)


def _values_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    for entry in _picked(block.entries, most):
        value = _column(block.values[:, entry], block.missing[:, entry])
        yield place.name(f"entry {entry}"), value


def _words_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the values and their lowest bits."""
    yield from _values_of(place, block, most)
    for entry in _picked(block.entries, most):
        values, missing = block.values[:, entry], block.missing[:, entry]
        if block.bits == 0:
            low = np.ascontiguousarray(values).view(np.uint64) % _LOW_BITS
            yield place.name(f"lowest bits of entry {entry}"), _column(low, missing)
        for modulus in _MODULI_COMBINED if place.is_combined else _MODULI:
            if modulus < 1 << block.bits:
                rest = values % np.uint64(modulus)
                yield place.name(f"entry {entry} modulo {modulus}"), _column(rest, missing)


def _entries_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the coordinates of numbers without context, including their order."""
    absent = block.length < 0
    if block.entries != 1:
        yield place.name("length"), block.length.astype(np.float32)
    yield from _words_of(place, block, most)
    if block.entries > 1:
        # A constant, because a coordinate of a run may depend on that run only.
        beyond = np.uint64(_WORD_MAX) if block.bits else np.float64(np.inf)
        padded = np.where(block.missing, beyond, block.values)
        ordered = np.sort(padded, axis=1)
        yield place.name("place of the least entry"), _column(padded.argmin(axis=1), absent)
        yield place.name("place of the greatest entry"), _column(padded.argmax(axis=1), absent)
        different = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
        yield place.name("number of different entries"), _column(different, absent)
        for entry in _picked(block.entries, most):
            value = _column(ordered[:, entry], absent)
            yield place.name(f"entry {entry} in ascending order"), value
        yield from _steps_of(place, block, most)


def _steps_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the difference of each entry from the one before, which removes a shared mask."""
    for entry in _picked(block.entries, most)[1:]:
        step = block.values[:, entry] - block.values[:, entry - 1]
        if block.bits:
            step &= np.uint64((1 << block.bits) - 1)
        missing = block.missing[:, entry] | block.missing[:, entry - 1]
        yield place.name(f"entry {entry} minus entry {entry - 1}"), _column(step, missing)


def _beside(
    place: Place, block: Block, own: Sequence[Block], others: Sequence[Block], most: int
) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the ranks of numbers among the coalition's own numbers and those of other messages."""
    absent = block.length < 0
    for whose, blocks in (("among own numbers", own), ("in other messages", others)):
        known = _joined([each for each in blocks if (each.bits == 0) == (block.bits == 0)])
        if known is None:
            continue
        values, there = known
        equal = (block.values[:, :, None] == values[:, None, :]) & there[:, None, :]
        equal &= ~block.missing[:, :, None]
        held = equal.any(axis=2)
        yield place.name(f"number of entries that are {whose}"), _column(held.sum(axis=1), absent)
        for entry in _picked(block.entries, most):
            missing = block.missing[:, entry]
            yield place.name(f"whether entry {entry} is {whose}"), _column(held[:, entry], missing)
            if blocks is own:
                rank = ((values <= block.values[:, entry, None]) & there).sum(axis=1)
                yield place.name(f"rank of entry {entry} among own numbers"), _column(rank, missing)


def _joined(blocks: Sequence[Block]) -> tuple[NDArray[Any], Mask] | None:
    """Return all entries of blocks and whether each exists; None without any entry."""
    if not any(block.entries for block in blocks):
        return None
    values = np.concatenate([block.values for block in blocks], axis=1)
    there = ~np.concatenate([block.missing for block in blocks], axis=1)
    picked = _picked(values.shape[1], _KNOWN_MAX)
    return values[:, picked], there[:, picked]


def _combine(blocks: Mapping[Place, Block]) -> Iterator[tuple[Place, Block]]:
    """Yield differences and sums of numbers of the same kind."""
    alike: dict[_Alike, list[_Held]] = {}
    for place, block in blocks.items():
        slot = place.slot
        if slot is not None and block.entries and not place.field.startswith("length of"):
            key = _Alike(slot.member, block.bits, block.entries)
            alike.setdefault(key, []).append((slot, place.field, block))
    members = {key.member for key in alike}
    for found in alike.values():
        yield from _differences(found)
        yield from _swapped(found, members)
        yield from _totals(found, members)
    yield from _stripped(alike, members)
    yield from _pooled(alike, members)


def _pooled(
    alike: Mapping[_Alike, Sequence[_Held]], members: set[str]
) -> Iterator[tuple[Place, Block]]:
    """Yield sums and differences of the words that an honest party sent to two members."""
    rows: dict[tuple[object, ...], dict[str, _Held]] = {}
    for key, found in alike.items():
        for slot, field, block in found:
            if not slot.sent and slot.peer not in members and slot.number < _COMBINED_MAX:
                row = (slot.peer, slot.number, slot.kind, field, key.bits, key.entries)
                rows.setdefault(row, {})[slot.member] = (slot, field, block)
    for held in rows.values():
        for (slot, field, one), (_, _, other) in islice(combinations(held.values(), 2), _PAIRS_MAX):
            pools = {
                "plus": add_blocks([one, other]),
                "minus": one.minus(other),
                "twice minus": add_blocks([one, one]).minus(other),
                "minus twice": one.minus(add_blocks([other, other])),
            }
            for how, block in pools.items():
                where = f"{slot} {how} the same message to another member"
                yield Place(where, field, slot, is_combined=True), block


def _stripped(
    alike: Mapping[_Alike, Sequence[_Held]], members: set[str]
) -> Iterator[tuple[Place, Block]]:
    """Yield honest parties' messages minus the sum of the members' messages to them, by kind."""
    sent: dict[tuple[str, str, int, int], dict[str, list[Block]]] = {}
    for key, found in alike.items():
        for slot, field, block in found:
            if slot.sent:
                kinds = sent.setdefault((slot.peer, field, *key[1:]), {})
                kinds.setdefault(slot.kind, []).append(block)
    for key, found in alike.items():
        for slot, field, block in found:
            if not slot.sent and slot.peer not in members:
                for kind, blocks in sent.get((slot.peer, field, *key[1:]), {}).items():
                    where = f"{slot} minus all {kind} from the coalition to that party"
                    place = Place(where, field, slot, is_combined=True)
                    yield place, block.minus(add_blocks(blocks))


def _differences(found: Sequence[_Held]) -> Iterator[tuple[Place, Block]]:
    """Yield each array minus the previous one of the same kind in its channel."""
    last: dict[tuple[object, ...], Block] = {}
    for slot, field, block in found:
        key = (slot.sent, slot.peer, slot.kind)
        if not slot.sent and key in last:
            where = Place(f"{slot} minus the previous message", field, slot, is_combined=True)
            yield where, block.minus(last[key])
        last[key] = block


def _swapped(found: Sequence[_Held], members: set[str]) -> Iterator[tuple[Place, Block]]:
    """Yield an honest party's messages, single and summed, minus the messages sent to it."""
    channels: dict[tuple[str, str, bool], list[_Held]] = {}
    for held in found:
        slot, field, _ = held
        if slot.peer not in members:
            channels.setdefault((slot.peer, field, slot.sent), []).append(held)
    for (peer, of, sent), received in channels.items():
        given = [block for _, _, block in channels.get((peer, of, True), ())[:_COMBINED_MAX]]
        for at, (slot, field, block) in enumerate(() if sent else received[:_COMBINED_MAX]):
            taken = [block for _, _, block in received[: at + 1]]
            for until in range(1, len(given) + 1):
                earlier = " plus all earlier messages," if at else ""
                first = "the first message" if until == 1 else f"the first {until} messages"
                where = f"{slot}{earlier} minus {first} sent back"
                place = Place(where, field, slot, is_combined=True)
                yield place, add_blocks(taken).minus(add_blocks(given[:until]))
            if at and given:
                where = f"{slot} minus the first message sent back"
                yield Place(where, field, slot, is_combined=True), block.minus(given[0])


def _totals(found: Sequence[_Held], members: set[str]) -> Iterator[tuple[Place, Block]]:
    """Yield the sums of arrays of one kind over honest parties, and with the member's own."""
    rows: dict[tuple[str, str, int], dict[str, Block]] = {}
    numbers = Counter[tuple[object, ...]]()
    for slot, field, block in found:
        number = numbers[slot.sent, slot.peer, slot.kind, field]
        numbers[slot.sent, slot.peer, slot.kind, field] += 1
        row = rows.setdefault((slot.kind, field, number), {})
        row.setdefault(slot.member if slot.sent else slot.peer, block)
    for (kind, field, number), row in rows.items():
        honest = [block for party, block in row.items() if party not in members]
        if len(honest) > 1:
            name = f"{_TOTAL}honest parties of {kind} number {number + 1}"
            yield Place(name, field, is_combined=True), add_blocks(honest)
        if len(row) > len(honest) > 0:
            name = f"{_TOTAL}all parties of {kind} number {number + 1}"
            yield Place(name, field, is_combined=True), add_blocks(list(row.values()))
