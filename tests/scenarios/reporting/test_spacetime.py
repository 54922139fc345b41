"""The space-time diagram, on a page and as text."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.nodes.journal import Mark, TracedMessage
from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.charts import (
    ARROWS_MAX,
    Sign,
    draw_spacetime,
    lane_order,
    sample,
    text_diagram,
)

NAMES = ("ada", "bob", "cy")
TO_BOB = TracedMessage("ada", "bob", 0.0, 1.0, 1, "word", 10, 0, "5e55")
TO_CY = TracedMessage("bob", "cy", 1.0, 2.0, 2, "word", 20, 0, "5e55")


def _many(rounds: int, each: int) -> list[TracedMessage]:
    return [
        TO_BOB._replace(round=number, number=place, sent_seconds=float(number))
        for number in range(rounds)
        for place in range(each)
    ]


class TestDrawing:
    """Positions of lines."""

    def test_time_runs_to_the_right_and_parties_are_lanes(self) -> None:
        """A message goes from its sender's lane to its receiver's as time passes."""
        diagram = draw_spacetime([TO_BOB, TO_CY], [], NAMES)
        first, second = diagram.arrows
        assert [lane.party for lane in diagram.lanes] == list(NAMES)
        ada, bob, cy = (lane.y for lane in diagram.lanes)
        assert (first.y1, first.y2, second.y1, second.y2) == (ada, bob, bob, cy)
        assert first.x1 == diagram.left
        assert first.x2 == second.x1 == (diagram.left + diagram.right) / 2
        assert second.x2 == diagram.right
        assert first.title == "word, round 1: ada to bob, 10 B, sent at 0 s, received at 1.000 s"

    def test_lanes_are_in_the_order_of_the_ring(self, finished: Path) -> None:
        """Lanes are in order of first messages, so a round of a ring looks like stairs."""
        run = read_folder(finished)
        order = lane_order(run.messages, run.scenario.parties.all)
        vectors = [m for m in run.messages if m.kind == "ring.topk.vector"]
        assert sorted(order) == sorted(run.scenario.parties.all)
        for message in vectors:
            here, there = order.index(message.sender), order.index(message.receiver)
            assert there == (here + 1) % len(order)

    def test_an_incomplete_message_does_not_reach_the_other_lane(self) -> None:
        """A lost message ends on its way, and one without a sender begins there."""
        lost, unseen = TO_BOB._replace(received_seconds=None), TO_CY._replace(sent_seconds=None)
        diagram = draw_spacetime([lost, unseen], [], NAMES)
        ada, bob, cy = (lane.y for lane in diagram.lanes)
        first, second = diagram.arrows
        assert (first.end, second.end) == ("lost", "unseen")
        assert ada == first.y1 < first.y2 < bob
        assert bob < second.y1 < second.y2 == cy

    def test_marks_are_on_their_partys_lane_at_their_time(self) -> None:
        """A lost party's lane ends; a malicious party has another style of lane."""
        marks = [
            Mark(0.0, "ada", "coalition: with nobody"),
            Mark(1.0, "bob", "lost: it crashed"),
            Mark(2.0, "cy", "stopped: bob was lost"),
            Mark(2.0, "eve", "fault: unknown here"),
        ]
        diagram = draw_spacetime([TO_BOB, TO_CY], marks, NAMES)
        ada, bob, cy = diagram.lanes
        middle = (diagram.left + diagram.right) / 2
        assert diagram.signs == (
            Sign(middle, bob.y, "lost", "bob, 1.000 s: lost: it crashed"),
            Sign(diagram.right, cy.y, "stopped", "cy, 2.000 s: stopped: bob was lost"),
        )
        assert [lane.corrupt for lane in (ada, bob, cy)] == [True, False, False]
        assert (ada.end, bob.end) == (diagram.right, middle)

    def test_kinds_differ_by_more_than_colour(self) -> None:
        """The first twelve kinds have twelve styles: six colours, solid and dashed."""
        kinds = [TO_BOB._replace(kind=f"kind-{n}", number=n) for n in range(12)]
        assert len({key.style for key in draw_spacetime(kinds, [], NAMES).keys}) == 12

    @pytest.mark.parametrize("parties", [1, 12, 40, 1000])
    def test_any_number_of_lanes_fits_a_screen(self, parties: int) -> None:
        """Lanes move closer, and overlapping names are omitted."""
        diagram = draw_spacetime([], [], [f"party-{n}" for n in range(parties)])
        assert diagram.height <= 1000
        named = [lane.y for lane in diagram.lanes if lane.name]
        assert named
        assert all(after - before >= 13 for before, after in pairwise(named))

    def test_a_run_without_messages_has_a_diagram(self) -> None:
        """Only the lanes are drawn."""
        diagram = draw_spacetime([], [], NAMES)
        assert (len(diagram.lanes), diagram.arrows, diagram.keys) == (3, (), ())


class TestSample:
    """A sample of messages from all parts of a run, limited in size."""

    @given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 500))
    def test_every_round_has_its_share(self, rounds: int, each: int, most: int) -> None:
        """Each round differs from its fair number of messages by at most one."""
        messages = _many(rounds, each)
        chosen = sample(messages, most)
        assert len(chosen) <= most
        stride = -(-len(messages) // most)
        for number in range(rounds):
            share = sum(message.round == number for message in chosen)
            assert abs(share - each / stride) < 1

    def test_few_are_all_drawn(self) -> None:
        """Up to the limit all messages are drawn; above it the diagram shows the total."""
        assert len(draw_spacetime(_many(2, ARROWS_MAX // 2), [], NAMES).arrows) == ARROWS_MAX
        diagram = draw_spacetime(_many(3, ARROWS_MAX // 2), [], NAMES)
        assert (len(diagram.arrows), diagram.total) == (ARROWS_MAX // 2 * 3 // 2, 3000)


class TestText:
    """The diagram as text."""

    def test_time_runs_down_and_parties_are_columns(self) -> None:
        """Arrows go from column to column; marks are in their party's column."""
        lost = TO_CY._replace(sender="cy", receiver="ada", received_seconds=None, round=0)
        marks = [Mark(0.5, "bob", "fault: crash")]
        lines = text_diagram([TO_BOB, lost], marks, NAMES, limit=9, width=80)
        assert list(lines) == [
            "        when ada bob cy",
            "         0 s ●───▶   │    word, round 1, 10 B",
            "  500.000 ms │   ✗   │    bob: fault: crash",
            "     1.000 s ○───────●    word, set-up, 20 B, never received",
        ]

    def test_names_that_do_not_fit_are_numbered(self) -> None:
        """A legend above the columns gives the names."""
        parties = [f"party-number-{n}" for n in range(4)]
        message = TO_BOB._replace(sender=parties[2], receiver=parties[0], sent_seconds=None)
        names, head, line = text_diagram([message], [], parties, limit=1, width=80)
        assert names.startswith("Columns: 0 party-number-2, 1 party-number-0, ")
        assert head.split() == ["when", "0", "1", "2", "3"]
        assert "○─────▶" in line

    def test_if_columns_do_not_fit_both_ends_are_named(self) -> None:
        """A narrow terminal gets a list instead of a drawing, with all information."""
        lines = [*text_diagram([TO_BOB], [Mark(0.0, "cy", "fault")], NAMES, limit=1, width=40)]
        assert lines == ["         0 s ada → bob  word, round 1, 10 B", "         0 s ✗ cy: fault"]

    def test_only_the_first_messages_and_their_marks_are_drawn(self) -> None:
        """If messages are omitted, later marks are omitted too."""
        marks = [Mark(0.0, "ada", "early"), Mark(9.0, "bob", "late")]
        lines = list(text_diagram([TO_BOB, TO_CY], marks, NAMES, limit=1, width=80))
        assert len(lines) == 3
        assert "early" in "".join(lines)
        assert list(text_diagram([TO_BOB], marks, NAMES, limit=0, width=20)) == [
            "         0 s ✗ ada: early"
        ]
