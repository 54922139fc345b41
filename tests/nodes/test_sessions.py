"""Sessions at nodes: their start, concurrency and end, misbehaving peers, and tolerated losses."""

import asyncio
from functools import partial

import pytest
from tests.nodes.worlds import (
    FIRST,
    NAMES,
    PAIR,
    SECOND,
    Role,
    begun,
    hear,
    played,
    playing,
    tell,
    turns,
)
from tests.roles import Word, fail, pass_on

from veilring.errors import (
    ClusterError,
    EndpointClosed,
    InputError,
    PeerLost,
    ProtocolViolation,
    SessionAborted,
    SessionTimeout,
    TooFarAhead,
)
from veilring.nodes.node import (
    DROPPED,
    EARLY_BYTES_MAX,
    EARLY_DROPPED_MAX,
    EARLY_FRAMES_MAX,
    EARLY_SECONDS,
    EARLY_TOTAL_BYTES_MAX,
    EarlyFrames,
    Node,
)
from veilring.nodes.party import Parties, Party, broadcast
from veilring.nodes.session import UNREAD_BYTES_MAX, UNREAD_MESSAGES_MAX
from veilring.transport.frames import FRAME_BYTES_MAX
from veilring.transport.messages import Message, encode

Nodes = dict[str, Node]


async def test_sessions_run_side_by_side_and_no_name_is_used_twice(nodes: Nodes) -> None:
    """Any number of sessions share the connections of a node; none can be replayed."""
    runs = [
        node.run(pass_on, bytes([number]) * 16, NAMES)
        for number in range(50)
        for node in nodes.values()
    ]
    assert await asyncio.gather(*runs) == ["cy", "ada", "bob"] * 50
    with pytest.raises(ClusterError, match="used this session name"):
        await nodes["ada"].run(pass_on, bytes(16), NAMES)


async def test_a_broadcast_is_encoded_once(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to several parties is one frame, and counts as sent to each."""
    sent: list[bytes] = []

    def keep(session: bytes, message: Message) -> bytes:
        sent.append(encode(session, message))
        return sent[-1]

    monkeypatch.setattr("veilring.transport.messages.encode", keep)

    async def say(party: Party) -> None:
        await broadcast(party, Word(text="hello"))

    heard = await played(nodes, ada=say, bob=hear("ada"), cy=hear("ada"))
    assert (heard["bob"], heard["cy"], len(sent)) == ("hello", "hello", 1)


async def test_messages_before_their_session_are_kept_in_order(nodes: Nodes) -> None:
    """A party may open a session later than its peers, and those of others stay apart."""
    say_two, hear_two = playing(tell("cy"), tell("cy", "again")), [hear("bob"), hear("ada")] * 2
    for session in (FIRST, SECOND):
        await asyncio.gather(*(nodes[name].run(say_two, session, NAMES) for name in PAIR))
    for session in (SECOND, FIRST):
        heard = await nodes["cy"].run(playing(*hear_two), session, NAMES)
        assert heard == ["bob", "ada", "again", "again"]


async def test_a_lost_peer_ends_every_session_that_needs_it_and_no_other(nodes: Nodes) -> None:
    """Only sessions that need the crashed peer report it, by name; none begins with it."""
    with_cy = await begun(nodes["bob"], hear("ada"))
    without = await begun(nodes["bob"], hear("ada"), SECOND, PAIR)
    nodes["cy"].abort()
    with pytest.raises(PeerLost, match="cy was lost"):
        await with_cy
    await nodes["ada"].run(tell("bob", "after"), SECOND, PAIR)
    assert await without == "after"
    with pytest.raises(PeerLost, match="cy was lost"):
        await nodes["ada"].run(pass_on, FIRST, NAMES)


async def test_a_silent_peer_ends_the_session_at_its_limit(nodes: Nodes) -> None:
    """The error at a session's limit names what it waited for."""
    with pytest.raises(SessionTimeout, match=r"0\.05 s: bob is waiting for test\.word"):
        await nodes["bob"].run(hear("ada"), FIRST, NAMES, seconds=0.05)


async def hurry(_party: Party) -> None:
    """Exceed a limit of the role's own."""
    async with asyncio.timeout(0.01):
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("role", "error"), [(partial(fail, who="ada"), ValueError), (hurry, TimeoutError)]
)
async def test_a_failed_role_reveals_only_the_kind_of_error(
    nodes: Nodes, role: Role, error: type[Exception]
) -> None:
    """The abort notice has no data of the party, whose own limit is no timeout of the session."""
    found = await played(nodes, PAIR, ada=role, bob=hear("ada"))
    assert type(found["ada"]) is error
    aborted = found["bob"]
    assert isinstance(aborted, SessionAborted)
    assert (aborted.by, aborted.reason, aborted.culprit) == ("ada", "InternalError", "")


async def test_a_party_that_stops_tells_its_peers(nodes: Nodes) -> None:
    """Neither a cancelled role nor a node that shuts down leaves others or itself waiting."""
    waiting = await begun(nodes["cy"], hear("ada"))
    listening = await begun(nodes["bob"], hear("ada"))
    waiting.cancel()
    with pytest.raises(SessionAborted, match="PeerStopped: cy is shutting down"):
        await listening
    with pytest.raises(asyncio.CancelledError):
        await waiting
    listening = await begun(nodes["bob"], hear("ada"), SECOND)
    await nodes["bob"].close()
    with pytest.raises(EndpointClosed, match="shutting down"):
        await listening


async def give_up_bob(party: Party) -> None:
    """Give bob up."""
    party.give_up("bob")


async def go_back(party: Party) -> None:
    """Mark an earlier round."""
    party.round(2)
    party.round(1)


async def wait_twice(party: Party) -> None:
    """Wait for one peer in two tasks, so that it is undefined which one gets the message."""
    both = [asyncio.create_task(party.receive(Word, sender="bob")) for _ in range(2)]
    await asyncio.sleep(0)
    await both[1]


@pytest.mark.parametrize(
    ("role", "parties", "says"),
    [
        (go_back, NAMES, "rounds must not decrease"),
        (hear("ada"), NAMES, "a peer of ada: bob, cy"),
        (hear("dan"), NAMES, "a peer of ada: bob, cy"),
        (playing(give_up_bob), NAMES, "cannot be given up in a session that tolerates no loss"),
        (wait_twice, NAMES, "another task is already waiting"),
        (pass_on, Parties(["bob", "cy", "dan"]), "ada is not among the parties"),
    ],
)
async def test_a_mistake_of_the_roles_author_is_an_input_error(
    nodes: Nodes, role: Role, parties: Parties, says: str
) -> None:
    """The error describes what the role must not do, or that the party takes no part."""
    with pytest.raises(InputError, match=says):
        await nodes["ada"].run(role, FIRST, parties)


async def test_messages_of_an_outsider_do_not_count(nodes: Nodes) -> None:
    """Only participants are heard, even if an outsider knows the session's name."""
    listening = await begun(nodes["bob"], hear("ada"), FIRST, PAIR)
    await nodes["cy"].endpoint.send("bob", encode(FIRST, Word(text="trust me")))
    await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="hello")))
    assert await listening == "hello"


async def test_an_unrequested_message_is_blamed_on_its_sender(nodes: Nodes) -> None:
    """A session does not succeed if an unexpected message remains."""
    await nodes["ada"].run(playing(tell("bob", "one"), tell("bob", "two")), FIRST, PAIR)
    with pytest.raises(ProtocolViolation, match=r"ada.*test\.word, which was not due"):
        await nodes["bob"].run(hear("ada"), FIRST, PAIR)


async def test_the_first_of_several_unrequested_messages_is_blamed(nodes: Nodes) -> None:
    """The order of arrival decides, even if the party has sent to the other peer before."""
    working = await begun(nodes["bob"], playing(tell("cy"), hear("cy"), hear("cy")))
    told = ("ada", "cy", "cy", "cy")
    for name in told:
        await nodes[name].endpoint.send("bob", encode(FIRST, Word(text=name)))
    with pytest.raises(ProtocolViolation, match=r"ada.*test\.word, which was not due"):
        await working


async def test_invalid_bytes_end_every_session_with_their_sender(nodes: Nodes) -> None:
    """Garbage cannot be assigned to a session, so all sessions with its sender end."""
    listening = [await begun(nodes["bob"], hear("ada"), name, PAIR) for name in (FIRST, SECOND)]
    await nodes["ada"].endpoint.send("bob", b"\xc1")
    for error in await asyncio.gather(*listening, return_exceptions=True):
        assert isinstance(error, ProtocolViolation)
        assert error.culprit == "ada"


@pytest.mark.parametrize(
    ("size", "count"),
    [(1, UNREAD_MESSAGES_MAX + 1), (1_000_000, UNREAD_BYTES_MAX // 1_000_000 + 1)],
)
async def test_a_peer_that_floods_a_session_is_named(nodes: Nodes, size: int, count: int) -> None:
    """A party that runs too many messages or bytes ahead in a session is named."""
    waiting = await begun(nodes["bob"], hear("cy"))
    for _ in range(count):
        await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="x" * size)))
    said = r"^ada sent .* turn: at most 1,024 or 4 MiB .* set UNREAD_MESSAGES_MAX"
    with pytest.raises(TooFarAhead, match=said) as caught:
        await waiting
    assert caught.value.culprit == "ada"
    await nodes["ada"].run(tell("bob", "after"), SECOND, PAIR)
    assert await nodes["bob"].run(hear("ada"), SECOND, PAIR) == "after"


async def test_a_session_that_has_failed_keeps_nothing_more(nodes: Nodes) -> None:
    """While its role is still working, a flood finds no room in it."""
    done = asyncio.Event()
    working = await begun(nodes["bob"], lambda _: done.wait(), FIRST, PAIR)
    session = vars(nodes["bob"])["_sessions"][FIRST]
    for _ in range(4 * UNREAD_MESSAGES_MAX):
        await nodes["ada"].endpoint.send("bob", encode(FIRST, Word(text="x")))
        await asyncio.sleep(0)
    assert len(vars(session)["_exchanges"]["ada"].unread) == UNREAD_MESSAGES_MAX + 1
    done.set()
    with pytest.raises(ProtocolViolation, match=r"ada.*ahead of its turn"):
        await working


@pytest.mark.parametrize(
    ("size", "frames"), [(1, EARLY_FRAMES_MAX + 1), (1 << 19, EARLY_BYTES_MAX // (1 << 19) + 1)]
)
async def test_early_frames_are_no_offence(nodes: Nodes, size: int, frames: int) -> None:
    """However many an honest party sends because of a malicious opener, its sessions continue."""
    waiting = await begun(nodes["bob"], hear("ada"), FIRST, PAIR)
    for number in range(frames):
        frame = encode(b"unopened" + number.to_bytes(8, "big"), Word(text="x" * size))
        await nodes["ada"].endpoint.send("bob", frame)
    await nodes["ada"].run(tell("bob", "after"), FIRST, PAIR)
    assert await waiting == "after"


async def test_a_session_whose_early_frames_were_dropped_fails_without_a_culprit(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session fails with a reason, no party is accused, and other sessions continue."""
    monkeypatch.setattr("veilring.nodes.node.EARLY_TOTAL_BYTES_MAX", 1_000)
    waiting = await begun(nodes["bob"], hear("ada"), SECOND, PAIR)
    send_and_wait = playing(tell("bob", "y" * 950), hear("bob"))
    asking = await begun(nodes["ada"], send_and_wait, FIRST, PAIR)
    await turns()
    large = encode(bytes(15) + b"\x02", Word(text="x" * 900))
    await nodes["cy"].endpoint.send("bob", large)
    await turns()
    with pytest.raises(SessionAborted) as at_bob:
        await nodes["bob"].run(hear("ada"), FIRST, PAIR)
    with pytest.raises(SessionAborted, match="bob had no room for messages") as at_ada:
        await asking
    await nodes["ada"].run(tell("bob", "after"), SECOND, PAIR)
    assert await waiting == "after"
    for caught in (at_bob, at_ada):
        assert (caught.value.by, caught.value.culprit) == ("bob", "")


@pytest.fixture
def early() -> EarlyFrames:
    """Return early frames on a clock that stands still."""
    return EarlyFrames(lambda: 0.0)


@pytest.mark.parametrize(
    ("frame", "most"),
    [(b"x", EARLY_FRAMES_MAX), (bytes(FRAME_BYTES_MAX), EARLY_BYTES_MAX // FRAME_BYTES_MAX)],
)
def test_a_peer_that_sends_much_loses_its_oldest(
    early: EarlyFrames, frame: bytes, most: int
) -> None:
    """At a limit in frames or bytes nobody is accused; newer sessions and others keep all."""
    early.keep("bob", FIRST, b"of bob")
    assert all(early.keep("ada", FIRST, frame) for _ in range(most))
    assert not early.keep("ada", SECOND, b"next")
    assert not early.keep("ada", FIRST, frame)
    assert list(early.take(FIRST)) == [("ada", DROPPED), ("bob", b"of bob")]
    assert list(early.take(SECOND)) == [("ada", b"next")]


def test_colluding_peers_are_bounded_without_blame_or_a_misread_session(
    early: EarlyFrames, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer with the most bytes loses its oldest session, with later messages; logged once."""
    largest = bytes(FRAME_BYTES_MAX)
    for frame in (largest, b"second"):
        early.keep("ada", FIRST, frame)
    early.keep("bob", FIRST, b"of bob")
    for number in range(2 * EARLY_TOTAL_BYTES_MAX // FRAME_BYTES_MAX):
        early.keep(f"peer {number}", SECOND, largest[:-1])
    early.keep("ada", FIRST, b"third")
    assert list(early.take(FIRST)) == [("ada", DROPPED), ("bob", b"of bob")]
    assert sum(len(frame) for _, frame in early.take(SECOND)) <= EARLY_TOTAL_BYTES_MAX
    (line,) = [each for each in caplog.messages if "ada" in each]
    assert line.startswith("dropped frames of ada, sent before their session")
    early.keep("ada", FIRST, b"again")
    assert list(early.take(FIRST)) == [("ada", b"again")]


def test_early_frames_keep_their_order(early: EarlyFrames) -> None:
    """The frames of a session come in the order of their arrival, those of all peers together."""
    sent = [("bob", b"1"), ("ada", b"2"), ("bob", b"3"), ("cy", b"4"), ("ada", b"5")]
    for sender, frame in sent:
        early.keep(sender, SECOND, b"of another session")
        early.keep(sender, FIRST, frame)
    assert list(early.take(FIRST)) == sent


def test_old_frames_are_no_attack() -> None:
    """Remaining frames of sessions that never began do not accumulate to a limit."""
    now = 0.0
    early = EarlyFrames(lambda: now)
    for number in range(10 * EARLY_FRAMES_MAX):
        now += 2 * EARLY_SECONDS / EARLY_FRAMES_MAX
        assert early.keep("ada", number.to_bytes(16, "big"), b"x")
    assert list(early.take(bytes(16))) == []


def test_dropped_sessions_are_remembered_up_to_a_limit(early: EarlyFrames) -> None:
    """A flood of new sessions leaves a bounded number of names, those of the newest."""
    names = [number.to_bytes(16, "big") for number in range(2 * EARLY_DROPPED_MAX)]
    for name in names:
        early.keep("ada", name, b"x")
    dropped = [name for name in names if list(early.take(name)) == [("ada", DROPPED)]]
    assert dropped == names[-EARLY_FRAMES_MAX - EARLY_DROPPED_MAX : -EARLY_FRAMES_MAX]


def test_forgotten_and_dropped_frames_are_not_counted(early: EarlyFrames) -> None:
    """A lost peer and a refused session leave nothing behind."""
    for number in range(10 * EARLY_FRAMES_MAX):
        assert early.keep("ada", number.to_bytes(16, "big"), b"x")
        early.drop(number.to_bytes(16, "big"))
    for _ in range(2):
        assert all(early.keep("ada", FIRST, b"x") for _ in range(EARLY_FRAMES_MAX))
        early.forget("ada")


async def test_a_lost_peer_affects_only_its_own_messages(nodes: Nodes) -> None:
    """Messages sent before a loss are received before it, and other peers are unaffected."""

    async def crash(party: Party) -> None:
        nodes[party.me].abort()

    go_on = (hear("cy"), *[hear("bob")] * 3, tell("bob"), tell("cy"))
    found = await played(
        nodes,
        ada=playing(*go_on, tolerant=True),
        bob=playing(tell("ada", "last words"), crash),
        cy=playing(hear("bob"), tell("ada"), hear("ada"), tolerant=True),
    )
    assert found["ada"] == ["cy", "last words", "PeerLost", "PeerLost", "PeerLost", None]
    assert found["cy"] == ["PeerLost", None, "ada"]
    standing = nodes["ada"].standing(FIRST)
    assert standing is not None
    assert standing.without == ("bob",)


async def test_an_abort_is_a_loss_with_a_reason(nodes: Nodes) -> None:
    """The others continue; the error names the reason and the culprit."""

    async def break_off(party: Party) -> None:
        raise ProtocolViolation("cy", f"did what {party.me} saw")

    found = await played(
        nodes,
        ada=playing(hear("bob"), tell("cy"), hear("cy"), tolerant=True),
        bob=break_off,
        cy=playing(hear("bob"), tell("ada"), hear("ada"), tolerant=True),
    )
    why = "ProtocolViolation by bob, blaming cy"
    assert (found["ada"], found["cy"]) == ([why, None, "cy"], [why, None, "ada"])


async def test_messages_of_a_peer_that_was_given_up_are_dropped(nodes: Nodes) -> None:
    """Messages from and to such a peer are dropped, and end no session."""
    done = asyncio.Event()

    async def let_go(_party: Party) -> None:
        done.set()

    early, late = ((tell("ada", text), tell("cy", text)) for text in ("early", "late"))
    dropped = (give_up_bob, hear("bob"), tell("bob"), let_go, hear("cy"), hear("bob"))
    found = await played(
        nodes,
        ada=playing(hear("cy"), *dropped, tolerant=True),
        bob=playing(*early, lambda _: done.wait(), *late),
        cy=playing(hear("bob"), tell("ada"), hear("bob"), tell("ada", "cy again")),
    )
    gone = "PeerGivenUp"
    assert found["ada"] == ["cy", None, gone, gone, None, "cy again", gone]
    assert found["bob"] == [None, None, True, None, None]
    assert found["cy"] == ["early", None, "late", None]


async def test_giving_up_wakes_waiting_tasks(nodes: Nodes) -> None:
    """A task that waits for a peer is woken at once when the peer is given up."""

    async def give_up(party: Party) -> object:
        waiting = asyncio.gather(hear("bob")(party))
        await asyncio.sleep(0)
        await give_up_bob(party)
        return await waiting

    found = await played(nodes, ada=playing(give_up, tolerant=True))
    assert found["ada"] == ["PeerGivenUp"]
