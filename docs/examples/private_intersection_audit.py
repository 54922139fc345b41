"""Audit of the private intersection, and of a variant that compares hashes."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Final

from docs.examples.private_intersection import INPUTS, private_intersection
from pydantic import Field

from veilring import Message, Party
from veilring.testing import RoleClaims, audit

HASH_BYTES: Final = 32


class Hashed(Message, kind="private.hashed"):
    """The hashes of the sender's items, sorted."""

    hashes: tuple[Annotated[bytes, Field(min_length=HASH_BYTES, max_length=HASH_BYTES)], ...]


async def hashed_intersection(party: Party, own: Sequence[str]) -> int:
    """Count common items by hashes with a fresh salt, which hide nothing that can be guessed."""
    (peer,) = party.peers
    mine = tuple(sorted(sha256(party.session + item.encode()).digest() for item in {*own}))
    party.round(1)
    await party.send(peer, Hashed(hashes=mine))
    theirs = (await party.receive(Hashed, sender=peer, due=1)).hashes
    return len({*mine} & {*theirs})


def find_common(inputs: Mapping[str, Sequence[str]]) -> int:
    """Return the right number of common items."""
    return len({*inputs["ada"]} & {*inputs["ben"]})


def is_common(inputs: Mapping[str, Sequence[str]], results: Mapping[str, int]) -> None:
    """Require the number of common items."""
    for name, found in results.items():
        assert found == find_common(inputs), f"{name} found {found}"  # noqa: S101  (how a test speaks)


POINTS: Final = RoleClaims(
    private_intersection,
    INPUTS,
    is_common,
    other_inputs={**INPUTS, "ben": ("cat", "eve")},
    coalition=("ada",),
    permitted=lambda inputs: (len(inputs["ben"]), find_common(inputs)),
    title="private intersection by points of a curve",
)
HASHES: Final = POINTS.replaced(
    role=hashed_intersection, title="private intersection by salted hashes"
)


def main() -> None:
    """Audit both ways to compare items."""
    for claims in (POINTS, HASHES):
        print(audit(claims, quick=True), end="\n\n")


if __name__ == "__main__":
    main()
