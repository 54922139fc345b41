"""The files of parties: they are private to their owner, and their disk may fail."""

import os
import resource
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from tests.deployment.collection import Collect, kept
from tests.deployment.commands import PARTIES, SECONDS, Deploy
from tests.deployment.members import all_served

from veilring.data.npz import Vectors, write_vectors
from veilring.deployment import asking
from veilring.deployment.duties import load_config_of
from veilring.deployment.peers import MemberConfig, serve_member
from veilring.errors import SessionAborted, StoreFailed

Fault = Callable[[Path, int], AbstractContextManager[object]]
"""Makes a state file fail for the process that writes it: `fault(path, pid)`."""
_OPENED_BYTES: Final = 32_768
"""The size of the index of a log, which opening a state file writes."""


@contextmanager
def locked(path: Path, _pid: int) -> Iterator[None]:
    """Hold SQLite's own lock, as another program may while reading the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(path: Path, pid: int) -> Iterator[None]:
    """Prevent all files of the process from growing, as on a full disk."""
    log = path.with_name(f"{path.name}-wal")
    most = log.stat().st_size if log.exists() else _OPENED_BYTES
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # a process that ended needs none
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("fault", [pytest.param(locked, marks=pytest.mark.slow), full])
@pytest.mark.parametrize(
    ("system", "parties", "clients"),
    [("owner", ("owner",), ("analyst-0", "analyst-1")), ("votes", PARTIES, ("client", "client"))],
    ids=["owner", "votes"],
)
def test_a_party_with_a_failing_disk_ends_and_recovers(
    deploy: Deploy,
    monkeypatch: pytest.MonkeyPatch,
    *,
    system: str,
    parties: tuple[str, ...],
    clients: tuple[str, str],
    fault: Fault,
) -> None:
    """It ends with exit code 1 and one sentence, the client learns why, and nothing is lost.

    Meanwhile the other parties, if any, pay for nothing, and repeat what was paid for.
    """
    monkeypatch.setattr(asking, "REPEAT_PAUSES", ())
    deployed, failing = deploy(system), parties[-1]
    if system == "votes":
        header, *rows = (deployed.folder / "queries.csv").read_text().splitlines()
        for number, some in enumerate((rows[:20], rows[20:30])):
            (deployed.folder / f"asked-{number}.csv").write_text("\n".join([header, *some]))
    else:
        for number, name in enumerate(clients):
            (deployed.folder / f"{name}.csv").rename(deployed.folder / f"asked-{number}.csv")
    first, other = (("ask", f"{n}.toml", f"asked-{k}.csv") for k, n in enumerate(clients))

    def spent() -> set[float]:
        return {deployed.totals(name).spent for name in parties}

    deployed.serve(*parties)
    told = deployed.call(*first).stdout
    (price,) = spent()
    with fault(deployed.folder / f"{failing}.db", deployed.running[failing].pid):
        refused = deployed.call(*other, code=1)
        ended = deployed.running.pop(failing)
        assert ended.wait(SECONDS) == 1, ended.output
    assert "StoreFailed" in refused.stderr
    assert failing in refused.stderr
    assert "Traceback" not in ended.output
    said = ended.output.splitlines()[-1]
    assert said.startswith("veilring: the ledger failed: ")
    assert "start the server again" in said
    if len(parties) > 1:
        deployed.call(*other, code=1)
        assert deployed.call(*first).stdout == told
    assert spent() == {price}
    deployed.serve(failing)
    assert deployed.call(*first).stdout == told
    deployed.call(*other)
    assert spent() == {2 * price}
    deployed.end_in_order()


async def test_a_member_with_a_full_disk_does_not_start(deploy: Deploy) -> None:
    """It writes as much as a charge before it connects to the others, and names the cause."""
    folder = deploy("votes").folder
    async with all_served(folder) as served:
        before = await served.labels(0, 20)
        spent = served.spent()
    config = load_config_of(folder / "party-2.toml", MemberConfig, "this")
    with (
        full(folder / "party-2.db", os.getpid()),
        pytest.raises(StoreFailed, match=r"the ledger failed: .* Check the disk"),
    ):
        await serve_member(config)
    async with all_served(folder) as served:  # with space again
        assert await served.labels(0, 20) == before
        assert served.spent() == spent


_NOTHING: Final = "PRAGMA query_only = 1"
_NO_QUERY: Final = (
    "CREATE TEMP TRIGGER full BEFORE INSERT ON main.searched"
    " BEGIN SELECT RAISE(ABORT, 'attempt to write'); END"
)


@pytest.mark.parametrize(
    ("fails", "fault"),
    [("record of usage", _NOTHING), ("trail", _NOTHING), ("memory of queries", _NO_QUERY)],
)
async def test_a_member_that_cannot_remember_queries_ends(
    deploy: Deploy, fails: str, fault: str
) -> None:
    """Its disk has failed, so the batch fails and it takes part in no other one.

    With a policy, queries are counted before they are remembered.
    """
    deployed = deploy("rank-search")
    if fails == "trail":
        deployed.edit("party-1.toml", 'policy = "party-1.policy.toml"', "")
    async with all_served(deployed.folder) as served:
        served.members["party-1"].kept.file.connection.execute(fault)
        with pytest.raises(SessionAborted):
            await served.labels(0, 2)
        with pytest.raises(StoreFailed, match=f"the {fails} failed: attempt to write"):
            await served.until_ended("party-1")


def test_a_collector_outlives_a_full_disk(collect: Collect) -> None:
    """It keeps running without acknowledging anything, and stores the reports once there is space.

    The survey client sends them again.
    """
    collection = collect(1500)
    collector = collection.running["collector"]
    with full(collection.folder / "collector.db", collector.pid):
        submitted = collection.submit(0)
        said = "nothing was stored; clients must send their reports again"
        collection.wait_for("collector", said)
        assert submitted.poll() is None, submitted.output
        assert not collection.counted()
    assert kept(collection.well_ended(submitted)) == 1500
    assert collector.poll() is None
    collection.kill()
    assert collection.require_sound() == 1500


# Nothing in these says anything of a row.
PUBLIC = (".toml", ".log")


@pytest.fixture
def generous() -> Iterator[None]:
    """Make new files readable by all users by default."""
    before = os.umask(0)
    yield
    os.umask(before)


def require_private(folder: Path) -> None:
    """Require that only its owner can read each file of a folder, for any umask."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in PUBLIC]
    assert files
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
    assert modes == dict.fromkeys(modes, 0o600)


@pytest.mark.usefixtures("generous")
def test_a_collection_leaves_only_private_files(collect: Collect) -> None:
    """Rows, reports, their log and index, outboxes, exports and models have mode 0600."""
    collection = collect(1000)
    collection.submitted()
    collection.call("estimate", "collector.toml", "--save", "model.json")
    collection.call("export", "collector.toml", "--out", "reports")
    require_private(collection.folder)


@pytest.mark.usefixtures("generous")
@pytest.mark.parametrize("system", ["ring", "prediction"])
def test_rows_of_a_trial_are_private(deploy: Deploy, system: str) -> None:
    """All files with rows or queries that `veilring deploy` writes have mode 0600."""
    require_private(deploy(system).folder)


@pytest.mark.usefixtures("generous")
def test_labels_and_vectors_are_private(deploy: Deploy) -> None:
    """The labels of `veilring ask --out`, the owner's ledger, and an .npz have mode 0600."""
    owner = deploy("owner")
    owner.serve("owner")
    owner.call("ask", "analyst-0.toml", "analyst-0.csv", "--out", "labels.csv")
    vectors = Vectors(np.zeros((2, 3), np.float32), None, None, None)
    write_vectors(vectors, owner.folder / "rows.npz")
    require_private(owner.folder)
