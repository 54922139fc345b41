"""Charts: sums of traffic, positions of marks, the space-time diagram, and charts as files."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError, MissingExtra
from veilring.nodes.journal import Mark, TracedMessage
from veilring.protocols.promise import Estimate
from veilring.scenarios import report
from veilring.scenarios.charts import STYLES, chart_files, draw_curve, label_log_axis, legend_below
from veilring.scenarios.reporting import charts, read_folder
from veilring.scenarios.reporting.charts import ARROWS_MAX, draw_spacetime, text_diagram

PARTIES = tuple(f"party-{n}" for n in range(3 * report.BARS_MAX))


def _message(sender: int, number: int, size: int, kind: str = "a") -> TracedMessage:
    receiver = PARTIES[(sender + 1) % len(PARTIES)]
    return TracedMessage(PARTIES[sender], receiver, 0.0, 1.0, number, kind, size, 0, "5e55")


_messages = st.lists(
    st.builds(
        _message,
        st.integers(0, len(PARTIES) - 1),
        st.integers(0, 5 * report.COLUMNS_MAX),
        st.integers(1, 1000),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=200,
)


class TestTables:
    """All ways of summing traffic agree."""

    @given(_messages, st.integers(1, len(PARTIES)))
    def test_every_table_has_all_messages(
        self, messages: list[TracedMessage], parties: int
    ) -> None:
        """Parties, kinds and rounds add up to all messages; many are grouped, with a note."""
        messages = [m for m in messages if m.sender in PARTIES[:parties]]
        whole, most = report.total(messages), report.BARS_MAX
        all_parties = report.by_party(messages, PARTIES)
        few = report.by_party(messages, PARTIES[:parties])
        for amounts in (all_parties, few, report.by_kind(messages)):
            assert sum(amount.messages for amount in amounts) == len(messages)
            assert sum(amount.bytes for amount in amounts) == whole.bytes
        assert len(all_parties) == most
        assert all_parties[-1].label == f"{len(PARTIES) - most + 1} others"
        rounds = report.by_round(messages)
        assert sum(amount.bytes for amount in rounds) == whole.protocol.bytes
        assert all(amount.setup == (0, 0) for amount in rounds)
        assert len(rounds) <= report.COLUMNS_MAX

    def test_rounds_are_without_gaps(self) -> None:
        """A round without messages has a column; grouped ones are named by their ends."""
        rounds = report.by_round([_message(0, 1, 10), _message(0, 3, 10)])
        found = [(amount.label, amount.messages) for amount in rounds]
        assert found == [("1", 1), ("2", 0), ("3", 1)]
        rounds = report.by_round([_message(0, 2 * report.COLUMNS_MAX - 1, 10)])
        assert [rounds[0].label, rounds[-1].label] == ["1 to 2", f"{2 * report.COLUMNS_MAX - 1}"]


class TestCharts:
    """Lengths are proportional to numbers."""

    @given(_messages)
    def test_the_longest_fills_the_chart(self, messages: list[TracedMessage]) -> None:
        """Both parts of a bar adjoin; columns end at the bottom, and none overlap."""
        amounts = report.by_kind(messages)
        most = max((amount.bytes for amount in amounts), default=0)
        for amount, bar in zip(amounts, charts.bar_chart(amounts).marks, strict=True):
            assert isinstance(bar, charts.Bar)
            length = sum(part.width for part in bar.parts)
            assert length == pytest.approx(100 * amount.bytes / most)
            assert bar.parts[-1].x + bar.parts[-1].width == pytest.approx(length)
            assert bar.text == f"{amount.bytes:,} B"
        chart = charts.column_chart(report.by_round(messages))
        columns = [column for column in chart.marks if isinstance(column, charts.ChartColumn)]
        assert all(column.y + column.height == pytest.approx(chart.height) for column in columns)
        assert not columns or max(column.height for column in columns) == chart.height
        for one, following in pairwise(columns):
            assert one.x + one.width < following.x <= 100 - following.width

    def test_shares_and_nothing_have_a_chart(self) -> None:
        """The bar of one half is half as wide as the chart, and that of no message has no part."""
        (half,) = charts.share_chart([("half", 0.5)]).marks
        (none,) = charts.bar_chart([report.Amount("silent")]).marks
        assert isinstance(half, charts.Bar)
        assert isinstance(none, charts.Bar)
        assert ([part.width for part in half.parts], none.parts) == ([50], ())
        assert charts.bar_chart([]).marks == charts.column_chart([]).marks == []

    @pytest.mark.parametrize(
        ("estimate", "span", "drawn"),
        [
            (Estimate(0.25, 0.0), (0.0, 0.3), (83.3333, 83.3333, 83.3333)),
            (Estimate(0.5, 0.05), (0.0, 0.6), (67, 83.3333, 99.6667)),
            (Estimate(0.0, 0.05), (-0.1, 0.1), (1, 50, 99)),
            (Estimate(1.0, 0.05), (0.0, 1.0), (90.2, 100, 100)),
            (Estimate(0.0, 0.0), (0.0, 0.1), (0, 0, 0)),
        ],
    )
    def test_intervals_are_drawn_between_ticks(
        self, estimate: Estimate, span: Sequence[float], drawn: Sequence[float]
    ) -> None:
        """They extend 1.96 standard errors to each side; the axis reaches slightly beyond."""
        chart = charts.whisker_chart([("share", estimate)])
        (whisker,) = chart.marks
        assert isinstance(whisker, charts.Whisker)
        assert (chart.start, chart.end) == span
        assert (whisker.low, whisker.at, whisker.high) == pytest.approx(drawn, abs=1e-3)

    @given(st.floats(1e-6, 1e6))
    def test_ticks_are_few_round_and_within(self, span: float) -> None:
        """There are three to six different ticks, starting at 0, within the axis."""
        instants = [instant for instant, _ in report.ticks(span)]
        assert 3 <= len(instants) <= 6
        assert instants[0] == 0
        assert instants[-1] <= span * (1 + 1e-8)
        assert len({text for _, text in report.ticks(span)}) == len(instants)


def test_durations_have_a_suitable_unit() -> None:
    """Durations are in units from microseconds to seconds."""
    words = [report.in_seconds(seconds) for seconds in (0.0, 0.0000071, 0.0123456, 1234.5)]
    assert words == ["0 s", "7 µs", "12.346 ms", "1,234.500 s"]


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
        """A message goes from lane to lane as time passes; a part of one ends or begins between."""
        diagram = draw_spacetime([TO_BOB, TO_CY], [], NAMES)
        first, second = diagram.arrows
        assert [lane.party for lane in diagram.lanes] == list(NAMES)
        ada, bob, cy = (lane.y for lane in diagram.lanes)
        assert (first.y1, first.y2, second.y1, second.y2) == (ada, bob, bob, cy)
        assert first.x1 == diagram.left
        assert first.x2 == second.x1 == (diagram.left + diagram.right) / 2
        assert second.x2 == diagram.right
        assert first.title == "word, round 1: ada to bob, 10 B, sent at 0 s, received at 1.000 s"
        lost, unseen = TO_BOB._replace(received_seconds=None), TO_CY._replace(sent_seconds=None)
        first, second = draw_spacetime([lost, unseen], [], NAMES).arrows
        assert (first.end, second.end) == ("lost", "unseen")
        assert ada == first.y1 < first.y2 < bob < second.y1 < second.y2 == cy

    def test_lanes_are_in_the_order_of_the_ring(self, finished: Path) -> None:
        """Lanes are in order of first messages, so a round of a ring looks like stairs."""
        run = read_folder(finished)
        order = charts.lane_order(run.messages, run.scenario.parties.all)
        vectors = [m for m in run.messages if m.kind == "ring.topk.vector"]
        assert sorted(order) == sorted(run.scenario.parties.all)
        for message in vectors:
            here, there = order.index(message.sender), order.index(message.receiver)
            assert there == (here + 1) % len(order)

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
            charts.Sign(middle, bob.y, "lost", "bob, 1.000 s: lost: it crashed"),
            charts.Sign(diagram.right, cy.y, "stopped", "cy, 2.000 s: stopped: bob was lost"),
        )
        assert [lane.corrupt for lane in (ada, bob, cy)] == [True, False, False]
        assert (ada.end, bob.end) == (diagram.right, middle)

    def test_kinds_differ_by_more_than_colour(self) -> None:
        """The first twelve kinds have twelve styles: six colours, solid and dashed."""
        kinds = [TO_BOB._replace(kind=f"kind-{n}", number=n) for n in range(12)]
        assert len({key.style for key in draw_spacetime(kinds, [], NAMES).keys}) == 12

    @pytest.mark.parametrize("parties", [1, 12, 40, 1000])
    def test_any_number_of_lanes_fits_a_screen(self, parties: int) -> None:
        """Lanes move closer, overlapping names are omitted, and nothing else is drawn."""
        diagram = draw_spacetime([], [], [f"party-{n}" for n in range(parties)])
        assert diagram.height <= 1000
        named = [lane.y for lane in diagram.lanes if lane.name]
        assert named
        assert all(after - before >= 13 for before, after in pairwise(named))
        assert (len(diagram.lanes), diagram.arrows, diagram.keys) == (parties, (), ())


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 500))
def test_every_round_has_its_share_of_a_sample(rounds: int, each: int, most: int) -> None:
    """Each round differs from its fair number of messages by at most one."""
    messages = _many(rounds, each)
    chosen = charts.sample(messages, most)
    assert len(chosen) <= most
    stride = -(-len(messages) // most)
    for number in range(rounds):
        share = sum(message.round == number for message in chosen)
        assert abs(share - each / stride) < 1


def test_few_messages_are_all_drawn() -> None:
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

    def test_what_does_not_fit_is_a_list_without_late_marks(self) -> None:
        """A narrow terminal gets a list with both ends; marks after the messages are left out."""
        marks = [Mark(0.0, "ada", "early"), Mark(9.0, "bob", "late")]
        lines = [*text_diagram([TO_BOB, TO_CY], marks, NAMES, limit=1, width=40)]
        early = "         0 s ✗ ada: early"
        assert lines == ["         0 s ada → bob  word, round 1, 10 B", early]
        assert [*text_diagram([TO_BOB], marks, NAMES, limit=0, width=20)] == [early]
        lines = [*text_diagram([TO_BOB, TO_CY], marks, NAMES, limit=1, width=80)]
        assert (len(lines), "early" in "".join(lines)) == (3, True)


def _draw(paths: list[Path]) -> None:
    with chart_files(paths, (3.0, 2.0)) as figure:
        axes = figure.subplots()
        band = [0.5, 5.0], [2.0, 20.0]
        draw_curve(axes, [1.0, 1000.0], [1.0, 10.0], STYLES[0], "a curve", band=band)
        axes.set(xscale="log", yscale="log")
        label_log_axis(axes.xaxis, (1.0, 1000.0))
        legend_below(figure, axes)


def test_equal_charts_are_equal_files(tmp_path: Path) -> None:
    """In both formats numbers on a log axis have no exponent, and text stays text."""
    for name in ("one", "other"):
        _draw([tmp_path / f"{name}.svg", tmp_path / f"{name}.png"])
    for suffix in ("svg", "png"):
        one, other = (tmp_path / f"{name}.{suffix}" for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()
    words = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in words for word in ("a curve", "1,000"))


def test_a_chart_that_cannot_be_drawn_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other formats are refused, and so is any if the library is missing; no file is left."""
    with pytest.raises(InputError, match=r"a path that ends in \.png or \.svg"):
        _draw([tmp_path / "one.svg", tmp_path / "one.pdf"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"matplotlib.*'\.\[plot\]'"):
        _draw([tmp_path / "one.svg"])
    assert list(tmp_path.iterdir()) == []
