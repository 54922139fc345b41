"""Stored reports count once, permanently, and the running sums always match them.

All stores keep these promises: SQLite files, and PostgreSQL if a server is installed.
"""

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.ldp.collecting import (
    accepted,
    batches,
    keep,
    make_task,
    new_store,
    require_equal,
)
from tests.refusals import require_refused

from veilring.deployment import back_up_state
from veilring.errors import InputError, StoreFailed, VeilringError
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.messages import ID_BYTES, Accepted, ReportVerdict, Task
from veilring.protocols.ldp.store import base, begin_report_store, open_report_store, rename_task
from veilring.protocols.ldp.store.base import Quotas, Senders, Store, StoredReports, recount_all
from veilring.protocols.ldp.store.sqlite import DIGEST_END, digest_reports

OpenStore = Callable[..., Store]
TASK = make_task()
COUNTED, KNOWN, REUSED_ID = ReportVerdict.COUNTED, ReportVerdict.KNOWN, ReportVerdict.REUSED_ID
OVER_QUOTA = ReportVerdict.OVER_QUOTA
FIRST, SECOND, THIRD = REPORTS = accepted(TASK, batches(TASK, 300))
_SERVERS = (*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/local/pgsql/bin"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a private server without a network, and return the URL for its databases."""
    pytest.importorskip("psycopg", reason="psycopg is part of the extra `postgres`")
    program = shutil.which(
        "pg_ctl", path=os.pathsep.join(map(str, (os.environ["PATH"], *_SERVERS)))
    )
    if program is None:
        pytest.skip("no PostgreSQL server is installed")
    # A server refuses to be root; a socket's path may have 107 characters, so no tmp_path.
    folder, as_user = Path(tempfile.mkdtemp(prefix="veilring-pg-")), dict[str, Any]()
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def control(*words: str) -> None:
        command = [program, "-s", "-D", str(folder / "data"), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)

    control("initdb", "-o", "-U veilring -A trust --no-sync -E UTF8")
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    control("start", "-l", str(folder / "log"), "-o", settings)
    yield f"postgresql:///postgres?host={folder}&user=veilring"
    control("stop", "-m", "immediate")  # its content is not needed
    shutil.rmtree(folder)


_databases = count()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a location for a new store."""
    if request.param == "sqlite":
        return str(tmp_path / "reports.sqlite")
    import psycopg  # noqa: PLC0415  (an extra)

    url: str = request.getfixturevalue("postgres")
    name = f"test_{next(_databases)}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")  # our own name
    return url.replace("/postgres?", f"/{name}?")


@pytest.fixture
def stores(where: str) -> Iterator[OpenStore]:
    """Open stores at one location, any number of times."""
    opened: list[Store] = []

    def open_at(task: Task = TASK, *, read_only: bool = False) -> Store:
        if not opened and not read_only:
            begin_report_store(where)
        opened.append(open_report_store(where, task, read_only=read_only))
        return opened[-1]

    yield open_at
    for store in opened:
        store.close()


@pytest.fixture
def store(stores: OpenStore) -> Store:
    """Open a new store."""
    return stores()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an SQLite file with reports."""
    path = tmp_path / "reports.sqlite"
    with closing(new_store(str(path))) as store:
        keep(store, REPORTS)
    return path


def require_kept(store: Store, *arrived: Accepted, without: Sequence[str] = ()) -> None:
    """Require that a store has these reports, by a tally computed independently of stores."""
    expected = Tally.of(TASK.survey, [(each.question, each.reports) for each in arrived])
    require_equal(store.recount(without=without), expected)


def require(
    store: Store, arrived: Sequence[Accepted], verdict: ReportVerdict, *, member: str = "ada"
) -> None:
    """Store reports, and require that all of them get one verdict."""
    assert set(np.concatenate(keep(store, arrived, member=member)).tolist()) == {verdict}


def part_of(arrived: Accepted, rows: slice | NDArray[np.generic]) -> Accepted:
    """Return some of the arrived reports, as if no others had arrived."""
    ids, reports = arrived.ids[rows], arrived.reports[rows]
    return Accepted(arrived.question, ids, reports, np.arange(len(ids)))


def flip(table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return other bytes."""
    return np.bitwise_xor(table, np.uint8(1))


def test_a_new_report_counts_once_and_survives_a_restart(stores: OpenStore) -> None:
    """A repeated report is known and not counted again, in the same store and in the next."""
    store = stores()
    assert store.tally().clients == 0
    require(store, REPORTS, COUNTED)
    require(store, REPORTS, KNOWN)
    store.close()
    reopened = stores()
    require(reopened, REPORTS, KNOWN)
    require_kept(reopened, *REPORTS)
    require_equal(reopened.tally(), reopened.recount())


def test_repeats_within_a_group_count_once(store: Store) -> None:
    """Of equal reports one counts and the others are known, or none is beyond a full quota."""
    few = part_of(FIRST, slice(10))
    (verdicts,) = keep(store, [part_of(few, np.repeat(np.arange(10), 2))], quotas=Quotas(3))
    assert np.bincount(verdicts, minlength=9)[[COUNTED, KNOWN, OVER_QUOTA]].tolist() == [3, 3, 14]
    (verdicts,) = keep(store, [part_of(SECOND, np.repeat(np.arange(10), 2))])
    assert np.bincount(verdicts).tolist() == [10, 10]
    require_kept(store, part_of(FIRST, slice(3)), part_of(SECOND, slice(10)))


def test_an_id_with_other_bytes_or_another_question_is_refused(store: Store) -> None:
    """An id belongs to its first report, in any group and question, and all its bytes count."""
    keep(store, [FIRST, SECOND])
    flipped = Accepted(1, SECOND.ids, flip(SECOND.reports), SECOND.places)
    few = min(len(FIRST.ids), len(THIRD.ids))
    renamed = Accepted(2, FIRST.ids[:few], THIRD.reports[:few], THIRD.places[:few])
    require(store, [flipped, renamed], REUSED_ID)
    ids, report = np.repeat(THIRD.ids[:1], 3, axis=0), THIRD.reports[:1]
    reports = np.concatenate((report, flip(report), report))
    (together,) = keep(store, [Accepted(2, ids, reports, np.arange(3))])
    assert together.tolist() == [COUNTED, REUSED_ID, KNOWN]
    ids = np.vstack((np.zeros((1, ID_BYTES)), np.eye(ID_BYTES))).astype(np.uint8)
    near = Accepted(0, ids, np.zeros((len(ids), 1), dtype=np.uint8), np.arange(len(ids)))
    require(store, [near], COUNTED)
    require(store, [near], KNOWN)
    require_kept(store, FIRST, SECOND, part_of(THIRD, slice(1)), near)


@pytest.mark.parametrize("closed", [False, True])
def test_new_and_known_reports_in_any_order_get_their_own_verdicts(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, closed: bool
) -> None:
    """Verdicts are at their reports' positions, in groups of any size, before and after closing."""
    monkeypatch.setattr(base, "PIECE_REPORTS_MAX", 16)
    before = np.random.default_rng(2).random(len(FIRST.ids)) < 0.5
    keep(store, [part_of(FIRST, before)])
    verdicts = keep(store, REPORTS, closed=closed)
    new = ReportVerdict.CLOSED if closed else COUNTED
    np.testing.assert_array_equal(verdicts[0], np.where(before, KNOWN, new))
    assert set(np.concatenate(verdicts[1:])) == {new}
    require_kept(store, *([part_of(FIRST, before)] if closed else REPORTS))


def test_a_lossy_database_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports that are neither stored nor accepted end the transaction without effect."""
    insert = type(store)._insert  # noqa: SLF001  (what drops it)
    monkeypatch.setattr(
        type(store), "_insert", lambda self, q, some: insert(self, q, some.at(slice(len(some) - 1)))
    )
    with pytest.raises(StoreFailed, match="refused reports that it does not contain"):
        keep(store, REPORTS)
    monkeypatch.undo()
    require(store, REPORTS, COUNTED)


def test_a_failed_transaction_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the sums cannot be written, the reports are not stored either, until the next attempt."""
    keep(store, [FIRST])
    monkeypatch.setattr(store, "_write", Mock(side_effect=StoreFailed("the disk is full")))
    with pytest.raises(StoreFailed, match="full"):
        keep(store, REPORTS)
    monkeypatch.undo()
    require_kept(store, FIRST)
    require(store, REPORTS[1:], COUNTED)


def test_a_store_belongs_to_its_task(stores: OpenStore) -> None:
    """Reports to another task cannot enter by a changed file of terms."""
    stores().close()
    other, says = make_task(epsilon=2.0), r"for the task .*, but this task is"
    require_refused(says, stores, other)
    require_refused(says, lambda: stores(other, read_only=True).tally())


def test_estimates_can_be_read_while_a_collector_writes(stores: OpenStore) -> None:
    """A reader sees committed data, no partial group, and cannot write."""
    writer = stores()
    keep(writer, [FIRST])
    reader = stores(read_only=True)
    require_equal(reader.tally(), writer.recount())
    require_kept(reader, FIRST)
    keep(writer, [SECOND, THIRD])
    require_kept(reader, *REPORTS)
    with pytest.raises(StoreFailed):
        keep(reader, [Accepted(0, flip(FIRST.ids), FIRST.reports, FIRST.places)])


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
def test_two_collectors_may_share_a_server(stores: OpenStore) -> None:
    """The reports of two collectors add up, and a report that reaches both counts once."""
    one, other = stores(), stores()
    yours = accepted(TASK, batches(TASK, 300, 2))
    keep(one, REPORTS)
    keep(other, yours)
    require(other, REPORTS, KNOWN)
    for store in (one, other):
        require_kept(store, *REPORTS, *yours)
        assert store.members() == {"ada": 600}


def test_one_collector_at_a_time_writes_a_file_durably(path: Path) -> None:
    """Another one is refused, and each transaction is on the disk, for any SQLite default."""
    with closing(open_report_store(str(path), TASK)) as first:
        require_refused("reports.sqlite is locked", open_report_store, str(path), TASK)
        database = first._db  # type: ignore[attr-defined]  # noqa: SLF001  (the tested attribute)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_members_quota_counts_in_the_transaction(stores: OpenStore) -> None:
    """The first reports up to the quota count, over all questions and restarts; others wait."""
    quotas, store = Quotas(100, {"bob": 200}), stores()

    def number(of: ReportVerdict, quotas: Quotas, *given: Accepted, member: str = "ada") -> int:
        verdicts = keep(store, given or REPORTS, quotas=quotas, member=member)
        return int((np.concatenate(verdicts) == of).sum())

    verdicts = keep(store, REPORTS, quotas=quotas)
    counted = np.concatenate(verdicts) == COUNTED
    assert counted.sum() == 100
    assert set(np.concatenate(verdicts)[~counted]) == {OVER_QUOTA}
    fit = [slice(int((each == COUNTED).sum())) for each in verdicts]
    require_kept(store, *map(part_of, REPORTS, fit))
    store.close()
    store = stores()
    again = np.concatenate(keep(store, REPORTS, quotas=quotas))
    assert (again == np.where(counted, KNOWN, OVER_QUOTA)).all()
    assert number(COUNTED, quotas, *accepted(TASK, batches(TASK, 300, 8)), member="bob") == 200
    assert store.members() == {"ada": 100, "bob": 200}
    assert number(COUNTED, Quotas(250)) == 150
    assert number(KNOWN, Quotas(5)) == 250
    assert store.members() == {"ada": 250, "bob": 200}


def test_each_member_of_a_group_has_its_own_quota(store: Store) -> None:
    """Of concurrent reports of several members, the first of each member count."""
    few, senders = part_of(FIRST, slice(30)), Senders(("ada", "bob", "eve"), np.arange(30) % 3)
    (verdicts,) = store.keep([few], senders, quotas=Quotas(4, {"bob": 0, "eve": 99}))
    assert verdicts[::3].tolist() == [COUNTED] * 4 + [OVER_QUOTA] * 6
    assert set(verdicts[1::3]) == {OVER_QUOTA}
    assert set(verdicts[2::3]) == {COUNTED}
    assert store.members() == {"ada": 4, "bob": 0, "eve": 10}


def test_a_members_reports_can_be_left_out(stores: OpenStore) -> None:
    """A recount without a member is the tally of the others, and an unknown member is named."""
    writer = stores()
    keep(writer, REPORTS)
    keep(writer, accepted(TASK, batches(TASK, 200, 2)), member="eve")
    store = stores(read_only=True)
    assert store.members() == {"ada": 300, "eve": 200}
    require_kept(store, *REPORTS, without=["eve"])
    require_kept(store, without=["ada", "eve"])
    with store.transaction():
        left = [sum(map(len, store.stored(question, without=["eve"]))) for question in range(3)]
    assert left == [len(each.ids) for each in REPORTS]
    require_refused("without is 'mallory'; .*: ada, eve", store.recount, without=["mallory"])


def half_of(arrived: Sequence[Accepted], bit: int) -> list[Accepted]:
    """Return the reports whose ids have this last bit."""
    return [part_of(each, each.ids[:, -1] & 1 == bit) for each in arrived]


def test_several_stores_count_like_one(stores: OpenStore, tmp_path: Path) -> None:
    """Reports divided among stores have the tally and members of one store that got them all.

    A report in two stores counts once, for the first store's member, and of two reports with one id
    the first counts, as one store would have it.
    """
    left, right = half_of(REPORTS, 0), half_of(REPORTS, 1)
    eve = accepted(TASK, batches(TASK, 200, 2))
    other = Accepted(1, left[0].ids[:1], SECOND.reports[:1], np.arange(1))
    one, two = stores(), new_store(str(tmp_path / "two.db"))
    whole = new_store(str(tmp_path / "whole.db"))
    for each, arrived, member in (
        (one, left, "ada"),
        (two, right, "ada"),
        (two, eve, "eve"),
        (two, left[1:], "bob"),
        (two, [other], "bob"),
    ):
        keep(each, arrived, member=member)
        keep(whole, arrived, member=member)
    readers = [
        stores(read_only=True),
        open_report_store(str(tmp_path / "two.db"), TASK, read_only=True),
    ]
    for opened in ([one, two], readers):
        found = recount_all(opened)
        require_equal(found.tally, whole.tally())
        assert found.members == whole.members() == {"ada": 300, "bob": 0, "eve": 200}
        assert (found.repeated, found.reused) == (sum(len(each.ids) for each in left[1:]), 1)
        fewer = recount_all(opened, without=["eve"])
        require_equal(fewer.tally, whole.recount(without=["eve"]))
        require_refused(
            "without is 'mallory'; .*: ada, bob, eve", recount_all, opened, without=["mallory"]
        )
    two.close()
    whole.close()


SUMS, DAMAGED = "running sums", "reports.sqlite is damaged .*Restore your newest copy"
CHANGES = {
    "UPDATE reports SET report = x'01' WHERE id = (SELECT id FROM some WHERE report = x'00')": SUMS,
    "UPDATE reports SET question = 2 WHERE id = (SELECT id FROM reports WHERE question = 1)": SUMS,
    "UPDATE reports SET question = 9 WHERE id = (SELECT id FROM some)": SUMS,
    "UPDATE reports SET id = zeroblob(16) WHERE id = (SELECT id FROM some)": None,
    "UPDATE reports SET report = x'' WHERE id = (SELECT id FROM some)": "wrong length",
    "UPDATE reports SET report = x'ff' WHERE id = (SELECT id FROM some)": "made by any client",
    "UPDATE reports SET member = x'02000000' WHERE id = (SELECT id FROM some)": "members' counts",
    "DELETE FROM reports WHERE id = (SELECT id FROM some)": SUMS,
    "DELETE FROM reports": SUMS,
    "INSERT INTO reports VALUES (zeroblob(16), 0, x'01000000', x'00')": SUMS,
    "INSERT INTO reports VALUES (zeroblob(16), 9, x'01000000', x'00')": None,
    "UPDATE tallies SET sums = x''": DAMAGED,
    "UPDATE tallies SET digest = zeroblob(8)": DAMAGED,
    "UPDATE members SET reports = 0": DAMAGED,
    "DELETE FROM task": DAMAGED,
}


@pytest.mark.parametrize(("change", "says"), CHANGES.items())
def test_manual_changes_are_refused(path: Path, change: str, says: str | None) -> None:
    """A collector does not start on what it has not written, and a recount has no part of it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "CREATE TEMP VIEW some AS SELECT * FROM reports WHERE question = 0 ORDER BY report"
        )
        assert database.execute(change).rowcount > 0
    store = open_report_store(str(path), TASK, read_only=True)
    if says is None:
        assert store.recount().clients == 300
    else:
        with pytest.raises(StoreFailed, match=says):
            store.recount()
    with pytest.raises(StoreFailed, match=DAMAGED):
        open_report_store(str(path), TASK)


def test_two_swapped_reports_have_another_digest() -> None:
    """Each report is hashed with its id, and the position of each byte counts."""
    rng = np.random.default_rng(4)
    for width in (1, 7, 8, 9, 200):
        ids, reports = (
            rng.integers(256, size=(50, size), dtype=np.uint8) for size in (ID_BYTES, width)
        )
        members = np.ones(50, dtype=np.int64)
        reports[0] = reports[1] ^ 1
        some = StoredReports(ids, reports, members)
        digest = digest_reports(0, some)
        halves = digest_reports(0, some.at(slice(20))) + digest_reports(0, some.at(slice(20, None)))
        assert halves % DIGEST_END == digest
        changed = [reports[[1, 0, *range(2, 50)]], *np.repeat(reports[None], width, axis=0)]
        for column, flipped in enumerate(changed[1:]):
            flipped[7, column] ^= 128
        others = {digest_reports(0, StoredReports(ids, each, members)) for each in changed}
        assert len({digest, digest_reports(1, some), *others}) == 3 + width


def test_a_disk_failure_is_named_and_survived(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed transaction, the next one finds every report acknowledged before it."""
    broken = Mock(side_effect=sqlite3.OperationalError("disk I/O error"))
    more = accepted(TASK, batches(TASK, 300, 1))
    with closing(open_report_store(str(path), TASK)) as store:
        monkeypatch.setattr(store, "_credit", broken)
        with pytest.raises(StoreFailed, match=r"reports.sqlite: disk I/O error"):
            keep(store, more)
        monkeypatch.undo()
        require(store, more, COUNTED)
        require_kept(store, *REPORTS, *more)


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    """A database of another program, a text and a missing file are refused, each by its reason."""
    foreign, text = tmp_path / "mine.sqlite", tmp_path / "text"
    with closing(sqlite3.connect(foreign)) as database:
        database.execute("CREATE TABLE accounts (name TEXT)")
    text.write_text("not a database at all, but a text that is long enough" * 20)
    for path in (foreign, text):
        kind = "allowed: a store of reports of veilring"
        require_refused(kind, open_report_store, str(path), TASK)
    missing = open_report_store(str(tmp_path / "nothing.sqlite"), TASK, read_only=True)
    require_refused("allowed: an existing file", missing.tally)


def test_a_copy_made_during_a_collection_is_complete(path: Path) -> None:
    """A copy of the store is one file with all acknowledged reports; a server makes its own."""
    copy = path.with_name("copy.sqlite")
    with closing(open_report_store(str(path), TASK)) as store:
        back_up_state(path, copy)
        keep(store, accepted(TASK, batches(TASK, 300, 1)))
    with closing(open_report_store(str(copy), TASK)) as copied:
        require_kept(copied, *REPORTS)


@pytest.mark.parametrize(
    ("secret", "port", "kind"),
    [
        *(
            (each, 1, InputError)
            for each in ("hid%den", "hid%zzden", "hid den", "x@hidden", "1/hidden")
        ),
        ("hidden", "one", StoreFailed),
        ("hidden", 1, StoreFailed),
        ("%40hidden", 1, StoreFailed),
    ],
)
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_password_of_a_database_is_never_shown(
    scheme: str, secret: str, port: object, kind: type[VeilringError]
) -> None:
    """Neither an unreadable URL nor an unreachable server shows a part of it in the error."""
    pytest.importorskip("psycopg", reason="psycopg is part of the extra `postgres`")
    with pytest.raises(kind) as caught:
        open_report_store(f"{scheme}://census:{secret}@127.0.0.1:{port}/survey", TASK)
    shown = "".join(traceback.format_exception(caught.value, limit=0)) + repr(caught.value)
    for part in ("hid", "den"):
        assert part not in shown


def test_a_task_in_a_database_gets_a_new_encoding(postgres: str) -> None:
    """Its reports stay counted, and only a store of the new encoding opens it."""
    import psycopg  # noqa: PLC0415  (an extra)

    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("CREATE DATABASE renamed")
    url = postgres.replace("/postgres?", "/renamed?")
    with closing(new_store(url)) as store:
        keep(store, REPORTS)
    now = Task({"columns": ["a", "b"], "new": True}, TASK.survey)
    for dry_run in (True, False):
        assert rename_task(url, lambda _: now.encoded, dry_run=dry_run) == now.encoded
        opens, refuses = (TASK, now) if dry_run else (now, TASK)
        with closing(open_report_store(url, opens)) as store:
            require_kept(store, *REPORTS)
        with pytest.raises(InputError, match="is for the task"):
            open_report_store(url, refuses)
    assert rename_task(url, lambda body: body) is None
