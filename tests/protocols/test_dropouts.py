"""Sums that survive lost parties: totals, costs, thresholds, runtimes and malicious peers."""

import asyncio
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import (
    Crashing,
    Lie,
    World,
    add_one,
    ending,
    play,
    surviving_sums,
)
from typing_extensions import override

from veilring import simulation
from veilring.errors import (
    InputError,
    PeerGivenUp,
    PeerLost,
    ProtocolViolation,
    RunFailed,
    Tampered,
    TooManyLost,
)
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.nodes.cluster import RUNTIMES, Cluster, RuntimeName, run_with_retries
from veilring.nodes.party import Parties, Party
from veilring.nodes.run import Outcome, Run, blamed_party, join_outcomes
from veilring.nodes.runtimes import Simulated
from veilring.nodes.runtimes.tasks import Memory, Runtime, Tls
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
from veilring.randomness import Streams
from veilring.simulation import LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.simulation.links import Constant
from veilring.testing import ProtocolRunner
from veilring.transport.endpoint import Endpoint
from veilring.transport.messages import Message

OWN = [np.array([10**n, n, 2**64 - 1], np.uint64) for n in range(5)]
WORDS = MaskedWords.kind
TIMED = Topology(LinkModel(latency=Constant(0.01)))
PEERS = ["party-1", "party-2", "party-3", "party-4"]
FIVE: dict[str, Any] = {"tolerated": 1, "lost": 1, "coordinator": "party-0"}


class _Mortal:
    """A runtime where a test can end a party."""

    async def _connect(self, parties: Parties, streams: Streams) -> Sequence[Endpoint]:
        endpoints: Sequence[Endpoint] = await super()._connect(parties, streams)  # type: ignore[misc]  # of the runtime
        self.crash = {endpoint.name: endpoint.abort for endpoint in endpoints}
        return endpoints


class MortalMemory(_Mortal, Memory):
    """The in-memory runtime."""


class MortalTls(_Mortal, Tls):
    """The TLS runtime."""


def be_killed() -> None:
    """End the process of this party."""
    os.kill(os.getpid(), signal.SIGKILL)


async def add_or_crash(
    party: Party,
    own: NDArray[np.uint64],
    at: int | None = None,
    crash: Callable[[], None] = be_killed,
    **settings: Any,
) -> Any:
    """Add up, and crash before the message of the given number, if any."""
    mortal = party if at is None else Crashing(party, at, crash)
    return await surviving_sums(mortal, own, **settings)


def crashed_run(runtime: str, at: int, **settings: Any) -> Run[Any]:
    """Return a run of five parties, the fourth of which crashes before a message."""
    places: dict[str, Callable[[], Runtime]] = {"memory": MortalMemory, "tls": MortalTls}

    async def run() -> Run[Any]:
        place: Any = places[runtime]() if runtime in places else runtime
        async with Cluster(5, runtime=place, own=OWN, seed=3) as cluster:
            mortal: dict[str, Any] = {"at": at}
            if runtime in places:
                mortal["crash"] = place.crash["party-3"]
            return await cluster.run(add_or_crash, only={"party-3": mortal}, **FIVE, **settings)

    return asyncio.run(run())


def simulated(*faults: Fault, watch: Sequence[str] = (), **settings: Any) -> Run[Any]:
    """Return a run of five parties on the simulated clock, under faults."""

    async def run() -> Run[Any]:
        async with Cluster(5, runtime=Simulated(TIMED, faults), own=OWN, seed=3) as cluster:
            return await cluster.run(surviving_sums, watch=watch, **FIVE, **settings)

    return simulation.simulate(run())


def joined(world: World) -> Run[Any]:
    """Return the run merged from a world's outcomes."""
    return join_outcomes(list(world.outcomes.values()), 0.0)


def sums_on(runtime: RuntimeName, **settings: Any) -> Run[Any]:
    """Return a run of five parties without a loss."""
    return ProtocolRunner(runtime)(surviving_sums, 5, own=OWN, seed=3, **FIVE, **settings)


@pytest.mark.parametrize("star", [False, True])
def test_totals_are_the_same_on_every_runtime(star: bool) -> None:
    """Two sums of two arrays have the known cost, and one transcript per seed."""
    found = [sums_on(runtime, star=star, sums=2) for runtime in RUNTIMES]
    assert len({run.transcript for run in found}) == 1
    total, everybody = np.add.reduce(OWN), ("party-0", *PEERS)
    first, cost = total[:1].tolist(), surviving_cost(5, (OWN[0], OWN[0][:1]), star=star)
    words = [total.tolist(), (total * np.uint64(2)).tolist()]
    for run in found:
        assert run.results == {name: [([w, first], everybody) for w in words] for name in everybody}
        assert run.cost.setup == seeds_cost(5, sums=2)
        assert (run.cost.messages, run.cost.bytes) == cost.traffic.plus(cost.traffic)
        assert run.cost.rounds == 2 * cost.rounds
        assert not run.lost


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("runtime", ["memory", "tls", "processes"])
def test_a_crash_is_survived_on_every_runtime(runtime: str, star: bool) -> None:
    """The run has the results of the others, which agree on a sum without the party."""
    found = crashed_run(runtime, at=4, star=star)
    left = ("party-0", "party-1", "party-2", "party-4")
    total = np.add.reduce([OWN[n] for n in (0, 1, 2, 4)])
    assert found.lost == ("party-3",)
    assert found.results == {name: [([total.tolist(), total[:1].tolist()], left)] for name in left}
    assert set(found.cost.by_party) == {*left, "party-3"}
    assert not any("party-3" in channel for channel in found.channels)


class TestCost:
    """The measured cost equals the closed form."""

    @pytest.mark.parametrize("star", [False, True])
    @pytest.mark.parametrize("parties", [3, 4, 8, 13])
    def test_without_a_loss(self, parties: int, star: bool) -> None:
        """It holds for any number of parties, in both shapes."""
        world = play(parties, tolerated=1, lost=0, coordinator="party-1", star=star)
        cost = joined(world).cost
        words = world.own["party-0"]
        forecast = surviving_cost(parties, (words, words[:1]), star=star)
        assert cost.setup == seeds_cost(parties)
        assert (cost.messages, cost.bytes, cost.rounds) == (
            *forecast.traffic,
            surviving_rounds(star=star),
        )

    @pytest.mark.parametrize("star", [False, True])
    @pytest.mark.parametrize(
        "losses", [Losses(vectors=1), Losses(echoes=2), Losses(shares=1), Losses(0, 1, 1, 1)]
    )
    def test_with_parties_lost_at_known_steps(self, losses: Losses, star: bool) -> None:
        """Parties are lost before their first message of a step, over links with latency."""
        setup, vectors = 8 + 1, 1 if star else 8
        echo = setup + vectors
        starts = {"vectors": setup, "echoes": echo, "shares": echo + 8 - losses.vectors}
        crashes = [start for step, start in starts.items() for _ in range(getattr(losses, step))]
        world = play(
            9,
            crashes={f"party-{n}": start for n, start in enumerate(crashes, 1)},
            topology=TIMED,
            tolerated=2,
            lost=3,
            coordinator="party-0",
            star=star,
        )
        assert ending(world) == ("stood without some" if losses.vectors else "stood")
        words, cost = world.own["party-0"], joined(world).cost
        forecast = surviving_cost(9, (words, words[:1]), star=star, losses=losses)
        assert cost.setup == seeds_cost(9)
        assert (cost.messages, cost.bytes, cost.rounds) == (*forecast.traffic, forecast.rounds)

    def test_of_a_sum_after_a_loss(self) -> None:
        """The second of two sums continues without the party lost in the first."""
        world = play(
            6,
            crashes={"party-5": 5 + 1},
            topology=TIMED,
            sums=2,
            tolerated=1,
            lost=1,
            coordinator="party-0",
        )
        words, cost = world.own["party-0"], joined(world).cost
        one, other = (
            surviving_cost(6, (words, words[:1]), star=False, losses=losses)
            for losses in (Losses(vectors=1), Losses(before=1))
        )
        assert (cost.messages, cost.bytes) == one.traffic.plus(other.traffic)


class TestQuorum:
    """The threshold is the safest one for the tolerated losses."""

    def test_eight_parties_with_two_lost_withstand_three_colluders(self) -> None:
        """This holds even if the coordinator colludes."""
        quorum = Quorum(parties=8, tolerated=3, lost=2)
        assert (quorum.threshold, quorum.withstands_lies) == (6, True)

    @pytest.mark.parametrize("parties", range(3, 9))
    def test_a_quorum_is_refused_exactly_if_there_is_no_threshold(self, parties: int) -> None:
        """A quorum exists if some threshold does, and withstands lies if a large one does."""
        for tolerated in range(parties + 1):
            for lost in range(parties + 1):
                possible = range(tolerated + 1, parties - lost + 1)
                if not possible:
                    with pytest.raises(InputError, match="tolerate fewer"):
                        Quorum(parties, tolerated, lost)
                    continue
                quorum = Quorum(parties, tolerated, lost)
                assert quorum.threshold in possible
                assert quorum.withstands_lies == any(2 * t > parties + tolerated for t in possible)

    @pytest.mark.parametrize(
        ("numbers", "field"),
        [((2, 0, 0), "parties"), ((4, -1, 0), "tolerated"), ((4, 0, -1), "lost")],
    )
    def test_invalid_numbers_are_refused(self, numbers: tuple[int, int, int], field: str) -> None:
        """Two parties know each other's words from the sum; negative losses are refused too."""
        with pytest.raises(InputError) as refused:
            Quorum(*numbers)
        assert refused.value.field == field


async def misuse(party: Party, own: NDArray[np.uint64], how: str) -> None:
    """Call a sum with invalid arguments."""
    if how == "quorum":
        await share_seeds(party, Quorum(7, 1, 1), "party-0")
    coordinator = "nobody" if how == "coordinator" else "party-0"
    adding = SurvivingSums(party, await share_seeds(party, Quorum(5, 1, 1), coordinator))
    if how == "own":
        await adding.add([own.astype(float)])
    await adding.add([own])
    await adding.add([own])


@pytest.mark.parametrize("how", ["quorum", "coordinator", "own", "sums"])
def test_invalid_arguments_are_refused(how: str) -> None:
    """A quorum of others, an unknown coordinator, reals, and more sums than seeds are refused."""
    with pytest.raises(RunFailed) as failed:
        joined(play(5, role=misuse, how=how))
    assert isinstance(failed.value.root, InputError)
    assert failed.value.root.field == how


class TestLosses:
    """Parties that are silent, late, disconnected or gone."""

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_silent_party_is_given_up(self, first: int) -> None:
        """After the time limit of a step, in set-up too, the others continue without it."""
        world = play(5, adversaries={"party-3": Silent(first_round=first)}, **FIVE)
        run = joined(world)
        assert run.lost == ("party-3",)
        assert run.result[0][1] == ("party-0", "party-1", "party-2", "party-4")
        assert isinstance(world.outcomes["party-3"].error, PeerLost)

    @pytest.mark.parametrize(
        ("left", "pairs"),
        [
            ("party-3", [("party-1", "party-3")]),
            ("party-1", [("party-1", "party-2"), ("party-1", "party-4")]),
        ],
    )
    def test_parties_without_a_connection_in_set_up_lose_one(
        self, left: str, pairs: list[tuple[str, str]]
    ) -> None:
        """The party that lacks the seeds of most others leaves, or the second one of two."""
        found = simulated(*(Fault("reset", 0.005, 9.0, pair) for pair in pairs))
        assert found.lost == (left,)
        assert left not in found.result[0][1]
        assert len(found.result[0][1]) == 4

    @pytest.mark.parametrize("star", [False, True])
    def test_a_party_that_is_silent_to_some_is_given_up_alone(self, star: bool) -> None:
        """The coordinator begins the next sum earlier, and waits for those that miss its shares."""
        silent = {"party-3": Lie(Message, to=("party-1", "party-2"), first_round=4)}
        run = joined(play(5, adversaries=silent, sums=2, star=star, **FIVE))
        assert run.lost == (() if star else ("party-3",))
        assert run.result[0][1] == tuple(f"party-{n}" for n in range(5))

    @pytest.mark.parametrize("star", [False, True])
    def test_a_coordinator_that_falls_silent_convicts_nobody_else(self, star: bool) -> None:
        """It is named in any round of two sums, or no party is, since it may be cut off."""
        for first in range(10):
            world = play(
                5, adversaries={"party-0": Silent(first_round=first)}, sums=2, star=star, **FIVE
            )
            errors = [world.outcomes[name].error for name in PEERS]
            found = {blamed_party(error) for error in errors if error is not None}
            assert found <= {"party-0", ""}, first

    def test_late_words_are_harmless(self) -> None:
        """Words that reach the coordinator too late are dropped everywhere."""
        world = play(5, adversaries={"party-3": LateTo("party-0")}, sums=2, **FIVE)
        run = joined(world)
        assert run.lost == ("party-3",)
        assert [members for _, members in run.result] == [tuple(run.results)] * 2

    @pytest.mark.parametrize("ends", [("party-1", "party-3"), ("party-4", "party-2")])
    def test_missing_words_come_from_the_coordinator(self, ends: tuple[str, str]) -> None:
        """Two parties whose connection breaks have the same totals as all others."""
        found = simulated(Fault("reset", 0.035, 9.0, ends), watch=["party-0"])
        assert not found.lost
        assert found.result[0][1] == tuple(f"party-{n}" for n in range(5))
        assert all(result == found.result for result in found.results.values())
        sent = [seen.sender for seen in found.views["party-0"].sent if seen.message.kind == WORDS]
        assert sent == [*PEERS, *sorted(ends)]

    def test_words_that_no_party_can_forward_end_the_sum_for_those_without_them(self) -> None:
        """If two connections fail at once, parties without the words name the coordinator."""

        async def run() -> list[Outcome]:
            faults = [Fault("reset", 0.035, 9.0, ("party-1", "party-3"))]
            faults.append(Fault("crash", 0.055, 0.055, ("party-0",)))
            async with Cluster(5, runtime=Simulated(TIMED, faults), own=OWN, seed=3) as cluster:
                return await cluster.play(surviving_sums, **FIVE)

        found = {outcome.party: outcome for outcome in simulation.simulate(run())}
        for name in ("party-1", "party-3"):
            error = found[name].error
            assert isinstance(error, PeerLost)
            assert error.peer == "party-0"
        assert found["party-2"].result == found["party-4"].result
        assert found["party-2"].result[0][1] == tuple(found)

    def test_omitted_words_name_their_sender(self) -> None:
        """A party that omits words is named: its next message shows that they were not lost."""
        world = play(5, adversaries={"party-3": Lie(MaskedWords, to=("party-1",))}, **FIVE)
        assert world.convicted("party-1").culprit == "party-3"

    def test_too_many_losses_end_it_without_disclosure(self) -> None:
        """Each remaining party names the lost ones; none has disclosed a share."""
        world = play(5, crashes={"party-3": 7, "party-4": 7}, **FIVE)
        assert ending(world) == "failed"
        error = world.outcomes["party-0"].error
        assert isinstance(error, TooManyLost)
        assert (error.lost, error.left, error.needed) == (("party-3", "party-4"), 3, 4)
        assert not any(world.told(name) for name in world.parties)

    def test_a_share_of_a_party_that_learned_the_set_late_counts(self) -> None:
        """The coordinator and two more are lost in turn: the rest are just enough."""
        crashes = {"party-0": 6 + 6 + 6 + 5, "party-1": 6 + 1 + 6 + 5 + 2}
        world = play(7, crashes=crashes, tolerated=1, lost=2, coordinator="party-0")
        assert ending(world) == "stood"
        assert len(joined(world).results) == 5

    def test_a_retry_continues_without_the_lost_parties(self) -> None:
        """If more are lost than a sum survives, the next attempt omits them."""
        crash = Fault("crash", 0.045, 0.045, ("party-3",))

        async def run() -> Any:
            async with Cluster(5, runtime=Simulated(TIMED, [crash]), own=OWN, seed=3) as cluster:
                settings: dict[str, Any] = FIVE | {"lost": 0}
                return await run_with_retries(cluster, surviving_sums, **settings)

        retried = simulation.simulate(run())
        assert retried.without == ("party-3",)
        assert retried.run.result[0][1] == ("party-0", "party-1", "party-2", "party-4")


@dataclass
class LateTo(Adversary):
    """Sends its words to one party after that party has given it up."""

    to: str

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if to == self.to and isinstance(message, MaskedWords):
            await asyncio.sleep(20.0)
        return [(to, message)]


def sets(**update: Any) -> Callable[[Message], Message]:
    """Return a function that changes fields of a message."""
    return lambda message: message.model_copy(update=update)


def wrong_share(dealer: int, message: OpeningShares) -> Message:
    """Return shares, of which that of one party's seed is wrong."""
    shares = list(message.shares)
    shares[dealer] = bytes([shares[dealer][0] ^ 1]) + shares[dealer][1:]
    return message.model_copy(update={"shares": tuple(shares)})


def wrong_set(members: int, hashes: int) -> Lie:
    """Return a coordinator that names a wrong set to all parties."""
    return Lie(NamedSet, sets(members=bytes([members]), vectors=(bytes(32),) * hashes))


class TestPeersThatCheat:
    """Messages that no honest party sends."""

    def test_words_that_are_passed_on_are_compared_with_their_hash(self) -> None:
        """A coordinator that passes on other words is named by the party that lacked them."""
        withholds = Lie(Message, to=("party-2",), first_round=1)
        lying = {"party-4": withholds, "party-0": Lie(MaskedWords, add_one, first_round=2)}
        world = play(5, adversaries=lying, **FIVE)
        reason = "passed on words other than those whose hash it had announced"
        error = world.convicted("party-2")
        assert (error.culprit, error.reason) == ("party-0", reason)

    @pytest.mark.parametrize("crashes", [{}, {"party-4": 6}])
    @pytest.mark.parametrize("dealer", [0, 2, 4])
    def test_a_wrong_share_names_its_sender(self, dealer: int, crashes: dict[str, int]) -> None:
        """A wrong share of either seed names the party that sent it."""
        lie = Lie(OpeningShares, partial(wrong_share, dealer))
        world = play(5, crashes=crashes, adversaries={"party-2": lie}, **FIVE)
        reason = f"revealed a wrong share of a seed of party-{dealer}"
        error = world.convicted("party-0")
        assert (error.culprit, error.reason) == ("party-2", reason)

    def test_an_empty_share_names_its_sender(self) -> None:
        """A message that lacks a share is blamed on its sender, and raises no internal error."""
        lie = Lie(OpeningShares, lambda message: sets(shares=(b"", *message.shares[1:]))(message))
        world = play(5, adversaries={"party-2": lie}, **FIVE)
        assert world.convicted("party-0").culprit == "party-2"

    def test_a_wrong_deal_names_its_dealer(self) -> None:
        """A wrong share names its dealer as soon as the recipient sees it."""
        lie = Lie(SeedShares, sets(owns=(bytes(32),)), to=("party-1",))
        world = play(5, adversaries={"party-2": lie}, **FIVE)
        assert world.convicted("party-1").culprit == "party-2"

    def test_shares_that_do_not_give_the_seed_name_their_dealer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All parties disclosed their shares, but these contradict the commitment."""
        draw = Dealt.draw

        def draw_wrongly(party: Party, threshold: int) -> Dealt:
            dealt = draw(party, threshold)
            if party.me != "party-2":
                return dealt
            return dealt._replace(head=dealt.head._replace(commitment=digest_of(b"other")))

        monkeypatch.setattr(Dealt, "draw", draw_wrongly)
        with pytest.raises(RunFailed) as failed:
            joined(play(5, **FIVE))
        assert isinstance(failed.value.root, ProtocolViolation)
        assert failed.value.root.culprit == "party-2"

    @pytest.mark.parametrize(
        ("members", "hashes"),
        [
            (0b01111000, 4),  # without itself
            (0b11100000, 3),  # too few
            (0b11111000, 4),  # a hash is missing
            (0b11111100, 5),  # a party that does not exist
        ],
    )
    def test_an_impossible_set_names_the_coordinator(self, members: int, hashes: int) -> None:
        """An impossible set names the coordinator before any share is disclosed."""
        world = play(5, adversaries={"party-0": wrong_set(members, hashes)}, **FIVE)
        errors = [world.outcomes[f"party-{n}"].error for n in range(1, 5)]
        violations = [error for error in errors if isinstance(error, ProtocolViolation)]
        assert violations
        assert {error.culprit for error in violations} == {"party-0"}
        assert not any(world.told(name) for name in world.parties)

    @pytest.mark.parametrize(
        ("dealers", "crashes"),
        [
            (0b01111000, {}),  # without itself
            (0b11100000, {}),  # too few
            (0b11111100, {}),  # a party that does not exist
            (0b11111000, {"party-3": 0}),  # a party that sent no seeds
        ],
    )
    def test_impossible_dealers_name_the_coordinator(
        self, dealers: int, crashes: dict[str, int]
    ) -> None:
        """An impossible set of dealers names the coordinator before anything else is sent."""
        lie = Lie(SeedsDealt, sets(dealers=bytes([dealers])))
        world = play(5, crashes=crashes, adversaries={"party-0": lie}, **FIVE)
        assert world.convicted("party-1").culprit == "party-0"
        assert not any(isinstance(each, MaskedWords) for _, each in world.sent("party-1"))

    def test_different_dealers_open_nothing(self) -> None:
        """A coordinator that names different dealers to two parties gets no share from either."""
        lie = Lie(SeedsDealt, sets(dealers=bytes([0b11110000])), to=("party-1",))
        world = play(5, adversaries={"party-0": lie}, **FIVE)
        assert not any(world.told(name) for name in PEERS)
        errors = [out.error for name, out in world.outcomes.items() if name != "party-0"]
        assert any(isinstance(error, Tampered | ProtocolViolation) for error in errors)

    def test_different_hashes_of_words_are_detected_before_disclosure(self) -> None:
        """Either the coordinator lies or the party whose words differ: both are named."""
        world = play(5, adversaries={"party-0": wrong_set(0b11111000, 5)}, **FIVE)
        error = world.outcomes["party-2"].error
        assert isinstance(error, ProtocolViolation | Tampered)
        assert not any(world.told(f"party-{n}") for n in range(1, 5))

    def test_parties_with_different_public_inputs_open_nothing(self) -> None:
        """Every message contains the hash, and masks depend on it."""
        with pytest.raises(RunFailed) as failed:
            joined(play(5, role=bound_otherwise))
        assert isinstance(failed.value.root, Tampered)


async def bound_otherwise(party: Party, own: NDArray[np.uint64]) -> None:
    """Add up with other public inputs at one party."""
    seeds = await share_seeds(party, Quorum(5, 1, 1), "party-0")
    public = Public(digest_of(b"other" if party.me == "party-2" else b"same"), ("party-1",))
    await SurvivingSums(party, seeds, public=public).add([own])


async def either(party: Party, own: NDArray[np.uint64], *, survive: bool) -> Any:
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
    return totals, sums.parties_in, sums.next_round, len(sums.public.digest)


def test_a_role_uses_either_kind_of_sums() -> None:
    """Both have the same interface, and the same totals if no party is lost."""
    surviving, masked = (joined(play(5, role=either, survive=s)).result for s in (True, False))
    assert surviving[:2] == masked[:2]
    assert (surviving[2], masked[2]) == (3 + 2 * surviving_rounds(star=False), 3 + 2 * 2)


def test_two_sums_have_separate_seeds() -> None:
    """Two sums share no key, seed or share, so that opening one reveals nothing about the other."""
    world = play(4, tolerated=1, lost=1, coordinator="party-0", sums=2)
    dealt = [m for name in world.parties for _, m in world.sent(name) if isinstance(m, SeedShares)]
    for field in ("publics", "commitments", "roots"):
        assert len({value for message in dealt for value in getattr(message, field)}) == 4 * 2
    shares = [share for message in dealt for share in (*message.pairs, *message.owns)]
    assert len(set(shares)) == len(shares) == 4 * 3 * 2 * 2


def test_errors_of_losses_can_be_sent_between_processes() -> None:
    """Errors about lost parties keep all their fields when they are sent between processes."""
    for error in (PeerGivenUp("a"), PeerLost("a", orderly=True), TooManyLost(("a", "b"), 3, 4)):
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
