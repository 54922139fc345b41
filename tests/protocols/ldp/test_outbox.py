"""An outbox makes a client's report durable before sending, and spends no budget twice."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.ldp.collecting import batches, make_task
from tests.refusals import require_refused

from veilring.errors import StoreFailed
from veilring.protocols.ldp.messages import ClientBatch, ReportVerdict
from veilring.protocols.ldp.outbox import ROW_NUMBER, MarkedRows, Outbox

TASK = make_task()
NAMES = [f"client-{n}" for n in range(300)]
MADE = batches(TASK, len(NAMES))
COUNTED, CLOSED = ReportVerdict.COUNTED, ReportVerdict.CLOSED


def named(clients: Sequence[str]) -> MarkedRows:
    """Return rows without cells."""
    return MarkedRows(clients, b"", [b""] * len(clients))


def by_client(made: Iterable[ClientBatch]) -> dict[int, tuple[int, bytes, bytes]]:
    """Return the question, id and report of each client."""
    return {
        who: (batch.question, name.tobytes(), report.tobytes())
        for batch in made
        for who, name, report in zip(batch.clients.tolist(), batch.ids, batch.reports, strict=True)
    }


def waiting(outbox: Outbox) -> int:
    """Return the number of reports that wait."""
    return sum(map(len, outbox.waiting(TASK)))


def settle(outbox: Outbox, batch: ClientBatch, verdict: ReportVerdict) -> None:
    """Store one verdict on all reports of a batch."""
    outbox.settle([(batch, np.full(len(batch), verdict, dtype=np.uint8))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an outbox with a report of each client, left by another process."""
    with Outbox(tmp_path / "outbox", new=True) as made:
        made.add(TASK, named(NAMES), MADE)
    return tmp_path / "outbox"


@pytest.fixture
def outbox(path: Path) -> Iterator[Outbox]:
    """Open the outbox with a report of each client."""
    with Outbox(path) as opened:
        yield opened


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Outbox]:
    """Open a new outbox."""
    with Outbox(tmp_path / "empty", new=True) as opened:
        yield opened


def test_a_repeated_report_is_identical(outbox: Outbox) -> None:
    """Question, id and report of each client never change, even after a restart."""
    again, singles = list(outbox.waiting(TASK)), list(outbox.waiting(TASK, at_once=1))
    found, first = (
        [(batch.question, batch.ids.tobytes(), batch.reports.tobytes()) for batch in some]
        for some in (again, MADE)
    )
    assert found == first
    assert len(singles) == len(NAMES)
    assert by_client(singles) == by_client(again)


def test_an_answered_report_is_not_sent_again(outbox: Outbox) -> None:
    """A report with a verdict is not sent again, but for one over a quota, or on request."""
    first, second, third = outbox.waiting(TASK)
    settle(outbox, first, COUNTED)
    settle(outbox, second, CLOSED)
    assert waiting(outbox) == len(third)
    assert outbox.count(TASK) == {None: len(third), COUNTED: len(first), CLOSED: len(second)}
    settle(outbox, third, ReportVerdict.OVER_QUOTA)
    assert waiting(outbox) == 0
    outbox.wait_again(TASK)
    assert by_client(outbox.waiting(TASK)) == by_client([third])
    outbox.wait_again(TASK, every=True)
    assert outbox.count(TASK) == {None: len(NAMES)}


def test_a_client_reports_to_a_task_once(path: Path) -> None:
    """A second report of any client is refused together with its whole batch."""
    more = ["new", *NAMES[:100]]
    with Outbox(path) as outbox:
        assert outbox.reported(TASK, more).tolist() == [False] + [True] * 100
        assert not outbox.reported(make_task(epsilon=2.0), NAMES).any()
        with pytest.raises(StoreFailed, match="UNIQUE"):
            outbox.add(TASK, named(more), batches(TASK, 101, 7))
    with Outbox(path) as outbox:
        assert waiting(outbox) == len(NAMES)


def test_a_lifetime_budget_holds_over_all_tasks(tmp_path: Path) -> None:
    """A client spends the exact loss of each task, and never more than its budget."""
    tasks = [make_task(closes=n + 1.0) for n in range(3)]
    spends = tasks[0].survey.exact_epsilon
    for round_, task in enumerate(tasks):
        with Outbox(tmp_path / "outbox", new=not round_) as outbox:
            affords = outbox.can_afford(NAMES, spends, 2 * spends)
            expected = [True] * 300 if round_ < 2 else [False] * 100 + [True] * 200
            assert affords.tolist() == expected
            outbox.add(task, named(NAMES[:100]), batches(task, 100, round_))
    with Outbox(tmp_path / "outbox") as outbox:
        assert outbox.can_afford(NAMES[:1], spends, 4 * spends).all()
        assert not outbox.can_afford(NAMES[:1], spends * 1.0000001, 4 * spends).any()


def test_an_outbox_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """The error names a missing folder and the cause."""
    said = "outbox is .*nowhere/outbox.*; allowed: .*No such file"
    require_refused(said, Outbox, tmp_path / "nowhere" / "outbox", new=True)


def test_pages_return_every_report_once(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading pages while settling earlier ones returns each waiting report once."""
    monkeypatch.setattr("veilring.protocols.ldp.outbox.batch_reports", lambda _width: 7)
    seen: list[int] = []
    for batch in outbox.waiting(TASK):
        assert len(batch) <= 7
        seen += batch.clients.tolist()
        settle(outbox, batch, COUNTED)
    assert sorted(seen) == list(range(1, 301))
    assert waiting(outbox) == 0


@pytest.mark.parametrize("at_once", [0, -1])
def test_an_empty_batch_size_is_refused(outbox: Outbox, at_once: int) -> None:
    """A batch size below one report is refused, for stored and for new reports."""
    require_refused("at_once", lambda: list(outbox.waiting(TASK, at_once=at_once)))
    require_refused("at_once", batches, TASK, 1, at_once=at_once)


CELLS = {"age": np.array(["1", "2"]), "sex": np.array(["f", "m"])}
SWAPPED = {header: column[::-1] for header, column in CELLS.items()}


def test_rows_known_by_a_key_are_compared_by_their_cells(empty: Outbox) -> None:
    """Changed rows are refused; new and amended rows, and any order, are accepted."""
    empty.add(TASK, empty.recognise("name", ["a", "b"], CELLS).at([0]), batches(TASK, 1))
    empty.recognise("name", ["a", "c"], CELLS)
    empty.recognise("name", ["b", "a"], SWAPPED)  # the rows in another order
    empty.recognise("name", ["b"], {"age": np.array(["9"])})  # unknown as yet
    differ = "1 rows, from row 1 on, differ.*amend"
    require_refused(differ, empty.recognise, "name", ["a", "b"], SWAPPED)
    empty.recognise("name", ["a", "b"], SWAPPED, amend=True)
    empty.recognise("name", ["a", "b"], SWAPPED)


def test_rows_known_by_number_keep_their_places(empty: Outbox) -> None:
    """Other cells, columns or keys are refused, and rows without a key cannot be amended."""
    empty.add(TASK, empty.recognise(ROW_NUMBER, ["1", "2"], CELLS), batches(TASK, 2))
    for cells in (SWAPPED, {"age": CELLS["age"]}):
        differ = "2 rows, from row 1 on, differ"
        require_refused(differ, empty.recognise, ROW_NUMBER, ["1", "2"], cells)
    require_refused("amend", empty.recognise, ROW_NUMBER, ["1", "2"], CELLS, amend=True)
    require_refused("key", empty.recognise, "name", ["1", "2"], CELLS)


@pytest.mark.parametrize("by", ["name", ROW_NUMBER])
def test_a_row_may_be_corrected_until_it_has_reported(tmp_path: Path, by: str) -> None:
    """If making the reports is interrupted, neither a report nor a row is stored."""

    def interrupted() -> Iterable[ClientBatch]:
        yield from batches(TASK, 2)
        raise KeyboardInterrupt

    cells, corrected = ({"age": np.array(["33", age])} for age in ("34", "43"))
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        rows = outbox.recognise(by, ["1", "2"], cells)
        with pytest.raises(KeyboardInterrupt):
            outbox.add(TASK, rows, interrupted())
    with Outbox(tmp_path / "outbox") as outbox:
        assert not outbox.reported(TASK, ["1", "2"]).any()
        outbox.add(TASK, outbox.recognise(by, ["1", "2"], corrected), batches(TASK, 2))
        assert outbox.reported(TASK, ["1", "2"]).all()
        require_refused("1 rows, from row 2 on, differ", outbox.recognise, by, ["1", "2"], cells)


def test_an_outbox_reveals_no_cell(empty: Outbox, outbox: Outbox) -> None:
    """The memory of an outbox depends on a key that no other outbox has, and reveals no cell."""
    one, other = (
        each.recognise("name", ["a"], {"age": np.array(["33"])}).marks for each in (empty, outbox)
    )
    assert one != other
    assert b"33" not in one[0]


def test_the_newest_stored_reports_are_in_doubt(tmp_path: Path) -> None:
    """They wait again, even after a crash; the next in doubt are older, and never a bad one."""
    by_question: dict[int, list[ClientBatch]] = {}
    path = tmp_path / "outbox"
    with Outbox(path, new=True) as outbox:
        assert outbox.doubt(TASK) == []
        outbox.add(TASK, named(NAMES[:30]), batches(TASK, 30))
        for batch in outbox.waiting(TASK, at_once=1):
            own = by_question.setdefault(batch.question, [])
            own.append(batch)
            settle(outbox, batch, CLOSED if len(own) == 3 else COUNTED)
    for place in (-1, -2):
        newest = by_client(made[place] for made in by_question.values())
        with Outbox(path) as outbox:
            assert by_client(outbox.doubt(TASK)) == newest
            assert newest.items() <= by_client(outbox.waiting(TASK)).items()
            assert not by_client(outbox.waiting(TASK, without=newest)).keys() & newest
    with Outbox(path) as outbox:
        while outbox.doubt(TASK):
            pass
        assert outbox.count(TASK)[CLOSED] == len(by_question)
