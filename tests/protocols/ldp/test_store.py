"""What is stored counts once, for ever, and the running sums are always those of the reports."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.ldp.collecting import accepted, batches, make_task
from tests.protocols.ldp.conftest import OpenStore

from veilring.errors import InputError, StoreFailed
from veilring.protocols.ldp.algorithm.survey import Tally, tally
from veilring.protocols.ldp.intake import Accepted
from veilring.protocols.ldp.messages import ID_BYTES
from veilring.protocols.ldp.store import base, open_store
from veilring.protocols.ldp.verdicts import Verdict

TASK = make_task()


def expected(*arrived: Accepted) -> Tally:
    """Return the tally of reports, by another way than a store's."""
    by_question = [
        np.concatenate(
            [
                np.zeros((0, TASK.survey.questions[q].report_bytes), dtype=np.uint8),
                *(each.reports for each in arrived if each.question == q),
            ]
        )
        for q in range(3)
    ]
    return tally(TASK.survey, by_question)


def require_equal(found: Tally, other: Tally) -> None:
    """Hold two tallies against each other."""
    assert found.counts == other.counts
    for mine, theirs in zip(found.sums, other.sums, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def part_of(arrived: Accepted, rows: slice) -> Accepted:
    """Return some of the reports that arrived."""
    return Accepted(
        arrived.question, arrived.ids[rows], arrived.reports[rows], arrived.places[rows]
    )


def flip(table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return other bytes."""
    return np.bitwise_xor(table, np.uint8(1))


def test_what_is_new_counts_once_and_is_there_after_a_restart(stores: OpenStore) -> None:
    """A repeated report is known and not counted again, in the same store and in the next."""
    arrived = accepted(TASK, batches(TASK, 900))
    store = stores(TASK)
    assert store.tally().clients == 0
    first = np.concatenate(store.keep(arrived))
    assert (first == Verdict.COUNTED).all()
    again = np.concatenate(store.keep(arrived))
    assert (again == Verdict.KNOWN).all()
    store.close()
    reopened = stores(TASK)
    assert (np.concatenate(reopened.keep(arrived)) == Verdict.KNOWN).all()
    for found in (reopened.tally(), reopened.recount()):
        require_equal(found, expected(*arrived))


def test_repeats_among_those_that_arrive_together_count_once(stores: OpenStore) -> None:
    """Of equal reports in one group one counts; the others are known."""
    (one, *_) = accepted(TASK, batches(TASK, 300))
    twice = np.repeat(np.arange(len(one.ids)), 2)
    doubled = Accepted(one.question, one.ids[twice], one.reports[twice], np.arange(len(twice)))
    store = stores(TASK)
    (verdicts,) = store.keep([doubled])
    assert np.bincount(verdicts).tolist() == [len(one.ids), len(one.ids)]
    require_equal(store.recount(), expected(one))


def test_an_id_with_other_bytes_or_another_question_is_refused(stores: OpenStore) -> None:
    """Whoever is first with an id keeps it, within a group and across groups and questions."""
    first, second, third = accepted(TASK, batches(TASK, 300))
    store = stores(TASK)
    store.keep([first, second])
    flipped = Accepted(1, second.ids, flip(second.reports), second.places)
    renamed = Accepted(
        2, first.ids[: len(third.ids)], third.reports[: len(first.ids)], third.places
    )
    refused = np.concatenate(store.keep([flipped, renamed]))
    assert (refused == Verdict.REUSED_ID).all()
    ids = np.concatenate((third.ids[:1], third.ids[:1], third.ids[:1]))
    reports = np.concatenate((third.reports[:1], flip(third.reports[:1]), third.reports[:1]))
    (together,) = store.keep([Accepted(2, ids, reports, np.arange(3))])
    assert together.tolist() == [Verdict.COUNTED, Verdict.REUSED_ID, Verdict.KNOWN]
    require_equal(store.recount(), expected(first, second, part_of(third, slice(1))))


def test_new_and_known_reports_in_any_order_get_their_own_verdicts(stores: OpenStore) -> None:
    """Verdicts stand where their reports stood, whatever was new among them."""
    rng = np.random.default_rng(2)
    (one, *_) = accepted(TASK, batches(TASK, 600))
    before = rng.random(len(one.ids)) < 0.5
    store = stores(TASK)
    store.keep([Accepted(0, one.ids[before], one.reports[before], one.places[before])])
    (verdicts,) = store.keep([one])
    np.testing.assert_array_equal(verdicts, np.where(before, Verdict.KNOWN, Verdict.COUNTED))
    require_equal(store.recount(), expected(one))


def test_ids_that_differ_in_one_byte_only_are_different(stores: OpenStore) -> None:
    """All 16 bytes of an id count, zeros at its end too."""
    ids = np.zeros((ID_BYTES + 1, ID_BYTES), dtype=np.uint8)
    ids[1:] = np.eye(ID_BYTES, dtype=np.uint8)
    reports = np.zeros((len(ids), 1), dtype=np.uint8)
    store = stores(TASK)
    (verdicts,) = store.keep([Accepted(0, ids, reports, np.arange(len(ids)))])
    assert (verdicts == Verdict.COUNTED).all()
    (verdicts,) = store.keep([Accepted(0, ids, reports, np.arange(len(ids)))])
    assert (verdicts == Verdict.KNOWN).all()


def test_what_comes_after_closing_is_refused_and_what_came_before_is_known(
    stores: OpenStore,
) -> None:
    """A client whose answer was lost still learns, after the end, that its report counts."""
    (one, *_) = accepted(TASK, batches(TASK, 300))
    store = stores(TASK)
    store.keep([part_of(one, slice(10))])
    (verdicts,) = store.keep([one], closed=True)
    assert verdicts.tolist() == [Verdict.KNOWN] * 10 + [Verdict.CLOSED] * (len(one.ids) - 10)
    require_equal(store.recount(), expected(part_of(one, slice(10))))


def test_groups_larger_than_a_statement_are_stored_whole(
    stores: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of a group are one transaction: all of it counts, new or known."""
    monkeypatch.setattr(base, "PIECE_REPORTS_MAX", 64)
    arrived = accepted(TASK, batches(TASK, 1000))
    store = stores(TASK)
    store.keep([part_of(arrived[0], slice(0, None, 3))])
    store.keep(arrived)
    require_equal(store.recount(), expected(*arrived))


def test_a_transaction_that_fails_leaves_nothing(
    stores: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the sums cannot be written, the reports are not there either."""
    arrived = accepted(TASK, batches(TASK, 300))
    store = stores(TASK)
    store.keep(arrived[:1])

    def fail(*_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(store, "_write", fail)
    with pytest.raises(StoreFailed, match="full"):
        store.keep(arrived)
    monkeypatch.undo()
    require_equal(store.recount(), expected(arrived[0]))
    assert (np.concatenate(store.keep(arrived[1:])) == Verdict.COUNTED).all()


def test_a_store_belongs_to_its_task(stores: OpenStore) -> None:
    """Reports to another task cannot get in by a changed file of terms."""
    stores(TASK)
    with pytest.raises(InputError, match=r"for the task .*; allowed: one for"):
        stores(make_task(epsilon=2.0))


def test_whoever_estimates_reads_while_a_collector_writes(stores: OpenStore) -> None:
    """A reader sees what is committed, no half of a group, and cannot write."""
    writer = stores(TASK)
    first, *others = accepted(TASK, batches(TASK, 300))
    writer.keep([first])
    reader = stores(TASK, read_only=True)
    require_equal(reader.tally(), expected(first))
    writer.keep(others)
    require_equal(reader.recount(), expected(first, *others))
    with pytest.raises(StoreFailed):
        reader.keep([Accepted(0, flip(first.ids), first.reports, first.places)])


def test_two_collectors_may_share_a_store(stores: OpenStore) -> None:
    """What two of them store adds up, and a report that both are given counts once."""
    one, other = stores(TASK), stores(TASK)
    mine, yours = accepted(TASK, batches(TASK, 300, 1)), accepted(TASK, batches(TASK, 300, 2))
    one.keep(mine)
    other.keep(yours)
    assert (np.concatenate(other.keep(mine)) == Verdict.KNOWN).all()
    for store in (one, other):
        require_equal(store.recount(), expected(*mine, *yours))


def test_a_changed_database_is_found_out(tmp_path: Path) -> None:
    """A recount notices a report that was added, lost or made up behind the collector's back."""
    path = tmp_path / "reports.sqlite"
    store = open_store(str(path), TASK)
    store.keep(accepted(TASK, batches(TASK, 300)))
    database = sqlite3.connect(path, isolation_level=None)
    (name, report) = database.execute(
        "SELECT id, report FROM reports WHERE question = 0"
    ).fetchone()
    database.execute("DELETE FROM reports WHERE id = ?", (name,))
    with pytest.raises(StoreFailed, match="running sums"):
        store.recount()
    database.execute("INSERT INTO reports VALUES (?, 0, ?)", (name, b"\xff"))
    with pytest.raises(StoreFailed, match="no client could have made"):
        store.recount()
    database.execute("UPDATE reports SET report = ? WHERE id = ?", (report, name))
    assert store.recount().clients == 300
    database.execute("UPDATE reports SET report = ? WHERE id = ?", (report + b"\0", name))
    with pytest.raises(StoreFailed, match="another length"):
        store.recount()
    database.close()
    store.close()


@pytest.mark.parametrize("blob", ["x''", "x'00'", "zeroblob(8)", "zeroblob(8000)"])
def test_running_sums_of_another_length_are_found_out(tmp_path: Path, blob: str) -> None:
    """They are never added to, nor estimated from, however many there are."""
    path = tmp_path / "reports.sqlite"
    store = open_store(str(path), TASK)
    arrived = accepted(TASK, batches(TASK, 300))
    store.keep(arrived)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"UPDATE tallies SET sums = {blob}")  # noqa: S608  (our own words)
    for use in (store.tally, lambda: store.keep(accepted(TASK, batches(TASK, 300, 9)))):
        with pytest.raises(StoreFailed, match="running sums are stored that have another length"):
            use()
    database.close()
    store.close()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    """A database that no collector made is refused as it is, and so is one that is not there."""
    path = tmp_path / "mine.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE accounts (name TEXT)")
    database.close()
    with pytest.raises(InputError, match="a file that a collector has made"):
        open_store(str(path), TASK)
    with pytest.raises(StoreFailed, match="unable to open"):
        open_store(str(tmp_path / "nothing.sqlite"), TASK, read_only=True)
    (tmp_path / "text").write_text("not a database at all, but a text that is long enough" * 20)
    with pytest.raises(StoreFailed, match="not a database"):
        open_store(str(tmp_path / "text"), TASK)


def test_an_acknowledged_report_is_on_the_disk(tmp_path: Path) -> None:
    """The write-ahead log is synchronised with each transaction, whatever SQLite's default is."""
    store = open_store(str(tmp_path / "reports.sqlite"), TASK)
    database = store._db  # type: ignore[attr-defined]  # noqa: SLF001  (what is tested)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
