"""Traces: the time of each message, without its content."""

import asyncio
import math
from collections import Counter, defaultdict
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes.worlds import NAMES
from tests.roles import Word, chat, die, fail_late
from tests.simulation.running import simulated

from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Journal, Mark, Passed, Trace, TracedMessage, join_traces
from veilring.nodes.party import Party, broadcast
from veilring.nodes.runtimes import Simulated
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.testing import ProtocolRunner
from veilring.transport.frames import frame_size
from veilring.transport.messages import encode

LATENCY_SECONDS = 0.25
WORDS = "what only ada knows"
CHANNELS = list(permutations(NAMES, 2))


def _traces(messages: list[TracedMessage]) -> list[Trace]:
    """Return the records that all parties would have of these messages."""
    passed = defaultdict[tuple[str, str], list[Passed]](list)
    for one in messages:
        what = (one.round, one.kind, one.bytes, one.number)
        if one.sent_seconds is not None:
            at_sender = Passed(one.sent_seconds, True, one.receiver, *what)
            passed[one.sender, one.session].append(at_sender)
        if one.received_seconds is not None:
            at_receiver = Passed(one.received_seconds, False, one.sender, *what)
            passed[one.receiver, one.session].append(at_receiver)
    return [Trace(*of, 0.0, events) for of, events in passed.items()]


@st.composite
def _conversations(draw: st.DrawFn) -> list[TracedMessage]:
    """Draw messages of two sessions, some of which are recorded at one end only."""
    counts, messages = Counter[tuple[str, ...]](), []
    instant = st.floats(0, 100) | st.none()
    instants = st.tuples(instant, instant).filter(lambda ends: ends != (None, None))
    channels = st.tuples(st.sampled_from(CHANNELS), st.sampled_from(["01", "02"]))
    for (sender, receiver), session in draw(st.lists(channels, max_size=20)):
        sent, received = draw(instants)
        what = draw(st.integers(0, 5)), draw(st.sampled_from("ab")), draw(st.integers(1, 99))
        number = counts[sender, receiver, session]
        messages.append(TracedMessage(sender, receiver, sent, received, *what, number, session))
        counts[sender, receiver, session] += 1
    return messages


@given(_conversations())
def test_a_message_seen_by_both_ends_is_one_row(messages: list[TracedMessage]) -> None:
    """Each message of each session is one row, even if one end's record is lost."""
    joined = join_traces(_traces(messages))
    assert sorted(joined, key=repr) == sorted(messages, key=repr)
    assert [m.seconds for m in joined] == sorted(m.seconds for m in joined)


def test_an_altered_message_is_two_rows() -> None:
    """A message with a changed size has a row without receipt and one without sender."""
    rows = [
        TracedMessage("ada", "bob", 1.0, None, 1, "word", 10, 0, "5e55"),
        TracedMessage("ada", "bob", None, 2.0, 1, "word", 11, 0, "5e55"),
    ]
    assert join_traces(_traces(rows)) == rows


async def _tell_all_twice(party: Party, own: str) -> None:
    """Send the party's words to all others twice."""
    party.round(1)
    for _ in range(2):
        await broadcast(party, Word(text=own))
    for peer in party.peers * 2:
        await party.receive(Word, sender=peer)


def test_traced_runs_are_equal_for_all_runtimes(run_everywhere: ProtocolRunner) -> None:
    """Each message has its number on its channel, both times and its size, and no content."""
    run = run_everywhere(_tell_all_twice, NAMES, own=[WORDS] * 3, trace=True)
    for traced in (run.trace, run.traces):
        assert WORDS not in repr(traced)
    expected = {(*channel, number) for channel in CHANNELS for number in range(2)}
    assert {(m.sender, m.receiver, m.number) for m in run.trace} == expected
    size = frame_size(encode(bytes(16), Word(text=WORDS)))
    assert {(m.round, m.kind, m.bytes) for m in run.trace} == {(1, "test.word", size)}
    assert len(run.trace) == len(expected)
    for message in run.trace:
        assert message.sent_seconds is not None
        assert message.received_seconds is not None
        assert 0 <= message.sent_seconds <= message.received_seconds <= run.seconds


def test_a_failed_run_keeps_its_messages_and_failures(run_everywhere: ProtocolRunner) -> None:
    """The journal has all messages and each party's end, but no text of a foreign error."""
    journal = Journal()
    with pytest.raises(RunFailed, match="a bad day"):
        run_everywhere(fail_late, NAMES, who="bob", rounds=3, trace=journal)
    # Before its third word arrived, all others had passed on their first.
    firsts = {(m.sender, m.receiver) for m in journal.messages if m.number == 0}
    assert firsts == {("ada", "bob"), ("bob", "cy"), ("cy", "ada")}
    told = {mark.party: mark.what for mark in journal.marks}
    assert told["bob"] == "failed: ValueError"
    assert told["cy"].startswith("stopped: ")
    assert "bad day" not in repr(journal)


async def test_a_dead_process_is_marked_and_its_messages_are_known_from_others() -> None:
    """A killed party has no record: its messages have only a time of arrival."""
    journal = Journal()
    async with Cluster(NAMES, runtime="processes") as cluster:
        with pytest.raises(RunFailed):
            await cluster.run(die, who="bob", rounds=9, trace=journal)
    dead = [mark for mark in journal.marks if mark.kind == "lost"]
    assert [(mark.party, mark.what) for mark in dead] == [("bob", "lost: it crashed")]
    to_cy = [m for m in journal.messages if (m.sender, m.receiver) == ("bob", "cy")]
    assert [m.number for m in to_cy[:5]] == [0, 1, 2, 3, 4]
    assert all(m.sent_seconds is None and m.received_seconds is not None for m in to_cy)
    to_bob = [m for m in journal.messages if m.receiver == "bob"]
    assert len(to_bob) >= 5
    assert all(m.sent_seconds is not None and m.received_seconds is None for m in to_bob)


@simulated
async def test_runs_of_one_journal_share_its_clock() -> None:
    """A message takes its latency, a second run continues; an adversary is marked once for both."""
    runtime = Simulated(Topology(LinkModel(Constant(LATENCY_SECONDS))))
    journal = Journal()
    async with Cluster(NAMES, runtime=runtime) as cluster:
        await asyncio.sleep(7)
        for _ in range(2):
            await cluster.run(chat, rounds=4, adversaries={"cy": Adversary()}, trace=journal)
    first, second = dict.fromkeys(message.session for message in journal.messages)
    found = {(m.session, m.number, m.sent_seconds, m.received_seconds) for m in journal.messages}
    assert found == {
        (session, n, (start + n) * LATENCY_SECONDS, (start + n + 1) * LATENCY_SECONDS)
        for session, start in ((first, 0), (second, 4))
        for n in range(4)
    }
    assert journal.marks == [Mark(0.0, "cy", "adversary: Adversary")]


@simulated
async def test_a_fault_is_marked_at_its_time() -> None:
    """Times of faults count from the start of the journal, and each is marked once."""
    crash = Fault("crash", 3.0, math.inf, ("bob",))
    slow = Fault("slow", 1.0, 2.5, ("ada",), LATENCY_SECONDS)
    never = Fault("crash", 99.0, math.inf, ("cy",))
    topology = Topology(LinkModel(Constant(LATENCY_SECONDS)))
    journal = Journal()
    async with Cluster(NAMES, runtime=Simulated(topology, [slow, crash, never])) as cluster:
        await asyncio.sleep(1)
        for _ in range(2):
            with pytest.raises(RunFailed):
                await cluster.run(chat, rounds=1000, trace=journal)
    assert [mark for mark in journal.marks if mark.kind == "fault"] == [
        Mark(0.0, "ada", "fault: slow", until=1.5),
        Mark(2.0, "bob", "fault: crash"),
    ]
    lost = [mark for mark in journal.marks if (mark.party, mark.kind) == ("bob", "lost")]
    assert lost[0] == Mark(2.0, "bob", "lost: it crashed", waits=("test.word from ada",))
