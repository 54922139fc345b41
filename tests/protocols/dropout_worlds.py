"""Worlds of a surviving sum in which parties crash at chosen messages, and their invariants.

`python -m tests.protocols.dropout_worlds 5000` plays 5,000 random worlds and prints the number of
each ending; a test plays 200 of them.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

import veilring as vr
from veilring.errors import EndpointClosed, SessionAborted
from veilring.nodes.adversary import Lines
from veilring.nodes.cluster import RUNTIMES, RuntimeName
from veilring.nodes.party import ForwardingParty, Parties
from veilring.nodes.run import Outcome, join_outcomes
from veilring.nodes.runtimes.tasks import TasksRuntime
from veilring.protocols.dropouts import OpeningShares, SurvivingSums, surviving_rounds
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.seeding import SILENCE_SECONDS, Quorum, share_seeds
from veilring.randomness import Streams
from veilring.simulation.links import Uniform

Totals = tuple[list[list[int]], tuple[str, ...]]
Crash = Callable[[], None]


async def surviving_sums(
    party: vr.Party,
    own: NDArray[np.uint64],
    *,
    tolerated: int,
    lost: int,
    coordinator: str,
    star: bool = False,
    sums: int = 1,
    silence: float = SILENCE_SECONDS,
) -> list[Totals]:
    """Add up the party's words, and in each further sum its words times the sum's number."""
    quorum = Quorum(len(party.parties), tolerated, lost)
    seeds = await share_seeds(party, quorum, coordinator, sums=sums, silence=silence)
    adding = SurvivingSums(party, seeds, star=star, silence=silence)
    found = []
    for number in range(1, sums + 1):
        totals = await adding.add((own * np.uint64(number), own[:1]))
        found.append(([total.tolist() for total in totals], adding.parties_in))
        assert adding.next_round == 1 + number * surviving_rounds(star=star)
    return found


class Crashing(ForwardingParty):
    """A party that crashes instead of sending the message of a number from 0."""

    def __init__(self, party: vr.Party, at: int, crash: Crash) -> None:
        super().__init__(party)
        self._left, self._crash = at, crash

    @override
    async def send(self, to: str, message: vr.Message) -> None:
        if not self._left:
            self._crash()
        self._left -= 1
        await super().send(to, message)


@dataclass
class Lie(vr.Adversary):
    """Sends other messages than its role, to all or some parties; by default none."""

    only: type[vr.Message] | tuple[type[vr.Message], ...]
    change: Callable[[Any], vr.Message | None] = lambda _message: None
    to: Collection[str] | None = None
    first_round: int = 0

    @override
    async def sending(self, to: str, message: vr.Message) -> Lines:
        is_told = self.to is None or to in self.to
        if not (is_told and isinstance(message, self.only) and self.round >= self.first_round):
            return [(to, message)]
        changed = self.change(message)
        return [] if changed is None else [(to, changed)]


def add_one(message: MaskedWords | MaskedTotals) -> vr.Message:
    """Return other words."""
    words = tuple(each + each.dtype.type(1) for each in message.words)
    return message.model_copy(update={"words": words})


@dataclass
class World:
    """The outcome of one world, with the keyword arguments of its role."""

    outcomes: dict[str, Outcome]
    own: Mapping[str, NDArray[np.uint64]]
    settings: Mapping[str, Any]
    session: bytes

    @property
    def parties(self) -> Parties:
        """The names of all parties."""
        return Parties(list(self.outcomes))

    @property
    def errors(self) -> dict[str, BaseException]:
        """The errors that ended roles, those of crashed parties included."""
        return {name: out.error for name, out in self.outcomes.items() if out.error is not None}

    @property
    def crashed(self) -> set[str]:
        """The parties that crashed."""
        return {
            name
            for name, error in self.errors.items()
            if isinstance(error, EndpointClosed) or getattr(error, "peer", "") == name
        }

    @property
    def quorum(self) -> Quorum:
        """The number of parties that may be lost or collude."""
        return Quorum(len(self.parties), self.settings["tolerated"], self.settings["lost"])

    @property
    def run(self) -> vr.Run[Any]:
        """The run merged from all outcomes; an error that ends it is raised."""
        return join_outcomes(list(self.outcomes.values()), 0.0)

    def sent(self, name: str) -> list[tuple[str, vr.Message]]:
        """Return a party's sent messages with their receivers; a killed process tells none."""
        view = self.outcomes[name].view
        return [] if view is None else [(sent.sender, sent.message) for sent in view.sent]

    def told(self, name: str) -> list[OpeningShares]:
        """Return the distinct messages of shares that a party sent."""
        sent = [message for _, message in self.sent(name) if isinstance(message, OpeningShares)]
        return [message for place, message in enumerate(sent) if message not in sent[:place]]


def be_killed() -> None:
    """End the process of this party."""
    os.kill(os.getpid(), signal.SIGKILL)


async def mortal(
    party: vr.Party,
    own: NDArray[np.uint64],
    *,
    played: Callable[..., Awaitable[Any]],
    at: int | None = None,
    crash: Crash = be_killed,
    **settings: Any,
) -> Any:
    """Play a role, and crash before the message of the given number, if any."""
    return await played(party if at is None else Crashing(party, at, crash), own, **settings)


def play(  # noqa: PLR0913  (the settings of a test, each by name)
    parties: int,
    *,
    runtime: RuntimeName = "simulated",
    crashes: Mapping[str, int] | None = None,
    faults: Sequence[vr.Fault] = (),
    seed: int = 0,
    topology: vr.Topology | None = None,
    role: Callable[..., Awaitable[Any]] = surviving_sums,
    adversaries: Mapping[str, vr.Adversary] | None = None,
    own: list[list[int]] | None = None,
    **settings: Any,
) -> World:
    """Play a role, with parties that crash before a message of theirs, by default simulated."""
    drawn = own or [[10**number, number, 2**64 - 1] for number in range(parties)]
    mine = [np.array(each, np.uint64) for each in drawn]

    async def run() -> list[Outcome]:
        place = vr.Simulated(topology, faults) if runtime == "simulated" else RUNTIMES[runtime]()
        async with vr.Cluster(parties, runtime=place, own=mine, seed=seed) as cluster:
            only: dict[str, Any] = {name: {"at": at} for name, at in (crashes or {}).items()}
            if isinstance(place, TasksRuntime):
                for name, struck in only.items():
                    struck["crash"] = place._nodes[name].abort  # noqa: SLF001  (as if killed)
            given = {"played": role, "only": only, "adversaries": adversaries, **settings}
            return await cluster.play(mortal, watch=cluster.parties, **given)

    found = vr.simulate(run()) if runtime == "simulated" else asyncio.run(run())
    outcomes = {outcome.party: outcome for outcome in found}
    words = dict(zip(outcomes, mine, strict=True))
    return World(outcomes, words, settings, Streams(seed).token("session", 0))


def ending(world: World) -> str:
    """Check the invariants of every world, and return its ending.

    A sum covers exactly the set that all parties name, or fails at all of them. If more are lost
    than a sum survives, or the coordinator of a star is lost, or a coordinator and a party that
    sends its echo, only some parties may learn the total. In no case does a party disclose shares
    for two sets.
    """
    assert all(len(world.told(name)) <= world.settings.get("sums", 1) for name in world.parties)
    crashed = world.crashed
    errors = {name: error for name, error in world.errors.items() if name not in crashed}
    assert all(isinstance(error, vr.PeerLost | SessionAborted) for error in errors.values()), errors
    results = [out.result for out in world.outcomes.values() if out.error is None]
    for result in results:
        assert result == results[0]
        for number, ((words, first), members) in enumerate(result, 1):
            assert len(members) >= world.quorum.threshold
            total = np.add.reduce([world.own[name] for name in members])
            assert words == (total * np.uint64(number)).tolist()
            assert first == total[:1].tolist()
    if not results:
        return "failed"
    if errors:
        is_star, coordinator = world.settings.get("star"), world.settings["coordinator"]
        is_too_many = len(crashed) > world.settings["lost"]
        is_led = coordinator not in crashed
        assert is_too_many or not (is_led or (len(crashed) == 1 and not is_star))
        return "too many lost: told to some" if is_too_many else "told to some"
    return "stood without some" if len(results[0][-1][1]) < len(world.parties) else "stood"


def endings(worlds: int, seed: int) -> Counter[tuple[str, str]]:
    """Count the endings of random worlds by the shape of the sum.

    Up to four of twelve parties crash, over random links. Half of all crashes are drawn over all
    messages, and the others over messages after set-up.
    """
    rng, found = np.random.default_rng(seed), Counter[tuple[str, str]]()
    parties, lost, most = 12, 4, 5 * 11 + 2
    for number in range(worlds):
        struck = rng.permutation(parties)[: rng.integers(0, lost + 1)]
        crashes = {
            f"party-{each}": int(rng.integers(parties if rng.random() < 0.5 else 0, most))
            for each in struck
        }
        world = play(
            parties,
            crashes=crashes,
            seed=number,
            topology=vr.Topology(vr.LinkModel(jitter=Uniform(0.0, 0.1))),
            tolerated=3,
            lost=lost,
            coordinator=f"party-{rng.integers(0, parties)}",
            star=bool(rng.random() < 0.25),
        )
        found["star" if world.settings["star"] else "all-to-all", ending(world)] += 1
    return found


if __name__ == "__main__":
    for (shape, how), count in sorted(endings(int(sys.argv[1]), seed=1).items()):
        print(f"{shape}: {how}: {count}")
