"""An outbox makes a client's report durable before sending, and spends no budget twice."""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.ldp.collecting import batches, make_task, new_store, people

from veilring.errors import InputError, StoreFailed
from veilring.protocols.ldp.messages import ClientBatch, ReportVerdict, Task
from veilring.protocols.ldp.outbox import ROW_NUMBER, MarkedRows, Outbox

TASK = make_task()
NAMES = [f"client-{n}" for n in range(300)]


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


def test_a_repeated_report_is_identical(tmp_path: Path) -> None:
    """Question, id and report of each client never change, even after a restart."""
    made = batches(TASK, len(NAMES))
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES), made)
        first = [(batch.question, batch.ids.tobytes(), batch.reports.tobytes()) for batch in made]
    with Outbox(tmp_path / "outbox") as outbox:
        again = list(outbox.waiting(TASK))
        singles = list(outbox.waiting(TASK, at_once=1))
    found = [(batch.question, batch.ids.tobytes(), batch.reports.tobytes()) for batch in again]
    assert found == first
    assert len(singles) == len(NAMES)
    assert by_client(singles) == by_client(again)


def test_an_answered_report_is_not_sent_again(tmp_path: Path) -> None:
    """A report with a verdict, good or bad, is not sent again; a report without one is."""
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES), batches(TASK, len(NAMES)))
        first, second, *_ = outbox.waiting(TASK)
        refused = np.full(len(second), ReportVerdict.CLOSED, dtype=np.uint8)
        counted = np.full(len(first), ReportVerdict.COUNTED, dtype=np.uint8)
        outbox.settle([(first, counted), (second, refused)])
        left = len(NAMES) - len(first) - len(second)
        assert sum(map(len, outbox.waiting(TASK))) == left
        expected = {
            None: left,
            ReportVerdict.COUNTED: len(first),
            ReportVerdict.CLOSED: len(second),
        }
        assert outbox.count(TASK) == expected


def test_a_client_reports_to_a_task_once(tmp_path: Path) -> None:
    """A second report of any client is refused together with its whole batch."""
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES[:200]), batches(TASK, 200))
        assert outbox.reported(TASK, NAMES).tolist() == [True] * 200 + [False] * 100
        assert not outbox.reported(make_task(epsilon=2.0), NAMES).any()
        with pytest.raises(StoreFailed, match="UNIQUE"):
            outbox.add(TASK, named(NAMES[199:]), batches(TASK, 101, 7))
    with Outbox(tmp_path / "outbox") as outbox:
        assert sum(map(len, outbox.waiting(TASK))) == 200


def test_a_lifetime_budget_holds_over_all_tasks(tmp_path: Path) -> None:
    """A client that has spent its budget on any tasks can afford no more, even after a restart."""
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


def test_the_budget_covers_the_loss_of_one_report(tmp_path: Path) -> None:
    """An outbox charges the exact loss of the most expensive question of its task."""
    task = make_task(epsilon=0.7)
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(task, named(NAMES[:1]), batches(task, 1))
        left = 0.7 - max(question.exact_epsilon for question in task.survey.questions)
        assert not outbox.can_afford(NAMES[:1], left + 1e-9, 0.7).any()


def test_one_process_at_a_time_uses_an_outbox(tmp_path: Path) -> None:
    """A second survey client is refused while the first one has the outbox open."""
    with Outbox(tmp_path / "outbox", new=True), pytest.raises(InputError, match="locked"):
        Outbox(tmp_path / "outbox")
    Outbox(tmp_path / "outbox").__exit__()


def test_only_the_owner_can_read_an_outbox(tmp_path: Path) -> None:
    """The file and its log are private to their owner, for any umask."""
    generous = os.umask(0)
    try:
        with Outbox(tmp_path / "outbox", new=True) as outbox:
            outbox.add(TASK, named(NAMES), batches(TASK, len(NAMES)))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(generous)
    assert modes == dict.fromkeys(("outbox", "outbox-wal", "outbox-shm", "outbox.lock"), 0o600)


def test_an_outbox_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """The error names a missing folder and the cause."""
    with pytest.raises(InputError, match=r"outbox is .*nowhere/outbox.*; allowed: .*No such file"):
        Outbox(tmp_path / "nowhere" / "outbox", new=True)


def test_another_programs_file_is_left_unchanged(tmp_path: Path) -> None:
    """A file that is not an outbox is refused."""
    new_store(str(tmp_path / "reports")).close()
    (tmp_path / "reports").rename(tmp_path / "store")
    with pytest.raises(InputError, match="this file has: store of reports"):
        Outbox(tmp_path / "store")


def test_pages_return_every_report_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading pages while settling earlier ones returns each waiting report once."""
    monkeypatch.setattr("veilring.protocols.ldp.outbox.batch_reports", lambda _width: 7)
    seen: list[int] = []
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES), _answers(TASK))
        for batch in outbox.waiting(TASK):
            assert len(batch) <= 7
            seen += batch.clients.tolist()
            outbox.settle([(batch, np.zeros(len(batch), dtype=np.uint8))])
        assert sorted(seen) == list(range(1, 301))
        assert list(outbox.waiting(TASK)) == []


@pytest.mark.parametrize("at_once", [0, -1])
def test_an_empty_batch_size_is_refused(tmp_path: Path, at_once: int) -> None:
    """A batch size below one report is refused."""
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES), batches(TASK, len(NAMES)))
        with pytest.raises(InputError, match="at_once"):
            list(outbox.waiting(TASK, at_once=at_once))
    with pytest.raises(InputError, match="at_once"):
        batches(TASK, len(NAMES), at_once=at_once)


def _answers(task: Task) -> Iterable[ClientBatch]:
    rng = np.random.default_rng(5)
    return people(len(NAMES), rng).answer(task, rng)


def test_known_rows_are_compared_by_their_cells(tmp_path: Path) -> None:
    """Changed rows are refused by number and by key; new and amended rows are accepted."""
    cells = {"age": np.array(["1", "2"]), "sex": np.array(["f", "m"])}
    swapped = {header: column[::-1] for header, column in cells.items()}
    with Outbox(tmp_path / "keyed", new=True) as outbox:
        rows = outbox.recognise("name", ["a", "b"], cells)
        outbox.add(TASK, rows.at([0]), batches(TASK, 1))
        outbox.recognise("name", ["a", "c"], cells)
        outbox.recognise("name", ["b", "a"], swapped)  # the rows in another order
        outbox.recognise("name", ["b"], {"age": np.array(["9"])})  # unknown as yet
        with pytest.raises(InputError, match="1 rows, from row 1 on, differ") as caught:
            outbox.recognise("name", ["a", "b"], swapped)
        assert "amend" in str(caught.value)
        outbox.recognise("name", ["a", "b"], swapped, amend=True)
        outbox.recognise("name", ["a", "b"], swapped)
    with Outbox(tmp_path / "numbered", new=True) as outbox:
        outbox.add(TASK, outbox.recognise(ROW_NUMBER, ["1", "2"], cells), batches(TASK, 2))
        with pytest.raises(InputError, match="2 rows, from row 1 on, differ"):
            outbox.recognise(ROW_NUMBER, ["1", "2"], swapped)
        with pytest.raises(InputError, match="2 rows, from row 1 on, differ"):  # other columns
            outbox.recognise(ROW_NUMBER, ["1", "2"], {"age": cells["age"]})
        with pytest.raises(InputError, match="amend"):
            outbox.recognise(ROW_NUMBER, ["1", "2"], cells, amend=True)
        with pytest.raises(InputError, match="key"):
            outbox.recognise("name", ["1", "2"], cells)


@pytest.mark.parametrize("by", ["name", ROW_NUMBER])
def test_a_row_may_be_corrected_until_it_has_reported(tmp_path: Path, by: str) -> None:
    """If making the reports is interrupted, neither a report nor a row is stored."""

    def interrupted() -> Iterable[ClientBatch]:
        yield from batches(TASK, 2)
        raise KeyboardInterrupt

    cells = {"age": np.array(["33", "34"])}
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        rows = outbox.recognise(by, ["1", "2"], cells)
        with pytest.raises(KeyboardInterrupt):
            outbox.add(TASK, rows, interrupted())
    corrected = {"age": np.array(["33", "43"])}
    with Outbox(tmp_path / "outbox") as outbox:
        assert not outbox.reported(TASK, ["1", "2"]).any()
        outbox.add(TASK, outbox.recognise(by, ["1", "2"], corrected), batches(TASK, 2))
        assert outbox.reported(TASK, ["1", "2"]).all()
        with pytest.raises(InputError, match="1 rows, from row 2 on, differ"):
            outbox.recognise(by, ["1", "2"], cells)


def test_an_outbox_reveals_no_cell(tmp_path: Path) -> None:
    """The memory of an outbox depends on a key that no other outbox has, and reveals no cell."""
    cells = {"age": np.array(["33"])}
    with Outbox(tmp_path / "one", new=True) as one, Outbox(tmp_path / "other", new=True) as other:
        marks = [each.recognise("name", ["a"], cells).marks for each in (one, other)]
    assert marks[0] != marks[1]
    assert b"33" not in marks[0][0]


def test_a_report_over_the_quota_waits_again(tmp_path: Path) -> None:
    """A report over a collector's quota is sent again by the next command; a bad one is not."""
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        outbox.add(TASK, named(NAMES), batches(TASK, len(NAMES)))
        first, second, *others = outbox.waiting(TASK)
        for batch, verdict in ((first, ReportVerdict.OVER_QUOTA), (second, ReportVerdict.CLOSED)):
            outbox.settle([(batch, np.full(len(batch), verdict, dtype=np.uint8))])
        assert sum(map(len, outbox.waiting(TASK))) == sum(map(len, others))
        outbox.wait_again(TASK)
        assert sum(map(len, outbox.waiting(TASK))) == sum(map(len, others)) + len(first)


def test_the_newest_stored_reports_are_in_doubt(tmp_path: Path) -> None:
    """They wait again, even after a crash; the next in doubt are older, and never a bad one."""
    by_question: dict[int, list[ClientBatch]] = {}
    with Outbox(tmp_path / "outbox", new=True) as outbox:
        assert outbox.doubt(TASK) == []
        outbox.add(TASK, named(NAMES[:30]), batches(TASK, 30))
        settled = []
        for batch in outbox.waiting(TASK, at_once=1):
            by_question.setdefault(batch.question, []).append(batch)
            bad = len(by_question[batch.question]) == 3
            verdict = ReportVerdict.CLOSED if bad else ReportVerdict.COUNTED
            settled.append((batch, np.full(1, verdict, dtype=np.uint8)))
        outbox.settle(settled)
    for place in (-1, -2):
        newest = by_client(made[place] for made in by_question.values())
        with Outbox(tmp_path / "outbox") as outbox:
            assert by_client(outbox.doubt(TASK)) == newest
            assert newest.items() <= by_client(outbox.waiting(TASK)).items()
            assert not by_client(outbox.waiting(TASK, without=newest)).keys() & newest
    with Outbox(tmp_path / "outbox") as outbox:
        while outbox.doubt(TASK):
            pass
        assert outbox.count(TASK)[ReportVerdict.CLOSED] == len(by_question)
        outbox.wait_again(TASK, every=True)
        assert outbox.count(TASK) == {None: 30}
