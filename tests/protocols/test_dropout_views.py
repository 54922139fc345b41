"""Secrecy of a sum with dropouts: the shares of its seeds, and a coalition's view.

A view depends on honest values only by their sum. Masks are random functions here, and all of them
are enumerated: words are 0 or 2^63, a subgroup of two elements, so that a key has one of two masks.
The same tests detect variants of the protocol that lack one of its rules.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import World, play
from typing_extensions import override

import veilring as vr
from veilring.nodes.adversary import Lines
from veilring.protocols.digests import digest_of
from veilring.protocols.dropouts import Echo, NamedSet, OpeningShares, SurvivingSums
from veilring.protocols.masks import KeyPair, MaskedWords, derive_secret
from veilring.protocols.seeding import OWN, PAIRS, Quorum, SeedShares, share_seeds, split_hashes
from veilring.protocols.seedshares import (
    PRIME,
    SEED_BYTES,
    Branch,
    HeldShares,
    draw_seed,
    hash_tree,
    join_shares,
    leaf_place,
    seed_bytes,
    share_seed,
    siblings_above,
    tree_depth,
)

HALF: Final = 2**63
SPY: Final = "party-1"
SUM: Final = "veilring.protocols.dropouts._Sum"
SETTINGS: dict[str, Any] = {"tolerated": 1, "lost": 1, "coordinator": "party-0"}


@dataclass
class Table:
    """A random function that masks words: the bits of some keys, and the keys that are used."""

    bits: Mapping[bytes, int] = field(default_factory=dict)
    asked: dict[tuple[str, bool], list[bytes]] = field(default_factory=dict)

    def of(self, key: bytes) -> bytes:
        """Return the word that masks all words for a key."""
        return (self.bits.get(key, 0) * HALF).to_bytes(8, "little")

    def keys_of(self, name: str, peers: int) -> set[bytes]:
        """Return the keys under which a party has masked its words."""
        return {*self.asked.get((name, False), [])[:peers], *self.asked.get((name, True), [])[:1]}


def received(world: World, *spies: str) -> Iterator[tuple[str, str, vr.Message]]:
    """Yield the sender, receiver and content of each message sent to spies."""
    for name in world.parties:
        for to, message in world.sent(name):
            if to in spies:
                yield name, to, message


def seeds_made(world: World, *spies: str) -> dict[tuple[str, int], bytes]:
    """Return the seeds that spies can reconstruct from at least t shares.

    They use every share dealt to one of them or disclosed, and recognise it by the dealer's root.
    """
    place, depth = world.parties.position, tree_depth(len(world.parties))
    shares: dict[tuple[str, int], dict[int, list[int]]] = {}
    roots: dict[str, bytes] = {}

    def keep(dealer: str, kind: int, holder: str, share: bytes) -> None:
        value = int.from_bytes(share, "little")
        shares.setdefault((dealer, kind), {})[place(holder)] = [value]

    for sender, receiver, message in received(world, *spies):
        if isinstance(message, SeedShares):
            roots[sender] = message.roots[0]
            keep(sender, PAIRS, receiver, message.pairs[0])
            keep(sender, OWN, receiver, message.owns[0])
    for teller, _, message in received(world, *spies):
        if isinstance(message, OpeningShares):
            for dealer, told in zip(world.parties, message.shares, strict=True):
                for kind, share in kinds_told(told, depth, place(teller), roots.get(dealer)):
                    keep(dealer, kind, teller, share)
    threshold = world.quorum.threshold
    return {
        seed: seed_bytes(join_shares(dict(list(found.items())[:threshold]))[0])
        for seed, found in shares.items()
        if len(found) >= threshold
    }


def kinds_told(
    told: bytes, depth: int, holder: int, root: bytes | None
) -> Iterator[tuple[int, bytes]]:
    """Yield each disclosed share by its kind; a broken party may disclose both kinds."""
    share, *rest = split_hashes(told)
    siblings, more = rest[:depth], rest[depth:]
    shown = [Branch(share, tuple(siblings))]
    shown += [Branch(other, (digest_of(share), *siblings[1:])) for other in more]
    for branch in shown:
        for kind in (PAIRS, OWN):
            if branch.root(leaf_place(holder, kind)) == root:
                yield kind, branch.share


def keys_made(world: World, *spies: str) -> set[bytes]:
    """Return the mask keys derived from the seeds that spies can reconstruct."""
    publics = {
        sender: message.publics[0]
        for sender, _, message in received(world, *world.parties)
        if isinstance(message, SeedShares)
    }
    keys = set()
    for (dealer, kind), seed in seeds_made(world, *spies).items():
        if kind == OWN:
            keys.add(seed)
            continue
        pair = KeyPair.of(seed)
        keys |= {
            derive_secret(world.session, (dealer, pair), (peer, public))
            for peer, public in publics.items()
            if peer != dealer
        }
    return keys


def distribution(bits: str, is_lost: bool) -> Counter[tuple[bytes, ...]]:
    """Return the distribution of the spy's view for given values, over all masks unknown to it.

    A view consists of all words sent to the spy, and the masks of all keys that it can derive. If
    the last party is lost, then after the spy has its words, and before the coordinator has them.
    """
    own, last = [[int(bit) * HALF] for bit in bits], len(bits) - 1
    seeds, held, words = last, 1, 1
    crashes = {f"party-{last}": seeds + held + words} if is_lost else {}

    def view(table: Table) -> tuple[World, set[bytes]]:
        async def sum_once(party: vr.Party, own: NDArray[np.uint64], **settings: Any) -> None:
            def stream(key: bytes, info: bytes, size: int) -> bytes:
                table.asked.setdefault((party.me, b"self" in info), []).append(key)
                return table.of(key) * (size // 8)

            quorum = Quorum(len(party.parties), settings["tolerated"], settings["lost"])
            seeds = await share_seeds(party, quorum, settings["coordinator"])
            await SurvivingSums(party, seeds, stream=stream).add([own])

        world = play(len(bits), role=sum_once, own=own, crashes=crashes, **SETTINGS)
        return world, keys_made(world, SPY)

    probe = Table()
    world, made = view(probe)
    used = {key for keys in probe.asked.values() for key in keys}
    hidden = sorted(used - probe.keys_of(SPY, len(world.parties) - 1))
    found: Counter[tuple[bytes, ...]] = Counter()
    for masks in product((0, 1), repeat=len(hidden)):
        table = Table(dict(zip(hidden, masks, strict=True)))
        world, _ = view(table)
        sent = [m.words[0] for _, _, m in received(world, SPY) if isinstance(m, MaskedWords)]
        found[*(words.tobytes() for words in sent), *map(table.of, sorted(made))] += 1
    return found


def tell_both(one: Any) -> OpeningShares:
    """Disclose the shares of both seeds of each party, which is forbidden."""
    shares = []
    for name in one.party.parties:
        held, kind = one.seeds.held[name], OWN if name in one.members else PAIRS
        branch = held.branch(kind)
        shares.append(b"".join((branch.share, *branch.siblings, held.shares[1 - kind])))
    return OpeningShares(digest=one.public.digest, shares=tuple(shares))


def unmasked(*_: object) -> None:
    """Mask nothing."""


SELF_MASK = ("veilring.protocols.dropouts._put_self_mask", unmasked)
PAIRWISE = ("veilring.protocols.masks.put_mask", unmasked)
ONE_SEED = (f"{SUM}._own_shares", tell_both)


def four(*given: object) -> Any:
    """Return a case of four parties, which takes seconds: the spy, and one lost after it spoke."""
    return pytest.param(*given, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("broken", "values", "is_lost", "are_equal"),
    [
        (None, ["000", "101"], False, True),
        (None, ["000", "001"], True, True),
        four(None, ["0000", "0001", "1010", "1011"], True, True),
        (None, ["000", "001"], False, False),
        (None, ["000", "100"], True, False),
        four(None, ["0000", "1000"], True, False),
        (ONE_SEED, ["000", "101"], False, False),
        (ONE_SEED, ["000", "001"], True, False),
        (SELF_MASK, ["000", "001"], True, False),
        (PAIRWISE, ["000", "101"], False, False),
        four(SELF_MASK, ["0000", "0001"], True, False),
        four(ONE_SEED, ["0000", "0001"], True, False),
        four(ONE_SEED, ["0000", "1010"], True, False),
    ],
)
def test_a_view_depends_only_on_the_sum(
    monkeypatch: pytest.MonkeyPatch,
    broken: tuple[str, Any] | None,
    values: list[str],
    is_lost: bool,
    are_equal: bool,
) -> None:
    """It depends neither on single words with one sum nor on a lost party's words, exactly.

    It does depend on the sum. Without either mask, or with both seeds of a party disclosed, its
    words would show: the pairwise masks of a lost party are opened, and the self-masks of others.
    """
    if broken is not None:
        monkeypatch.setattr(*broken)
    first, *others = (distribution(bits, is_lost) for bits in values)
    assert all(other == first for other in others) == are_equal


@dataclass
class Liar(vr.Adversary):
    """Claims sets without some parties to each party, as coordinator or accomplice."""

    without: Mapping[str, tuple[str, ...]]
    named: NamedSet | None = None

    @override
    async def sending(self, to: str, message: vr.Message) -> Lines:
        if isinstance(message, NamedSet):
            self.named = message
            return [(to, self._named(to))]
        if isinstance(message, Echo):
            said = self._named(to)
            update = {"named": hash_set(said), "members": said.members}
            return [(to, message.model_copy(update=update))]
        return [(to, message)]

    @override
    async def received(self, sender: str, message: vr.Message) -> vr.Message:
        if isinstance(message, NamedSet):
            self.named = message
        if isinstance(message, Echo) and self.named is not None:
            # Its own role then waits for the shares of all others, and does not leave before.
            return message.model_copy(update={"named": hash_set(self.named)})
        return message

    def _named(self, to: str) -> NamedSet:
        assert self.named is not None
        parties, gone = self.party.parties, self.without.get(to, ())
        kept = [name not in gone for name in parties]
        hashes = [one for one, keep in zip(self.named.vectors, kept, strict=True) if keep]
        bits = np.packbits(kept).tobytes()
        return self.named.model_copy(update={"members": bits, "vectors": tuple(hashes)})


def hash_set(named: NamedSet) -> bytes:
    """Return the echo of an honest party that received a set."""
    return digest_of(named.members, *named.vectors)


def lied_to(
    parties: int, tolerated: int, lost: int, without: Mapping[str, tuple[str, ...]], *spies: str
) -> dict[tuple[str, int], bytes]:
    """Return the seeds that a lying coordinator and its accomplices can reconstruct."""
    world = play(
        parties,
        adversaries={spy: Liar(without) for spy in spies},
        tolerated=tolerated,
        lost=lost,
        coordinator=spies[0],
    )
    return seeds_made(world, *spies)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_coalition_gets_both_seeds_of_a_party_only_with_an_insufficient_quorum(lost: int) -> None:
    """If 2t > n + c it never does, for any parties that are named a set without the last one.

    With two losses tolerated, the condition fails by one, and so do the masks.
    """
    found = []
    for are_told in product((False, True), repeat=3):
        told = [f"party-{n}" for n, is_told in enumerate(are_told, 1) if is_told]
        made = lied_to(5, 1, lost, dict.fromkeys(told, ("party-4",)), "party-0")
        found.append({("party-4", PAIRS), ("party-4", OWN)} <= set(made))
    assert Quorum(5, 1, lost).withstands_lies == (lost == 1)
    assert any(found) == (lost == 2)


# To each of five honest parties of seven, two of the last three are not in; never itself.
MIXED = {
    "party-2": ("party-4", "party-5"),
    "party-3": ("party-5", "party-6"),
    "party-4": ("party-5", "party-6"),
    "party-5": ("party-4", "party-6"),
    "party-6": ("party-4", "party-5"),
}


def test_a_coalition_opens_no_smaller_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven parties two lie and two may be lost: no party discloses anything.

    Without the echo, three are removed from the sum, and only two honest ones remain.
    """
    assert Quorum(7, 2, 2).withstands_lies
    assert not lied_to(7, 2, 2, MIXED, "party-0", "party-1")
    monkeypatch.setattr(f"{SUM}._agreed", lambda _one, own, _echoes: own)
    made = lied_to(7, 2, 2, MIXED, "party-0", "party-1")
    lost, opened = ({name for name, kind in made if kind == seed} for seed in (PAIRS, OWN))
    assert lost == {"party-4", "party-5", "party-6"}
    assert opened >= {"party-2", "party-3"}


class Chosen(Generator):
    """A source of given draws, for enumeration."""

    def __init__(self, drawn: Sequence[int]) -> None:
        super().__init__(np.random.PCG64())
        self._drawn = iter(drawn)

    @override
    def bytes(self, length: int) -> bytes:
        return next(self._drawn).to_bytes(length)


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_fewer_shares_have_the_same_distribution_for_each_seed(threshold: int) -> None:
    """Over all polynomials of five elements, t - 1 of four parties' shares are uniform."""
    for few in combinations(range(4), threshold - 1):
        for seed in range(5):
            distributions = Counter(
                tuple(share_seed(seed, threshold, 4, Chosen(drawn), prime=5)[i] for i in few)
                for drawn in product(range(5), repeat=threshold - 1)
            )
            assert distributions == Counter(product(range(5), repeat=threshold - 1))


@given(
    seeds=st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=3),
    parties=st.integers(1, 12),
    data=st.data(),
)
def test_any_t_shares_give_the_seeds(seeds: list[int], parties: int, data: st.DataObject) -> None:
    """Shares of any t parties, in any order, reconstruct the seeds in the field of X25519."""
    threshold = data.draw(st.integers(1, parties))
    rng = np.random.default_rng(parties)
    shares = [share_seed(seed, threshold, parties, rng) for seed in seeds]
    tellers = data.draw(st.permutations(range(parties)))[:threshold]
    told = {teller: [of_one[teller] for of_one in shares] for teller in tellers}
    assert join_shares(told) == seeds


def test_seeds_are_elements_of_the_field() -> None:
    """Draws are reduced, and fit the bytes of a key."""
    assert draw_seed(Chosen([PRIME + 5])) == 5
    assert draw_seed(Chosen([2**384 - 1])) == (2**384 - 1) % PRIME
    assert seed_bytes(PRIME - 1) == (PRIME - 1).to_bytes(SEED_BYTES, "little")


@pytest.mark.parametrize("parties", [1, 2, 3, 5, 8, 13])
def test_every_share_leads_to_the_root(parties: int) -> None:
    """It does so only at its own position; another share leads to another root."""
    shares = [list(range(10, 10 + parties)), list(range(50, 50 + parties))]
    levels = hash_tree(shares)
    (root,) = levels[-1]
    assert len(levels) == tree_depth(parties) + 1
    for holder, seed in product(range(parties), range(2)):
        pair = (seed_bytes(shares[0][holder]), seed_bytes(shares[1][holder]))
        branch = HeldShares(pair, siblings_above(levels, holder)).branch(seed)
        places = [leaf_place(other, kind) for other in range(parties) for kind in range(2)]
        right = [place for place in places if branch.root(place) == root]
        assert right == [leaf_place(holder, seed)]
        assert branch._replace(share=seed_bytes(99)).root(right[0]) != root


def test_a_disclosed_share_does_not_reveal_the_other() -> None:
    """It is accompanied only by the hash of the other."""
    held = HeldShares((b"one" * 10, b"two" * 10), (b"above",))
    assert held.branch(0) == Branch(b"one" * 10, (digest_of(b"two" * 10), b"above"))
    assert held.branch(1) == Branch(b"two" * 10, (digest_of(b"one" * 10), b"above"))
