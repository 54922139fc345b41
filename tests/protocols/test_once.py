"""Members that compute one result for all queries: a single charge, with kills at any point."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.outcomes import CONTENT, PARTIES, TERMS, Members, Outcome, neighbours

import veilring as vr
from veilring.errors import EndpointClosed, SessionAborted, StoreFailed
from veilring.nodes.party import Parties
from veilring.privacy.budgets import Budgets, Charge, ChargeOutcome
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols import chunks, peers
from veilring.protocols.once import OnceMember
from veilring.protocols.peers import Till
from veilring.protocols.release.algorithm.steps import Released
from veilring.randomness import Streams
from veilring.transport.endpoint import MemoryEndpoint

EPSILON = 2.0
CLIENTS = ("ann", "dan", "eve")
SCHEMA = vr.Features.of_numbers(2, 2)
FACTS = vr.Facts(len(PARTIES), len(SCHEMA), len(SCHEMA.classes), 60, schema=SCHEMA)
SYSTEM = vr.Release(epsilon=EPSILON, statistic="means")
LOSING = SYSTEM.model_copy(update={"tolerated": 0, "lost": 1})
"""It goes on without a party that is lost while it releases."""
ROWS = vr.Rows(np.tile([[0.2, 0.3], [0.9, 0.6]], (10, 1)), np.arange(20) % 2)
EVERYWHERE = dict.fromkeys(PARTIES, ROWS)


@cache
def membership_of(system: vr.Release) -> vr.Membership:
    """Return the membership of parties in a release."""
    return system.membership(FACTS)


class Deployed(Members):
    """Three members that release once; the client `eve` has no budget."""

    def __init__(
        self,
        system: vr.Release = SYSTEM,
        budget: float = 3 * EPSILON,
        parts: Mapping[str, vr.Rows] = EVERYWHERE,
    ) -> None:
        budgets = [Budgets(total=budget, analysts={"eve": 0.0})] * len(PARTIES)
        given: dict[str, Any] = {"price": EPSILON, "clients": CLIENTS, "budgets": budgets}
        super().__init__(membership_of(system), FACTS, parts, **given)

    async def ask(self, member: str, client: str = "ann") -> bytes:
        """Return the totals that a member gives a client."""
        session, pair = Streams().token("session"), Parties((client, member))
        released = await self.world.nodes[client].run(self.role, session, pair)
        assert isinstance(released, Released)
        return b"".join(total.sums.tobytes() for total in released.totals)

    async def ask_all(self) -> list[bytes]:
        """Return the totals that each member gives a client."""
        return [await self.ask(name) for name in PARTIES]

    def stored(self, name: str) -> bytes | None:
        """Return the release that a member has stored."""
        kept: bytes | None = self.members[name]._find()  # noqa: SLF001  (the stored content)
        return kept

    def keep(self, *names: str, result: bytes | None = None) -> None:
        """Have members store a result, by default one that nobody computed."""
        for name in names:
            forged = bytes(self.members[name].once.size)
            self.members[name].till.keep(name, "result", CONTENT, result or forged)

    def charge(self, *names: str) -> None:
        """Charge members as in a session whose result they did not get."""
        for name in names:
            member = self.members[name]
            with member.till.paying("ann", member._payment) as pay:  # noqa: SLF001  (the recorded request)
                pay(None)

    def stop(self, *names: str) -> None:
        """Disconnect members at once."""
        for name in names:
            self.world.nodes[name].abort()

    def payers(self, name: str) -> set[str]:
        """Return the clients that are charged at a member."""
        return {each.name for each in self.ledgers[name].totals().analysts if each.spent}


async def test_a_release_is_charged_once_and_shared_by_all_members() -> None:
    """Every member answers every request with the same totals, also at once and after a restart."""
    deployed = Deployed()
    async with deployed.served():
        asked = [("cyd", "ann"), ("ada", "dan"), ("ada", "ann")]
        first, *others = await asyncio.gather(*(deployed.ask(*each) for each in asked))
        assert others == [first] * 2
        started = [frame[:2] for frame in deployed.world.passed if frame[2] == "result.start"]
        assert started == [("ada", "bob"), ("ada", "cyd")]  # in a single session
        assert await deployed.ask_all() == [first] * 3
        assert deployed.spent() == [EPSILON] * 3
    async with deployed.served():
        assert await deployed.ask_all() == [first] * 3
        assert deployed.spent() == [EPSILON] * 3


async def test_a_client_of_many_requests_does_not_delay_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While no result can be made, clients take turns to ask for it, one request at a time."""
    order = list[str]()

    async def obtain(_member: OnceMember, payer: str) -> bytes:
        order.append(payer)
        await asyncio.sleep(0)
        return b""

    monkeypatch.setattr(OnceMember, "_obtain", obtain)
    async with Deployed().served() as deployed:
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

    def watched_charge(self: Ledger, charges: Any, *rest: Any) -> list[ChargeOutcome]:
        mine = self is deployed.ledgers[victim]
        if mine:
            reach("before the disk has it")
        outcomes = charge_many(self, charges, *rest)
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
        *((SYSTEM, victim, "ada") for victim in PARTIES),
        (SYSTEM, "ada", "cyd"),
        (LOSING, "ada", "cyd"),
        (LOSING, "cyd", "ada"),
    ],
)
async def test_a_kill_anywhere_causes_no_second_release(
    system: vr.Release, victim: str, asked: str
) -> None:
    """Charges stay, and a total known to any member or client is never computed again."""
    known_after = set[bool]()
    for point in count(1):
        deployed, told = Deployed(system), list[bytes]()
        async with deployed.served():
            with killing(deployed, victim, point) as places, suppress(vr.VeilringError):
                told.append(await deployed.ask(asked))
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        async with deployed.served():
            before = deployed.spent()
            kept = [deployed.stored(name) for name in PARTIES]
            assert not told or any(kept), "a client was told what no disk had"
            answers = [*told, *await deployed.ask_all()]
            assert len(set(answers)) == 1
            again = 0.0 if any(kept) else EPSILON
            assert deployed.spent() == [spent + again for spent in before]
            assert max(before) <= EPSILON
            known_after.add(any(kept))
        if len(places) < point:  # it has sent and charged all
            break
    always = system is LOSING and victim != "ada"  # the others go on without it
    assert known_after == ({True} if always else {False, True})


@pytest.mark.parametrize("system", [SYSTEM, LOSING])
async def test_no_member_begins_if_one_cannot_pay(system: vr.Release) -> None:
    """A member with an exhausted ledger is named, and none is charged; likewise a client."""
    async with Deployed(system, budget=EPSILON).served() as deployed:
        deployed.ledgers["cyd"].charge(Charge("bob", "before", b"", b"", EPSILON))
        for asked in PARTIES:
            with pytest.raises(vr.BudgetExhausted, match="member") as refused:
                await deployed.ask(asked)
            assert refused.value.__notes__ == [
                "cyd has less left than the 2 epsilon that the release costs."
            ]
        assert deployed.spent() == [0.0, 0.0, EPSILON]


@pytest.mark.parametrize("asked", PARTIES)
async def test_a_client_is_charged_at_the_asked_member(asked: str) -> None:
    """A client without a budget there is refused, but gets what others have paid for."""
    async with Deployed().served() as deployed:
        with pytest.raises(vr.BudgetExhausted, match="client") as refused:
            await deployed.ask(asked, "eve")
        assert refused.value.__notes__ == [
            f"eve has less left at {asked} than the 2 epsilon that the release costs."
        ]
        assert deployed.spent() == [0.0] * 3
        first = await deployed.ask(asked)
        assert await deployed.ask(asked, "eve") == first
        assert deployed.spent() == [EPSILON] * 3
        assert deployed.payers(asked) == {"ann"}


async def test_a_client_that_cannot_pay_delays_nobody() -> None:
    """While it asks one member, others get the release, and no payer lacks a budget."""
    refused = asyncio.Event()

    async def insist(deployed: Deployed) -> None:
        while True:
            with suppress(vr.BudgetExhausted):
                await deployed.ask("bob", "eve")
                return
            refused.set()

    async with Deployed().served() as deployed:
        poor = [asyncio.create_task(insist(deployed)) for _ in range(4)]
        await refused.wait()
        assert deployed.spent() == [0.0] * 3
        await deployed.ask("ada")
        await asyncio.gather(*poor)  # each is answered now
        assert deployed.spent() == [EPSILON] * 3
        assert deployed.payers("bob") == {"ada"}


async def test_a_waiting_client_that_can_pay_pays_in_place_of_the_first_party() -> None:
    """A client without a budget that began to wait before it does not."""
    async with Deployed().served() as deployed:
        waiting = deployed.members["bob"]._waiting  # noqa: SLF001  (as if both asked just before)
        waiting += ["eve", "dan"]
        await deployed.ask("ada")
        assert deployed.payers("bob") == {"dan"}


async def released() -> tuple[bytes, bytes]:
    """Return the totals of a release, and what its members store."""
    async with Deployed().served() as deployed:
        whole, kept = await deployed.ask("bob"), deployed.stored("bob")
        assert kept is not None
        return whole, kept


@pytest.mark.parametrize(
    ("held", "asked"),
    [({"bob": 0}, "ada"), ({"bob": 0}, "cyd"), ({"bob": 1, "cyd": 2}, "ada")],
    ids=["ada", "cyd", "different ones"],
)
async def test_a_member_alone_cannot_present_a_release(held: dict[str, int], asked: str) -> None:
    """A result that was not charged and that no other party has is neither stored nor sent.

    Between two different ones, a member without the release does not choose.
    """
    async with Deployed().served() as deployed:
        for name, byte in held.items():
            deployed.keep(name, result=bytes([byte]) * deployed.members[name].once.size)
        with pytest.raises(SessionAborted, match=rf"{asked} aborted the session \(Tampered\)"):
            await deployed.ask(asked)
        assert {name for name in PARTIES if deployed.stored(name) is not None} == {*held}
        assert deployed.spent() == [0.0] * 3


@pytest.mark.parametrize(
    ("holders", "charged", "down", "asked"),
    [
        (["bob"], ["ada"], [], "ada"),
        (["bob", "cyd"], [], [], "ada"),
        (["bob"], ["cyd"], ["ada"], "cyd"),
    ],
    ids=["paid", "confirmed", "without the first party"],
)
async def test_a_release_that_was_paid_for_or_confirmed_is_fetched(
    holders: list[str], charged: list[str], down: list[str], asked: str
) -> None:
    """Its own charge or more than the tolerated number of holders convince a member."""
    whole, kept = await released()
    async with Deployed().served() as deployed:
        deployed.keep(*holders, result=kept)
        deployed.charge(*charged)
        deployed.stop(*down)
        before = deployed.spent()
        assert await deployed.ask(asked) == whole
        assert deployed.spent() == before


@pytest.mark.parametrize(("down", "asked"), [("ada", "cyd"), ("ada", "bob"), ("cyd", "bob")])
async def test_a_release_is_made_without_a_party_that_is_down(down: str, asked: str) -> None:
    """If losses are tolerated, even the first party may be down; it fetches the release later."""
    deployed, paid = Deployed(LOSING), [0.0 if name == down else EPSILON for name in PARTIES]
    async with deployed.served():
        deployed.stop(down)
        whole = await deployed.ask(asked)
        assert deployed.spent() == paid
    async with deployed.served():
        assert await deployed.ask_all() == [whole] * 3
        assert deployed.spent() == paid


@pytest.mark.parametrize(
    ("system", "payers", "down", "asked"),
    [
        (SYSTEM, [], ["ada"], "cyd"),
        (LOSING, [], ["ada", "bob"], "cyd"),
        (LOSING, ["bob"], ["ada"], "bob"),
        (LOSING, ["cyd"], ["ada"], "bob"),
    ],
)
async def test_a_release_waits_for_the_parties_that_it_needs(
    system: vr.Release, payers: list[str], down: list[str], asked: str
) -> None:
    """If more are down than are tolerated, the error names the first, and nobody pays.

    So it does after a charge: a party that is down may have that release; no second one is made.
    """
    deployed = Deployed(system)
    async with deployed.served():
        deployed.charge(*payers)
        before = deployed.spent()
        deployed.stop(*down)
        with pytest.raises(SessionAborted, match="it is waiting for ada"):
            await deployed.ask(asked)
        assert deployed.spent() == before
    async with deployed.served():
        await deployed.ask(asked)
        assert deployed.spent() == [spent + EPSILON for spent in before]


async def test_nobody_is_suspected_while_a_member_is_missing() -> None:
    """A member that does not believe another one waits for the rest, who could confirm it."""
    async with Deployed().served() as deployed:
        deployed.keep("bob")
        deployed.stop("cyd")
        with pytest.raises(SessionAborted, match="it is waiting for cyd"):
            await deployed.ask("ada")


@pytest.mark.slow
async def test_two_parties_that_lead_at_once_make_one_release() -> None:
    """Both lead if their connection is broken: the party that both need takes part once."""
    async with Deployed(LOSING).served() as deployed:
        for one, other in (("ada", "bob"), ("bob", "ada")):
            endpoint = deployed.world.nodes[one].endpoint
            assert isinstance(endpoint, MemoryEndpoint)
            endpoint.gone[other] = vr.PeerLost(other)
        assert [deployed.members[name].convener for name in PARTIES] == ["ada", "bob", "ada"]
        asked = (deployed.ask("ada"), deployed.ask("bob", "dan"))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert len({each for each in found if isinstance(each, bytes)}) == 1
        assert max(deployed.spent()) == EPSILON


@pytest.mark.parametrize("asked", PARTIES)
async def test_nobody_pays_if_a_member_has_no_space_for_its_charge(asked: str) -> None:
    """It finds out before it agrees to take part, and ends; no other member is charged."""
    async with Deployed().served() as deployed:
        disk = deployed.ledgers["cyd"]._store.connection  # noqa: SLF001  (to fill it)
        disk.execute("PRAGMA max_page_count = 1")  # which means its current size
        for _ in range(2):
            with pytest.raises(SessionAborted, match="StoreFailed"):
                await deployed.ask(asked)
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
        await deployed.ask("bob")
        find = Till.find
        monkeypatch.setattr(Till, "find", lambda *given: change(find(*given) or b""))
        with pytest.raises(vr.VeilringError, match="bob"):
            await deployed.ask("bob")


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
    """It is sent in chunks."""
    whole, _ = await released()
    monkeypatch.setattr(chunks, "CONTENT_BYTES_MAX", 17)
    async with Deployed().served() as deployed:
        assert len(await deployed.ask("cyd")) == len(whole)
        sent = [frame for frame in deployed.world.passed if frame[2] == "result.bytes"]
        assert len(sent) > 2 * len(whole) / 17
        assert deployed.spent() == [EPSILON] * 3


async def test_a_ledger_with_a_release_of_another_plan_is_refused() -> None:
    """A member with an unreadable release does not start, and does not compute a new one."""
    async with Deployed().served() as deployed:
        await deployed.ask("ada")
        member = deployed.members["ada"]
        other = membership_of(SYSTEM.model_copy(update={"epsilon": 1.0})).once
        assert other is not None
        with pytest.raises(vr.InputError, match="does not fit the plan"):
            OnceMember(member.member, other, member.till, CONTENT)


@settings(max_examples=15)
@given(
    tables=neighbours(len(SCHEMA), len(SCHEMA.classes)),
    place=st.sampled_from(PARTIES),
    asked=st.lists(
        st.tuples(st.sampled_from(CLIENTS), st.sampled_from(PARTIES)), min_size=1, max_size=3
    ),
)
def test_no_outcome_depends_on_a_row(
    tables: tuple[vr.Rows, vr.Rows], place: str, asked: list[tuple[str, str]]
) -> None:
    """If a party lacks a row, ending, messages, sizes and charges at all parties stay the same."""

    async def play(rows: vr.Rows) -> list[Outcome]:
        made = Deployed(budget=EPSILON, parts=EVERYWHERE | {place: rows})
        async with made.served():
            return [await made.world.ask(made.role, *each, charged=made.spent) for each in asked]

    one, other = (asyncio.run(play(rows)) for rows in tables)
    assert one == other
