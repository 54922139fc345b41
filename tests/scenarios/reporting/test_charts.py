"""Sums of traffic, and positions of marks in charts."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.nodes.journal import TracedMessage
from veilring.protocols.promise import Estimate
from veilring.scenarios.report import (
    BARS_MAX,
    COLUMNS_MAX,
    Amount,
    by_kind,
    by_party,
    by_round,
    in_seconds,
    ticks,
    total,
)
from veilring.scenarios.reporting.charts import (
    Bar,
    ChartColumn,
    Whisker,
    bar_chart,
    column_chart,
    share_chart,
    whisker_chart,
)

PARTIES = tuple(f"party-{n}" for n in range(3 * BARS_MAX))


def _message(sender: int, number: int, size: int, kind: str = "a") -> TracedMessage:
    receiver = PARTIES[(sender + 1) % len(PARTIES)]
    return TracedMessage(PARTIES[sender], receiver, 0.0, 1.0, number, kind, size, 0, "5e55")


_messages = st.lists(
    st.builds(
        _message,
        st.integers(0, len(PARTIES) - 1),
        st.integers(0, 5 * COLUMNS_MAX),
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
        """Parties, kinds and rounds each add up to all messages; rounds exclude set-up."""
        messages = [m for m in messages if m.sender in PARTIES[:parties]]
        whole = total(messages)
        for amounts in (by_party(messages, PARTIES[:parties]), by_kind(messages)):
            assert sum(amount.messages for amount in amounts) == len(messages)
            assert sum(amount.bytes for amount in amounts) == whole.bytes
        rounds = by_round(messages)
        assert sum(amount.bytes for amount in rounds) == whole.protocol.bytes
        assert all(amount.setup == (0, 0) for amount in rounds)

    @given(_messages)
    def test_they_are_short(self, messages: list[TracedMessage]) -> None:
        """Many parties and many rounds are grouped, with a note."""
        parties, rounds = by_party(messages, PARTIES), by_round(messages)
        assert len(parties) == BARS_MAX
        assert parties[-1].label == f"{len(PARTIES) - BARS_MAX + 1} others"
        assert len(rounds) <= COLUMNS_MAX

    def test_rounds_without_messages_are_shown(self) -> None:
        """A round without messages is a gap, not a missing column."""
        rounds = by_round([_message(0, 1, 10), _message(0, 3, 10)])
        assert [(amount.label, amount.messages) for amount in rounds] == [
            ("1", 1),
            ("2", 0),
            ("3", 1),
        ]

    def test_grouped_rounds_are_named_by_their_ends(self) -> None:
        """The last column may have fewer rounds."""
        rounds = by_round([_message(0, 2 * COLUMNS_MAX - 1, 10)])
        assert [rounds[0].label, rounds[-1].label] == ["1 to 2", f"{2 * COLUMNS_MAX - 1}"]


class TestCharts:
    """Lengths are proportional to numbers."""

    @given(_messages)
    def test_bars_are_proportional_to_bytes(self, messages: list[TracedMessage]) -> None:
        """The longest fills the chart, and both parts of a bar adjoin."""
        amounts = by_kind(messages)
        most = max((amount.bytes for amount in amounts), default=0)
        for amount, bar in zip(amounts, bar_chart(amounts).marks, strict=True):
            assert isinstance(bar, Bar)
            length = sum(part.width for part in bar.parts)
            assert length == pytest.approx(100 * amount.bytes / most)
            assert bar.parts[-1].x + bar.parts[-1].width == pytest.approx(length)
            assert bar.text == f"{amount.bytes:,} B"

    @given(_messages)
    def test_columns_share_a_baseline(self, messages: list[TracedMessage]) -> None:
        """All end at the bottom, the highest fills the chart, and none overlap."""
        chart = column_chart(by_round(messages))
        columns = [column for column in chart.marks if isinstance(column, ChartColumn)]
        assert all(column.y + column.height == pytest.approx(chart.height) for column in columns)
        assert not columns or max(column.height for column in columns) == chart.height
        for one, following in pairwise(columns):
            assert one.x + one.width < following.x <= 100 - following.width

    def test_shares_are_drawn_relative_to_the_width(self) -> None:
        """The bar of one half is half as long as the chart is wide."""
        (bar,) = share_chart([("half", 0.5)]).marks
        assert isinstance(bar, Bar)
        assert bar.parts[0].width == 50

    def test_an_empty_run_has_a_chart(self) -> None:
        """A run without messages is not an error."""
        assert bar_chart([]).marks == column_chart([]).marks == []
        (bar,) = bar_chart([Amount("silent")]).marks
        assert isinstance(bar, Bar)
        assert bar.parts == ()

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
        chart = whisker_chart([("share", estimate)])
        (whisker,) = chart.marks
        assert isinstance(whisker, Whisker)
        assert (chart.start, chart.end) == span
        assert (whisker.low, whisker.at, whisker.high) == pytest.approx(drawn, abs=1e-3)


class TestWords:
    """Times in words."""

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0.0, "0 s"), (0.0000071, "7 µs"), (0.0123456, "12.346 ms"), (1234.5, "1,234.500 s")],
    )
    def test_have_a_suitable_unit(self, seconds: float, words: str) -> None:
        """Durations are in units from microseconds to seconds."""
        assert in_seconds(seconds) == words

    @given(st.floats(1e-6, 1e6))
    def test_ticks_are_few_round_and_within(self, span: float) -> None:
        """There are three to six different ticks, starting at 0, within the axis."""
        instants = [instant for instant, _ in ticks(span)]
        assert 3 <= len(instants) <= 6
        assert instants[0] == 0
        assert instants[-1] <= span * (1 + 1e-8)
        assert len({text for _, text in ticks(span)}) == len(instants)
