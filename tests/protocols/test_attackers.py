"""A client that attacks a served system for a long time, while an honest client uses it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from tests.outcomes import PARTIES, TERMS, Members
from tests.protocols.ldp.collecting import batches as reports_of
from tests.protocols.ldp.collecting import make_task, new_store
from tests.protocols.prediction.serving import make_rules, opened, table
from tests.protocols.prediction.serving import queries as prediction_queries
from tests.roles import Word

import veilring as vr
from veilring.nodes.inquiry import StandingRequest
from veilring.nodes.node import EARLY_FRAMES_MAX, EARLY_SECONDS, Node
from veilring.nodes.party import Parties
from veilring.nodes.service import SESSIONS_PER_PEER_MAX, Offer, Service, opening, run_inline
from veilring.nodes.session import Abort, Open, SessionLimits
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.ldp.collector import SUBMIT, Collector
from veilring.protocols.ldp.roles import submit_reports
from veilring.protocols.once import PEERS_RESULT
from veilring.protocols.peers import PEERS_ASK, PEERS_JOIN
from veilring.protocols.prediction.client import label_queries
from veilring.protocols.prediction.server import PREDICT, PredictionServer
from veilring.protocols.radius.owner import LABEL_SERVICE, Owner, ask_within, request_labels
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.plan import LookupPlan
from veilring.protocols.treewalk.roles import WALK_SERVICE, offers, walk_client
from veilring.randomness import Streams
from veilring.simulation.network import SimulatedNetwork
from veilring.transport.messages import encode

ANN, EVE = "ann", "eve"
FACTS = vr.Facts(len(PARTIES), 2, 2, 60, schema=vr.Features.of_numbers(2, 2))
LIMITS = SessionLimits()
LATENCY_SECONDS = 0.002
DRAWS = np.random.default_rng(1)
QUERIES = DRAWS.random((2, 2))
STRAYS = 50  # frames of unknown sessions in a round

Ask = Callable[[Node, str], Awaitable[object]]
"""Plays a client's whole request: ``await ask(node of the client, server)``."""


def asking(
    role: Callable[..., Awaitable[object]], given: Callable[[], Sequence[object]], **public: Any
) -> Ask:
    """Return a client's request, which plays a role in a new session with new arguments."""

    async def ask(node: Node, server: str) -> object:
        session, pair = Streams().token("session"), Parties((node.name, server))
        return await node.run(role, session, pair, *given(), **public)

    return ask


@dataclass(frozen=True)
class Setting:
    """A served system: its servers, their services with their terms, and a client's request."""

    servers: tuple[str, ...]
    offers: Callable[[Node], Mapping[str, Offer]]
    ask: Ask
    services: Mapping[str, bytes]


def rows() -> vr.Rows:
    """Draw the rows of a party; classes alternate."""
    return vr.Rows(DRAWS.random((20, 2)), np.arange(20) % 2)


async def of_peers(system: vr.System, price: float, _stack: AsyncExitStack) -> Setting:
    """Return a system in which all members hold rows."""
    membership = system.membership(FACTS)
    assert membership is not None
    made = Members(membership, FACTS, {name: rows() for name in PARTIES}, price=price)
    queries = {} if membership.once else {"queries": QUERIES}
    services = dict.fromkeys((PEERS_JOIN, PEERS_ASK, PEERS_RESULT), TERMS)
    return Setting(PARTIES, made.offers, asking(made.role, tuple, **queries), services)


async def of_owner(stack: AsyncExitStack) -> Setting:
    """Return a data owner."""
    rules = vr.DataOwner().bind(vr.Facts(1, 2, 2))
    ledger = stack.enter_context(open_ledger(None, Budgets(total=1e6)))
    owner = Owner(rows(), rules, ledger, run_inline)

    def given() -> list[object]:
        name = Streams().token("name").hex()
        return [ask_within(QUERIES, np.full(2, 0.3), 0.5, name=name)]

    ask = asking(opening(request_labels, LABEL_SERVICE, TERMS), given, rules=rules)
    return Setting(("owner",), lambda _node: owner.offers(TERMS), ask, {LABEL_SERVICE: TERMS})


async def of_places(_stack: AsyncExitStack) -> Setting:
    """Return public places."""
    places, role = Places.of(DRAWS.random((64, 2))), opening(walk_client, WALK_SERVICE, TERMS)
    ask = asking(role, lambda: [QUERIES[:1]], plan=LookupPlan(2), steps=Comparison(0.25))
    return Setting(("places",), lambda _node: offers(places, TERMS), ask, {WALK_SERVICE: TERMS})


async def of_collector(stack: AsyncExitStack) -> Setting:
    """Return a collection of reports."""
    task, seeds = make_task(), count()
    store = new_store(f"{stack.enter_context(TemporaryDirectory())}/reports.sqlite")
    collector = await stack.enter_async_context(Collector(store, lambda: 1000.0, run_inline))
    ask = asking(
        opening(submit_reports, SUBMIT, task.digest),
        lambda: [reports_of(task, 3, next(seeds))],
        task=task,
        settled=lambda _batch, _verdicts: None,
    )
    return Setting(("census",), lambda _node: collector.offers(), ask, {SUBMIT: task.digest})


async def of_prediction(stack: AsyncExitStack) -> Setting:
    """Return predictions from a stream that is long enough for all requests."""
    rules, seeds = make_rules(queries=20_000), count()
    server = PredictionServer(stack.enter_context(opened(rules, None, table(60))), run_inline)
    ask = asking(
        opening(label_queries, PREDICT, TERMS),
        lambda: [prediction_queries(2, next(seeds)).features],
        rules=rules,
        block=2,
    )
    return Setting(("server",), lambda _node: server.offers(TERMS), ask, {PREDICT: TERMS})


SEARCH = partial(of_peers, vr.RankSearch(k=3), 0.0)
SYSTEMS: dict[str, Callable[[AsyncExitStack], Awaitable[Setting]]] = {
    "rank-search": SEARCH,
    "private-knn": partial(of_peers, vr.PrivateKNN(k=3), 0.0),
    "noisy-votes": partial(of_peers, vr.NoisyVotes(epsilon=1.0, k=3), 1.0),
    "release": partial(of_peers, vr.Release(epsilon=2.0, statistic="means"), 2.0),
    "owner": of_owner,
    "ind-knn": of_prediction,
    "places": of_places,
    "collector": of_collector,
}


@dataclass
class Attacker:
    """A client that does everything that the transport permits, round after round.

    In each round, the `reflected` number of sessions name a third party.
    """

    node: Node
    setting: Setting
    reflected: int
    _tasks: set[asyncio.Task[object]] = field(default_factory=set)

    async def attack(self, *, flood: bool) -> None:
        """Attack each server once in each way."""
        first, last = self.setting.servers[0], self.setting.servers[-1]
        for service in self.setting.services:
            for victim in {ANN, last} - {first}:
                await self._reflect(service, first, victim)
            for server in self.setting.servers:
                for message in (Word(text="x"), Abort(reason="ProtocolViolation", culprit=ANN)):
                    await self._open(service, server, (EVE, server), message, message)
            await self._open(service, first, (EVE, first))  # and left so
        for server in self.setting.servers:
            strays = (Abort(reason="Tampered", culprit=server), Word(text="x"), StandingRequest())
            for _ in range(STRAYS):
                await self._send(server, *strays)
            for milliseconds in (0, 2, 6, 20):
                task = self._begin(server)
                await asyncio.sleep(milliseconds / 1000)
                task.cancel()
        if flood:
            for _ in range(SESSIONS_PER_PEER_MAX):
                self._begin(first)

    async def _reflect(self, service: str, server: str, victim: str) -> None:
        """Have the server abort sessions of which the victim has never heard."""
        odd = ((server, victim), (EVE, victim), (EVE,), (EVE, EVE), ())
        for parties in (*[(EVE, server, victim)] * self.reflected, *odd):
            await self._open(service, server, parties, Word(text="x"))

    def _begin(self, server: str) -> asyncio.Task[object]:
        task = asyncio.ensure_future(self.setting.ask(self.node, server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _open(
        self, service: str, server: str, parties: tuple[str, ...], *then: vr.Message
    ) -> None:
        opened = Open(service=service, parties=parties, terms=self.setting.services[service])
        await self._send(server, opened, *then)

    async def _send(self, server: str, *messages: vr.Message) -> None:
        session = Streams().token("session")
        for message in messages:
            await self.node.endpoint.send(server, encode(session, message))


@dataclass
class Observed:
    """The answered and the failed requests of an honest client during an attack."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)
    cut: list[tuple[str, str]] = field(default_factory=list)
    """Each party that accused another one outside of a session, and that one."""


@asynccontextmanager
async def served(
    system: Callable[[AsyncExitStack], Awaitable[Setting]], clients: Sequence[str], seen: Observed
) -> AsyncIterator[tuple[Setting, dict[str, Node]]]:
    """Serve a system on a simulated network; yield it with the nodes of servers and clients."""

    def cut(accuser: str, peer: str, _why: vr.VeilringError) -> None:
        seen.cut.append((accuser, peer))

    links = vr.Topology(vr.LinkModel(latency=vr.Constant(LATENCY_SECONDS)))
    nodes = dict[str, Node]()
    async with AsyncExitStack() as stack:
        setting = await system(stack)
        names = (*setting.servers, *clients)
        network = SimulatedNetwork(names, Streams(1), topology=links)
        for name in names:
            limit = LIMITS.served if name in setting.servers else LIMITS.client
            node = Node(network.endpoint(name), Streams(), seconds=limit, limits=LIMITS)
            node.endpoint.cut = partial(cut, name)  # type: ignore[method-assign]  # this one only
            nodes[name] = await stack.enter_async_context(node)
            if name in setting.servers:
                await stack.enter_async_context(Service(node, setting.offers(node)))
        yield setting, nodes


async def attacked(system: str, seconds: float, pause: float, reflected: int) -> Observed:
    """Attack a system for some simulated seconds, with an honest request every few seconds."""
    seen, now = Observed(), asyncio.get_running_loop().time
    async with served(SYSTEMS[system], (ANN, EVE), seen) as (setting, nodes):
        eve = Attacker(nodes[EVE], setting, reflected)
        for number in count():
            if now() >= seconds:
                break
            await eve.attack(flood=number % 4 == 0)
            for server in setting.servers:
                try:
                    await setting.ask(nodes[ANN], server)
                    seen.answered += 1
                except vr.VeilringError as error:
                    seen.failed.append(f"{now():.1f} s: {type(error).__name__}: {error}")
            await asyncio.sleep(pause)
    return seen


@pytest.mark.parametrize(
    ("seconds", "pause", "reflected"),  # more than EARLY_FRAMES_MAX in EARLY_SECONDS
    [
        (8.0, 4.0, EARLY_FRAMES_MAX // 2 + 1),
        # Three times the longest limit in seconds: what grows for longer has a limit in numbers.
        pytest.param(3 * EARLY_SECONDS, 15.0, EARLY_FRAMES_MAX // 7, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("system", SYSTEMS)
def test_an_attacking_client_harms_no_other_party(
    system: str, seconds: float, pause: float, reflected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each honest request is answered, and no honest party accuses or cuts off another one."""
    seen = vr.simulate(attacked(system, seconds, pause, reflected))
    assert seen.failed == []
    assert seen.answered >= seconds / (pause + 1.0)
    assert {culprit for _, culprit in seen.cut} <= {EVE}
    honest = rf"(?:{'|'.join([*PARTIES, ANN, 'owner', 'places', 'census', 'server'])})"
    accused = rf"{honest} broke the protocol|blaming {honest}|has cut off {honest}|did not send"
    said = [line for line in caplog.messages if "eve aborted the session" not in line]
    assert [line for line in said if re.search(accused, line)] == []


CLIENTS = 40


@pytest.mark.parametrize("batches", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_many_honest_clients_at_one_member_are_all_answered(batches: int) -> None:
    """Forty clients, each with several batches at once, wait for their turns; none is refused."""

    async def main() -> Sequence[object]:
        names = [f"client-{number}" for number in range(CLIENTS)]
        async with served(SEARCH, names, Observed()) as (setting, nodes):
            asked = [setting.ask(nodes[name], "ada") for name in names for _ in range(batches)]
            return await asyncio.gather(*asked)

    assert len(vr.simulate(main())) == CLIENTS * batches


def test_a_member_cannot_have_another_one_accused_of_its_frames(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Thousands of sessions that a malicious member opens at one member only harm no other."""
    seen = Observed()

    async def main() -> None:
        async with served(SEARCH, [ANN], seen) as (setting, nodes):
            mal = nodes["cyd"].endpoint
            for _ in range(EARLY_FRAMES_MAX + 100):
                session = Streams().token("alone")
                request = Open(service=PEERS_JOIN, parties=tuple(PARTIES), terms=TERMS)
                await mal.send("ada", encode(session, request))
                await mal.send("ada", encode(session, Word(text="x")))
                await asyncio.sleep(4 * LATENCY_SECONDS)
            await setting.ask(nodes[ANN], "ada")
            await setting.ask(nodes[ANN], "bob")

    vr.simulate(main())
    assert seen.cut == []
    accused = [line for line in caplog.messages if "broke the protocol" in line]
    assert accused
    assert not any(re.search("(ada|bob) broke the protocol", line) for line in accused)
