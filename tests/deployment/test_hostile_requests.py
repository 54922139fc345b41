"""Thousands of hostile requests against policies, judged by all messages on the wire.

Clients that a policy does not name ask, again and at once. A member announces other clients and
other numbers of queries to each party than it uses. Earlier messages are sent again, changed or
not, and the clock advances over hours and days. The judge reads nothing but the frames: a party
answers in a session if it sends a message there that depends on rows.
"""

import asyncio
import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from tests.outcomes import PARTIES, TERMS, Members

import veilring as vr
from veilring.arrays import Floats
from veilring.deployment.gate import open_admission
from veilring.deployment.policy import Policy, Request
from veilring.errors import FrameError, VeilringError
from veilring.nodes.party import Parties, Party
from veilring.nodes.service import opening
from veilring.privacy.budgets import Budgets
from veilring.protocols.peers import PEERS_JOIN, PeerLabels, PeerMember, PeerRequest
from veilring.simulation.loop import simulate
from veilring.transport.messages import Message, decode, open_frame

CLIENTS: Final = ("ann", "eve", "clerk")
# The kinds of messages that depend on rows, and those that carry a batch.
OF_ROWS: Final = ("ring.topk.", "ring.sum.", "masks.words", "ranksearch.", PeerLabels.kind)
BATCHES: Final = {"ring.queries": "features", "noisyvotes.batch": "queries"}
FACTS: Final = vr.Facts(len(PARTIES), 2, 3, rows=30)
BATCH_MAX: Final = 4
AT_ONCE_MAX: Final = 6
# 5,040 requests to all systems. If one in 1,000 were answered outside a policy, they would show it
# with a probability of 99 %.
SEEDS: Final = 14
REQUESTS: Final = 120
START: Final = dt.datetime(2026, 11, 28, 21, 0, tzinfo=dt.UTC)
SYSTEMS: Final[Mapping[str, tuple[vr.System, float]]] = {
    "private kNN": (vr.PrivateKNN(k=3), 0.0),
    "rank search": (vr.RankSearch(k=3), 0.0),
    "noisy votes": (vr.NoisyVotes(epsilon=0.5, radius=0.5), 0.5),
}


class Seen(NamedTuple):
    """A frame on the wire, and the time on the clock of the policies."""

    sender: str
    receiver: str
    frame: bytes
    time: dt.datetime


@dataclass
class Wire:
    """All frames, and the clock."""

    now: dt.datetime = START
    frames: list[Seen] = field(default_factory=list)

    def watch(self, name: str, endpoint: Any) -> None:
        """Note each frame that an endpoint sends."""
        send_now = endpoint.send_now

        def noting(to: str, frame: bytes) -> bool:
            if sent := send_now(to, frame):
                self.frames.append(Seen(name, to, bytes(frame), self.now))
            return bool(sent)

        endpoint.send_now = noting


class Answered(NamedTuple):
    """A session in which a party sent something that depends on its rows.

    Attributes:
        members: The client, and the member that asked the party for it.
    """

    time: dt.datetime
    client: str
    queries: int
    members: frozenset[str] = frozenset()


def answers_of(party: str, frames: Sequence[Seen]) -> tuple[list[Answered], list[Answered]]:
    """Return the batches of which a party revealed something, and the labels that it sent.

    Labels that were stored have no batch: they are sent again without a session of all parties.
    """
    sessions = defaultdict[bytes, list[tuple[Seen, Message]]](list)
    for each in frames:
        with suppress(FrameError):
            session, message = decode(each.frame)
            if party in {each.sender, each.receiver}:
                sessions[session].append((each, message))
    batches, labels = [], []
    for told in sessions.values():
        sent = [at for at, message in told if at.sender == party and is_of_rows(message)]
        if not sent:
            continue
        kinds = {type(message) for _, message in told}
        if PeerRequest in kinds:
            member, client = next(
                (at.sender, m.client) for at, m in told if isinstance(m, PeerRequest)
            )
            sizes = [len(getattr(m, BATCHES[m.kind])) for _, m in told if m.kind in BATCHES]
            members = frozenset({client, member} - {party})
            batches.append(Answered(sent[0].time, client, max(sizes), members))
        else:
            (at,) = sent
            labels.append(Answered(at.time, at.receiver, 0))
    return batches, labels


def is_of_rows(message: Message) -> bool:
    """Return whether a message depends on the sender's rows."""
    if isinstance(message, PeerLabels):
        return len(message.labels) > 0
    return message.kind.startswith(OF_ROWS)


def violations(
    limits: Mapping[str, Any], price: float, batches: Sequence[Answered], labels: Sequence[Answered]
) -> list[str]:
    """Return the answers of a party that its policy does not allow, and the sums above a limit."""
    found = []
    for each in (*batches, *labels):
        if each.client not in limits.get("clients", each.client):
            found.append(f"clients: {each}")
        start, _, end = limits.get("hours", "00:00-24:00").partition("-")
        if not start <= f"{each.time:%H:%M}" < end:
            found.append(f"hours: {each}")
    found += above(limits, price, batches)
    for name, own in limits.get("member", {}).items():
        asked = [each for each in batches if name in each.members]
        found += [f"member.{name}.{each}" for each in above(own, price, asked)]
    if limits.get("epsilon", price) < price and batches:
        found.append("epsilon")
    return found


def above(limits: Mapping[str, Any], price: float, batches: Sequence[Answered]) -> list[str]:
    """Return the sums of batches in some time that are above a limit."""
    found = []
    for key, unit, width in (
        ("queries_hour", 1, "%Y-%m-%d %H"),
        ("queries_day", 1, "%Y-%m-%d"),
        ("queries_total", 1, ""),
        ("epsilon_day", price, "%Y-%m-%d"),
        ("epsilon_total", price, ""),
    ):
        sums = defaultdict[str, float](float)
        for each in batches:
            amount = each.queries if key.startswith("queries") else 1
            sums[each.time.strftime(width)] += amount * unit
        found += [f"{key}: {each}" for each in sums.values() if each > limits.get(key, each) + 1e-9]
    return found


def draw_limits(rng: np.random.Generator, price: float) -> dict[str, Any]:
    """Draw a policy that allows something."""
    count = int(rng.integers(20, 60))
    limits = {
        "clients": list(rng.choice(["ann", "clerk", "ada", "bob"], 2, replace=False)),
        "hours": "06:00-22:30",
        "queries_hour": int(rng.integers(BATCH_MAX, 12)),
        "queries_day": count,
        "queries_total": 4 * count,
        "member": {
            "ann": {"queries_hour": BATCH_MAX, "queries_total": 2 * count},
            str(rng.choice(list(PARTIES))): {"queries_day": count // 2},
        },
    }
    if price:
        limits |= {"epsilon": price, "epsilon_day": 12 * price, "epsilon_total": 40 * price}
    kept = rng.random(len(limits)) < 0.7
    return {key: limits[key] for key, keep in zip(limits, kept, strict=True) if keep}


class Attack:
    """Hostile clients and members among three parties; the party in question is honest."""

    def __init__(self, members: Members, wire: Wire, victim: str, seed: int) -> None:
        self._members, self._wire, self._victim = members, wire, victim
        self._rng = np.random.default_rng(seed)
        self._batches = [self._rng.random((n, 2)) for n in (1, 2, 3, BATCH_MAX)]
        self.requests = 0

    async def requests_until(self, most: int) -> None:
        """Send requests, some at once, while the clock advances."""
        acts = (self._ask, self._ask, self._ask, self._convene, self._convene, self._again)
        while self.requests < most:
            self._wire.now += dt.timedelta(minutes=int(self._rng.integers(0, 40)))
            number = int(self._rng.integers(1, AT_ONCE_MAX))
            self.requests += number
            chosen = [acts[each] for each in self._rng.integers(0, len(acts), number)]
            await asyncio.gather(*(self._try(act()) for act in chosen))

    async def _try(self, act: Awaitable[object]) -> None:
        with suppress(VeilringError, TypeError, ValueError, OverflowError):
            await act

    async def _ask(self) -> None:
        """Ask any member as any client: a new batch, an earlier one, or one that is invalid."""
        rng = self._rng
        client, asked = rng.choice(CLIENTS), rng.choice(list(PARTIES))
        batch = self._batch()
        if rng.random() < 0.1:
            batch = 7 * batch if rng.random() < 0.5 else batch[:, :1]
        node = self._members.world.nodes[client]
        pair = Parties((str(client), str(asked)))
        await node.run(self._members.role, rng.bytes(16), pair, batch)

    def _batch(self) -> Floats:
        rng = self._rng
        if rng.random() < 0.3:
            return self._batches[rng.integers(len(self._batches))]
        return rng.random((int(rng.integers(1, BATCH_MAX + 1)), 2))

    async def _convene(self) -> None:
        """Convene a session as another member, which announces something else to each party."""
        rng = self._rng
        others = [name for name in PARTIES if name != self._victim]
        member: PeerMember = self._members.members[rng.choice(others)]
        batch = self._batch()

        async def lead(party: Party) -> None:
            for peer in party.peers:
                clients: list[Any] = ["ann", "eve", "clerk", "ada", "", "x" * 80, None]
                counts: list[Any] = [len(batch), 0, 1, -1, 10**9, len(batch) + 1, "2"]
                client = clients[rng.integers(len(clients))]
                count = counts[rng.integers(len(counts))]
                told = PeerRequest.model_construct(client=client, queries=count)
                if rng.random() < 0.6:
                    told = PeerRequest(client="ann", queries=len(batch))
                await party.send(peer, told)
            await member.play(party, client=party.me, queries=batch, charge=lambda _release: None)

        role = opening(lead, PEERS_JOIN, TERMS)
        await member.node.run(role, rng.bytes(16), PARTIES)

    async def _again(self) -> None:
        """Send an earlier frame to the party again, as it was or with a changed byte."""
        rng, frames = self._rng, self._wire.frames
        chosen = [each for each in frames[-400:] if each.receiver == self._victim]
        if not chosen:
            return
        each = chosen[rng.integers(len(chosen))]
        frame = bytearray(each.frame)
        if rng.random() < 0.7:
            frame[rng.integers(len(frame))] = rng.integers(256)
        with suppress(FrameError):
            open_frame(bytes(frame))  # others are refused before they reach a session
            await self._members.world.nodes[each.sender].endpoint.send(self._victim, bytes(frame))


async def attacked(
    way: str, seed: int, requests: int, *, lenient: bool
) -> tuple[Mapping[str, Any], float, list[Answered], list[Answered]]:
    """Return the limits of one party among lenient ones, the price, its batches and labels.

    Args:
        lenient: Whether that party does not apply its policy.
    """
    rng = np.random.default_rng(seed)
    system, price = SYSTEMS[way]
    victim, wire = str(rng.choice(list(PARTIES))), Wire()
    parts = {n: vr.Rows(rng.random((10, 2)), rng.integers(0, 3, 10)) for n in PARTIES}
    membership = system.membership(FACTS)
    assert membership is not None
    members = Members(membership, FACTS, parts, price, CLIENTS, (Budgets(),) * len(PARTIES))
    limits = draw_limits(rng, price)
    if not lenient:
        terms = Request("", system.name, k=3, parties=3, rows=30, epsilon=price or None)
        server: Any = _Server(victim, wire)
        file, log = members.ledgers[victim].file, logging.getLogger("tests")
        policy = Policy.model_validate(limits)
        members.admissions[victim] = open_admission(server, policy, terms, log, file=file)
    async with members.served():
        for name, node in members.world.nodes.items():
            wire.watch(name, node.endpoint)
        attack = Attack(members, wire, victim, seed)
        await attack.requests_until(requests)
    batches, labels = answers_of(victim, wire.frames)
    return limits, price, batches, labels


class _Server:
    """The part of a server that an admission needs."""

    names = (*PARTIES, *CLIENTS)

    def __init__(self, name: str, wire: Wire) -> None:
        self.name, self._wire = name, wire
        self.roster = self  # of which only the names are needed

    def clock(self) -> dt.datetime:
        """Return the time."""
        return self._wire.now


@pytest.mark.slow
@pytest.mark.parametrize("way", SYSTEMS)
def test_no_hostile_request_gets_an_answer_outside_a_policy(way: str) -> None:
    """One party keeps its policy among parties that admit everything; the judge has power.

    The same requests to the same party without its policy get answers that it does not allow.
    """
    batches = []
    for seed in range(SEEDS):
        judged = simulate(attacked(way, seed, REQUESTS, lenient=False))
        assert violations(*judged) == []
        batches += judged[2]
    assert len(batches) > 10 * SEEDS
    assert violations(*simulate(attacked(way, 0, REQUESTS, lenient=True)))
