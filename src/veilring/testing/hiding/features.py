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
messages to that party, after adding them up over all parties, and as stripped by the coalition. On
request, the members' random draws are subtracted from received messages, totals and results.

All these are examined. Further coordinates are screened first (`attackers.screen`): combinations
of several messages, hashes of values that can be guessed, and the numbers of a view that is too
long. Of a view that is longer still, the rest is cut to size by a random projection.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.nodes.journal import Seen
from veilring.testing.hiding.combining import (
    COMBINED_MAX,
    ENTRIES_COMBINED,
    TOTAL,
    Arithmetic,
    combine_kinds,
    picked,
    plan_combinations,
)
from veilring.testing.hiding.guesses import RUNS_GUESSED, Guesses, Public, find_guesses
from veilring.testing.hiding.leaves import (
    Block,
    Columns,
    Coordinate,
    Leaf,
    Mask,
    Place,
    Shape,
    Slot,
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
SCREENED_MAX: Final = 1_024
"""Further coordinates of a long view that are screened, which doubles the memory of an audit."""
PROJECTED: Final = 64
"""The random sums that stand for all other coordinates: of a thousand, sixteen share a sum."""
_HASH_BITS: Final = 64
_MODULI: Final = (2, 16, 256)
_MODULI_COMBINED: Final = (16,)
_LOW_BITS: Final = 256
_WORD_MAX: Final = (1 << 64) - 1
# The entries of other messages that a message is compared with, spread over all of them.
_KNOWN_MAX: Final = 128
# Words of as many bits are looked up in a table of all words: a report has thousands of bytes.
_TABLE_BITS: Final = 8

_INPUT: Final = "the input of "
_RESULT: Final = "the result of "
_STRIPPED: Final = "what the coalition can strip"
_DRAW: Final = "random draws of "


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
    session: bytes


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
    return _Parts(slots, dict(counts), others, next(iter(played.views.values())).session)


def _of(message: str, value: object) -> dict[Place, Leaf]:
    return {Place(message, path): leaf for path, leaf in find_leaves(value)}


class Layout:
    """The coordinates of views, fixed on runs that are not tested.

    Attributes:
        coordinates: The names of the coordinates: first those that are examined in any case, at
            most `COORDINATES_MAX`, each part in the order in which the coalition learns them.
        examined: The number of the first ones. The others are screened: see `attackers.screen`.
        left_out: The number of further ones, of which only a random projection is screened.
        plan: The combinations of messages, some of which are screened.
    """

    def __init__(
        self,
        pilot: Sequence[Played],
        strip: Strip | None = None,
        *,
        arithmetic: Arithmetic | None = None,
        with_sent: bool = True,
        with_times: bool = True,
        with_draws: bool = False,
    ) -> None:
        self._strip, self._with_draws = strip, with_draws
        self._with_sent, self._with_times = with_sent, with_times
        self._arithmetic = arithmetic or Arithmetic()
        self._members, self._parties = tuple(pilot[0].views), tuple(pilot[0].inputs)
        parts = [self._take(played) for played in pilot]
        self._slots = _slots_of(parts)
        self._order = {slot: place for place, slot in enumerate(self._slots)}
        self._when = {str(slot): place for slot, place in self._order.items()}
        self._channels = sorted({channel for part in parts for channel in part.counts})
        self._shapes = _shapes_of(self._leaves(parts))
        blocks = self._blocks(parts)
        known = self._members, self._arithmetic
        self.plan = plan_combinations(blocks, self._order, self._parties, *known)
        self._guesses = self._find_guesses(pilot, parts, blocks)
        self._entries = ENTRIES_MAX
        columns = self._columns(parts, blocks)
        while len(columns) > COORDINATES_MAX and self._entries > 1:
            self._entries //= 2
            columns = self._columns(parts, blocks)
        self._choose(columns, self._combined(parts, blocks))

    def _choose(
        self, columns: Mapping[Coordinate, Columns], combined: Mapping[Coordinate, Columns]
    ) -> None:
        """Choose the coordinates that are examined, screened and projected."""
        different = _without_copies({**columns, **combined})
        alone = [name for name in different if name in columns]
        varied, constant = _divided(alone, columns)
        kept = _shared_out(varied, COORDINATES_MAX)
        kept += _shared_out(constant, COORDINATES_MAX - len(kept))
        known = set(kept)
        beyond = [name for name in varied if name not in known]
        screened = _shared_out(beyond, SCREENED_MAX)
        known |= set(screened)
        pool, _ = _divided((name for name in different if name in combined), combined)
        rest = [name for name in alone if name not in known]
        self.left_out = len(rest)
        seen = [name for name in rest if not name.message.startswith(_RESULT)]
        self._projection = _Projection(seen, columns)
        self.examined = len(kept)
        self.coordinates: tuple[Coordinate, ...] = (
            *sorted(kept, key=self._place_of),
            *sorted(screened + pool, key=self._place_of),
            *self._projection.coordinates,
        )

    def _place_of(self, name: Coordinate) -> tuple[int, bool]:
        """Return the number of the message that completes a coordinate; outputs are last."""
        return self._when.get(name.message, len(self._slots)), name.is_combined

    def _find_guesses(
        self, pilot: Sequence[Played], parts: Sequence[_Parts], blocks: Mapping[Place, Block]
    ) -> Guesses:
        tried = [*range(RUNS_GUESSED), *range(-RUNS_GUESSED, 0)]
        words = [block.values for block in _guessable(blocks).values()]
        runs = [
            (self._public(parts[at]), chain(*(each[at].tolist() for each in words))) for at in tried
        ]
        return find_guesses([played.inputs for played in pilot], self._members, runs)

    def _public(self, part: _Parts) -> Public:
        return Public.of(part.session, self._parties, self._arithmetic.texts)

    def read(self, played: Iterable[Played]) -> Columns:
        """Return the coordinates of runs, shape (runs, coordinates); NaN marks absent values."""
        left = iter(played)
        parts = [np.empty((0, len(self.coordinates)), np.float32)]
        while chunk := [self._take(each) for each in islice(left, _READ_AT_ONCE)]:
            blocks = self._blocks(chunk)
            columns = self._columns(chunk, blocks) | self._combined(chunk, blocks)
            columns |= self._projection.of(columns)
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
            for place, leaf in part.others.items():
                found.setdefault(place, [None] * len(parts))[run] = leaf
        for slot in self._slots:  # the name of a message is the same in all runs
            named, key, here = str(slot), slot[:4], dict[str, list[Leaf | None]]()
            for run, part in enumerate(parts):
                seen = part.slots.get(key)
                if seen is not None and seen[0].message.kind == slot.kind:
                    for path, leaf in find_leaves(seen[0].message):
                        here.setdefault(path, [None] * len(parts))[run] = leaf
            found |= {Place(named, path, slot): leaves for path, leaves in here.items()}
        return found

    def _blocks(self, parts: Sequence[_Parts]) -> dict[Place, Block]:
        """Return the numbers of all places, the members' draws included."""
        leaves, none = self._leaves(parts), [None] * len(parts)
        return {
            place: _stack(leaves.get(place, none), shape) for place, shape in self._shapes.items()
        }

    def _columns(
        self, parts: Sequence[_Parts], known: Mapping[Place, Block]
    ) -> dict[Coordinate, Columns]:
        columns: dict[Coordinate, Columns] = {}
        for channel in self._channels:
            counts = [part.counts.get(channel, 0) for part in parts]
            columns[Coordinate(channel, "", "number of messages")] = np.array(counts, np.float32)
        for slot in self._slots:
            seen = [part.slots.get(slot[:4]) for part in parts]
            columns |= _outside(slot, seen, with_times=self._with_times)
        blocks = dict(known)
        draws = {member: _pop_draws(blocks, member) for member in self._members}
        columns |= self._inside(blocks)
        columns |= dict(columns_of_new(blocks))
        combined = dict(combine_kinds(blocks, self._order))
        targets = {
            place: block
            for place, block in (blocks | combined).items()
            if self._may_contain_draws(place)
        }
        for place, block in chain(combined.items(), subtract_draws(targets, draws)):
            columns |= dict(_words_of(place, block, self._entries))
            if place.slot is not None:
                self._when[place.message] = self._order[place.slot]
        return columns

    def _combined(
        self, parts: Sequence[_Parts], blocks: Mapping[Place, Block]
    ) -> dict[Coordinate, Columns]:
        """Return the planned combinations, and which words are hashes of guesses."""
        columns: dict[Coordinate, Columns] = {}
        for each in self.plan.chosen:
            columns |= dict(_words_of(each.place, each.of(blocks), ENTRIES_COMBINED))
            self._when[each.place.message] = self._order[each.slot]
        for recipe in self._guesses.recipes:
            hashed = np.stack([self._guesses.hashed(recipe, self._public(part)) for part in parts])
            for place, block in _guessable(blocks).items():
                words = block.values[:, picked(block.entries, _KNOWN_MAX)]
                hits = (words[:, :, None] == hashed[:, None, :]).any(axis=1)
                for at, (_, party) in enumerate(self._guesses.values):
                    name = place.name(f"the {recipe} a value of {party} (guess {at + 1})")
                    columns[name] = hits[:, at].astype(np.float32)
        return columns

    def _may_contain_draws(self, place: Place) -> bool:
        """Return whether members' draws are subtracted here: in what they receive or compute."""
        if place.field.startswith("length of"):
            return False
        if place.message.startswith(TOTAL):
            return True
        if place.slot is not None:
            early = place.slot.number < COMBINED_MAX
            return early and not place.slot.sent and not place.is_combined
        results = {_RESULT + member for member in self._members}
        return place.message in {*results, _STRIPPED}

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


def _guessable(blocks: Mapping[Place, Block]) -> dict[Place, Block]:
    """Return the received words that may be the first bytes of a hash."""
    return {
        place: block
        for place, block in blocks.items()
        if block.bits == _HASH_BITS
        and place.slot is not None
        and not place.slot.sent
        and block.entries
        and not place.field.startswith("length of")
    }


class _Projection:
    """Sums of groups of coordinates with random signs, always the same for the same view.

    Each coordinate is replaced by its rank among the pilot runs. A leak is diluted by the others of
    its group. Source: Charikar, Chen and Farach-Colton, "Finding frequent items in data streams",
    2002 (the sketch).
    """

    def __init__(self, names: Sequence[Coordinate], columns: Mapping[Coordinate, Columns]) -> None:
        rng = np.random.default_rng(0)
        groups = rng.permutation(len(names)) % PROJECTED
        signs = rng.choice([-1.0, 1.0], len(names))
        pilot = [np.sort(columns[name]) for name in names]
        self._terms = list(zip(names, groups.tolist(), signs.tolist(), pilot, strict=True))
        self.coordinates = [_projected(group) for group in range(min(PROJECTED, len(names)))]

    def of(self, columns: Mapping[Coordinate, Columns]) -> dict[Coordinate, Columns]:
        """Return the sum of each group."""
        sums: dict[Coordinate, Columns] = {}
        for name, group, sign, pilot in self._terms:
            rank = np.searchsorted(pilot, columns[name]) + np.searchsorted(
                pilot, columns[name], "right"
            )
            term = np.asarray(sign * rank / (2 * len(pilot)), np.float32)
            where = _projected(group)
            sums[where] = sums[where] + term if where in sums else term
        return sums


def _projected(group: int) -> Coordinate:
    return Coordinate(
        "the numbers that were left out", "", f"random projection {group + 1}", is_combined=True
    )


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


def _column(values: NDArray[Any], missing: Mask) -> Columns:
    return np.where(missing, np.nan, values).astype(np.float32)


def _values_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    for entry in picked(block.entries, most):
        value = _column(block.values[:, entry], block.missing[:, entry])
        yield place.name(f"entry {entry}"), value


def _words_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the values and their lowest bits."""
    yield from _values_of(place, block, most)
    for entry in picked(block.entries, most):
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
        for entry in picked(block.entries, most):
            value = _column(ordered[:, entry], absent)
            yield place.name(f"entry {entry} in ascending order"), value
        yield from _steps_of(place, block, most)


def _steps_of(place: Place, block: Block, most: int) -> Iterator[tuple[Coordinate, Columns]]:
    """Yield the difference of each entry from the one before, which removes a shared mask."""
    for entry in picked(block.entries, most)[1:]:
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
        held = _held(block, values, there)
        yield place.name(f"number of entries that are {whose}"), _column(held.sum(axis=1), absent)
        for entry in picked(block.entries, most):
            missing = block.missing[:, entry]
            yield place.name(f"whether entry {entry} is {whose}"), _column(held[:, entry], missing)
            if blocks is own:
                rank = ((values <= block.values[:, entry, None]) & there).sum(axis=1)
                yield place.name(f"rank of entry {entry} among own numbers"), _column(rank, missing)


def _held(block: Block, values: NDArray[Any], there: Mask) -> Mask:
    """Return whether each entry of a block is among the known numbers of its run."""
    # A run that the layout was not made from may have larger words in this place.
    if 0 < block.bits <= _TABLE_BITS and block.values.max(initial=0) < 1 << block.bits:
        seen = np.zeros((len(values), 1 << block.bits), np.bool_)
        runs, at = np.nonzero(there & (values < np.uint64(1 << block.bits)))
        seen[runs, values[runs, at]] = True
        held = np.take_along_axis(seen, block.values.astype(np.intp), axis=1)
    else:
        equal = (block.values[:, :, None] == values[:, None, :]) & there[:, None, :]
        held = equal.any(axis=2)
    return np.asarray(held & ~block.missing)


def _joined(blocks: Sequence[Block]) -> tuple[NDArray[Any], Mask] | None:
    """Return some entries of blocks and whether each exists; None without any entry."""
    ends = np.cumsum([block.entries for block in blocks])
    if not blocks or not ends[-1]:
        return None
    compared = picked(int(ends[-1]), _KNOWN_MAX)
    of = np.searchsorted(ends, compared, side="right")
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    parts = zip(of[starts].tolist(), np.split(compared, starts[1:]), strict=True)
    chosen = [(blocks[n], part - (ends[n] - blocks[n].entries)) for n, part in parts]
    values = np.concatenate([block.values[:, at] for block, at in chosen], axis=1)
    return values, ~np.concatenate([block.missing[:, at] for block, at in chosen], axis=1)
