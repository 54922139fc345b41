"""Sums that survive lost parties: totals, costs, runtimes, every crash, and malicious peers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, count, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import (
    Lie,
    Totals,
    add_one,
    ending,
    endings,
    play,
    surviving_sums,
)
from typing_extensions import override

import veilring as vr
from veilring.errors import TooManyLost
from veilring.nodes.adversary import Lines, Silent
from veilring.nodes.cluster import RuntimeName, run_with_retries
from veilring.nodes.run import blamed_party
from veilring.protocols.digests import digest_of
from veilring.protocols.dropouts import (
    Losses,
    NamedSet,
    OpeningShares,
    SurvivingSums,
    surviving_cost,
    surviving_rounds,
)
from veilring.protocols.masks import MaskedSums, MaskedWords, Public, agree_keys
from veilring.protocols.seeding import Quorum, SeedsDealt, SeedShares, seeds_cost, share_seeds
from veilring.protocols.seeding import _Dealt as Dealt

TIMED = vr.Topology(vr.LinkModel(latency=vr.Constant(0.01)))
ALL = tuple(f"party-{n}" for n in range(5))
PEERS = ALL[1:]
OTHERS = ("party-0", "party-1", "party-2", "party-4")
FIVE: dict[str, Any] = {"tolerated": 1, "lost": 1, "coordinator": "party-0"}
in_both_shapes = pytest.mark.parametrize("star", [False, True])


@in_both_shapes
@pytest.mark.parametrize("runtime", ["memory", "tls", "processes"])
def test_a_crash_is_survived_on_every_runtime(runtime: RuntimeName, star: bool) -> None:
    """The run has the results of the others, which agree on a sum without the party."""
    world = play(5, runtime=runtime, crashes={"party-3": 4}, star=star, **FIVE)
    assert ending(world) == "stood without some"
    assert world.run.lost == ("party-3",)
    assert set(world.run.results) == set(OTHERS)
    assert set(world.run.cost.by_party) == set(ALL)
    assert not any("party-3" in channel for channel in world.run.channels)


@in_both_shapes
@pytest.mark.parametrize(
    ("parties", "losses", "sums"),
    [
        *((parties, Losses(), 2) for parties in (3, 4, 8, 13)),
        (6, Losses(vectors=1), 2),
        (9, Losses(vectors=1), 1),
        (9, Losses(echoes=2), 1),
        (9, Losses(shares=1), 1),
        (9, Losses(0, 1, 1, 1), 1),
    ],
)
def test_the_cost_is_the_closed_form(parties: int, losses: Losses, sums: int, star: bool) -> None:
    """Parties are lost before their first message of a step, over links with latency.

    A second sum continues without the parties lost in the first.
    """
    echo = parties + (1 if star else parties - 1)
    starts = {"vectors": parties, "echoes": echo, "shares": echo + parties - 1 - losses.vectors}
    crashes = [start for step, start in starts.items() for _ in range(getattr(losses, step))]
    public: dict[str, Any] = {"tolerated": 1, "lost": sum(losses), "coordinator": "party-0"}
    crashing = {f"party-{n}": start for n, start in enumerate(crashes, 1)}
    world = play(parties, crashes=crashing, topology=TIMED, star=star, sums=sums, **public)
    assert ending(world) == ("stood without some" if losses.vectors else "stood")
    words, cost = world.own["party-0"], world.run.cost
    first, other = (
        surviving_cost(parties, (words, words[:1]), star=star, losses=each)
        for each in (losses, Losses(before=losses.vectors))
    )
    traffic = first.traffic if sums == 1 else first.traffic.plus(other.traffic)
    assert cost.setup == seeds_cost(parties, sums=sums)
    assert (cost.messages, cost.bytes) == traffic
    assert cost.rounds == first.rounds + (sums - 1) * other.rounds
    assert losses != Losses() or first.rounds == surviving_rounds(star=star)


@pytest.mark.parametrize("parties", range(3, 9))
def test_a_quorum_is_refused_exactly_if_there_is_no_threshold(parties: int) -> None:
    """The threshold is the largest, and so the safest; a large one withstands lies."""
    for tolerated, lost in product(range(parties + 1), repeat=2):
        possible = range(tolerated + 1, parties - lost + 1)
        if not possible:
            with pytest.raises(vr.InputError, match="tolerate fewer"):
                Quorum(parties, tolerated, lost)
            continue
        quorum = Quorum(parties, tolerated, lost)
        assert quorum.threshold == max(possible)
        assert quorum.withstands_lies == any(2 * t > parties + tolerated for t in possible)


@pytest.mark.parametrize(
    ("numbers", "field"), [((2, 0, 0), "parties"), ((4, -1, 0), "tolerated"), ((4, 0, -1), "lost")]
)
def test_an_invalid_quorum_is_refused(numbers: tuple[int, int, int], field: str) -> None:
    """Two parties know each other's words from the sum; negative losses are refused too."""
    with pytest.raises(vr.InputError) as refused:
        Quorum(*numbers)
    assert refused.value.field == field


@pytest.mark.parametrize("how", ["quorum", "coordinator", "own", "sums"])
def test_invalid_arguments_are_refused(how: str) -> None:
    """A quorum of others, an unknown coordinator, reals, and more sums than seeds are refused."""

    async def misuse(party: vr.Party, own: NDArray[np.uint64]) -> None:
        quorum = Quorum(7 if how == "quorum" else 5, 1, 1)
        seeds = await share_seeds(party, quorum, "nobody" if how == "coordinator" else "party-0")
        adding = SurvivingSums(party, seeds)
        await adding.add([own.astype(float) if how == "own" else own])
        await adding.add([own])

    with pytest.raises(vr.RunFailed) as failed:
        _ = play(5, role=misuse).run
    assert isinstance(failed.value.root, vr.InputError)
    assert failed.value.root.field == how


async def either(party: vr.Party, own: NDArray[np.uint64], *, survive: bool) -> Any:
    """Add up twice through the common interface of both kinds of sums."""
    sums: MaskedSums | SurvivingSums
    if survive:
        seeds = await share_seeds(party, Quorum(5, 1, 1), "party-1", sums=2)
        sums = SurvivingSums(party, seeds, 3)
    else:
        sums = MaskedSums(party, await agree_keys(party), "party-1", 3)
    first = await sums.add([own])
    sums.bind(b"what is public now")
    second = await sums.add([own, own[:1]])
    totals = [total.tolist() for total in (*first, *second)]
    return totals, sums.parties_in, sums.next_round


def test_a_role_uses_either_kind_of_sums() -> None:
    """Both have the same interface, and the same totals if no party is lost."""
    surviving, masked = (play(5, role=either, survive=s).run.result for s in (True, False))
    assert surviving[:2] == masked[:2]
    assert (surviving[2], masked[2]) == (3 + 2 * surviving_rounds(star=False), 3 + 2 * 2)


def reset(start: float, *ends: str) -> vr.Fault:
    """Return a fault that breaks the connection of two parties."""
    return vr.Fault("reset", start, 9.0, ends)


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ({"adversaries": {"party-3": Silent(first_round=0)}}, "party-3"),
        ({"adversaries": {"party-3": Silent(first_round=1)}}, "party-3"),
        ({"faults": [reset(0.005, "party-1", "party-3")]}, "party-3"),
        ({"faults": [reset(0.005, "party-1", end) for end in ("party-2", "party-4")]}, "party-1"),
    ],
    ids=["silent in set-up", "silent", "one connection", "two connections"],
)
def test_the_others_continue_without_a_party(fault: dict[str, Any], left: str) -> None:
    """A party that is silent, or lacks the seeds of most others, is given up and ends.

    Of two parties without a connection in set-up, the second one leaves.
    """
    world = play(5, topology=TIMED, **fault, **FIVE)
    assert world.run.lost == (left,)
    assert world.run.result[0][1] == tuple(name for name in ALL if name != left)
    assert isinstance(world.errors[left], vr.PeerLost)


@dataclass
class LateTo(vr.Adversary):
    """Sends its words to one party after that party has given it up."""

    to: str

    @override
    async def sending(self, to: str, message: vr.Message) -> Lines:
        if to == self.to and isinstance(message, MaskedWords):
            await asyncio.sleep(20.0)
        return [(to, message)]


SILENT_TO_SOME = Lie(vr.Message, to=("party-1", "party-2"), first_round=4)


@pytest.mark.parametrize(
    ("fault", "star", "lost", "members"),
    [
        (SILENT_TO_SOME, False, ("party-3",), ALL),
        (SILENT_TO_SOME, True, (), ALL),
        (LateTo("party-0"), False, ("party-3",), OTHERS),
    ],
)
def test_a_party_that_is_silent_to_some_or_late_is_given_up_alone(
    fault: vr.Adversary, star: bool, lost: tuple[str, ...], members: tuple[str, ...]
) -> None:
    """The coordinator waits for those that miss its shares; words that are too late are dropped."""
    run = play(5, adversaries={"party-3": fault}, sums=2, star=star, **FIVE).run
    assert run.lost == lost
    assert [included for _, included in run.result] == [members] * 2


@in_both_shapes
def test_a_coordinator_that_falls_silent_convicts_nobody_else(star: bool) -> None:
    """It is named in any round of two sums, or no party is, since it may be cut off."""
    for first in range(10):
        silent = {"party-0": Silent(first_round=first)}
        errors = play(5, adversaries=silent, sums=2, star=star, **FIVE).errors
        found = {blamed_party(error) for name, error in errors.items() if name != "party-0"}
        assert found <= {"party-0", ""}, first


@pytest.mark.parametrize("ends", [("party-1", "party-3"), ("party-4", "party-2")])
def test_missing_words_come_from_the_coordinator(ends: tuple[str, str]) -> None:
    """Two parties whose connection breaks have the same totals as all others."""
    world = play(5, topology=TIMED, faults=[reset(0.035, *ends)], **FIVE)
    assert ending(world) == "stood"
    assert not world.run.lost
    told = [to for to, sent in world.sent("party-0") if isinstance(sent, MaskedWords)]
    assert told == [*PEERS, *sorted(ends)]


def test_words_that_no_party_can_forward_end_the_sum_for_those_without_them() -> None:
    """If two connections fail at once, parties without the words name the coordinator."""
    faults = [reset(0.035, "party-1", "party-3"), vr.Fault("crash", 0.055, 0.055, ("party-0",))]
    world = play(5, topology=TIMED, faults=faults, **FIVE)
    for name in ("party-1", "party-3"):
        assert isinstance(world.errors[name], vr.PeerLost)
        assert blamed_party(world.errors[name]) == "party-0"
    two, four = (world.outcomes[name].result for name in ("party-2", "party-4"))
    assert two == four
    assert two[0][1] == ALL


def test_too_many_losses_end_it_without_disclosure() -> None:
    """Each remaining party names the lost ones; none has disclosed a share."""
    world = play(5, crashes={"party-3": 7, "party-4": 7}, **FIVE)
    assert ending(world) == "failed"
    error = world.errors["party-0"]
    assert isinstance(error, TooManyLost)
    assert (error.lost, error.left, error.needed) == (("party-3", "party-4"), 3, 4)
    assert not any(map(world.told, ALL))


def test_a_share_of_a_party_that_learned_the_set_late_counts() -> None:
    """The coordinator and two more are lost in turn: the rest are just enough."""
    crashes = {"party-0": 6 + 6 + 6 + 5, "party-1": 6 + 1 + 6 + 5 + 2}
    world = play(7, crashes=crashes, tolerated=1, lost=2, coordinator="party-0")
    assert ending(world) == "stood"
    assert len(world.run.results) == 5


def test_a_retry_continues_without_the_lost_parties() -> None:
    """If more are lost than a sum survives, the next attempt omits them."""
    place = vr.Simulated(TIMED, [vr.Fault("crash", 0.045, 0.045, ("party-3",))])

    async def run() -> Any:
        own = [np.array([n], np.uint64) for n in range(5)]
        async with vr.Cluster(5, runtime=place, own=own, seed=3) as cluster:
            settings: dict[str, Any] = FIVE | {"lost": 0}
            return await run_with_retries(cluster, surviving_sums, **settings)

    retried = vr.simulate(run())
    assert retried.without == ("party-3",)
    assert retried.run.result[0][1] == OTHERS


def sets(**update: Any) -> Callable[[vr.Message], vr.Message]:
    """Return a function that changes fields of a message."""
    return lambda message: message.model_copy(update=update)


def wrong_share(dealer: int, message: OpeningShares, *, empty: bool = False) -> vr.Message:
    """Return shares, of which that of one party's seed is wrong or empty."""
    shares = list(message.shares)
    wrong = bytes([shares[dealer][0] ^ 1]) + shares[dealer][1:]
    shares[dealer] = b"" if empty else wrong
    return sets(shares=tuple(shares))(message)


def wrong_set(members: int, hashes: int) -> Lie:
    """Return a coordinator that names a wrong set to all parties."""
    return Lie(NamedSet, sets(members=bytes([members]), vectors=(bytes(32),) * hashes))


def wrong_dealers(dealers: int, to: tuple[str, ...] | None = None) -> Lie:
    """Return a coordinator that names wrong dealers."""
    return Lie(SeedsDealt, sets(dealers=bytes([dealers])), to=to)


@pytest.mark.parametrize(
    ("lies", "crashes", "judge", "said"),
    [
        *(
            (
                {"party-2": Lie(OpeningShares, partial(wrong_share, dealer))},
                crashes,
                "party-0",
                f"party-2 broke the protocol: revealed a wrong share of a seed of party-{dealer}",
            )
            for dealer in (0, 2, 4)
            for crashes in ({}, {"party-4": 6})
        ),
        (
            {"party-2": Lie(OpeningShares, partial(wrong_share, 0, empty=True))},
            {},
            "party-0",
            "party-2 ",
        ),
        (
            {
                "party-4": Lie(vr.Message, to=("party-2",), first_round=1),
                "party-0": Lie(MaskedWords, add_one, first_round=2),
            },
            {},
            "party-2",
            "party-0 broke the protocol: passed on words other than those whose hash it had",
        ),
        (
            {"party-2": Lie(SeedShares, sets(owns=(bytes(32),)), to=("party-1",))},
            {},
            "party-1",
            "party-2 ",
        ),
        ({"party-3": Lie(MaskedWords, to=("party-1",))}, {}, "party-1", "party-3 "),
    ],
)
def test_a_lie_names_its_sender(
    lies: dict[str, vr.Adversary], crashes: dict[str, int], judge: str, said: str
) -> None:
    """Wrong shares, other words and missing messages name the party that sent them.

    A wrong deal is noticed as soon as the recipient sees it, and omitted words by the next message,
    which shows that they were not lost.
    """
    error = play(5, crashes=crashes, adversaries=lies, **FIVE).errors[judge]
    assert isinstance(error, vr.ProtocolViolation)
    assert str(error).startswith(said)


def test_shares_that_do_not_give_the_seed_name_their_dealer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All parties disclosed their shares, but these contradict the commitment."""
    draw = Dealt.draw

    def draw_wrongly(party: vr.Party, threshold: int) -> Dealt:
        dealt = draw(party, threshold)
        if party.me != "party-2":
            return dealt
        return dealt._replace(head=dealt.head._replace(commitment=digest_of(b"other")))

    monkeypatch.setattr(Dealt, "draw", draw_wrongly)
    with pytest.raises(vr.RunFailed) as failed:
        _ = play(5, **FIVE).run
    assert isinstance(failed.value.root, vr.ProtocolViolation)
    assert failed.value.root.culprit == "party-2"


@pytest.mark.parametrize(
    ("lie", "crashes", "withheld"),
    [
        (wrong_set(0b01111000, 4), {}, OpeningShares),  # without itself
        (wrong_set(0b11100000, 3), {}, OpeningShares),  # too few
        (wrong_set(0b11111000, 4), {}, OpeningShares),  # a hash is missing
        (wrong_set(0b11111100, 5), {}, OpeningShares),  # a party that does not exist
        (wrong_dealers(0b01111000), {}, MaskedWords),  # without itself
        (wrong_dealers(0b11100000), {}, MaskedWords),  # too few
        (wrong_dealers(0b11111100), {}, MaskedWords),  # a party that does not exist
        (wrong_dealers(0b11111000), {"party-3": 0}, MaskedWords),  # a party that sent no seeds
    ],
)
def test_an_impossible_set_names_the_coordinator(
    lie: Lie, crashes: dict[str, int], withheld: type[vr.Message]
) -> None:
    """It is named before any share is disclosed, or before any words are sent to its dealers."""
    world = play(5, crashes=crashes, adversaries={"party-0": lie}, **FIVE)
    errors = [error for name, error in world.errors.items() if name != "party-0"]
    convicted = {error.culprit for error in errors if isinstance(error, vr.ProtocolViolation)}
    assert convicted == {"party-0"}
    assert not any(isinstance(sent, withheld) for name in PEERS for _, sent in world.sent(name))


@pytest.mark.parametrize(
    "lie",
    [wrong_dealers(0b11110000, to=("party-1",)), wrong_set(0b11111000, 5)],
    ids=["dealers", "hashes"],
)
def test_a_coordinator_that_tells_parties_apart_opens_nothing(lie: Lie) -> None:
    """If it names other dealers to one party, or other hashes of words, all parties notice.

    Either the coordinator lies or the party whose words differ: both are named.
    """
    world = play(5, adversaries={"party-0": lie}, **FIVE)
    found = [world.errors[name] for name in PEERS if name in world.errors]
    assert any(isinstance(error, vr.Tampered | vr.ProtocolViolation) for error in found)
    assert not any(map(world.told, PEERS))


def test_parties_with_different_public_inputs_open_nothing() -> None:
    """Every message contains the hash, and masks depend on it."""

    async def bound_otherwise(party: vr.Party, own: NDArray[np.uint64]) -> None:
        seeds = await share_seeds(party, Quorum(5, 1, 1), "party-0")
        public = Public(digest_of(b"other" if party.me == "party-2" else b"same"), ("party-1",))
        await SurvivingSums(party, seeds, public=public).add([own])

    with pytest.raises(vr.RunFailed) as failed:
        _ = play(5, role=bound_otherwise).run
    assert isinstance(failed.value.root, vr.Tampered)


def test_two_sums_have_separate_seeds() -> None:
    """Two sums share no key, seed or share, so that opening one reveals nothing about the other."""
    world = play(4, tolerated=1, lost=1, coordinator="party-0", sums=2)
    dealt = [m for name in world.parties for _, m in world.sent(name) if isinstance(m, SeedShares)]
    for field in ("publics", "commitments", "roots"):
        assert len({value for message in dealt for value in getattr(message, field)}) == 4 * 2
    shares = [share for message in dealt for share in (*message.pairs, *message.owns)]
    assert len(set(shares)) == len(shares) == 4 * 3 * 2 * 2


FOUR: dict[str, Any] = {"tolerated": 1, "lost": 1, "own": [[1], [10], [100], [1000]]}
SEEDS, VECTORS = 3, 3  # messages of seeds and of words that a party of four sends
HELD, DEALERS, SET = 1, 3, 3  # its report, and the messages of the coordinator


@pytest.mark.parametrize("coordinator", ["party-0", "party-2"])
@in_both_shapes
def test_every_crash_of_one_party(star: bool, coordinator: str) -> None:
    """A crash before any message, in set-up too, leaves a sum over the included parties.

    Without the coordinator the sum completes once three others have the set, unless it is a star;
    otherwise the error of each party names it, and no party has disclosed a share, or only to it.
    """
    for name in ALL[:4]:
        for at in count():
            world = play(4, crashes={name: at}, coordinator=coordinator, star=star, **FOUR)
            how, crashed = ending(world), world.crashed
            if not crashed:  # it has no more to send
                break
            if name != coordinator:
                is_in = at >= SEEDS + HELD + (1 if star else VECTORS)
                assert how == ("stood" if is_in else "stood without some")
            elif not star:
                has_named = at >= SEEDS + DEALERS + VECTORS + SET
                assert how == ("stood" if has_named else "failed")
            errors = [error for one, error in world.errors.items() if one not in crashed]
            assert set(map(blamed_party, errors)) <= {coordinator}
            assert how != "failed" or len(errors) == 3
            assert star or how != "failed" or not any(map(world.told, world.parties))
        assert how == "stood"
        assert at >= SEEDS + HELD + 3


def test_crashes_of_two_parties_where_one_may_be_lost() -> None:
    """The invariants hold for crashes before each pair of every third message."""
    found = set()
    for pair in combinations(ALL[:4], 2):
        for times in product(range(1, 16, 4), repeat=2):
            crashes = dict(zip(pair, times, strict=True))
            found.add(ending(play(4, crashes=crashes, coordinator="party-0", star=False, **FOUR)))
    assert "failed" in found


@pytest.mark.slow
def test_random_worlds_of_twelve_parties() -> None:
    """Up to four crash in 200 worlds, over links that reorder messages: sums stand or fail."""
    found = endings(200, seed=1)
    assert sum(found.values()) == 200
    assert found["all-to-all", "stood without some"] > 20
    assert found["all-to-all", "failed"] > 5
    assert found["star", "stood"] > 5


@pytest.mark.slow
def test_no_fault_breaks_a_sum(explore: Callable[..., object]) -> None:
    """All parties with a result have equal totals over the included parties.

    Faults are crashes, restarts, partitions, half-open links, slow parties and clock skew.
    """

    def is_sum(inputs: Mapping[str, Any], results: Mapping[str, list[Totals]]) -> None:
        for ((words, _), members), *_ in results.values():
            assert words == np.add.reduce([inputs[name] for name in members]).tolist()
            assert len(members) >= len(inputs) - 1
        assert all(result == next(iter(results.values())) for result in results.values())

    def drawn(parties: Sequence[str], _rng: object) -> dict[str, Any]:
        return FIVE | {"coordinator": parties[0], "silence": 1.0}

    own = [np.array([10**n], np.uint64) for n in range(5)]
    explore(surviving_sums, own, invariant=is_sum, seeds=30, least=4, draw=drawn)
