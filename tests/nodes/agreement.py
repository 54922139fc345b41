"""Random protocols with random topologies and faults: the simulation beside memory and TLS.

All runtimes must agree on results, transcripts, costs, depth, and on the errors of failed runs.
Timing decides three things only, which are not compared:

- the order in which messages of different senders are received, and which of them are left unread;
- which parties of a failed run notice a fault themselves, and which ones receive an abort: an abort
  counts as the error that it reports;
- how far the others get before they receive it: the cost of an aborted run. A run that is stuck is
  not aborted, and its cost is compared.

If several tasks of a party send at once, the depth is not compared either.

To compare many manually: `python -m tests.nodes.agreement 1000`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import networkx as nx
import numpy as np
from numpy.random import Generator
from tests.nodes.programs import KINDS, Bits, Block, Grid, Mishap, Note, Program, draw_program, play
from typing_extensions import override

from veilring import simulation
from veilring.errors import (
    Deadlock,
    EndpointClosed,
    PeerLost,
    RunFailed,
    SessionAborted,
    SessionTimeout,
    VeilringError,
)
from veilring.nodes.adversary import (
    Adversary,
    Alter,
    Delay,
    Drop,
    Forger,
    Lines,
    Reorder,
    Repeat,
    Silent,
)
from veilring.nodes.journal import Cost, total_cost
from veilring.nodes.party import Parties, Standing
from veilring.nodes.run import Job, Outcome, blamed_party, join_outcomes
from veilring.nodes.runtimes import Simulated, Tls
from veilring.nodes.runtimes.tasks import Memory, TasksRuntime
from veilring.randomness import Streams
from veilring.simulation import Constant, LinkModel, LogNormal, Topology, Uniform
from veilring.simulation.faults import FAULT_KINDS, Fault, draw_faults
from veilring.simulation.network import SimulatedEndpoint
from veilring.transport.endpoint import InProcessEndpoint
from veilring.transport.messages import Message
from veilring.transport.tls import TlsEndpoint

NAMES: Final = ("ada", "bob", "cyd", "dan", "eve", "fay")
SEED: Final = 1
ENDS: Final = ("crash", "goodbye", "reset")
TOLERATED_SHARE: Final = 0.6
AT_ONCE: Final = 16
# A run that is stuck is found without a limit of time; other runs take as long as they take.
SECONDS: Final = 900.0
POLL_SECONDS: Final = 0.02
FAULT_SECONDS: Final = 5.0
DELAY_SECONDS: Final = 0.001
FAULTS: Final = {
    "none": 0.12,
    "slow": 0.24,
    "crash": 0.12,
    "goodbye": 0.08,
    "raise": 0.06,
    "accuse": 0.04,
    "leave": 0.06,
    "adversary": 0.28,
}


@dataclass
class Babbler(Adversary):
    """Sends each message of the program to all peers."""

    only: tuple[type[Message], ...] = KINDS

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        everybody = self.party.peers if isinstance(message, self.only) else (to,)
        return [(peer, message) for peer in everybody]


@dataclass
class Deceived(Adversary):
    """Receives altered messages."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        return garbled(message)


@dataclass
class Equivocator(Adversary):
    """Sends altered messages to every second peer."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        lies = self.party.parties.position(to) % 2 and isinstance(message, KINDS)
        return [(to, garbled(message) if lies else message)]


def garbled(message: Message) -> Message:
    """Return a message of the same kind with other content, and often of another shape."""
    if isinstance(message, Note):
        return Note(text=message.text[1:], number=-message.number, raw=message.raw * 2)
    if isinstance(message, Bits | Grid | Block):
        values = message.values
        return type(message)(values=np.concatenate([values[::-1], values[:1]]))
    return message


class Triple(NamedTuple):
    """A protocol, a topology and a fault."""

    seed: int
    program: Program
    links: Topology
    fault: str
    faults: tuple[Fault, ...] = ()
    mishap: Mishap | None = None
    adversaries: Mapping[str, Adversary] = {}

    @property
    def faulty(self) -> tuple[str, ...]:
        """The parties that may be blamed."""
        if self.mishap is None:
            return tuple(self.adversaries)
        if self.mishap.what == "accuse":
            return tuple(name for name in self.program.parties if name != self.mishap.party)[:1]
        return (self.mishap.party,)

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.program.steps)
        rest = f"{self.program.setup} set-up, {self.program.votes} votes"
        what = [*self.faults, *([self.mishap] if self.mishap else ()), *self.adversaries.items()]
        return f"seed {self.seed}, {self.fault} {what}, {self.program.parties}, {rest}\n{steps}"


def draw_triple(seed: int) -> Triple:
    """Draw a triple."""
    rng = np.random.default_rng([seed])
    parties = NAMES[: int(rng.integers(3, len(NAMES) + 1))]
    program, links = draw_program(parties, rng), draw_links(parties, rng)
    fault = str(rng.choice(list(FAULTS), p=list(FAULTS.values())))
    party, place = str(rng.choice(parties)), int(rng.integers(len(program.steps)))
    triple = Triple(seed, program, links, fault)
    match fault:
        case "none":
            return triple
        case "slow":
            return triple._replace(
                faults=draw_delays(parties, rng), adversaries={party: Delay(DELAY_SECONDS)}
            )
        case "adversary":
            liar = _draw_adversary([name for name in parties if name != party], rng)
            return triple._replace(adversaries={party: liar})
    what: Any = fault
    tolerated = fault in ENDS and bool(rng.random() < TOLERATED_SHARE)
    mishap = Mishap(what, party, place, tolerated)
    return triple._replace(program=replace(program, votes=0), mishap=mishap)


def _draw_adversary(peers: Sequence[str], rng: Generator) -> Adversary:
    some = tuple(kind for kind in KINDS if rng.random() < 0.5) or KINDS
    liars: list[Adversary] = [
        Drop(some),
        Drop(some, first=int(rng.integers(1, 4))),
        Repeat(int(rng.integers(2, 4)), some),
        Reorder(some),
        Alter(garbled, some),
        Forger(peers[0], some),
        Silent(int(rng.integers(4))),
        Babbler(some),
        Deceived(),
        Equivocator(),
    ]
    return liars[int(rng.integers(len(liars)))]


def draw_delays(parties: Sequence[str], rng: Generator) -> tuple[Fault, ...]:
    """Draw faults that only delay messages, or turn clocks."""
    drawn = draw_faults(parties, FAULT_SECONDS, rng)
    return tuple(f for f in drawn if FAULT_KINDS[f.kind].conditions or f.kind in {"skew", "jump"})


def draw_links(parties: Sequence[str], rng: Generator) -> Topology:
    """Draw links of one kind between all parties, or in a random graph."""
    n = len(parties)
    tree = nx.random_labeled_tree(n, seed=int(rng.integers(1000)))
    lines = nx.complete_graph(n), nx.cycle_graph(n), nx.path_graph(n)
    graphs: list[Any] = [None, *lines, nx.star_graph(n - 1), tree]
    latencies = (Constant(0.0), Constant(0.1), Uniform(0.0, 0.5), LogNormal(0.1, 1.0))
    model = LinkModel(
        latency=latencies[int(rng.integers(len(latencies)))],
        jitter=(Constant(0.0), Uniform(0.0, 0.2))[int(rng.integers(2))],
        bandwidth_bytes_per_second=float(rng.choice([np.inf, 1e6, 1e4])),
    )
    graph = graphs[int(rng.integers(len(graphs)))]
    names: Any = dict(enumerate(parties))
    if graph is None:
        return Topology(model)
    more = [(a, b) for a in range(n) for b in range(a) if rng.random() < 0.2]
    graph.add_edges_from(more)
    return Topology(model, nx.relabel_nodes(graph, names))


class Ended(NamedTuple):
    """The end of a run: what all runtimes must agree on."""

    results: Mapping[str, object]
    errors: Mapping[str, tuple[str, str]]
    """The class of each error and the party that it blames."""
    lost: tuple[str, ...] = ()
    blame: tuple[str, str] = ("", "")
    channels: Mapping[tuple[str, str], str] = {}
    cost: Cost | None = None
    rounds: tuple[int, ...] = ()
    """Declared and measured rounds, the latter of the set-up, too."""


def _ended(outcomes: Sequence[Outcome]) -> Ended:
    outcomes = [
        # as the launcher of a process reports it
        each._replace(error=PeerLost(each.party))
        if isinstance(each.error, EndpointClosed)
        else each
        for each in outcomes
    ]
    errors = {each.party: _essence(each) for each in outcomes if each.error is not None}
    try:
        run = join_outcomes(outcomes, 0.0)
    except RunFailed as failed:
        blame = blamed_party(failed), failed.verdict
        if not all(isinstance(each, Deadlock | SessionTimeout) for each in failed.errors.values()):
            return Ended({}, errors, blame=blame)
        cost = total_cost(each.meter for each in outcomes if each.meter is not None)
        return Ended({}, errors, blame=blame, cost=cost)
    rounds = run.cost.rounds, run.cost.depth, run.cost.setup_depth
    return Ended(
        run.results,
        errors,
        run.lost,
        channels=run.channels,
        cost=run.cost,
        rounds=() if run.cost.is_concurrent else rounds,
    )


def _essence(outcome: Outcome) -> tuple[str, str]:
    match outcome.error:
        case SessionAborted(by=by, reason=reason, culprit=culprit):
            return reason, culprit or by
        case Deadlock() | SessionTimeout():
            return "stuck", ""
        case VeilringError() as error:
            return type(error).__name__, blamed_party(error)
    return "InternalError", outcome.party


async def _played(runtime: TasksRuntime, triple: Triple, *, watched: bool) -> Ended:
    program, mishap = triple.program, triple.mishap
    session = Streams(SEED).token("session", triple.seed)
    public: dict[str, object] = {"program": program, "mishap": mishap}
    jobs = {
        name: Job(
            play,
            session,
            Parties(program.parties),
            public=public | ({"end": _end(runtime, name, mishap.what)} if mishap else {}),
            seconds=SECONDS if watched else None,
            adversary=triple.adversaries.get(name),
        )
        for name in program.parties
    }
    watch = asyncio.create_task(_end_if_stuck(runtime, session)) if watched else None
    outcomes = await runtime.play(jobs)
    if watch is not None:
        watch.cancel()
    return _ended(outcomes)


def _end(runtime: TasksRuntime, name: str, what: str) -> Callable[[], Awaitable[None]]:
    node = runtime._nodes[name]  # noqa: SLF001  (no role can end its own process)

    async def end() -> None:
        match what, node.endpoint:
            case "goodbye", _:
                await node.close()
            case "reset", TlsEndpoint() as one:
                connection = one._links.connection_to(one.peers[0])  # noqa: SLF001  (as if cut)
                connection._transport.abort()  # type: ignore[union-attr]  # noqa: SLF001  (likewise)
            case "reset", InProcessEndpoint() as one:
                other = runtime._nodes[one.peers[0]].endpoint  # noqa: SLF001  (as above)
                _lose(one, other.name)
                _lose(other, one.name)
            case _:
                node.abort()

    return end


def _lose(endpoint: Any, peer: str) -> None:
    """Let an endpoint notice the loss of its connection with a peer."""
    if isinstance(endpoint, SimulatedEndpoint):
        endpoint.lose(PeerLost(peer))
    else:
        endpoint.deliver(peer, PeerLost(peer))


async def _end_if_stuck(runtime: TasksRuntime, session: bytes) -> None:
    """End the sessions of a run as at their time limit, once no message can arrive any more."""
    nodes = runtime._nodes.values()  # noqa: SLF001  (as the simulation observes its nodes)
    await asyncio.sleep(0)  # until each has opened the session
    played = [each for node in nodes for each in node.open_sessions if each.session == session]
    before: list[Standing] = []
    while True:
        await asyncio.sleep(POLL_SECONDS)
        # twice: a task that was woken, beside another one that waits, has had its turn by then
        now = [each.standing() for each in played]
        if now == before and _is_stuck(now):
            for each in played:
                each.expire(SECONDS)
        before = now


def _is_stuck(standings: Sequence[Standing]) -> bool:
    left = [each for each in standings if not each.over]
    return all(
        one.waits
        and not one.blocked
        and all(
            other.sent.get(one.party, 0) == one.received.get(other.party, 0)
            for other in standings
            if other is not one
        )
        for one in left
    )


def simulated(triple: Triple) -> Ended:
    """Play a triple in the simulation."""

    async def main() -> Ended:
        runtime = Simulated(triple.links, triple.faults)
        await runtime.start(Parties(triple.program.parties), {}, Streams(SEED))
        try:
            return await _played(runtime, triple, watched=False)
        finally:
            await runtime.stop()

    return simulation.simulate(main())


async def _all_played(kind: type[Memory | Tls], triples: Sequence[Triple]) -> list[Ended]:
    """Play triples at once among the same parties; where a party crashes, among others."""
    room, starting = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    shared = kind()

    async def one(triple: Triple) -> Ended:
        async with room:
            if triple.fault not in ENDS:
                return await _played(shared, triple, watched=True)
            own = kind()
            async with starting:
                await own.start(Parties(triple.program.parties), {}, Streams(SEED))
            try:
                return await _played(own, triple, watched=True)
            finally:
                await own.stop()

    await shared.start(Parties(NAMES), {}, Streams(SEED))
    try:
        return await asyncio.gather(*map(one, triples))
    finally:
        await shared.stop()


def disagreements(triples: Sequence[Triple]) -> list[tuple[Triple, str]]:
    """Return the triples on which a runtime and the simulation differ, and how."""
    expected = list(map(simulated, triples))
    differences = {
        triple.seed: "the simulation itself: depth, rounds or blame are wrong"
        for triple, ended in zip(triples, expected, strict=True)
        if not _is_right(triple, ended)
    }
    for kind in (Memory, Tls):
        found = asyncio.run(_all_played(kind, triples))
        for triple, one, other in zip(triples, expected, found, strict=True):
            if one != other:
                differences[triple.seed] = f"{kind.__name__}\n{_difference(one, other)}"
    return [(each, differences[each.seed]) for each in triples if each.seed in differences]


def _is_right(triple: Triple, ended: Ended) -> bool:
    """Return whether rounds equal the depth without a liar, and no honest party is blamed."""
    if ended.rounds and triple.fault in {"none", "slow"}:
        declared, measured, _ = ended.rounds
        return declared == measured
    return ended.blame[0] in {"", *triple.faulty}


def _difference(one: Ended, other: Ended) -> str:
    fields = zip(Ended._fields, one, other, strict=True)
    return "\n".join(f"  {name}: {b}\n    not {a}" for name, a, b in fields if a != b)


def shrunk(triple: Triple) -> Triple:
    """Leave out steps as long as the runtimes still differ: halves, then quarters, and so on."""
    size = len(triple.program.steps)
    while size := size // 2:
        place = 0
        while place < len(triple.program.steps):
            left_out = range(place, min(place + size, len(triple.program.steps)))
            smaller = triple._replace(program=triple.program.without(left_out))
            if disagreements([smaller]):
                triple = smaller
            else:
                place += size
    return triple


def with_reset(triple: Triple) -> Iterator[Triple]:
    """Yield a triple in which a connection breaks where a party would crash."""
    if triple.fault == "crash" and triple.mishap is not None:
        mishap = triple.mishap._replace(what="reset", tolerated=True)
        yield triple._replace(fault="reset", mishap=mishap)


def agree(triples: Sequence[Triple]) -> None:
    """Check that memory and TLS agree with the simulation."""
    found = disagreements(triples)
    if found:
        smallest = shrunk(found[0][0])
        told = disagreements([smallest]) or found[:1]
        seen = ", ".join(str(triple.seed) for triple, _ in found)
        raise AssertionError(f"{len(found)} differ (seeds {seen}):\n{smallest}\n{told[0][1]}")


def agree_on(seeds: Sequence[int]) -> None:
    """Check triples, and those in which a connection breaks where a party would crash."""
    triples = [draw_triple(seed) for seed in seeds]
    agree(triples)
    agree([each for triple in triples for each in with_reset(triple)])


if __name__ == "__main__":
    agree_on(range(int(sys.argv[1])))
    print(f"{sys.argv[1]} protocols: all runtimes agree")
