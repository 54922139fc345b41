"""Intersection size of two parties' items, counted by a third party, with a leak."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from veilring import Message, Party, broadcast
from veilring.protocols.masks import WordArray, agree_secrets
from veilring.testing import RoleClaims, assert_hides, measure_leakage
from veilring.testing.hiding.worlds import Played

COUNTER: Final = "cy"
ITEMS: Final = 4


class Tokens(Message, kind="intersection.tokens"):
    """Tokens of one party's items, under a key that the counter does not have."""

    values: WordArray


class Size(Message, kind="intersection.size"):
    """The number of tokens that both parties have sent."""

    common: int


async def intersection_size(party: Party, own: list[int], *, sort: bool) -> int:
    """Count the items that the two other parties have in common."""
    if party.me == COUNTER:
        party.round(1)
        ours, theirs = [(await party.receive(Tokens, sender=peer)).values for peer in party.peers]
        common = len(np.intersect1d(ours, theirs))
        party.round(2)
        await broadcast(party, Size(common=common))
        return common
    (other,) = (peer for peer in party.peers if peer != COUNTER)
    key = (await agree_secrets(party, among=[other]))[other]
    tokens = np.array([token(key, item) for item in sorted(own)], np.uint64)
    if sort:
        tokens.sort()  # in the order of the tokens, which reveals nothing about the items
    party.round(1)
    await party.send(COUNTER, Tokens(values=tokens))
    return (await party.receive(Size, sender=COUNTER)).common


def token(key: bytes, item: int) -> int:
    """Return the token of an item in this session."""
    hashed = hashlib.blake2b(item.to_bytes(8, "big"), key=key, digest_size=8)
    return int.from_bytes(hashed.digest(), "big")


def sizes(inputs: Mapping[str, Any]) -> object:
    """Return everything that the counter may learn: three sizes."""
    ada, ben = set(inputs["ada"]), set(inputs["ben"])
    return len(ada), len(ben), len(ada & ben)


WORLD: Final = {"ada": [10, 20, 30, 40], "ben": [10, 20, 50, 60], COUNTER: []}
OTHER_WORLD: Final = {"ada": [10, 20, 30, 40], "ben": [1, 2, 30, 40], COUNTER: []}


def is_size(inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Require the number of items that ada and ben have in common."""
    common = len(set(inputs["ada"]) & set(inputs["ben"]))
    for party, found in results.items():
        assert found == common, f"{party} found {found}, not {common}"  # noqa: S101  (how a test speaks)


UNSORTED: Final = RoleClaims(
    intersection_size,
    WORLD,
    is_size,
    other_inputs=OTHER_WORLD,
    coalition=(COUNTER,),
    permitted=sizes,
    least=3,
    title="intersection size, tokens in the order of the items",
    sort=False,
)
SORTED: Final = UNSORTED.replaced(sort=True, title="intersection size, tokens in their own order")


def draw(rng: Generator) -> list[list[int]]:
    """Draw the sets of ada and ben, who share two of ben's four items."""
    ben = rng.choice(1_000, ITEMS, replace=False)
    ada = [*rng.choice(ben, 2, replace=False), 1_001, 1_002]
    return [[int(item) for item in ada], [int(item) for item in ben], []]


def has_least(played: Played) -> bool:
    """Return the secret: whether ben's smallest item is also one of ada's."""
    inputs: Mapping[str, Any] = played.inputs
    return min(inputs["ben"]) in inputs["ada"]


def main() -> None:
    """Find the leak, measure it, and test the correction."""
    for sort in (False, True):
        print(f"sort={sort}:")
        options: dict[str, Any] = {"coalition": [COUNTER], "runs": 1_000, "sort": sort}
        try:
            audit = assert_hides(intersection_size, WORLD, OTHER_WORLD, permitted=sizes, **options)
        except AssertionError as error:
            print(error)
        else:
            least = audit.least_advantage
            print(f"no test finds a difference; an advantage of {least:.2f} would be found")
        parties = list(WORLD)
        found = measure_leakage(
            intersection_size, draw, secret=has_least, parties=parties, **options
        )
        view, output = found.from_view.rate.value, found.from_output.rate.value
        print(
            f"success rate in guessing the secret: {view:.1f}, "
            f"and from the output alone: {output:.1f}\n"
        )


if __name__ == "__main__":
    main()
