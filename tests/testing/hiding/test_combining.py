"""Combinations of words and hashes of guesses: exact arithmetic, and an honest screening."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.testing.hiding import leaky
from tests.testing.hiding.leaky import PARTIES

from veilring.arrays import Ints
from veilring.errors import InputError
from veilring.nodes.party import Party, broadcast
from veilring.privacy.bounds import ALARM
from veilring.randomness import Streams
from veilring.testing.hiding import judge
from veilring.testing.hiding.attackers import KEPT, screen
from veilring.testing.hiding.combining import COMBINATIONS_MAX, Arithmetic, Plan, plan_combinations
from veilring.testing.hiding.features import PROJECTED, Layout
from veilring.testing.hiding.guesses import Public, find_guesses
from veilring.testing.hiding.leaves import Block, Coordinate, Place, Slot
from veilring.testing.hiding.worlds import Played, World, name_parties, play_world
from veilring.transport.messages import Array, Message

PRIME: Final = (1 << 61) - 1
NAMES: Final = ("a", "b", "c", "d", "e")


def shares(values: Mapping[str, NDArray[np.uint64]], sender: str) -> dict[Place, Block]:
    """Return words that members received from one party."""
    found = {}
    for member, words in values.items():
        slot = Slot(member, False, sender, 0, "share")
        missing = np.zeros(words.shape, np.bool_)
        block = Block(64, words, missing, np.ones(len(words), np.int64))
        found[Place(str(slot), "values", slot)] = block
    return found


def plan(blocks: Mapping[Place, Block], members: tuple[str, ...], **told: Any) -> Plan:
    """Return the combinations of five parties' words."""
    order = {place.slot: at for at, place in enumerate(blocks) if place.slot is not None}
    return plan_combinations(blocks, order, NAMES, members, Arithmetic(**told))


def polynomial(points: Mapping[str, int], secrets: list[int], degree: int, prime: int) -> Any:
    """Return the members' shares of each secret, shape (runs, 1)."""
    rng = np.random.default_rng(0)
    found: dict[str, list[list[int]]] = {name: [] for name in points}
    for secret in secrets:
        rest = [int(each) for each in rng.integers(0, prime, degree, np.uint64)]
        for name, x in points.items():
            value = sum(each * pow(x, at, prime) for at, each in enumerate([secret, *rest]))
            found[name].append([value % prime])
    return {name: np.array(each, np.uint64) for name, each in found.items()}


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize(
    ("points", "told"),
    [
        ({"a": 1, "b": 2, "c": 3, "d": 4}, {}),
        ({"b": 1, "c": 2, "d": 3, "e": 4}, {}),  # among the peers of the dealer, who is first
        ({"a": 7, "b": 5, "c": 11, "d": 2}, {"points": {"a": 7, "b": 5, "c": 11, "d": 2}}),
    ],
    ids=["positions", "peers", "declared"],
)
def test_members_join_shamirs_shares(
    points: dict[str, int], told: dict[str, Any], degree: int
) -> None:
    """As many members as the degree of the polynomial, or more, read every secret exactly."""
    secrets = list(range(40))
    held = shares(polynomial(points, secrets, degree, PRIME), "a" if "e" in points else "e")
    of = [each.of(held).values[:, 0].tolist() for each in plan(held, tuple(points), **told).chosen]
    assert secrets in of


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1 << 62, (1 << 64) - 59, 998_244_353, (1 << 31) - 1]), st.integers(0, 99))
def test_sums_and_ratios_are_exact(modulus: int, seed: int) -> None:
    """Additive shares of three members, and a factor that hides a number, are removed exactly."""
    rng = np.random.default_rng(seed)
    one, two = ([int(x) for x in rng.integers(1, modulus, 20, np.uint64)] for _ in range(2))
    secret = list(range(20))
    rest = [(s - x - y) % modulus for s, x, y in zip(secret, one, two, strict=True)]
    words = {
        name: np.array(each, np.uint64)[:, None]
        for name, each in zip("abc", (one, two, rest), strict=True)
    }
    held = shares(words, "e")
    chosen = plan(held, ("a", "b", "c"), moduli=(modulus,)).chosen
    assert secret in [each.of(held).values[:, 0].tolist() for each in chosen]
    if modulus % 2:
        product = [s * x % modulus for s, x in zip(secret, one, strict=True)]
        held = shares({"a": np.array(product, np.uint64)[:, None], "b": words["a"]}, "e")
        chosen = plan(held, ("a", "b"), moduli=(modulus,)).chosen
        assert secret in [each.of(held).values[:, 0].tolist() for each in chosen]


def test_moduli_are_declared_guessed_from_public_numbers_or_seen() -> None:
    """Declared ones come first; a guess has the greatest number in its upper half."""
    told = Arithmetic(moduli=(PRIME,)).beside(leaky.two_holders, {"q": (1 << 31) - 5, "n": 12})
    assert told.guessed[:2] == ((1 << 31) - 5, leaky.MODULUS)
    found = told.moduli_for((1 << 31) - 50, 64)
    assert found == [PRIME, (1 << 31) - 5, leaky.MODULUS, 1 << 31, 1 << 64]
    assert told.moduli_for(100, 32) == [PRIME, 1 << 32]
    with pytest.raises(InputError, match="moduli is 1; allowed: 2 to"):
        Arithmetic(moduli=(1,))


def test_pairs_beyond_the_bound_are_drawn_and_counted() -> None:
    """A long view is combined up to the bound, equally in each process."""
    rng = np.random.default_rng(0)
    blocks: dict[Place, Block] = {}
    for number in range(60):
        words = rng.integers(0, 1 << 64, (8, 1), np.uint64)
        slot = Slot("a", False, "b", number, "word")
        missing = np.zeros(words.shape, np.bool_)
        blocks[Place(str(slot), "values", slot)] = Block(64, words, missing, np.ones(8, np.int64))
    found = plan(blocks, ("a",))
    assert len(found.chosen) == COMBINATIONS_MAX
    assert 0 < found.tried < found.pairs == 60 * 59 // 2
    assert found.chosen == plan(blocks, ("a",)).chosen


@pytest.mark.parametrize(
    "token",
    [
        lambda session, item: hashlib.sha256(session + item).digest(),
        lambda session, item: hashlib.blake2b(item + session).digest(),
        lambda _session, item: hashlib.md5(item, usedforsecurity=False).digest(),
        lambda session, item: hmac.digest(session, item, "sha512"),
        lambda _session, item: hashlib.sha3_256(b"ben" + item).digest(),
    ],
)
@pytest.mark.parametrize("item", ["anna@example.org", 42, b"raw"])
def test_a_public_hash_of_an_input_is_recognised(token: Any, item: Any) -> None:
    """Each common function of an item and a public text is found; one with a secret key is not."""
    encoded = item if isinstance(item, bytes) else str(item).encode()
    public = Public.of(b"session", ("ada", "ben"), ())
    word = int.from_bytes(token(b"session", encoded)[:8], "big")
    secret = int.from_bytes(hmac.digest(b"key", encoded, "sha256")[:8], "big")
    inputs = [{"ada": [1], "ben": [item, "other"]}]
    found = find_guesses(inputs, ("ada",), [(public, [word])])
    assert len(found.recipes) == 1
    assert word in found.hashed(found.recipes[0], public)
    assert find_guesses(inputs, ("ada",), [(public, [secret])]).recipes == ()


def test_screening_keeps_what_differs_and_raises_no_alarm() -> None:
    """Of 300 screened numbers the one that leaks is tested; of noise alone none is significant."""
    rng = np.random.default_rng(0)
    columns = rng.random((1_600, 320)).astype(np.float32)
    second = np.arange(1_600) >= 800
    names = [Coordinate(f"number {at}", "", "value") for at in range(320)]
    assert not judge(columns, second, names, ALARM, np.random.default_rng(1), 20).differs
    columns[second, 200] += 0.5
    kept = screen(columns, second.astype(np.int64), 20)
    assert len(kept) == 20 + KEPT
    assert 200 in kept
    found = judge(columns, second, names, ALARM, np.random.default_rng(1), 20)
    assert [each.coordinate.message for each in found.differences] == ["number 200"]


def test_a_very_long_view_is_cut_to_size_by_a_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are neither examined nor screened enter random sums, the same for equal runs."""
    monkeypatch.setattr("veilring.testing.hiding.features.COORDINATES_MAX", 10)
    monkeypatch.setattr("veilring.testing.hiding.features.SCREENED_MAX", 5)
    inputs = dict(zip(PARTIES, np.array([[5, 9], [1, 4], [3, 2]], np.uint64), strict=True))
    world = World(leaky.honest_sum, inputs, name_parties(inputs, None), PARTIES[:1])
    played = list(play_world(world, 40, Streams(0)))
    layout = Layout(played)
    assert layout.examined == 10
    assert layout.left_out > PROJECTED
    projected = [name for name in layout.coordinates if name.what.startswith("random projection")]
    assert len(projected) == PROJECTED
    columns = layout.read(played)
    assert len(np.unique(columns[:, -PROJECTED:], axis=0)) > 1
    np.testing.assert_array_equal(
        columns[:, -PROJECTED:], Layout(played).read(played)[:, -PROJECTED:]
    )


class Sized(Message, kind="test.sized"):
    """Words whose size depends on their values."""

    values: Annotated[Ints, Array("|u1 <u4", 1)]


async def tell_words(party: Party, own: Ints) -> None:
    """Send the own words to all."""
    await broadcast(party, Sized(values=own))
    for peer in party.peers:
        await party.receive(Sized, sender=peer)


def test_a_run_may_have_larger_words_than_those_of_the_layout() -> None:
    """A word is recognised even if each run that the layout was made from had smaller ones."""

    def played(dtype: str, *words: int) -> list[Played]:
        inputs = dict.fromkeys(PARTIES, np.array(words, dtype))
        world = World(tell_words, inputs, name_parties(inputs, None), PARTIES[:1])
        return list(play_world(world, 40, Streams(0)))

    layout = Layout(played("|u1", 5, 9))
    message = "message 1 from ben to ada (test.sized)"
    number = Coordinate(message, "values", "number of entries that are among own numbers")
    at = layout.coordinates.index(number)
    assert set(layout.read(played("<u4", 300, 70_000))[:, at]) == {2.0}
