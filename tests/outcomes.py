"""The outcome of requests as seen by all parties but the server, on neighbouring tables.

A property test of a server that holds rows plays the real server twice, on neighbouring tables:

    @given(tables=neighbours(2, 3), requests=...)
    def test_no_outcome_depends_on_a_row(tables, requests):
        one, other = (asyncio.run(play(rows, requests)) for rows in tables)
        assert one == other

where `play` serves the rows in a `world`, sends each request by `World.ask`, and returns the
outcomes. An outcome contains everything but the values that a mechanism draws (labels, noise).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
from hypothesis import strategies as st
from typing_extensions import override

import veilring as vr
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer, Service
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.admission import Admission, admit_all
from veilring.protocols.once import OnceMember, result_client
from veilring.protocols.peers import PeerMember, Till, peer_client
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryEndpoint, MemoryNetwork
from veilring.transport.messages import open_frame

Frame = tuple[str, str, str, int]
"""The sender, receiver, kind and size in bytes of a frame."""
# Few places, so that rows often share one and lie on the edge of a ball.
_PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request, as visible to all parties but the server.

    Attributes:
        ending: `answered`, or the class of the error that the client received.
        text: The text of that error, with its notes; empty if the request was answered.
        wire: The frames, in order for each channel.
        charged: The charges afterwards, as far as parties other than the server may know them.
    """

    ending: str
    text: str
    wire: tuple[Frame, ...]
    charged: object


@dataclass
class World:
    """Servers and clients in memory, with all frames so far. Get it from `world`."""

    nodes: dict[str, Node]
    streams: Streams
    passed: list[Frame]

    async def ask(
        self,
        role: Callable[..., Awaitable[object]],
        client: str,
        server: str,
        *given: object,
        charged: Callable[[], object],
        **public: Any,
    ) -> Outcome:
        """Play a client's role, as `opening` makes it, in a session that it opens with one server.

        The function `charged` returns the charges so far, none of which is secret.
        """
        before, ending, text = len(self.passed), "answered", ""
        session, pair = self.streams.token("session", before), Parties((client, server))
        try:
            await self.nodes[client].run(role, session, pair, *given, **public)
        except Exception as error:  # noqa: BLE001  (any end of a session is compared)
            ending = type(error).__name__
            text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        # No party sees the order of channels; the messages of each channel are in order.
        wire = sorted(self.passed[before:], key=lambda frame: frame[:2])
        return Outcome(ending, text, tuple(wire), charged())


class Repeating(Streams):
    """Streams that repeat the same session names, and therefore the same rings.

    They replace the streams of a server that opens sessions itself.
    """

    def __init__(self) -> None:
        super().__init__(1)  # names of the clients' sessions come from another
        self._names = count()

    @override
    def token(self, *name: str | int, size: int = 16) -> bytes:
        return super().token(*name, next(self._names), size=size)


@asynccontextmanager
async def world(
    servers: Mapping[str, Callable[[Node], Mapping[str, Offer]]], *clients: str, seed: int = 0
) -> AsyncIterator[World]:
    """Serve in memory until the context is left; each server's services are given its node."""
    names = [*servers, *clients]
    network, streams, passed = MemoryNetwork(names), Streams(seed), list[Frame]()
    nodes = {name: Node(_noting(network.endpoint(name), passed), streams) for name in names}
    async with AsyncExitStack() as stack:
        for node in nodes.values():
            await stack.enter_async_context(node)
        for name, offers in servers.items():
            await stack.enter_async_context(Service(nodes[name], offers(nodes[name])))
        yield World(nodes, streams, passed)


def _noting(endpoint: MemoryEndpoint, passed: list[Frame]) -> MemoryEndpoint:
    """Record each frame that an endpoint sends."""

    def send_now(to: str, frame: bytes) -> bool:
        if sent := MemoryEndpoint.send_now(endpoint, to, frame):
            passed.append((endpoint.name, to, open_frame(frame).kind, len(frame)))
        return sent

    endpoint.send_now = send_now  # type: ignore[method-assign]  # this one only
    return endpoint


@st.composite
def neighbours(
    draw: st.DrawFn, features: int, classes: int, *, crowd: int = 0
) -> tuple[vr.Rows, vr.Rows]:
    """Draw a table and a neighbour that has one more row at any position, in either order.

    Both tables have a crowd of further rows, given by number, at the place of the extra row.
    """
    cells = st.lists(
        st.sampled_from(_PLACES) | st.floats(0, 1), min_size=features, max_size=features
    )
    kinds = st.tuples(cells, st.integers(0, classes - 1))
    table, more = draw(st.lists(kinds, max_size=6)), draw(kinds)
    table += [more] * crowd
    place = draw(st.integers(0, len(table)))
    pair = [_rows(table, features), _rows([*table[:place], more, *table[place:]], features)]
    if draw(st.booleans()):
        pair.reverse()
    return pair[0], pair[1]


def _rows(kinds: list[tuple[list[float], int]], features: int) -> vr.Rows:
    places = np.array([place for place, _ in kinds], np.float64).reshape(-1, features)
    return vr.Rows(places, np.array([label for _, label in kinds], np.int64))


PARTIES = Parties(["ada", "bob", "cyd"])
TERMS, CONTENT = bytes(32), b"the same terms"


@dataclass
class Members:
    """Three members of a system in which all parties hold rows, with ledgers that outlive them.

    They charge the price, an ε, for each batch or for the only result, which they store. A member
    that is not among the admissions admits every request.
    """

    membership: vr.Membership
    facts: vr.Facts
    parts: Mapping[str, vr.Rows]
    price: float = 0.0
    clients: Sequence[str] = ("ann", "eve")
    budgets: Sequence[Budgets] = (Budgets(),) * len(PARTIES)
    admissions: dict[str, Admission] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(init=False)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        budgets = zip(PARTIES, self.budgets, strict=True)
        self.ledgers = {name: open_ledger(None, each) for name, each in budgets}

    @property
    def role(self) -> Callable[..., Awaitable[Any]]:
        """The role of a client."""
        if self.membership.once is None:
            return peer_client(TERMS, self.facts.classes, self.price)
        return result_client(TERMS, self.membership.once, self.price)

    def offers(self, node: Node) -> dict[str, Offer]:
        """Return the services of a member."""
        name, once = node.name, self.membership.once
        till = Till(self.ledgers[name], self.price, TERMS) if self.price else None
        public = (PARTIES, self.membership, self.facts, TERMS)
        admission = self.admissions.get(name, admit_all)
        member = PeerMember(node, self.parts[name], *public, till=till, admission=admission)
        if once is None or till is None:
            self.members[name] = member
            return member.offers()
        self.members[name] = keeper = OnceMember(member, once, till, CONTENT)
        return keeper.offers()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Self]:
        """Serve all members, as after a restart, until the context is left."""
        async with world(dict.fromkeys(PARTIES, self.offers), *self.clients) as self.world:
            yield self

    def spent(self) -> list[float]:
        """Return the charges of each member."""
        return [ledger.totals().spent for ledger in self.ledgers.values()]
