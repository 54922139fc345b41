"""Traces: the time of each message, without its content."""

import asyncio
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes.worlds import NAMES, SIMULATED
from tests.roles import Word, chat, die, fail_late, pass_on
from tests.simulation.running import simulated

from veilring.errors import RunFailed
from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Event, Journal, Mark, Passed, Trace, TracedMessage, join_traces
from veilring.nodes.party import Party
from veilring.nodes.runtimes import Simulated
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.testing import ProtocolRunner
from veilring.transport.frames import frame_size
from veilring.transport.messages import encode

LATENCY_SECONDS = 0.25
WORDS = "what only ada knows"


def _traces(messages: list[TracedMessage]) -> list[Trace]:
    """Return the records that the parties of one session would have of these messages."""
    traces = {name: Trace(name, "5e55", 0.0) for name in NAMES}
    for message in messages:
        what = (message.round, message.kind, message.bytes, message.number)
        ends = (message.sender, message.receiver)
        if message.sent_seconds is not None:
            traces[ends[0]].passed.append(Passed(message.sent_seconds, True, ends[1], *what))
        if message.received_seconds is not None:
            traces[ends[1]].passed.append(Passed(message.received_seconds, False, ends[0], *what))
    return list(traces.values())


@st.composite
def _conversations(draw: st.DrawFn) -> list[TracedMessage]:
    """Draw messages on all channels, some of which are recorded at one end only."""
    channels = [(a, b) for a in NAMES for b in NAMES if a != b]
    counts: dict[tuple[str, str], int] = {}
    messages = []
    for sender, receiver in draw(st.lists(st.sampled_from(channels), max_size=20)):
        number = counts.get((sender, receiver), 0)
        counts[sender, receiver] = number + 1
        instants = st.floats(0, 100) | st.none()
        sent, received = draw(
            st.tuples(instants, instants).filter(lambda ends: ends != (None, None))
        )
        kind, size = draw(st.sampled_from(["a", "b"])), draw(st.integers(1, 99))
        round_number = draw(st.integers(0, 5))
        messages.append(
            TracedMessage(
                sender, receiver, sent, received, round_number, kind, size, number, "5e55"
            )
        )
    return messages


class TestJoining:
    """Joining the records of both ends into one table."""

    @given(_conversations())
    def test_a_message_seen_by_both_ends_is_one_row(self, messages: list[TracedMessage]) -> None:
        """Each message is one row, even if one end's record is lost."""
        joined = join_traces(_traces(messages))
        assert sorted(joined, key=repr) == sorted(messages, key=repr)
        assert [m.seconds for m in joined] == sorted(m.seconds for m in joined)

    def test_an_altered_message_is_two_rows(self) -> None:
        """A message with a changed size has a row without receipt and one without sender."""
        ada, bob = Trace("ada", "5e55", 0.0), Trace("bob", "5e55", 0.0)
        ada.passed.append(Passed(1.0, True, "bob", 1, "word", 10, 0))
        bob.passed.append(Passed(2.0, False, "ada", 1, "word", 11, 0))
        assert join_traces([ada, bob]) == [
            TracedMessage("ada", "bob", 1.0, None, 1, "word", 10, 0, "5e55"),
            TracedMessage("ada", "bob", None, 2.0, 1, "word", 11, 0, "5e55"),
        ]

    def test_sessions_do_not_mix(self) -> None:
        """The first message of one session is not joined with an equal one of another session."""
        traces = [Trace("ada", session, 0.0) for session in ("01", "02")]
        for trace in traces:
            trace.passed.append(Passed(1.0, True, "bob", 1, "word", 10, 0))
        assert [message.session for message in join_traces(traces)] == ["01", "02"]


class TestTap:
    """The records of one party."""

    def test_counts_each_direction_of_each_channel_on_the_given_clock(self) -> None:
        """Numbers start at 0 in each direction, and times at the given instant."""
        instants = iter((10.5, 11.0, 12.0, 13.0))
        trace = Trace("ada", "5e55", since=10.0)
        observe = trace.observer(lambda: next(instants))
        frame = encode(bytes(16), Word(text=WORDS))
        for sent, peer in ((True, "bob"), (True, "cy"), (False, "bob"), (True, "bob")):
            observe(Event(sent, "ada", peer, 3, Word(text=WORDS), frame))
        size = frame_size(frame)
        assert trace.passed == [
            Passed(0.5, True, "bob", 3, "test.word", size, 0),
            Passed(1.0, True, "cy", 3, "test.word", size, 0),
            Passed(2.0, False, "bob", 3, "test.word", size, 0),
            Passed(3.0, True, "bob", 3, "test.word", size, 1),
        ]
        packed = pickle.dumps(trace)
        assert pickle.loads(packed) == trace
        assert WORDS.encode() not in packed


class TestRuns:
    """Traced runs of clusters."""

    def test_are_equal_for_all_runtimes(self, run_protocol: ProtocolRunner) -> None:
        """Each message is listed once, with both times and its size, and without its content."""
        run = run_protocol(pass_on, NAMES, own=[WORDS, "b", "c"], trace=True)
        assert run.results["bob"] == WORDS
        assert WORDS not in repr(run.trace)
        assert WORDS not in repr(run.traces)
        assert {(m.sender, m.receiver) for m in run.trace} == {
            ("ada", "bob"),
            ("bob", "cy"),
            ("cy", "ada"),
        }
        assert sum(message.bytes for message in run.trace) == run.cost.bytes
        for message in run.trace:
            assert (message.round, message.kind, message.number) == (1, "test.word", 0)
            assert message.sent_seconds is not None
            assert message.received_seconds is not None
            assert 0 <= message.sent_seconds <= message.received_seconds <= run.seconds

    def test_have_no_trace_by_default(self, run_protocol: ProtocolRunner) -> None:
        """Nothing is recorded."""
        assert run_protocol(pass_on, NAMES).trace == ()

    def test_a_failed_run_keeps_its_messages_and_failures(
        self, run_protocol: ProtocolRunner
    ) -> None:
        """The journal has all messages and each party's end, but no text of a foreign error."""
        journal = Journal()
        with pytest.raises(RunFailed, match="a bad day"):
            run_protocol(fail_late, NAMES, who="bob", rounds=3, trace=journal)
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


async def test_runs_of_one_journal_share_its_clock() -> None:
    """Times of a second run continue after those of the first."""
    journal = Journal()
    async with Cluster(NAMES) as cluster:
        runs = [await cluster.run(chat, rounds=3, trace=journal) for _ in range(2)]
    sessions = list(dict.fromkeys(message.session for message in journal.messages))
    assert len(sessions) == 2
    first, second = ([m for m in journal.messages if m.session == s] for s in sessions)
    assert max(m.seconds for m in first) < min(m.seconds for m in second)
    assert first == list(runs[0].trace)


@simulated
async def test_the_times_are_those_of_the_simulated_clock() -> None:
    """A message that takes a quarter of a second is received exactly that much later."""
    runtime = Simulated(Topology(LinkModel(Constant(LATENCY_SECONDS))))
    async with Cluster(NAMES, runtime=runtime) as cluster:
        await asyncio.sleep(7)
        trace = (await cluster.run(chat, rounds=4, trace=True)).trace
    times = {(m.number, m.sent_seconds, m.received_seconds) for m in trace}
    assert times == {(n, n * LATENCY_SECONDS, (n + 1) * LATENCY_SECONDS) for n in range(4)}


def test_a_deadlock_keeps_earlier_messages() -> None:
    """A run that never ends still shows the messages that passed."""

    async def say_and_wait(party: Party) -> None:
        await pass_on(party)
        await party.receive(Word, sender=party.peers[0])

    journal = Journal()
    with pytest.raises(RunFailed):
        SIMULATED(say_and_wait, NAMES, trace=journal)
    assert len(journal.messages) == 3


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


async def test_an_adversary_is_marked_once_for_all_runs() -> None:
    """The adversary's parties are marked in the trace from the beginning."""
    journal = Journal()
    async with Cluster(NAMES) as cluster:
        for _ in range(2):
            await cluster.run(pass_on, adversaries={"cy": Adversary()}, trace=journal)
    assert journal.marks == [Mark(0.0, "cy", "adversary: Adversary")]
