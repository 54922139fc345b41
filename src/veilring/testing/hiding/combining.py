"""Combinations of the words that a coalition holds: what its members compute when they pool them.

A plan is fixed on a few runs before any run is tested. It contains, for the words of equal shape
that members received, sent or computed:

- for the arrays that a party sent to several members, or several parties to a member: the sum, the
  exclusive or, and the value at zero of the polynomial through all of them. If fewer of Shamir's
  shares suffice, that value is the same;
- for each pair: the sum, the difference and the exclusive or;
- for some pairs from one sender: products and ratios, such as the square of `x r` over `r r`.

Sums, differences and polynomials are computed modulo the size of a word and modulo each modulus
that fits the numbers; products only modulo an odd one. A modulus is declared, or guessed from the
public numbers, the constants of the role's module, well-known primes and the greatest number seen.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import gcd, lcm, prod
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.privacy.checks import require
from veilring.testing.hiding.leaves import Block, Place, Slot, add_blocks

Words = NDArray[np.uint64]

COMBINATIONS_MAX: Final = 256
"""The number of combinations: their up to 2,048 numbers take about as long as a view of 300."""
ARRAYS_MAX: Final = 128
"""The number of arrays whose pairs are listed, spread over a longer view."""
ENTRIES_COMBINED: Final = 4
"""The number of entries of an array that are combined; the same arithmetic applies to all."""
MODULUS_MIN: Final = 1 << 16
"""Smaller public numbers are counts and sizes rather than moduli of shares."""
_WORD: Final = 1 << 64
_MODULI_MAX: Final = 4  # the moduli of a pair: declared ones first, then the likeliest guesses
_PRODUCTS_MAX: Final = 8  # pairs that are multiplied, because inverses take a hundred times longer
_HALF_WORD: Final = 1 << 32
COMBINED_MAX: Final = 2
"""The messages of a channel that are combined in each way: masks are swapped, then used."""
TOTAL: Final = "the sum over "
"""The beginning of the name of a sum over parties."""
# Mersenne primes, the largest primes below powers of two, and the primes of number-theoretic
# transforms. Primes close to the size of a word would fit any word, so they must be declared.
_PRIMES: Final = (
    (1 << 17) - 1,
    (1 << 19) - 1,
    (1 << 31) - 1,
    (1 << 61) - 1,
    (1 << 16) + 1,
    *((1 << bits) - below for bits, below in ((24, 3), (62, 57), (63, 25))),
    998_244_353,
    15 * (1 << 27) + 1,
    (1 << 31) - (1 << 24) + 1,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
    """The public numbers and texts that a coalition computes with.

    Attributes:
        moduli: The declared moduli of shares or masks, from 2 to 2**64.
        points: The points at which a polynomial's shares are taken, by party; by default each
            party's position from 1.
        guessed: Numbers that may be moduli.
        texts: Public texts, as bytes, that may be hashed together with an item.

    Raises:
        InputError: If a modulus is out of range.
    """

    moduli: tuple[int, ...] = ()
    points: Mapping[str, int] = dataclasses.field(default_factory=dict)
    guessed: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Refuse moduli that words cannot be reduced by."""
        for modulus in self.moduli:
            require(1 < modulus <= _WORD, "moduli", modulus, f"2 to {_WORD}")

    def beside(self, role: Callable[..., Any], public: Mapping[str, object]) -> Self:
        """Return the same with the public arguments and the constants of the role's module."""
        named = (*public.values(), *_constants_of(role))
        numbers = (int(each) for each in named if isinstance(each, int | np.integer))
        guessed = dict.fromkeys(each for each in numbers if MODULUS_MIN < each <= _WORD)
        texts = [each.encode() if isinstance(each, str) else each for each in public.values()]
        known = [each for each in texts if isinstance(each, bytes)]
        merged = (*self.guessed, *guessed), (*self.texts, *known)
        return type(self)(self.moduli, self.points, *merged)

    def moduli_for(self, top: int, bits: int) -> list[int]:
        """Return the moduli that fit numbers up to `top`, and then the size of a word.

        Of numbers that are uniform below a modulus, almost surely one is in the upper half.
        """
        declared = [each for each in self.moduli if top < each]
        likely = [each for each in (*self.guessed, *_PRIMES) if top < each <= 2 * top]
        power = [1 << top.bit_length()] if top >= MODULUS_MIN else []
        size = 1 << bits
        found = dict.fromkeys(each for each in (*declared, *likely, *power) if each != size)
        return [*list(found)[:_MODULI_MAX], size]


def _constants_of(role: object) -> Iterable[object]:
    """Return the constants of the module of a role, also of one that is wrapped."""
    while role is not None and not hasattr(role, "__globals__"):
        role = getattr(role, "func", None) or getattr(role, "role", None)
    return [] if role is None else role.__globals__.values()


class Combination(NamedTuple):
    """A computation on several arrays of words."""

    place: Place
    slot: Slot
    """The last message that it needs."""
    parts: tuple[Place, ...]
    factors: tuple[int, ...]
    """The weight of each array in a sum, or its exponent in a product."""
    modulus: int
    how: str

    def of(self, blocks: Mapping[Place, Block]) -> Block:
        """Return the combined words at the examined entries, `ENTRIES_COMBINED` at most."""
        arrays = [blocks[place] for place in self.parts]
        entries = picked(arrays[0].entries, ENTRIES_COMBINED)
        words = [_reduced(each.values[:, entries], self.modulus) for each in arrays]
        pairs = zip(words, self.factors, strict=True)
        match self.how:
            case _How.XOR:
                values = np.bitwise_xor.reduce(words)
            case _How.PRODUCT:
                powers = (_power(each, factor, self.modulus) for each, factor in pairs)
                values = np.asarray(prod(powers) % self.modulus).astype(np.uint64)
            case _:
                values = _sum([_scaled(*each, self.modulus) for each in pairs], self.modulus)
        missing = np.logical_or.reduce([each.missing[:, entries] for each in arrays])
        length = np.min([each.length for each in arrays], axis=0)
        return Block(arrays[0].bits, values, missing, length)


class _How:
    """The kinds of combinations."""

    SUM: Final = "sum"
    XOR: Final = "exclusive or"
    PRODUCT: Final = "product"


class _Array(NamedTuple):
    place: Place
    slot: Slot
    block: Block


class Plan(NamedTuple):
    """The combinations that are screened, and how many pairs of arrays are among them."""

    chosen: tuple[Combination, ...]
    tried: int
    pairs: int


def picked(entries: int, most: int) -> Ints:
    """Return the places of at most a given number of entries, evenly spaced."""
    return np.unique(np.linspace(0, entries - 1, min(entries, most)).round().astype(np.int64))


def plan_combinations(
    blocks: Mapping[Place, Block],
    order: Mapping[Slot, int],
    parties: Sequence[str],
    members: Sequence[str],
    arithmetic: Arithmetic,
) -> Plan:
    """Choose the combinations of a coalition's words: rows first, then products, then pairs.

    Pairs beyond `COMBINATIONS_MAX` are drawn at random, always the same for the same view.
    """
    held = [
        _Array(place, place.slot, block)
        for place, block in blocks.items()
        if place.slot is not None
        and block.bits > 1
        and block.entries
        and not place.field.startswith("length of")
    ]
    make = _Maker(order, arithmetic)
    of_shape = Counter((each.block.bits, each.block.entries) for each in held)
    pairs = sum(number * (number - 1) // 2 for number in of_shape.values())
    held = [held[place] for place in picked(len(held), ARRAYS_MAX)] if held else []
    found, tried = [*make.of_rows(held, parties, members), *make.of_products(held)], 0
    for one, other in _pairs(held):
        if len(found) >= COMBINATIONS_MAX:
            break
        found += make.of_pair(one, other)
        tried += 1
    return Plan(tuple(found[:COMBINATIONS_MAX]), tried, pairs)


def _pairs(held: Sequence[_Array]) -> list[tuple[_Array, _Array]]:
    """Return all pairs of equal shape in random order: received ones of one kind come first."""

    def tier(one: _Array, other: _Array) -> int:
        alike = (one.slot.kind, one.place.field) == (other.slot.kind, other.place.field)
        return not (alike and not one.slot.sent and not other.slot.sent)

    found = [
        (one, other)
        for one, other in combinations(held, 2)
        if (one.block.bits, one.block.entries) == (other.block.bits, other.block.entries)
    ]
    shuffled = np.random.default_rng(0).permutation(len(found))
    return sorted((found[place] for place in shuffled), key=lambda pair: tier(*pair))


class _Maker(NamedTuple):
    order: Mapping[Slot, int]
    arithmetic: Arithmetic

    def of_pair(self, one: _Array, other: _Array) -> Iterator[Combination]:
        """Yield sums and differences with each modulus, and the exclusive or."""
        moduli = self._moduli([one, other])
        named = f"{one.slot} {{}} {other.slot}"
        for modulus in moduli:
            yield self._named(named.format("plus"), [one, other], (1, 1), modulus)
            yield self._named(named.format("minus"), [one, other], (1, -1), modulus)
        yield self._named(named.format("xor"), [one, other], (1, 1), moduli[-1], _How.XOR)

    def of_products(self, held: Sequence[_Array]) -> Iterator[Combination]:
        """Yield products and ratios of a few pairs of one party's values."""
        powers = {
            "times": (1, 1),
            "over": (1, -1),
            "squared over": (2, -1),
            "over the square of": (1, -2),
        }
        received = [each for each in held if not each.slot.sent]
        left = _PRODUCTS_MAX
        for one, other in combinations(received, 2):
            alike = one.block.entries == other.block.entries and one.slot.peer == other.slot.peer
            odd = [each for each in self._moduli([one, other])[:-1] if each % 2] if alike else []
            if odd and left:
                left -= 1
                for how, factors in powers.items():
                    named = f"{one.slot} {how} {other.slot}"
                    yield self._named(named, [one, other], factors, odd[0], _How.PRODUCT)

    def of_rows(
        self, held: Sequence[_Array], parties: Sequence[str], members: Sequence[str]
    ) -> Iterator[Combination]:
        """Yield the combinations of the shares of one number."""
        for (what, sender, *_), row in _rows(held, members).items():
            if len(row) < 2:  # noqa: PLR2004  (a single number is no combination)
                continue
            together = list(row.values())
            for modulus in (moduli := self._moduli(together)):
                yield self._named(f"the sum of {what}", together, (1,) * len(row), modulus)
            xor = f"the exclusive or of {what}"
            yield self._named(xor, together, (1,) * len(row), moduli[-1], _How.XOR)
            for points in self._points(row, sender, parties):
                for modulus in moduli:
                    weights = _at_zero(points, modulus)
                    if weights is not None:
                        at = f"the value at 0 of the polynomial through {what}"
                        at += f" at {', '.join(map(str, points))}"
                        yield self._named(at, together, weights, modulus)

    def _points(
        self, row: Iterable[str], sender: str, parties: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """Return the points of parties: declared, among all parties, or among a dealer's peers."""
        position = {name: at for at, name in enumerate(parties, start=1)}
        peers = [name for name in parties if name != sender]
        among = {name: at for at, name in enumerate(peers, start=1)}
        known: list[Mapping[str, int]] = [self.arithmetic.points, position, among]
        found = [tuple(each[name] for name in row) for each in known if each.keys() >= set(row)]
        return list(dict.fromkeys(each for each in found if len(set(each)) == len(each)))

    def _moduli(self, together: Sequence[_Array]) -> list[int]:
        # Absent words are zeros.
        tops = (each.block.values.max() for each in together)
        return self.arithmetic.moduli_for(int(max(tops)), together[0].block.bits)

    def _named(
        self,
        named: str,
        together: Sequence[_Array],
        factors: tuple[int, ...],
        modulus: int,
        how: str = _How.SUM,
    ) -> Combination:
        last = _last((each.slot for each in together), self.order)
        fields = " and ".join(dict.fromkeys(each.place.field for each in together))
        plain = modulus == 1 << together[0].block.bits
        named += "" if plain else f", modulo {modulus}"
        place = Place(named, fields, last, is_combined=True)
        return Combination(
            place, last, tuple(each.place for each in together), factors, modulus, how
        )


_Row = tuple[str, str, str, tuple[int, int]]
"""The name of a row, the party that sent all of it, or none, and the field and shape there."""


def _rows(held: Sequence[_Array], members: Sequence[str]) -> dict[_Row, dict[str, _Array]]:
    """Return the arrays that may be shares of one number, by their name and their sender.

    A row contains either a party's arrays to several members, or several parties' arrays to a
    member, with the member's own to others.
    """
    rows: dict[_Row, dict[str, _Array]] = {}
    numbers = Counter[tuple[object, ...]]()
    for each in held:
        slot, shape = each.slot, (each.block.bits, each.block.entries)
        key = (slot.member, slot.sent, slot.peer, slot.kind, each.place.field)
        numbers[key] += 1
        what = f"{slot.kind} number {numbers[key]}"
        if not slot.sent and slot.peer not in members:
            name = f"{what} from {slot.peer} to the members"
            rows.setdefault((name, slot.peer, each.place.field, shape), {})[slot.member] = each
        name = f"{what} from all parties to {slot.member}"
        of_party = slot.member if slot.sent else slot.peer
        rows.setdefault((name, "", each.place.field, shape), {}).setdefault(of_party, each)
    return rows


def _at_zero(points: Sequence[int], modulus: int) -> tuple[int, ...] | None:
    """Return the weights that give a polynomial's value at 0; none if there is no inverse.

    Source: Lagrange's interpolation, as in Shamir, "How to share a secret", 1979. Modulo a power
    of two, the weights are those of a multiple of the value.
    """
    exact = [
        prod(
            (Fraction(other, other - point) for other in points if other != point),
            start=Fraction(1),
        )
        for point in points
    ]
    if modulus % 2 == 0:
        scale = lcm(*(each.denominator for each in exact))
        return tuple(int(each * scale) % modulus for each in exact)
    if any(gcd(each.denominator, modulus) > 1 for each in exact):
        return None
    return tuple(each.numerator * pow(each.denominator, -1, modulus) % modulus for each in exact)


def _reduced(values: Words, modulus: int) -> Words:
    return values if modulus == _WORD else values % np.uint64(modulus)


def _scaled(values: Words, factor: int, modulus: int) -> Words:
    """Return a multiple of reduced words."""
    factor %= modulus
    if factor == 1:
        return values
    if modulus == _WORD or modulus <= _HALF_WORD:
        return _reduced(values * np.uint64(factor), modulus)
    return np.asarray(values.astype(object) * factor % modulus).astype(np.uint64)


def _sum(words: Sequence[Words], modulus: int) -> Words:
    total = words[0]
    for each in words[1:]:
        added = total + each
        if modulus != _WORD:  # a sum that wraps is below both of its terms
            over = (added < total) | (added >= np.uint64(modulus))
            added = np.where(over, added - np.uint64(modulus), added)
        total = added
    return total


def _power(values: Words, exponent: int, modulus: int) -> NDArray[Any]:
    """Return powers of words as Python's integers; 0 where a word has no inverse."""

    def power(value: int) -> int:
        return pow(value, exponent, modulus) if gcd(value, modulus) == 1 else 0

    return np.asarray(np.frompyfunc(power, 1, 1)(values.astype(object)))


_Held = tuple[Slot, str, Block]
"""A message, one of its fields, and the numbers there."""


class _Alike(NamedTuple):
    """The properties that arrays must share to be added."""

    member: str
    bits: int
    entries: int


def combine_kinds(
    blocks: Mapping[Place, Block], order: Mapping[Slot, int]
) -> Iterator[tuple[Place, Block]]:
    """Yield differences and sums of numbers of the same kind, which are examined in every view."""
    alike: dict[_Alike, list[_Held]] = {}
    for place, block in blocks.items():
        slot = place.slot
        if slot is not None and block.entries and not place.field.startswith("length of"):
            key = _Alike(slot.member, block.bits, block.entries)
            alike.setdefault(key, []).append((slot, place.field, block))
    members = {key.member for key in alike}
    for found in alike.values():
        in_order = sorted(found, key=lambda held: order[held[0]])
        yield from _differences(in_order)
        yield from _swapped(in_order, members, order)
        yield from _totals(in_order, members)
    yield from _stripped(alike, members, order)


def _last(slots: Iterable[Slot], order: Mapping[Slot, int]) -> Slot:
    return max(slots, key=lambda slot: order[slot])


def _stripped(
    alike: Mapping[_Alike, Sequence[_Held]], members: set[str], order: Mapping[Slot, int]
) -> Iterator[tuple[Place, Block]]:
    """Yield honest parties' messages minus the sum of the members' messages to them, by kind."""
    sent: dict[tuple[str, str, int, int], dict[str, list[_Held]]] = {}
    for key, found in alike.items():
        for held in found:
            slot, field, _ = held
            if slot.sent:
                kinds = sent.setdefault((slot.peer, field, *key[1:]), {})
                kinds.setdefault(slot.kind, []).append(held)
    for key, found in alike.items():
        for slot, field, block in found:
            if not slot.sent and slot.peer not in members:
                for kind, given in sent.get((slot.peer, field, *key[1:]), {}).items():
                    slots, _, blocks = zip(*given, strict=True)
                    where = f"{slot} minus all {kind} from the coalition to that party"
                    place = Place(where, field, _last((slot, *slots), order), is_combined=True)
                    yield place, block.minus(add_blocks(blocks))


def _differences(found: Sequence[_Held]) -> Iterator[tuple[Place, Block]]:
    """Yield each array received minus the previous one of the same kind from its sender."""
    last: dict[tuple[str, str], Block] = {}
    for slot, field, block in found:
        if not slot.sent:
            channel = slot.peer, slot.kind
            if channel in last:
                where = Place(f"{slot} minus the previous message", field, slot, is_combined=True)
                yield where, block.minus(last[channel])
            last[channel] = block


def _swapped(
    found: Sequence[_Held], members: set[str], order: Mapping[Slot, int]
) -> Iterator[tuple[Place, Block]]:
    """Yield an honest party's messages, single and summed, minus the messages sent to it."""
    channels: dict[tuple[str, str, bool], list[_Held]] = {}
    for held in found:
        slot, field, _ = held
        if slot.peer not in members:
            channels.setdefault((slot.peer, field, slot.sent), []).append(held)
    for (peer, of, sent), received in channels.items():
        given = channels.get((peer, of, True), ())[:COMBINED_MAX]
        for at, (slot, field, block) in enumerate(() if sent else received[:COMBINED_MAX]):
            taken = [block for _, _, block in received[: at + 1]]
            for until in range(1, len(given) + 1):
                earlier = " plus all earlier messages," if at else ""
                first = "the first message" if until == 1 else f"the first {until} messages"
                where = f"{slot}{earlier} minus {first} sent back"
                last = _last((slot, given[until - 1][0]), order)
                back = add_blocks([block for _, _, block in given[:until]])
                yield Place(where, field, last, is_combined=True), add_blocks(taken).minus(back)
            if at and given:
                where = f"{slot} minus the first message sent back"
                last = _last((slot, given[0][0]), order)
                yield Place(where, field, last, is_combined=True), block.minus(given[0][2])


def _totals(found: Sequence[_Held], members: set[str]) -> Iterator[tuple[Place, Block]]:
    """Yield the sums of arrays of one kind over honest parties, and with the member's own."""
    rows: dict[tuple[str, str, int], dict[str, Block]] = {}
    last: dict[tuple[str, str, int], Slot] = {}
    numbers = Counter[tuple[object, ...]]()
    for slot, field, block in found:
        number = numbers[slot.sent, slot.peer, slot.kind, field]
        numbers[slot.sent, slot.peer, slot.kind, field] += 1
        row = slot.kind, field, number
        rows.setdefault(row, {}).setdefault(slot.member if slot.sent else slot.peer, block)
        last[row] = slot
    for (kind, field, number), blocks in rows.items():
        honest = [block for party, block in blocks.items() if party not in members]
        at = last[kind, field, number]
        if len(honest) > 1:
            name = f"{TOTAL}honest parties of {kind} number {number + 1}"
            yield Place(name, field, at, is_combined=True), add_blocks(honest)
        if len(blocks) > len(honest) > 0:
            name = f"{TOTAL}all parties of {kind} number {number + 1}"
            yield Place(name, field, at, is_combined=True), add_blocks(list(blocks.values()))
