"""The steps of a run: the messages in flight, and each party's state."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.reporting.pages import in_flight, stand

from veilring.nodes.journal import Mark, TracedMessage
from veilring.nodes.run import Failure
from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.stepping import PARTIES_MAX, Spell, Step, Story, build_story

NAMES = ("ada", "bob", "cy")
TO_BOB = TracedMessage("ada", "bob", 0.0, 2.0, 1, "word", 10, 0, "5e55")
TO_CY = TracedMessage("bob", "cy", 3.0, 4.0, 2, "echo", 20, 0, "5e55")
LOST = TO_BOB._replace(number=1, sent_seconds=1.0, received_seconds=None)


def _story(*messages: TracedMessage, marks: tuple[Mark, ...] = ()) -> Story:
    story = build_story(messages, marks, NAMES)
    assert story is not None
    return story


def _words(story: Story) -> list[str]:
    return [f"{step.seconds:g} {step.what}" for step in story.steps]


def _lost(story: Story) -> Step:
    """Return the step at which the only message that is never received ends."""
    (flight,) = (each for each in story.flights if not each.received)
    return story.steps[flight.last]


def _holds(spell: Spell, step: int) -> bool:
    return spell.first <= step and (spell.last is None or step < spell.last)


SECONDS = st.integers(0, 6).map(float)
MESSAGES = st.lists(
    st.builds(
        lambda ends, sent, took, number, session: TO_BOB._replace(
            sender=ends[0],
            receiver=ends[1],
            sent_seconds=sent,
            received_seconds=None if took is None else sent + took,
            round=number,
            session=session,
        ),
        st.permutations(NAMES),
        SECONDS,
        st.none() | st.integers(0, 3).map(float),
        st.integers(0, 3),
        st.sampled_from(["5e55", "a11"]),
    )
    | st.builds(lambda at: TO_BOB._replace(sent_seconds=None, received_seconds=at), SECONDS),
    min_size=1,
    max_size=12,
).map(lambda messages: sorted(messages, key=lambda message: message.seconds))
MARKS = st.lists(
    st.builds(Mark, SECONDS, st.sampled_from(NAMES), st.just("stopped: enough"))
    | st.builds(
        lambda start, party, kind, length: Mark(start, party, f"fault: {kind}", start + length),
        SECONDS,
        st.sampled_from(NAMES),
        st.sampled_from(["restart", "isolation", "reset"]),
        st.integers(1, 4).map(float),
    ),
    max_size=4,
)


class TestFlights:
    """Messages in flight."""

    @given(MESSAGES, MARKS)
    def test_every_message_is_in_flight_until_it_is_received_or_lost(
        self, messages: list[TracedMessage], marks: list[Mark]
    ) -> None:
        """At each step these are the messages sent but neither received nor lost."""
        story = _story(*messages, marks=tuple(marks))
        seconds = [step.seconds for step in story.steps]
        assert seconds == sorted(seconds)
        sent, ended = set[int | None](), set[int | None]()
        for number, step in enumerate(story.steps):
            sent |= {step.message} if step.what == "sent" else set()
            ended |= {step.message} if step.what in {"received", "lost"} else set()
            flying = {story.flights.index(f) for f in in_flight(story, number)}
            assert {story.flights[p].last for p in flying} == {
                story.flights[p].last for p in sent - ended if p is not None
            }
        assert ended == set(range(len(messages)))
        for message, flight in zip(messages, story.flights, strict=True):
            end = story.steps[flight.last]
            assert end.what == ("lost" if message.received_seconds is None else "received")
            if message.received_seconds is not None:
                assert end.seconds == message.received_seconds
            assert end.seconds >= message.seconds

    @given(MESSAGES, MARKS, st.integers(1, 8))
    def test_the_last_steps_equal_those_of_the_whole(
        self, messages: list[TracedMessage], marks: list[Mark], most: int
    ) -> None:
        """If earlier messages are omitted, each remaining step is unchanged."""
        whole = _story(*messages, marks=tuple(marks))
        short = build_story(messages, marks, NAMES, most=most)
        assert short is not None
        assert short.omitted == max(0, len(messages) - most)
        skipped = len(whole.steps) - len(short.steps)
        for step in range(len(short.steps)):
            if step:
                assert short.steps[step].text == whole.steps[step + skipped].text
            before = [flight[:6] for flight in in_flight(whole, step + skipped)]
            assert [flight[:6] for flight in in_flight(short, step)] == before
            holding = [s.text for s in whole.spells if _holds(s, step + skipped)]
            assert [s.text for s in short.spells if _holds(s, step)] == holding
            for party in NAMES:
                one, other = stand(short, party, step), stand(whole, party, step + skipped)
                assert (one.state, one.round, one.waits) == (other.state, other.round, other.waits)
                assert (one.received is None) == (other.received is None)
                assert (one.awaited is None) == (other.awaited is None)

    def test_instant_messages_keep_their_order(self) -> None:
        """On links without delay, a chain of messages is in the order of its rounds."""
        chain = TO_CY._replace(sent_seconds=0.0), TO_BOB
        steps = _story(*(each._replace(received_seconds=0.0) for each in chain)).steps[1:]
        expected = [("sent", 1), ("received", 1), ("sent", 0), ("received", 0)]
        assert [(step.what, step.message) for step in steps] == expected

    @pytest.mark.parametrize(
        ("marks", "lost"),
        [
            ((), 4.0),
            ((Mark(1.5, "bob", "fault: crash"),), 1.5),
            ((Mark(1.5, "ada", "fault: crash"),), 4.0),
            ((Mark(0.5, "bob", "fault: restart", 3.5),), 1.0),
            ((Mark(0.2, "bob", "fault: restart", 0.5),), 4.0),
            ((Mark(2.5, "ada", "fault: reset", 3.0), Mark(2.5, "bob", "fault: reset", 3.0)), 2.5),
            ((Mark(2.5, "cy", "fault: reset", 3.0), Mark(2.5, "bob", "fault: reset", 3.0)), 4.0),
            ((Mark(1.5, "bob", "fault: isolation", 2.0),), 4.0),
            ((Mark(3.5, "bob", "stopped: it had enough"),), 3.5),
            ((Mark(3.5, "ada", "stopped: it had enough"),), 4.0),
        ],
    )
    def test_a_break_or_the_end_of_its_receiver_ends_it(
        self, marks: tuple[Mark, ...], lost: float
    ) -> None:
        """A broken connection, the end of its receiver or the end of the session ends a message."""
        end = _lost(_story(TO_BOB, LOST, TO_CY, marks=marks))
        assert (end.seconds, end.text) == (lost, "bob never receives word from ada")

    def test_an_end_in_a_later_session_does_not_count(self) -> None:
        """A receiver that stops after another session has begun had ended this one before."""
        later = TO_CY._replace(session="a11", sent_seconds=6.0, received_seconds=7.0)
        marks = (Mark(8.0, "bob", "stopped: enough"),)
        assert _lost(_story(TO_BOB, LOST, later, marks=marks)).seconds == 2.0


class TestStanding:
    """The state of each party."""

    def test_a_party_has_received_one_message_and_waits_for_the_next(self) -> None:
        """This holds from the start of its session; before it sends, it waits for nothing."""
        story = _story(TO_BOB, TO_CY)
        assert _words(story) == ["0 start", "0 sent", "2 received", "3 sent", "4 received"]
        flying = [[story.kinds[each.kind] for each in in_flight(story, n)] for n in range(5)]
        assert flying == [[], ["word"], [], ["echo"], []]
        stands = [stand(story, "bob", step) for step in range(5)]
        assert [each.awaited for each in stands] == [None, 0, None, None, None]
        assert [each.received for each in stands] == [None, None, 0, 0, 0]
        assert [each.round for each in stands] == [0, 0, 1, 2, 2]
        assert [each.state for each in stands] == [*["running"] * 3, "done", "done"]
        assert stand(story, "cy", 1).awaited == 1

    def test_a_stopped_partys_wait_lasts_until_its_mark(self) -> None:
        """Afterwards it waits for nothing."""
        mark = Mark(5.0, "cy", "stopped: time is up", waits=("word from ada",))
        story = _story(TO_BOB, TO_CY, marks=(mark,))
        stands = [stand(story, "cy", step) for step in range(6)]
        assert [each.waits for each in stands] == [(), (), (), (), ("word from ada",), ()]
        assert [each.state for each in stands] == [*["running"] * 5, "stopped"]
        assert story.steps[5].text == "cy: stopped: time is up"

    def test_a_party_is_down_until_it_returns(self) -> None:
        """It waits for nothing while it is down."""
        again = TO_BOB._replace(session="a11", sent_seconds=8.0, received_seconds=9.0)
        marks = (Mark(1.0, "bob", "fault: restart", 5.0), Mark(1.0, "bob", "lost: it crashed"))
        story = _story(TO_BOB._replace(received_seconds=None), again, marks=marks)
        states = [stand(story, "bob", step).state for step in range(len(story.steps))]
        crash = ["0 sent", "1 fault", "1 lost", "1 mark", "5 over", "8 sent", "9 received"]
        assert _words(story)[1:] == crash
        assert states == ["running"] * 2 + ["crashed"] * 3 + ["back", "running", "done"]
        assert stand(story, "bob", 6).awaited == 1

    def test_faults_hold_from_their_strike_until_they_are_over(self) -> None:
        """A link's fault names its ends, a party's shows in its state, a coalition has no step."""
        marks = (
            Mark(0.0, "cy", "coalition: with ada"),
            Mark(1.0, "cy", "fault: stall", 3.0),
            Mark(1.0, "ada", "fault: stall", 3.0),
            Mark(1.5, "bob", "fault: isolation", 9.0),
        )
        story = _story(TO_BOB, marks=marks)
        stall, isolation = story.spells
        assert stall.text == "no message from cy to ada gets through"
        assert isolation.text == "bob cannot reach any other party"
        assert [(spell.first, spell.last) for spell in story.spells] == [(2, 5), (3, 6)]
        states = [stand(story, "bob", step).state for step in (2, 3, 6)]
        assert states == ["running", "cut off", "done"]
        assert story.opening == 2
        assert story.steps[6].text == "The fault isolation of bob is over"
        assert story.corrupt == (story.parties.index("cy"),)


class TestBounds:
    """The runs for which a story can be shown."""

    def test_a_failed_run_ends_with_its_error(self) -> None:
        """The last step names the party at fault."""
        failure = Failure("RunFailed", "bob broke the protocol", {}, culprit="bob")
        story = build_story([TO_BOB], [], NAMES, failure)
        assert story is not None
        end, bob = story.steps[-1], story.parties.index("bob")
        assert (end.text, end.parties) == ("The run fails: bob broke the protocol", (bob,))
        assert story.opening == len(story.steps) - 1

    def test_a_run_that_a_fault_stops_before_any_message_has_a_story(self) -> None:
        """The fault, the loss and the failure are steps, though no message was sent."""
        marks = (Mark(-1.0, "ada", "fault: crash"), Mark(0.0, "ada", "lost: it crashed"))
        story = build_story([], marks, NAMES, Failure("RunFailed", "ada was lost", {}))
        assert story is not None
        assert [step.what for step in story.steps] == ["start", "fault", "mark", "end"]
        assert story.opening == 1
        assert stand(story, "ada", 2).state == "crashed"

    def test_empty_and_crowded_runs_have_no_story(self) -> None:
        """There is nothing to step through, or there are too many lanes to read."""
        crowd = [f"party-{number}" for number in range(PARTIES_MAX + 1)]
        assert build_story([], [], NAMES) is None
        assert build_story([TO_BOB], [], crowd) is None
        assert build_story([TO_BOB], [], [*crowd[:-2], "ada", "bob"][-PARTIES_MAX:]) is not None

    def test_a_world_of_many_faults_is_shown_completely(self, world: Path) -> None:
        """Each message has a flight, and each active fault ends after its start."""
        run = read_folder(world)
        story = build_story(run.messages, run.marks, run.scenario.parties.all, run.failure)
        assert story is not None
        assert len(story.flights) == len(run.messages)
        assert len(story.spells) == 16
        assert all(spell.first < (spell.last or math.inf) for spell in story.spells)
        assert "no message that party-2 sends gets through" in {s.text for s in story.spells}
        crashed = [mark.seconds for mark in run.marks if mark.what == "lost: it crashed"]
        step = next(n for n, s in enumerate(story.steps) if s.seconds == crashed[0])
        assert stand(story, "party-1", step).state == "crashed"
