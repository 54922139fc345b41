"""The simulator of `reveal = "totals"`, and the ideal functionality behind it.

The ideal functionality follows the definition, on all rows: the total of clipped counts at each
threshold asked, and the total votes within the radius. The simulator gets these, and the rows and
keys of a coalition. It returns the coalition's view except for the words of honest parties, and the
sum of those words: all but one are uniform, and the last completes the sum.

On words modulo 2 and 4 all streams are enumerated, and the two distributions are equal. At full
size, everything that is not random is equal, and tests of the random words have a joint false-alarm
rate of one in a million. The same functions detect variants that are broken.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from math import log, sqrt
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest
from tests.protocols.dropout_worlds import Lie
from tests.protocols.ranksearch.worlds import label, ready
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows, pairwise_distances
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import View
from veilring.nodes.party import Party
from veilring.nodes.run import Outcome
from veilring.protocols.batches import Queries
from veilring.protocols.digests import DIGEST_BYTES, digest_of, digest_of_names
from veilring.protocols.masks import (
    MaskedSums,
    MaskedTotals,
    MaskedWords,
    MaskKey,
    PairwiseKeys,
    Stream,
    agree_secrets,
)
from veilring.protocols.ranksearch import roles
from veilring.protocols.ranksearch.algorithm.search import Asked, clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import (
    Nearest,
    Votes,
    fixed_weights,
    nearest_rows,
    own_votes,
)
from veilring.protocols.ranksearch.shared import CHECK_BYTES, CheckWords, Commitment
from veilring.protocols.ranksearch.system import SearchSetup
from veilring.protocols.ring.algorithm.classify import Weights

Words = NDArray[np.unsignedinteger[Any]]


class World(NamedTuple):
    """Parties that are ready to search, the first of which asks, and their queries."""

    setup: SearchSetup
    queries: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """The parties."""
        return tuple(self.setup.parts)

    @property
    def adder(self) -> str | None:
        """The party that adds up, if any."""
        return self.names[0] if self.setup.parameters.has_adder else None


def ideal_counts(world: World, asked: Asked) -> Ints:
    """Return the totals of clipped counts: the sum of min(k + 1, rows within the threshold)."""
    query = asked.queries[asked.owner]
    totals = np.zeros(len(asked), np.int64)
    for rows in world.setup.parts.values():
        within = pairwise_distances(world.queries, rows.features)[query] <= asked.values[:, None]
        totals += np.minimum(world.setup.parameters.system.k + 1, within.sum(axis=1))
    return totals


def ideal_votes(world: World, radii: Floats) -> Votes:
    """Return the total votes of all rows within the radii."""
    weights = world.setup.parameters.system.weights
    counts = np.zeros((len(radii), world.setup.parameters.facts.classes), np.uint64)
    weighted = np.zeros_like(counts)
    for rows in world.setup.parts.values():
        distances = pairwise_distances(world.queries, rows.features)
        counted = distances <= radii[:, None] if weights == "uniform" else distances == 0
        weight = fixed_weights(radii[:, None], distances)
        for each in range(world.setup.parameters.facts.classes):
            of = rows.labels == each
            counts[:, each] += counted[:, of].sum(axis=1, dtype=np.uint64)
            weighted[:, each] += weight[:, of].sum(axis=1, dtype=np.uint64)
    return Votes(counts, weighted if weights == "distance" else None)


class SimulatedSum(NamedTuple):
    """The hash of a sum, and of each array the total and the sum of all honest parties' words."""

    digest: bytes
    totals: tuple[Words, ...]
    honest: tuple[Words, ...]


def simulate(world: World, coalition: Mapping[str, PairwiseKeys]) -> Iterator[SimulatedSum]:
    """Yield the sums of a batch in order, from the totals and a coalition's rows and unused keys.

    The last is that of the outcome of checks, all of which pass.
    """
    public, parties = world.setup.parameters, len(world.setup.parts)
    k, classes, weights = public.system.k, public.facts.classes, public.system.weights
    near = {name: nearest_rows(world.queries, world.setup.parts[name], k) for name in coalition}
    digest = digest_of(
        public.written.encode(), digest_of_names(world.names), world.queries.tobytes()
    )

    def add(
        totals: Sequence[NDArray[Any]], own: Mapping[str, Sequence[NDArray[Any]]]
    ) -> SimulatedSum:
        nonlocal digest
        words = tuple(_wire(total) for total in totals)
        sent = [
            keys.mask([_wire(a) for a in own[name]], digest) for name, keys in coalition.items()
        ]
        honest = tuple(
            total - sum((arrays[n] for arrays in sent), np.zeros_like(total))
            for n, total in enumerate(words)
        )
        found = SimulatedSum(digest, words, honest)
        digest = digest_of(digest, *(word.tobytes() for word in words))
        return found

    search, word = public.search(len(world.queries), parties), public.count_word(parties)
    while (asked := search.ask()) is not None:
        totals = ideal_counts(world, asked)
        own = {
            name: [clipped_counts(near[name].distances, asked).astype(word)] for name in coalition
        }
        yield add([totals.astype(word)], own)
        search.take(asked, totals)
    found = search.found()
    votes = {
        name: own_votes(
            world.queries,
            world.setup.parts[name],
            near[name],
            found,
            classes=classes,
            weights=weights,
        ).arrays(found.tied, k)
        for name in coalition
    }
    yield add(ideal_votes(world, found.radii).arrays(found.tied, k), votes)
    passed = np.zeros(CHECK_BYTES // 8, np.uint64)
    yield add([passed], {name: [passed] for name in coalition})


def _wire(array: NDArray[Any]) -> Words:
    return array.astype(f"<u{array.dtype.itemsize}").ravel()


pytestmark = pytest.mark.slow

FALSE_ALARM: Final = 1e-6  # of one test, all that it looks at together
ZERO: Final = bytes(DIGEST_BYTES)


class ReusedKeys(PairwiseKeys):
    """Broken: equal masks for every sum."""

    @override
    def mask(self, arrays: Sequence[Words], digest: bytes) -> tuple[Words, ...]:
        self._sums = 0
        return super().mask(arrays, ZERO)


class UnboundKeys(PairwiseKeys):
    """Broken: masks that depend only on the counter, not on the public inputs."""

    @override
    def mask(self, arrays: Sequence[Words], digest: bytes) -> tuple[Words, ...]:
        return super().mask(arrays, ZERO)


# Tiny words: multiples of 256/m are the integers modulo m, and the very code adds them up.


def enumerate_streams(modulus: int, masks: int, honest: Collection[bytes]) -> Stream:
    """Return a stream of masks in which entry e of the words is run e of all possible runs.

    Each mask of an honest pair is a digit of e: together the digits have all values. Masks that a
    member of the coalition knows, and can therefore remove, are 0.
    """
    seen: dict[tuple[bytes, bytes], int] = {}

    def stream(key: bytes, info: bytes, size: int) -> bytes:
        if key not in honest:
            return bytes(size)
        place = seen.setdefault((key, info), len(seen))
        assert place < masks
        return digit(modulus, masks, place).tobytes()

    return stream


def digit(modulus: int, digits: int, place: int) -> Words:
    """Return a digit of the numbers below modulus^digits, as tiny words."""
    numbers = np.arange(modulus**digits)
    return np.asarray(numbers // modulus**place % modulus * (256 // modulus), np.uint8)


@dataclass(frozen=True)
class Tiny:
    """Parties that add up twice, modulo 2 or 4, the second time depending on the first total.

    A corrupted adder sends as many different totals of the first sum as it has tongues.
    """

    modulus: int
    names: tuple[str, ...]
    coalition: tuple[str, ...]
    adder: str | None
    tongues: int = 1

    @property
    def outside(self) -> tuple[str, ...]:
        """The honest parties."""
        return tuple(name for name in self.names if name not in self.coalition)

    @property
    def sees_words(self) -> bool:
        """Whether the coalition receives words, not only totals."""
        return self.adder is None or self.adder in self.coalition

    @property
    def masks(self) -> int:
        """The maximum number of masks of honest pairs in both sums."""
        return (1 + self.tongues) * len(list(combinations(self.outside, 2)))

    def values(self, name: str, first: Ints | None = None) -> Ints:
        """Return a party's first value, or its second given the first total, modulo `modulus`."""
        me = self.names.index(name)
        value = np.array([me % 3]) if first is None else (me + 1) * first + me // 2
        return np.asarray(value % self.modulus)


async def add_twice(party: Party, *, tiny: Tiny, stream: Stream, kind: type[PairwiseKeys]) -> None:
    """Add up twice with the protocol's own code."""
    step, runs = 256 // tiny.modulus, tiny.modulus**tiny.masks
    secrets = {peer: secret_of(party.me, peer) for peer in party.peers}
    sums = MaskedSums(party, kind(party.me, secrets, stream=stream), tiny.adder)
    (first,) = await sums.add((np.repeat(tiny.values(party.me) * step, runs).astype(np.uint8),))
    await sums.add(((tiny.values(party.me, first.astype(np.int64) // step) * step).astype("u1"),))


def secret_of(one: str, other: str) -> bytes:
    """Return the secret of two parties."""
    return hashlib.sha256(" ".join(sorted((one, other))).encode()).digest()


def other_total(step: int, message: MaskedTotals) -> MaskedTotals:
    """Return a different total of the first sum."""
    words = tuple(array + array.dtype.type(step) for array in message.words)
    return message.model_copy(update={"words": words}) if message.digest == ZERO else message


Told = Mapping[str, Mapping[str, Words]]
"""The words that members of a coalition are told in a sum, by member and honest sender."""


def words_told(tiny: Tiny, kind: type[PairwiseKeys]) -> list[Told]:
    """Return the coalition's received words of each sum over all masks of the others."""
    pairs = {secret_of(*pair) for pair in combinations(tiny.outside, 2)}
    stream = enumerate_streams(tiny.modulus, tiny.masks, pairs)
    liars: dict[str, Adversary] = {}
    if tiny.tongues > 1 and tiny.adder:
        change = partial(other_total, 256 // tiny.modulus)
        liars[tiny.adder] = Lie(MaskedTotals, change, to=tiny.outside[-1:])

    async def play() -> list[Outcome]:
        async with Cluster(tiny.names) as cluster:
            play = partial(cluster.play, watch=tiny.coalition, adversaries=liars)
            return await play(add_twice, tiny=tiny, stream=stream, kind=kind)

    told: dict[int, dict[str, dict[str, Words]]] = {}
    for outcome in asyncio.run(play()):
        for seen in outcome.view.received if outcome.view else ():
            if seen.sender in tiny.outside and isinstance(seen.message, MaskedWords | MaskedTotals):
                words = told.setdefault(seen.round, {}).setdefault(outcome.party, {})
                words[seen.sender] = seen.message.words[0]
    return [told[number] for number in sorted(told)]


def is_simulated(tiny: Tiny, kind: type[PairwiseKeys] = PairwiseKeys) -> bool:
    """Return whether the coalition's view has the distribution of the simulator.

    All members are told the same words. They have the total that follows from the values, and are
    otherwise uniform: all possible words are equally likely. If a corrupted adder sent two totals
    of the first sum, the second sum has no total.
    """
    step, columns, free = 256 // tiny.modulus, list[Words](), 0
    first: Ints | None = None
    for number, told in enumerate(words_told(tiny, kind)):
        own = {name: tiny.values(name, first) for name in tiny.names}
        first = np.asarray(sum(own.values()) % tiny.modulus)
        words, *others = (np.stack([each[name] for name in sorted(each)]) for each in told.values())
        if any((other != words).any() for other in others):
            return False
        rest = first - sum(own[name] for name in tiny.coalition if tiny.sees_words)
        has_total = not (number and tiny.tongues > 1)
        if has_total and ((words.sum(axis=0) - rest * step) % 256).any():
            return False
        free += len(words) - has_total
        columns += [*words]
    counts = np.unique(np.stack(columns), axis=1, return_counts=True)[1]
    return len(counts) == tiny.modulus**free and bool(np.ptp(counts) == 0)


def tiny_worlds() -> Iterator[Tiny]:
    """Yield every coalition of up to n - 2 of three to five parties, and every kind of adder."""
    sizes = (4, 3, 1), (4, 4, 1), (4, 4, 2), (2, 5, 1), (2, 5, 2), (4, 5, 3)
    for modulus, parties, members in sizes:
        names = tuple(f"party-{n}" for n in range(parties))
        for coalition in combinations(names, members):
            yield from (Tiny(modulus, names, coalition, adder) for adder in (None, *names))


def test_views_have_the_distribution_of_the_simulator() -> None:
    """They have it exactly, for every coalition of up to n - 2, with any adder.

    With a reused mask, the distribution is different for any coalition that sees words.
    """
    for tiny in tiny_worlds():
        assert is_simulated(tiny), tiny
        assert is_simulated(tiny, ReusedKeys) != tiny.sees_words, tiny


@pytest.mark.parametrize(("modulus", "parties", "members"), [(4, 3, 1), (2, 4, 1), (4, 4, 2)])
def test_an_adder_with_two_totals_opens_nothing(modulus: int, parties: int, members: int) -> None:
    """Later words that it receives are uniform and independent, without a fixed sum."""
    names = tuple(f"party-{n}" for n in range(parties))
    tiny = Tiny(modulus, names, names[:members], "party-0", tongues=2)
    assert is_simulated(tiny)
    assert not is_simulated(tiny, UnboundKeys)


# Full size: the real role, its own keys and generator.


class Played(NamedTuple):
    """A run of the real role with its own keys: the view and the secrets of each party."""

    world: World
    kind: type[PairwiseKeys]
    views: Mapping[str, View]
    secrets: Mapping[str, Mapping[str, bytes]]

    def keys(self, me: str, names: Sequence[str]) -> PairwiseKeys:
        """Return the unused keys that a party shares with the given others."""
        secrets = self.secrets[me]
        return self.kind(me, {peer: secrets[peer] for peer in names if peer != me})


def play(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[PairwiseKeys] = PairwiseKeys
) -> Played:
    """Search once, and record each party's view and secrets."""
    secrets: dict[str, dict[str, bytes]] = {}

    async def agree(party: Party, *, due: int = 0) -> PairwiseKeys:
        secrets[party.me] = await agree_secrets(party, due=due)
        return kind(party.me, secrets[party.me])

    monkeypatch.setattr(roles, "agree_keys", agree)
    run = asyncio.run(label(world.setup, {}, world.queries, seed=11, watch=world.names))
    return Played(world, kind, run.views, secrets)


def by_sum(view: View) -> list[dict[str, MaskedWords | MaskedTotals]]:
    """Return a party's received messages of each sum, by sender; the last is that of checks."""
    rounds: dict[int, dict[str, MaskedWords | MaskedTotals]] = {}
    promised: dict[str, bytes] = {}
    for seen in view.received:
        if isinstance(seen.message, MaskedWords | MaskedTotals):
            rounds.setdefault(seen.round, {})[seen.sender] = seen.message
        elif isinstance(seen.message, Commitment):
            promised[seen.sender] = seen.message.commitment
        elif isinstance(seen.message, CheckWords):
            digest, sent = seen.message.digest, seen.message.words
            assert promised[seen.sender] == digest_of(seen.sender.encode(), sent)
            words = MaskedWords(digest=digest, words=(np.frombuffer(sent, "<u8"),))
            rounds.setdefault(seen.round, {})[seen.sender] = words
        else:
            assert isinstance(seen.message, MaskKey | Queries)  # which rows have no part in
    return [rounds[number] for number in sorted(rounds)]


def assert_simulated(played: Played, coalition: Sequence[str]) -> None:
    """Check that a coalition's view is its simulator's, apart from honest words' randomness."""
    world = played.world
    outside = [name for name in world.names if name not in coalition]
    sums = list(simulate(world, {name: played.keys(name, world.names) for name in coalition}))
    for member in coalition:
        received = by_sum(played.views[member])
        assert len(received) == len(sums)
        for number, (messages, expected) in enumerate(zip(received, sums, strict=True), start=1):
            assert {message.digest for message in messages.values()} == {expected.digest}
            if world.adder not in {None, member} and number < len(sums):  # checks go to all
                assert list(messages) == [world.adder]
                np.testing.assert_equal(messages[str(world.adder)].words, expected.totals)
                continue
            assert set(messages) == set(world.names) - {member}
            arrays = zip(*(messages[name].words for name in outside), strict=True)
            added = [np.add.reduce(words, dtype=words[0].dtype.type) for words in arrays]
            np.testing.assert_equal(added, list(expected.honest))


def drawn_words(played: Played, coalition: Sequence[str]) -> list[NDArray[np.uint8]]:
    """Return the words drawn by a simulator, as bytes: shape (honest - 1, bytes) for each sum.

    These are the words of all honest parties except the last, minus the masks that members know.
    """
    outside = [name for name in played.world.names if name not in coalition]
    known = {name: played.keys(name, coalition) for name in outside}
    drawn = []
    for messages in by_sum(played.views[played.world.adder or coalition[0]]):
        bare = []
        for name in outside:
            words, digest = messages[name].words, messages[name].digest
            masks = known[name].mask([np.zeros_like(array) for array in words], digest)
            hidden = [array - mask for array, mask in zip(words, masks, strict=True)]
            bare.append(np.concatenate([array.view(np.uint8) for array in hidden]))
        drawn.append(np.stack(bare[:-1]))
    return drawn


def assert_uniform(drawn: Sequence[NDArray[np.uint8]], alarm: float) -> None:
    """Check that bytes are uniform, and independent of nearby bytes in four directions.

    Differences of independent uniform bytes are uniform as well, so each distribution is tested by
    the inequality of Dvoretzky, Kiefer and Wolfowitz, with the constant of Massart. The bits are
    tested by the binomial distribution. Uniform bytes, shape (parties, bytes) for each sum, fail
    with at most the probability `alarm`.
    """
    after = [
        second[:, :size] - first[:, :size]
        for first, second in pairwise(drawn)
        for size in [min(first.shape[1], second.shape[1])]
    ]
    directions = {
        "alone": list(drawn),
        "from sum to sum": after,
        "from party to party": [np.diff(each, axis=0) for each in drawn],
        "from word to word": [np.diff(each, axis=1) for each in drawn],
    }
    share = alarm / (len(directions) + 8)
    for direction, arrays in directions.items():
        found = np.concatenate([array.ravel() for array in arrays])
        if not len(found):
            continue  # there is one party, or one sum
        shares = np.bincount(found, minlength=256).cumsum() / len(found)
        apart = float(np.abs(shares - np.arange(1, 257) / 256).max())
        assert apart <= sqrt(log(2 / share) / (2 * len(found))), direction
    flat = np.concatenate([array.ravel() for array in drawn])
    for bit in range(8):
        ones = int((flat >> bit & 1).sum())
        assert binomtest(ones, len(flat), 0.5).pvalue >= share, f"bit {bit}"


def deal(
    sizes: Sequence[int], *, adding: str = "all-to-all", weights: Weights = "uniform", grid: int = 0
) -> World:
    """Return parties of given sizes with rows in two dimensions, on a grid with ties."""
    rng = np.random.default_rng(5)

    def draw(rows: int) -> Floats:
        places = rng.random((rows, 2))
        return np.round(places * grid) / grid if grid else places

    parts = [Rows(draw(rows), rng.integers(0, 3, rows)) for rows in sizes]
    return World(ready(parts, sum=adding, weights=weights), draw(120))


WORLDS = {
    "plain": deal([40, 40, 40, 40, 40]),
    "star": deal([40, 40, 40, 40, 40], adding="star"),
    "skewed": deal([90, 0, 2, 60]),
    "skewed star": deal([90, 0, 2, 60], adding="star"),
    "weighted": deal([30, 40, 50, 3], weights="distance"),
    "tied": deal([40, 40, 40], grid=6),
    "tied, weighted star": deal([40, 40, 40, 40], adding="star", weights="distance", grid=6),
    "fewer than k": deal([1, 0, 2]),
}


def coalitions(world: World) -> list[tuple[str, ...]]:
    """Return every coalition of up to n - 2 parties."""
    sizes = range(1, len(world.names) - 1)
    return [members for size in sizes for members in combinations(world.names, size)]


def seeing_words(world: World) -> list[tuple[str, ...]]:
    """Return the coalitions that receive words, not only totals."""
    return [each for each in coalitions(world) if world.adder is None or world.adder in each]


class StarKeys(PairwiseKeys):
    """Broken: only the masks shared with the first party."""

    @override
    def mask(self, arrays: Sequence[Words], digest: bytes) -> tuple[Words, ...]:
        if self._me != "party-0":
            self._keys = {peer: key for peer, key in self._keys.items() if peer == "party-0"}
        return super().mask(arrays, digest)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_view_equals_the_simulators(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deterministic part follows from the totals and the coalition's inputs.

    Honest words are uniform, only their sum is fixed; the false-alarm rate is 1e-6 over all
    coalitions and worlds.
    """
    played = play(world, monkeypatch)
    for coalition in coalitions(world):
        assert_simulated(played, coalition)
    tested = seeing_words(world)
    assert tested
    for coalition in tested:
        assert_uniform(drawn_words(played, coalition), FALSE_ALARM / len(WORLDS) / len(tested))


@pytest.mark.parametrize(
    ("name", "kind", "coalitions", "found"),
    [
        *((name, ReusedKeys, None, "from sum to sum") for name in ("plain", "star")),
        ("plain", StarKeys, 1, "alone"),
    ],
)
def test_reused_and_missing_masks_are_caught(
    name: str,
    kind: type[PairwiseKeys],
    coalitions: int | None,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every coalition that sees words sees their changes from sum to sum.

    Honest parties that share no mask hide nothing from the first, who shares masks with them.
    """
    world = WORLDS[name]
    played = play(world, monkeypatch, kind)
    for coalition in seeing_words(world)[:coalitions]:
        with pytest.raises(AssertionError, match=found):
            assert_uniform(drawn_words(played, coalition), FALSE_ALARM)


@pytest.mark.parametrize("name", ["skewed", "skewed star"])
def test_unclipped_counts_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A total with more than k + 1 rows of a party reveals more than the simulator has."""

    def one_more(queries: Floats, rows: Rows, k: int) -> Nearest:
        return nearest_rows(queries, rows, k + 1)

    monkeypatch.setattr(roles, "nearest_rows", one_more)
    played = play(WORLDS[name], monkeypatch)
    for coalition in coalitions(WORLDS[name]):
        with pytest.raises(AssertionError):
            assert_simulated(played, coalition)
