"""Hashes of values that can be guessed: a dictionary attack on the words of a view.

Both worlds' inputs are known to an audit. It hashes the numbers and texts in the inputs of honest
parties with common functions, alone or together with a public text, and looks for the first eight
bytes of each hash among the words of a view. The recipes that match in a few runs are fixed before
any run is tested. A hash with a secret key or nonce never matches.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.testing.hiding.leaves import WORD_BYTES, parts_of

GUESSES_MAX: Final = 32
"""The number of values that are hashed: those that occur in some inputs only come first."""
RUNS_GUESSED: Final = 3
"""The number of runs of each world in which recipes are tried; a deterministic hash is in each."""
_TEXTS_MAX: Final = 7  # of the public texts, the session and the first parties' names come first
_RECIPES_MAX: Final = 2  # one recipe shows a leak; a second one, that it also has another form
_DEPTH_MAX: Final = 8  # deeper inputs are structures rather than lists of items

_Hash = Callable[[bytes, bytes], bytes]


def _plain(name: str, *, text_first: bool) -> _Hash:
    new = getattr(hashlib, name)
    if text_first:
        return lambda text, item: new(text + item, usedforsecurity=False).digest()
    return lambda text, item: new(item + text, usedforsecurity=False).digest()


def _keyed(name: str) -> _Hash:
    return lambda text, item: hmac.digest(text, item, name)


_NAMES: Final = ("sha256", "sha1", "md5", "sha512", "blake2b", "blake2s", "sha3_256")
_HASHES: Final[Mapping[str, _Hash]] = {
    **{f"{name} of": _plain(name, text_first=True) for name in _NAMES},
    **{f"{name} of {{text}} and": _plain(name, text_first=True) for name in _NAMES},
    **{f"{name}, with {{text}} after it, of": _plain(name, text_first=False) for name in _NAMES},
    **{f"HMAC of {name} under {{text}} of": _keyed(name) for name in _NAMES[:4]},
}
"""The functions of a public text and an item, by their names; without `{text}`, of an empty one."""


def _as_text(value: object) -> bytes | None:
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case int() | float():
            return str(value).encode()
    return None


def _as_words(bits: int, order: str) -> Callable[[object], bytes | None]:
    def encode(value: object) -> bytes | None:
        if not isinstance(value, int):
            return None
        return (value % (1 << bits)).to_bytes(bits // 8, order)  # type: ignore[arg-type]  # a name

    return encode


_ENCODINGS: Final = (
    _as_text,
    *(_as_words(bits, order) for bits in (64, 32) for order in ("little", "big")),
    _as_words(8, "big"),
)


class Public(NamedTuple):
    """The public texts of a run, by the words that name them."""

    texts: Mapping[str, bytes]

    @classmethod
    def of(cls, session: bytes, parties: Iterable[str], known: Iterable[bytes]) -> "Public":
        """Return the session, public arguments and names, of which the first are tried."""
        texts = {"the session": session}
        texts |= {f"public text {number}": text for number, text in enumerate(known, start=1)}
        texts |= {f"the name {name}": name.encode() for name in parties}
        return cls(dict(islice(texts.items(), _TEXTS_MAX)))


class Recipe(NamedTuple):
    """A way to hash a guess."""

    hash: str
    text: str
    encoding: int

    def __str__(self) -> str:
        return self.hash.format(text=self.text)

    def of(self, guess: object, public: Public) -> int | None:
        """Return the first eight bytes of the hash as a word, or none for this guess."""
        item = _ENCODINGS[self.encoding](guess)
        if item is None:
            return None
        hashed = _HASHES[self.hash](public.texts.get(self.text, b""), item)
        return int.from_bytes(hashed[:WORD_BYTES], "big")


class Guesses(NamedTuple):
    """The values that are guessed, and the recipes that some word of a view matched.

    Attributes:
        values: Each guess, with the party that has it.
    """

    values: tuple[tuple[object, str], ...]
    recipes: tuple[Recipe, ...]

    def hashed(self, recipe: Recipe, public: Public) -> NDArray[np.uint64]:
        """Return the words of all guesses in one run; 0 for a guess that has no such form."""
        found = [recipe.of(value, public) or 0 for value, _ in self.values]
        return np.array(found, np.uint64)


def find_guesses(
    inputs: Sequence[Mapping[str, object]],
    members: Sequence[str],
    runs: Sequence[tuple[Public, Iterable[int]]],
) -> Guesses:
    """Choose guesses from the honest parties' inputs, and find recipes in a few runs.

    Args:
        inputs: The inputs of each pilot run, by party.
        runs: For each run that is tried, its public texts and the words of the coalition's view.
    """
    often = Counter[tuple[object, str]]()
    for each in inputs:
        honest = {party: own for party, own in each.items() if party not in members}
        found = ((value, party) for party, own in honest.items() for value in _items(own))
        often.update(dict.fromkeys(found).keys())
    ordered = sorted(often, key=lambda value: (often[value] == len(inputs), -often[value]))
    values = tuple(ordered[:GUESSES_MAX])
    counted = Counter[Recipe]()
    for public, words in runs:
        seen = set(words)
        for recipe in _recipes(public):
            counted[recipe] += any(recipe.of(value, public) in seen for value, _ in values)
    matched = [recipe for recipe, hits in counted.most_common(_RECIPES_MAX) if hits]
    return Guesses(values, tuple(matched))


def _recipes(public: Public) -> Iterator[Recipe]:
    for name in _HASHES:
        texts = public.texts if "{text}" in name else [""]
        yield from map(Recipe._make, product([name], texts, range(len(_ENCODINGS))))


def _items(value: object, depth: int = 0) -> Iterator[object]:
    """Yield the numbers, texts and bytes in an input."""
    match value:
        case bool() | None:
            return
        case int() | float() | str() | bytes():
            yield value
        case np.ndarray() | np.generic():
            yield from np.unique(np.asarray(value)).tolist()[:GUESSES_MAX]
        case set() | frozenset():
            yield from sorted(value, key=repr)
        case _ if depth < _DEPTH_MAX:
            for part in (parts_of(value) or {}).values():
                yield from _items(part, depth + 1)
