"""Members that compute one result for all queries: a single charge, with kills at any point."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outcomes import Outcome, World, neighbours, world

from veilring.data.table import Features, Rows
from veilring.errors import (
    BudgetExhausted,
    EndpointClosed,
    InputError,
    PeerLost,
    SessionAborted,
    StoreFailed,
    VeilringError,
)
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import Offer
from veilring.privacy.budgets import Budgets, Charge, ChargeOutcome
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols import peers
from veilring.protocols.membership import Membership, Once
from veilring.protocols.once import OnceMember, result_client
from veilring.protocols.peers import PeerMember, Till
from veilring.protocols.promise import Facts
from veilring.protocols.release.algorithm.steps import Released
from veilring.protocols.release.system import Release
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryEndpoint

TERMS, CONTENT = bytes(32), b"the same terms"
EPSILON = 2.0
PARTIES = Parties(["ada", "bob", "cyd"])
CLIENTS = ("ann", "dan", "eve")
SCHEMA = Features.of_numbers(2, 2)
FACTS = Facts(len(PARTIES), len(SCHEMA), len(SCHEMA.classes), 60, schema=SCHEMA)
SYSTEM = Release(epsilon=EPSILON, statistic="means")
LOSING = SYSTEM.model_copy(update={"tolerated": 0, "lost": 1})
"""It goes on without a party that is lost while it releases."""
ROWS = Rows(np.tile([[0.2, 0.3], [0.9, 0.6]], (10, 1)), np.arange(20) % 2)
EVERYWHERE = dict.fromkeys(PARTIES, ROWS)
POINTS = range(1, 40)
"""More than a victim sends messages and uses its ledger."""


@cache
def membership_of(system: Release = SYSTEM) -> tuple[Membership, Once]:
    """Return the membership of parties, with the storage of a release."""
    membership = system.membership(FACTS)
    assert membership.once is not None
    return membership, membership.once


class Deployed:
    """Three members with in-memory ledgers that outlive them."""

    def __init__(
        self,
        budget: float = 3 * EPSILON,
        parts: Mapping[str, Rows] = EVERYWHERE,
        system: Release = SYSTEM,
    ) -> None:
        self._parts, self._system = parts, system
        budgets = Budgets(total=budget, analysts={"eve": 0.0})
        self.ledgers = {name: open_ledger(None, budgets) for name in PARTIES}
        self.members: dict[str, OnceMember] = {}
        self.world: World

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Self]:
        """Serve all members, as after a restart, until the context is left."""
        async with world(dict.fromkeys(PARTIES, self._offers), *CLIENTS) as self.world:
            yield self

    def _offers(self, node: Node) -> dict[str, Offer]:
        membership, once = membership_of(self._system)
        till = Till(self.ledgers[node.name], EPSILON, TERMS)
        member = PeerMember(
            node, self._parts[node.name], PARTIES, membership, FACTS, TERMS, till=till
        )
        self.members[node.name] = OnceMember(member, once, till, CONTENT)
        return self.members[node.name].offers()

    def stored(self, name: str) -> bytes | None:
        """Return the release that a member has stored."""
        return self.members[name]._find()  # noqa: SLF001  (the stored content)

    def payers(self, name: str) -> set[str]:
        """Return the clients that are charged at a member."""
        return {each.name for each in self.ledgers[name].totals().analysts if each.spent}

    def spent(self) -> list[float]:
        """Return the charges of each member."""
        return [self.ledgers[name].totals().spent for name in PARTIES]


async def ask(
    deployed: Deployed, member: str, client: str = "ann", system: Release = SYSTEM
) -> bytes:
    """Return the totals that a member gives a client."""
    role = result_client(TERMS, membership_of(system)[1], EPSILON)
    session, pair = Streams().token("session"), Parties((client, member))
    released = await deployed.world.nodes[client].run(role, session, pair)
    assert isinstance(released, Released)
    return b"".join(total.sums.tobytes() for total in released.totals)


async def test_a_release_is_charged_once_and_shared_by_all_members() -> None:
    """A release is charged once, and every member answers every request with the same totals."""
    async with Deployed().served() as deployed:
        first = await ask(deployed, "bob")
        assert deployed.spent() == [EPSILON] * 3
        assert [await ask(deployed, name) for name in PARTIES] == [first] * 3
    async with deployed.served():
        assert [await ask(deployed, name) for name in PARTIES] == [first] * 3
        assert deployed.spent() == [EPSILON] * 3


async def test_clients_of_all_members_at_once_get_one_release() -> None:
    """Concurrent requests, even at the same member, begin no second session."""
    async with Deployed().served() as deployed:
        asked = [("cyd", "ann"), ("ada", "dan"), ("ada", "ann")]
        answers = await asyncio.gather(*(ask(deployed, name, client) for name, client in asked))
        assert len(set(answers)) == 1
        assert deployed.spent() == [EPSILON] * 3
        started = [frame[:2] for frame in deployed.world.passed if frame[2] == "result.start"]
        assert started == [("ada", "bob"), ("ada", "cyd")]


async def test_a_client_of_many_requests_does_not_delay_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While no result can be made, clients take turns to ask for it, one request at a time."""
    deployed, order = Deployed(), list[str]()

    async def obtain(_member: OnceMember, payer: str) -> bytes:
        order.append(payer)
        await asyncio.sleep(0)
        return b""

    monkeypatch.setattr(OnceMember, "_obtain", obtain)
    async with deployed.served():
        ada = deployed.members["ada"]
        await asyncio.gather(*(ada.ask(client) for client in ("eve", "eve", "eve", "eve", "ann")))
    assert order == ["eve", "eve", "ann", "eve", "eve"]


async def test_a_session_waits_for_the_previous_one() -> None:
    """A restarted first party that forgot its session gets that session's result."""
    async with Deployed().served() as deployed:
        first = deployed.members["ada"]
        sessions = (first._obtain("ann") for _ in range(2))  # noqa: SLF001  (at once, as after a restart)
        one, other = await asyncio.gather(*sessions)
        assert one == other
        assert deployed.spent() == [EPSILON] * 3


class Killed(EndpointClosed):
    """Raised in a member's code when its process is killed."""


@contextmanager
def killing(deployed: Deployed, victim: str, point: int) -> Iterator[list[str]]:
    """Kill a member at a given message or ledger operation, before or after it."""
    places, dead = list[str](), list[bool]()
    send, charge_many = MemoryEndpoint.send, Ledger.charge_many

    def reach(place: str) -> None:
        places.append(place)
        if len(places) == point:
            dead.append(True)
            deployed.members[victim].node.abort()
        if dead:
            raise Killed(place)

    async def watched_send(self: MemoryEndpoint, to: str, frame: bytes) -> None:
        if self.name == victim:
            reach("send")
        await send(self, to, frame)

    def watched_charge(self: Ledger, charges: Any) -> list[ChargeOutcome]:
        mine = self is deployed.ledgers[victim]
        if mine:
            reach("before the disk has it")
        outcomes = charge_many(self, charges)
        if mine:
            reach("when the disk has it")
        return outcomes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryEndpoint, "send", watched_send)
        patch.setattr(Ledger, "charge_many", watched_charge)
        yield places
    del places[point:]


@pytest.mark.parametrize(
    ("system", "victim", "asked"),
    [
        *((SYSTEM, victim, asked) for victim in PARTIES for asked in ("ada", "cyd")),
        (LOSING, "ada", "cyd"),
        (LOSING, "cyd", "ada"),
    ],
)
async def test_a_kill_anywhere_causes_no_second_release(
    system: Release, victim: str, asked: str
) -> None:
    """Charges stay, and a total known to any member or client is never computed again."""
    known_after = set[bool]()
    for point in POINTS:
        deployed, told = Deployed(system=system), list[bytes]()
        async with deployed.served():
            with killing(deployed, victim, point) as places, suppress(VeilringError):
                told.append(await ask(deployed, asked, system=system))
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        async with deployed.served():
            before = deployed.spent()
            kept = [deployed.stored(name) for name in PARTIES]
            assert not told or any(kept), "a client was told what no disk had"
            answers = [*told, *[await ask(deployed, name, system=system) for name in PARTIES]]
            assert len(set(answers)) == 1
            again = 0.0 if any(kept) else EPSILON
            assert deployed.spent() == [spent + again for spent in before]
            assert max(before) <= EPSILON
            known_after.add(any(kept))
        if len(places) < point:
            break
    else:
        pytest.fail("there are more points at which to kill it")
    always = system is LOSING and victim != "ada"  # the others go on without it
    assert known_after == ({True} if always else {False, True})


@pytest.mark.parametrize("system", [SYSTEM, LOSING])
async def test_no_member_begins_if_one_cannot_pay(system: Release) -> None:
    """A member with an exhausted ledger is named, and none is charged; likewise a client."""
    async with Deployed(budget=EPSILON, system=system).served() as deployed:
        deployed.ledgers["cyd"].charge(Charge("bob", "before", b"", b"", EPSILON))
        for asked in PARTIES:
            with pytest.raises(BudgetExhausted, match="member") as refused:
                await ask(deployed, asked, system=system)
            assert refused.value.__notes__ == [
                "cyd has less left than the 2 epsilon that the release costs."
            ]
        assert deployed.spent() == [0.0, 0.0, EPSILON]


@pytest.mark.parametrize("asked", PARTIES)
async def test_a_client_is_charged_at_the_asked_member(asked: str) -> None:
    """A client without a budget there is refused, but gets what others have paid for."""
    async with Deployed().served() as deployed:
        with pytest.raises(BudgetExhausted, match="client") as refused:
            await ask(deployed, asked, "eve")
        assert refused.value.__notes__ == [
            f"eve has less left at {asked} than the 2 epsilon that the release costs."
        ]
        assert deployed.spent() == [0.0] * 3
        first = await ask(deployed, asked)
        assert await ask(deployed, asked, "eve") == first
        assert deployed.spent() == [EPSILON] * 3
        assert deployed.payers(asked) == {"ann"}


async def test_a_client_that_cannot_pay_delays_nobody() -> None:
    """While it asks one member, others get the release, and no payer lacks a budget."""
    deployed, refused = Deployed(), asyncio.Event()

    async def insist(deployed: Deployed) -> None:
        while True:
            with suppress(BudgetExhausted):
                await ask(deployed, "bob", "eve")
                return
            refused.set()

    async with deployed.served():
        poor = [asyncio.create_task(insist(deployed)) for _ in range(4)]
        await refused.wait()
        assert deployed.spent() == [0.0] * 3
        await ask(deployed, "ada", "ann")
        await asyncio.gather(*poor)  # each is answered now
        assert deployed.spent() == [EPSILON] * 3
        assert deployed.payers("bob") == {"ada"}


async def test_a_waiting_client_that_can_pay_pays_in_place_of_the_first_party() -> None:
    """A client without a budget that began to wait before it does not."""
    async with Deployed().served() as deployed:
        waiting = deployed.members["bob"]._waiting  # noqa: SLF001  (as if both asked just before)
        waiting += ["eve", "dan"]
        await ask(deployed, "ada", "ann")
        assert deployed.payers("bob") == {"dan"}


async def released() -> tuple[bytes, bytes]:
    """Return the totals of a release, and what its members store."""
    async with Deployed().served() as deployed:
        whole, kept = await ask(deployed, "bob"), deployed.stored("bob")
        assert kept is not None
        return whole, kept


def forge(deployed: Deployed, *names: str) -> bytes:
    """Have members store one result that nobody computed; return it."""
    forged = bytes(deployed.members["ada"].once.size)
    for name in names:
        deployed.members[name].till.keep(name, "result", CONTENT, forged)
    return forged


def charge(deployed: Deployed, *names: str) -> None:
    """Charge members as in a session whose result they did not get."""
    for name in names:
        member = deployed.members[name]
        with member.till.paying("ann", member._payment) as pay:  # noqa: SLF001  (the recorded request)
            pay(None)


@pytest.mark.parametrize("asked", ["ada", "cyd"])
async def test_a_member_alone_cannot_present_a_release(asked: str) -> None:
    """A result that was not charged and that no other party has is neither stored nor sent."""
    async with Deployed().served() as deployed:
        forge(deployed, "bob")
        with pytest.raises(SessionAborted, match=rf"{asked} aborted the session \(Tampered\)"):
            await ask(deployed, asked)
        assert [deployed.stored(name) for name in ("ada", "cyd")] == [None] * 2
        assert deployed.spent() == [0.0] * 3


@pytest.mark.parametrize(
    ("holders", "charged"), [(("bob",), ("ada",)), (("bob", "cyd"), ())], ids=["paid", "confirmed"]
)
async def test_a_release_that_was_paid_for_or_confirmed_is_fetched(
    holders: tuple[str, ...], charged: tuple[str, ...]
) -> None:
    """Its own charge or more than the tolerated number of holders convince a member."""
    whole, kept = await released()
    async with Deployed().served() as deployed:
        for name in holders:
            deployed.members[name].till.keep(name, "result", CONTENT, kept)
        charge(deployed, *charged)
        before = deployed.spent()
        assert await ask(deployed, "ada") == whole
        assert deployed.spent() == before


async def test_nobody_is_suspected_while_a_member_is_missing() -> None:
    """A member that does not believe another one waits for the rest, who could confirm it."""
    async with Deployed().served() as deployed:
        forge(deployed, "bob")
        deployed.world.nodes["cyd"].abort()
        with pytest.raises(SessionAborted, match="it is waiting for cyd"):
            await ask(deployed, "ada")


async def test_a_release_is_fetched_while_the_first_party_is_down() -> None:
    """A member that paid for a release and did not get it fetches it from any other member."""
    whole, kept = await released()
    async with Deployed().served() as deployed:
        deployed.members["bob"].till.keep("bob", "result", CONTENT, kept)
        charge(deployed, "cyd")
        deployed.world.nodes["ada"].abort()
        assert await ask(deployed, "cyd") == whole


@pytest.mark.parametrize(("down", "asked"), [("ada", "cyd"), ("ada", "bob"), ("cyd", "bob")])
async def test_a_release_is_made_without_a_party_that_is_down(down: str, asked: str) -> None:
    """If losses are tolerated, even the first party may be down; it fetches the release later."""
    async with Deployed(system=LOSING).served() as deployed:
        deployed.world.nodes[down].abort()
        whole = await ask(deployed, asked, system=LOSING)
        assert deployed.spent() == [0.0 if name == down else EPSILON for name in PARTIES]
    async with deployed.served():
        assert [await ask(deployed, name, system=LOSING) for name in PARTIES] == [whole] * 3
        assert deployed.spent() == [0.0 if name == down else EPSILON for name in PARTIES]


@pytest.mark.parametrize(("system", "down"), [(SYSTEM, ["ada"]), (LOSING, ["ada", "bob"])])
async def test_a_release_waits_for_the_parties_that_it_needs(
    system: Release, down: list[str]
) -> None:
    """If more are down than are tolerated, the error names the first, and nobody pays."""
    async with Deployed(system=system).served() as deployed:
        for name in down:
            deployed.world.nodes[name].abort()
        with pytest.raises(SessionAborted, match="it is waiting for ada"):
            await ask(deployed, "cyd", system=system)
        assert deployed.spent() == [0.0] * 3


@pytest.mark.parametrize("payer", ["bob", "cyd"])
async def test_a_release_that_was_paid_for_waits_for_all_parties(payer: str) -> None:
    """A party that is down may have it, so the others make no second one."""
    async with Deployed(system=LOSING).served() as deployed:
        charge(deployed, payer)
        before = deployed.spent()
        deployed.world.nodes["ada"].abort()
        with pytest.raises(SessionAborted, match="waiting for ada"):
            await ask(deployed, "bob", system=LOSING)
        assert deployed.spent() == before
    async with deployed.served():
        await ask(deployed, "bob", system=LOSING)
        assert deployed.spent() == [spent + EPSILON for spent in before]


@pytest.mark.slow
async def test_two_parties_that_lead_at_once_make_one_release() -> None:
    """Both lead if their connection is broken: the party that both need takes part once."""
    async with Deployed(system=LOSING).served() as deployed:
        for one, other in (("ada", "bob"), ("bob", "ada")):
            endpoint = deployed.world.nodes[one].endpoint
            assert isinstance(endpoint, MemoryEndpoint)
            endpoint.gone[other] = PeerLost(other)
        assert [deployed.members[name].convener for name in PARTIES] == ["ada", "bob", "ada"]
        asked = (ask(deployed, "ada", "ann", LOSING), ask(deployed, "bob", "dan", LOSING))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert len({each for each in found if isinstance(each, bytes)}) == 1
        assert max(deployed.spent()) == EPSILON


def fill(ledger: Ledger) -> None:
    """Let a ledger's file grow no further, as on a full disk."""
    ledger._store.connection.execute("PRAGMA max_page_count = 1")  # noqa: SLF001  (means its current size)


@pytest.mark.parametrize("asked", PARTIES)
async def test_nobody_pays_if_a_member_has_no_space_for_its_charge(asked: str) -> None:
    """It finds out before it agrees to take part, and ends; no other member is charged."""
    async with Deployed().served() as deployed:
        fill(deployed.ledgers["cyd"])
        for _ in range(2):
            with pytest.raises(SessionAborted, match="StoreFailed"):
                await ask(deployed, asked)
        with pytest.raises(StoreFailed, match="disk is full"):
            await deployed.members["cyd"].failure()
        paid = [deployed.ledgers[name].totals().spent for name in ("ada", "bob")]
        assert paid == [0.0] * 2


@pytest.mark.parametrize("change", [lambda kept: kept[:-8], lambda kept: bytes(32) + kept[32:]])
async def test_a_member_that_sends_another_release_is_named(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    """Bytes of another length, or with other parameters, are not a release."""
    async with Deployed().served() as deployed:
        await ask(deployed, "bob")
        find = Till.find
        monkeypatch.setattr(Till, "find", lambda *given: change(find(*given) or b""))
        with pytest.raises(VeilringError, match="bob"):
            await ask(deployed, "bob")


async def test_members_with_different_releases_are_suspected() -> None:
    """A member without the release does not choose between two, and none is charged."""
    async with Deployed().served() as deployed:
        for name in ("bob", "cyd"):
            till, size = deployed.members[name].till, deployed.members[name].once.size
            till.keep(name, "result", CONTENT, size * name[:1].encode())
        with pytest.raises(SessionAborted, match="Tampered"):
            await ask(deployed, "ada")
        assert deployed.spent() == [0.0] * 3


def test_a_result_may_be_larger_than_a_ledger_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored in pieces, all or none, and the first stored result stays."""
    monkeypatch.setattr(peers, "PIECE_BYTES", 10)
    for size in (0, 1, 10, 11, 30, 35):
        with open_ledger(None, Budgets()) as ledger:
            till, answer = Till(ledger, 1.0, TERMS), bytes(range(size))
            assert till.find("ada", "result", CONTENT) is None
            assert till.keep("ada", "result", CONTENT, answer) == answer
            assert till.keep("ada", "result", CONTENT, bytes(size)) == answer
            assert till.find("ada", "result", CONTENT) == answer


async def test_a_result_may_be_larger_than_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent in pieces on request."""
    whole, _ = await released()
    monkeypatch.setattr(peers, "PIECE_BYTES", 17)
    async with Deployed().served() as deployed:
        assert len(await ask(deployed, "cyd")) == len(whole)
        pieces = [frame for frame in deployed.world.passed if frame[2] == "result.piece"]
        assert len(pieces) > 2 * len(whole) / 17
        assert deployed.spent() == [EPSILON] * 3


async def test_a_ledger_with_a_release_of_another_plan_is_refused() -> None:
    """A member with an unreadable release does not start, and does not compute a new one."""
    async with Deployed().served() as deployed:
        await ask(deployed, "ada")
        member = deployed.members["ada"]
        _, other = membership_of(SYSTEM.model_copy(update={"epsilon": 1.0}))
        with pytest.raises(InputError, match="does not fit the plan"):
            OnceMember(member.member, other, member.till, CONTENT)


async def outcomes_of(parts: tuple[Rows, ...], asked: list[tuple[str, str]]) -> list[Outcome]:
    """Ask real members with these rows for the release, one client after another."""
    deployed = Deployed(budget=EPSILON, parts=dict(zip(PARTIES, parts, strict=True)))
    role = result_client(TERMS, membership_of()[1], EPSILON)
    async with deployed.served():
        return [
            await deployed.world.ask(role, client, member, charged=deployed.spent)
            for client, member in asked
        ]


@settings(max_examples=15)
@given(
    tables=neighbours(len(SCHEMA), len(SCHEMA.classes)),
    place=st.integers(0, len(PARTIES) - 1),
    asked=st.lists(
        st.tuples(st.sampled_from(CLIENTS), st.sampled_from(PARTIES)), min_size=1, max_size=3
    ),
)
def test_no_outcome_depends_on_a_row(
    tables: tuple[Rows, Rows], place: int, asked: list[tuple[str, str]]
) -> None:
    """If a party lacks a row, ending, messages, sizes and charges at all parties stay the same."""

    def play(rows: Rows) -> list[Outcome]:
        parts = tuple(rows if at == place else ROWS for at in range(len(PARTIES)))
        return asyncio.run(outcomes_of(parts, asked))

    one, other = map(play, tables)
    assert one == other
