"""Keys and rosters that change while endpoints are connected and frames are under way."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import pytest
from tests.transport.towns import PATIENCE_SECONDS, Town, lose, refused, until, with_key

from veilring.errors import HandshakeError, InputError
from veilring.transport import links
from veilring.transport.roster import Identity, Roster, make_identity
from veilring.transport.tls import TlsEndpoint

UNTIL = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=30)
LATER = UNTIL + dt.timedelta(days=1)
BOTH = ("alice", "bob")
Endpoints = dict[str, TlsEndpoint]


@pytest.fixture
async def endpoints(pair: Town) -> AsyncIterator[Endpoints]:
    """Return alice and bob, connected."""
    async with pair.start_all() as endpoints:
        yield endpoints


def between(roster: Roster, *keys: Identity) -> tuple[Roster, Roster]:
    """Return the roster that also accepts the keys before, and the one with the new keys alone."""
    after = roster
    for key in keys:
        after = with_key(after, key)
    return after.replacing(roster, UNTIL, dt.datetime.now(dt.UTC).date()), after


class Traffic:
    """Numbered frames between alice and bob, in both directions, until it is ended."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._ended = False
        self.heard = dict.fromkeys(BOTH, 0)

    async def send(self, me: str, peer: str) -> int:
        """Send frames, and return their number."""
        count = 0
        while not self._ended:
            count += 1
            size = 1 + count % 7 * 9_000  # more than TCP takes at once
            await self._endpoints[me].send(peer, count.to_bytes(4, "big") * size)
            await asyncio.sleep(0)
        await self._endpoints[me].send(peer, b"end")
        return count

    async def receive(self, me: str, peer: str) -> int:
        """Receive all frames, and require that none is missing or out of order."""
        while True:
            sender, frame = await self._endpoints[me].receive()
            assert sender == peer
            if frame == b"end":
                return self.heard[me]
            self.heard[me] += 1
            assert frame[:4] == self.heard[me].to_bytes(4, "big")

    async def run(self, steps: asyncio.Future[None]) -> None:
        """Send and receive until the steps have been taken."""
        alice, bob = BOTH
        async with asyncio.timeout(PATIENCE_SECONDS):
            ends = [self.send(alice, bob), self.receive(bob, alice)]
            ends += [self.send(bob, alice), self.receive(alice, bob)]
            tasks = [asyncio.create_task(each) for each in ends]
            await steps
            self._ended = True
            sent, got, sent_back, got_back = await asyncio.gather(*tasks)
        assert (sent, sent_back) == (got, got_back)


@pytest.mark.parametrize("order", [BOTH, BOTH[::-1]], ids=" then ".join)
async def test_both_parties_change_their_keys_under_traffic_without_a_lost_frame(
    pair: Town, endpoints: Endpoints, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets the new roster, its new key, and the roster without previous keys, in any order.

    The last one comes after the last day of the previous keys.
    """
    new = {name: make_identity(name) for name in BOTH}
    rotating, after = between(pair.roster, *new.values())
    identities = dict(pair.identities)
    traffic = Traffic(endpoints)

    async def heard_more() -> None:
        before = dict(traffic.heard)
        await until(lambda: all(traffic.heard[name] > before[name] + 20 for name in BOTH))

    async def rotate() -> None:
        rosters = dict.fromkeys(BOTH, pair.roster)
        for stage in ("roster", "key", "end"):
            if stage == "end":
                monkeypatch.setattr(links.Links, "today", LATER)
            for name in order:
                if stage == "key":
                    identities[name] = new[name]
                else:
                    rosters[name] = rotating if stage == "roster" else after
                endpoints[name].renewal(identities[name], rosters[name])()
                await heard_more()

    await traffic.run(asyncio.ensure_future(rotate()))
    alice, bob = (new[name].fingerprint for name in BOTH)
    await until(lambda: keys_used(endpoints) == {"alice": (alice, bob), "bob": (bob, alice)})
    assert all(endpoint.connected for endpoint in endpoints.values())


def keys_used(endpoints: Endpoints) -> dict[str, tuple[str, str]]:
    """Return the fingerprints of each party's own key and of its peer's in their connection."""
    links = {name: vars(endpoint)["_links"] for name, endpoint in endpoints.items()}
    used = {name: links[name].connection_to(*({*BOTH} - {name})) for name in BOTH}
    return {name: (each.own, each.key) for name, each in used.items()}


async def test_a_key_that_the_peer_does_not_know_yet_interrupts_nothing(
    pair: Town, endpoints: Endpoints
) -> None:
    """The connection before stays, and is replaced once the peer has the new roster."""
    key = make_identity("alice")
    rotating, _ = between(pair.roster, key)
    alice, bob = endpoints["alice"], endpoints["bob"]
    alice.renewal(key, rotating)()
    await until(lambda: bob.refused > 0)
    await alice.send("bob", b"as before")
    assert await bob.receive() == ("alice", b"as before")
    bob.renewal(pair.identities["bob"], rotating)()
    await until(lambda: keys_used(endpoints)["bob"][1] == key.fingerprint)
    await bob.send("alice", b"by the new key")
    assert await alice.receive() == ("bob", b"by the new key")


async def test_a_member_whose_key_left_the_roster_is_disconnected_with_a_reason(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """Other members stay connected; the member is refused when it returns."""
    async with town.start_all() as endpoints:
        alice, carol = endpoints["alice"], endpoints["carol"]
        without = Roster((town.roster.member("alice"),))
        alice.renewal(town.identities["alice"], without)()
        loss = await lose(alice)
        assert loss.peer == "carol"
        assert isinstance(loss.__cause__, HandshakeError)
        said = "alice has ended the connection with carol: its key is no longer in the roster"
        assert said in caplog.text
        await lose(carol)
        assert alice.peers == ()


@pytest.mark.parametrize("name", BOTH)
async def test_an_unannounced_key_ends_the_connection_of_the_key_before(
    pair: Town, endpoints: Endpoints, name: str
) -> None:
    """A roster without previous keys is the answer to a key that somebody else may have seen."""
    (peer,) = {*BOTH} - {name}
    key = make_identity(name)
    after = with_key(pair.roster, key)
    endpoints[peer].renewal(pair.identities[peer], after)()
    assert (await lose(endpoints[peer])).peer == name
    await lose(endpoints[name])
    endpoints[name].renewal(key, after)()
    await until(lambda: endpoints[peer].connected == (name,))


async def test_a_previous_key_that_leaves_before_its_last_day_is_cut_at_once(
    pair: Town, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is revoked, also for the side that would replace the connection after that day."""
    key = make_identity("bob")
    rotating, after = between(pair.roster, key)
    alice = endpoints["alice"]
    for roster, connected in ((rotating, ("bob",)), (after, ())):
        alice.renewal(pair.identities["alice"], roster)()
        assert alice.connected == connected
    assert isinstance((await lose(alice)).__cause__, HandshakeError)
    await lose(endpoints["bob"])
    alice.renewal(pair.identities["alice"], rotating)()
    await until(lambda: alice.connected == ("bob",))
    monkeypatch.setattr(links.Links, "today", LATER)
    for _ in range(2):
        alice.renewal(pair.identities["alice"], after)()
        assert alice.connected == ("bob",)


async def test_a_revoked_key_does_not_end_the_connection_that_replaces_it(pair: Town) -> None:
    """A second process with the new key goes on; nothing of the first is processed any more."""
    key = make_identity("alice")
    pair.roster, after = between(pair.roster, key)
    async with pair.start_all() as endpoints:
        bob, found = endpoints["bob"], vars(endpoints["bob"])["_links"]
        pair.identities["alice"] = key
        second = await pair.start("alice", listen="127.0.0.2")
        await until(lambda: found.connection_to("alice").key == key.fingerprint)
        await second.send("bob", b"by the new key")
        await endpoints["alice"].send("bob", b"by the old key")
        bob.renewal(pair.identities["bob"], after)()
        assert await bob.receive() == ("alice", b"by the new key")
        assert bob.connected == ("alice",)
        await second.close()


async def test_an_unfit_roster_or_key_changes_nothing(pair: Town, endpoints: Endpoints) -> None:
    """The parties stay, and the key is the roster's."""
    alice, other = endpoints["alice"], make_identity("alice")
    for identity, roster, says in (
        (pair.identities["alice"], Roster(pair.roster.members[:1]), "restart all parties"),
        (other, pair.roster, "is not the roster's key for alice"),
        (pair.identities["bob"], pair.roster, "restart all parties"),
    ):
        with pytest.raises(InputError, match=says):
            alice.renewal(identity, roster)()
    assert alice.roster is pair.roster
    await alice.send("bob", b"still")
    assert await endpoints["bob"].receive() == ("alice", b"still")


async def test_a_second_process_with_the_other_key_is_lost_in_time(
    pair: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one never says goodbye to its connection, so neither connection stays."""
    monkeypatch.setattr(links, "HANDOVER_SECONDS", 0.1)
    key = make_identity("alice")
    pair.roster, _ = between(pair.roster, key)
    async with pair.start_all() as endpoints:
        bob = endpoints["bob"]
        pair.identities["alice"] = key
        second = pair.start("alice", listen="127.0.0.2")
        assert (await lose(bob)).peer == "alice"
        await (await second).close()


async def test_a_client_with_its_other_key_replaces_its_connection(town: Town) -> None:
    """With an equal key it is refused, as long as it is connected."""
    key = make_identity("carol")
    town.roster, _ = between(town.roster, key)
    async with town.start_all() as endpoints:
        alice, carol = endpoints["alice"], endpoints["carol"]
        await refused(town, "carol", alice, "carol is connected already")
        await carol.send("alice", b"before")
        carol.renewal(key, town.roster)()
        found = vars(alice)["_links"]
        await until(lambda: found.connection_to("carol").key == key.fingerprint)
        await carol.send("alice", b"after")
        assert [(await alice.receive())[1] for _ in range(2)] == [b"before", b"after"]
