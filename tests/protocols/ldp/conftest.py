"""Stores of reports in tests: SQLite files, and a PostgreSQL server if available."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Store

OpenStore = Callable[..., Store]
_BINARIES = (*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr/local/pgsql").glob("bin"))


def _program(name: str) -> str | None:
    return shutil.which(name) or next(
        (str(folder / name) for folder in _BINARIES if (folder / name).exists()), None
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a private server without a network, and return the URL for its databases."""
    pytest.importorskip("psycopg", reason="psycopg is part of the extra `postgres`")
    initdb, server = _program("initdb"), _program("postgres")
    if initdb is None or server is None:
        pytest.skip("no PostgreSQL server is installed")
    # A server refuses to be root; a socket's path may have 107 characters, so no tmp_path.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    folder = Path(tempfile.mkdtemp(prefix="veilring-pg-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = str(folder / "data")
    subprocess.run(
        [initdb, "-D", data, "-U", "veilring", "-A", "trust", "--no-sync", "-E", "UTF8"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        **as_user,
    )
    chosen = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off")
    settings = [word for setting in chosen for word in ("-c", setting)]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [server, "-D", data, *settings], stderr=log, stdout=log, cwd=folder, **as_user
        )
    try:
        _wait_for(folder)
        yield f"postgresql:///postgres?host={folder}&user=veilring"
    finally:
        running.send_signal(signal.SIGQUIT)  # at once: its content is not needed
        running.wait(30)
        shutil.rmtree(folder)


def _wait_for(folder: Path) -> None:
    for _ in range(300):
        if (folder / "log").read_text().count("ready to accept connections"):
            return
        time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())


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

    def open_at(task: Task, *, read_only: bool = False) -> Store:
        if not opened and not read_only:
            begin_report_store(where)
        opened.append(open_report_store(where, task, read_only=read_only))
        return opened[-1]

    yield open_at
    for store in opened:
        store.close()
