"""Damage to the files of a role's durable state: altered, truncated or removed.

Each role is deployed and used over TLS, and its process is stopped in order or killed. Then its
files are damaged, one location at a time, and the role restarts. Either its state is complete, or
it refuses to start with an error that names the file, and leaves the files unchanged.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.deployment.commands import SECONDS, VOTES, Command, Server, call, wait_until
from typing_extensions import override

from veilring.deployment.prediction import PredictionTerms, read_records
from veilring.deployment.survey import SurveyTerms
from veilring.errors import VeilringError
from veilring.privacy.ledger import LEDGER, read_totals
from veilring.privacy.statefile import open_state_file
from veilring.protocols.ldp import store as reports
from veilring.protocols.ldp.outbox import Outbox
from veilring.protocols.ldp.store.base import Store
from veilring.protocols.prediction.state import open_state
from veilring.testing.ports import reserve_ports

# Places of each file that are damaged; VEILRING_DAMAGES=200 takes some minutes.
PLACES: Final = int(os.environ.get("VEILRING_DAMAGES", "6"))
FORGOTTEN: Final = "record-7"

Files = dict[str, bytes]


@dataclass(frozen=True)
class Role:
    """A role whose files are damaged, and the means to check that its state is complete.

    Attributes:
        start: The words of the command that opens the files.
        files: The main files, without their companions.
        content: Opens the files as the command does, and returns their content.
        use: Makes a deployment, uses it, and returns the servers that are still running.
    """

    start: tuple[str, ...]
    files: tuple[str, ...]
    content: Callable[[Path], object]
    use: Callable[[Path], list[Server]]

    def read(self, folder: Path) -> Files:
        """Return all files with content that the role has written."""
        paths = (path for name in self.files for path in folder.glob(f"{name}*"))
        return {
            str(path.relative_to(folder)): content
            for path in sorted(paths)
            if not path.name.endswith("-shm") and (content := path.read_bytes())
        }

    def write(self, folder: Path, files: Files) -> None:
        """Replace the existing files by others."""
        for name in self.files:
            for path in folder.glob(f"{name}*"):
                path.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)


def serving(folder: Path, *names: str) -> list[Server]:
    """Serve some parties, and wait until they are ready."""
    servers = [Server(folder, name) for name in names]
    for server in servers:
        server.start()
    for server in servers:
        server.wait_until_ready()
    return servers


def ask(folder: Path, client: str) -> None:
    """Label a client's queries."""
    call("ask", folder / f"{client}.toml", folder / f"{client}.csv")


def in_ledger(path: Path) -> object:
    """Return the content of a ledger."""
    with closing(open_state_file(path, LEDGER)) as file:
        return [
            file.connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  (tables of ours)
            for table in LEDGER.sealed
        ]


def use_owner(folder: Path) -> list[Server]:
    """Ask an owner, as two analysts."""
    options = ("--radius", 0.3, "--epsilon", 0.1, "--port", reserve_ports())
    call("deploy", "owner", "iris", *options, "--out", folder)
    servers = serving(folder, "owner")
    for client in ("analyst-0", "analyst-1"):
        ask(folder, client)
    return servers


def use_votes(folder: Path) -> list[Server]:
    """Ask three members together."""
    call("deploy", "peers", "iris", *VOTES, "--port", reserve_ports(3), "--out", folder)
    servers = serving(folder, *(f"party-{number}" for number in range(3)))
    call("ask", folder / "client.toml", folder / "queries.csv")
    return servers


def use_places_client(folder: Path) -> list[Server]:
    """Ask a server for the places near two locations."""
    rows = folder.with_suffix(".csv")
    rows.write_text(
        "lat,lon\n" + "".join(f"{37.7 + n / 1000},{-122.4 + n / 700}\n" for n in range(99))
    )
    call("deploy", "places", rows, "--budget", 9, "--port", reserve_ports(), "--out", folder)
    servers = serving(folder, "server")
    for latitude in (37.72, 37.74):
        call("ask", folder / "client.toml", "--near", f"{latitude},-122.35", "--epsilon", 3)
    return servers


def use_prediction(folder: Path) -> list[Server]:
    """Add records, forget one, and ask."""
    call("deploy", "prediction", "wine", "--port", reserve_ports(), "--out", folder)
    servers = serving(folder, "server")
    call("records", "add", folder / "registrar.toml", folder / "records.csv")
    call("records", "forget", folder / "registrar.toml", FORGOTTEN)
    ask(folder, "client-0")
    return servers


def in_state(folder: Path) -> object:
    """Return the state of a prediction server."""
    terms = PredictionTerms.load(folder / "terms.toml")
    records = read_records(folder / "records.csv", terms, "id")
    kept = records.take([at for at, name in enumerate(records.ids) if name != FORGOTTEN])
    with open_state(terms.rules, folder / "server.db", terms.schema_digest) as state:
        known, missing = len(state), state.add(kept)  # refuses a record that has another row
    return known, missing, in_ledger(folder / "server.db")


class Submitting(Server):
    """A survey client whose collector was killed while reports flowed, and which waits for it."""

    def __init__(self, folder: Path, collector: Server) -> None:
        super().__init__(folder, "survey-client-0")
        self._collector = collector
        words = ("submit", "survey-client-0.toml", "survey-client-0.csv", "--single")
        self._command = command = Command(folder, *words, output=self.log)
        wait_until(lambda: stored_in(folder) > 0)
        collector.kill()
        # It waits, or on a busy machine it had all its receipts before.
        wait_until(lambda: "WARNING" in self.log.read_text() or command.poll() is not None)

    @override
    def end_in_order(self) -> None:
        self._collector.serve()
        assert self._command is not None
        assert self._command.wait(SECONDS) == 0, self.log.read_text()
        self._command = None
        self._collector.end_in_order()


def deploy_survey(folder: Path, clients: int) -> Server:
    """Serve a collector with one survey client."""
    options = ("--reports", clients, "--survey-clients", 1, "--port", reserve_ports())
    call("deploy", "survey", "iris", *options, "--out", folder)
    (server,) = serving(folder, "collector")
    return server


def stored_in(folder: Path) -> int:
    """Return the number of reports in the running sums of a collector."""
    with closing(open_reports(folder, read_only=True)) as store:
        return store.tally().clients


def open_reports(folder: Path, *, read_only: bool) -> Store:
    """Open a collector's store for writing like a collector, or for reading like estimates."""
    task = SurveyTerms.load(folder / "terms.toml").task
    return reports.open_report_store(str(folder / "collector.db"), task, read_only=read_only)


def use_collector(folder: Path) -> list[Server]:
    """Accept the reports of a survey client, and then of more of its clients."""
    server = deploy_survey(folder, 300)
    rows = folder / "survey-client-0.csv"
    lines = rows.read_text().splitlines(keepends=True)
    for part in (lines[:200], lines):
        rows.write_text("".join(part))
        call("submit", folder / "survey-client-0.toml", rows)
    return [server]


def in_reports(folder: Path) -> object:
    """Return all reports acknowledged by a collector, read and counted again."""
    with closing(open_reports(folder, read_only=False)) as store:
        tally = store.recount()
        return tally.counts, [sums.tolist() for sums in tally.sums], store.members()


def use_survey_client(folder: Path) -> list[Server]:
    """Submit until some reports are acknowledged and others are not."""
    return [Submitting(folder, deploy_survey(folder, 2000))]


def in_outbox(folder: Path) -> object:
    """Return the content of an outbox."""
    with Outbox(folder / "survey-client-0.db") as outbox:
        return [
            outbox._db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608, SLF001  (tables of the package; the stored content)
            for table in ("naming", "rows", "outgoing")
        ]


ROLES: Final = {
    "collector": Role(("serve", "collector.toml"), ("collector.db",), in_reports, use_collector),
    "survey-client": Role(
        ("submit", "survey-client-0.toml", "survey-client-0.csv"),
        ("survey-client-0.db",),
        in_outbox,
        use_survey_client,
    ),
    "data owner": Role(
        ("serve", "owner.toml"),
        ("owner.db",),
        lambda folder: in_ledger(folder / "owner.db"),
        use_owner,
    ),
    "votes member": Role(
        ("serve", "party-0.toml"),
        ("party-0.db",),
        lambda folder: in_ledger(folder / "party-0.db"),
        use_votes,
    ),
    "places-client": Role(
        ("ask", "client.toml", "--near", "37.73,-122.34", "--epsilon", "3"),
        ("client.db",),
        lambda folder: in_ledger(folder / "client.db"),
        use_places_client,
    ),
    "prediction server": Role(("serve", "server.toml"), ("server.db",), in_state, use_prediction),
}


def flipped(content: bytes, place: int) -> bytes:
    """Return a file with one bit flipped."""
    byte, bit = divmod(place, 8)
    return content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]


def cut(content: bytes, place: int) -> bytes:
    """Return the beginning of a file."""
    return content[: place // 8]


def damages(sound: Files, random: Random) -> tuple[list[Files], list[Files]]:
    """Return the files with one of them damaged at some place, and without one of them."""
    damaged = [
        sound | {name: damage(content, random.randrange(8 * len(content)))}
        for name, content in sound.items()
        for damage in (flipped, cut)
        for _ in range(PLACES)
    ]
    return damaged, [{each: sound[each] for each in sound if each != name} for name in sound]


@pytest.mark.parametrize(
    "killed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["closed", "killed"]
)
@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_damage_is_refused_or_harmless(tmp_path: Path, role: Role, *, killed: bool) -> None:
    """A flipped bit, a missing end or a missing file loses no charge, answer, row or report."""
    folder, random = tmp_path / "deployed", Random(1)
    servers = role.use(folder)
    for server in servers:
        if not killed:
            server.end_in_order()
        server.kill()
    sound = role.read(folder)
    whole = role.content(folder)
    role.write(folder, sound)
    assert role.content(folder) == whole
    damaged, removed = damages(sound, random)
    refused = [_refusal(role, folder, files, whole) for files in damaged + removed]
    assert len(refused) - refused.count("") > len(sound)
    for files in removed:
        role.write(folder, files)
        if _refusal(role, folder, files, whole):
            _require_refused_by_process(role, folder)


def _refusal(role: Role, folder: Path, files: Files, whole: object) -> str:
    """Return the reason for which a role refuses to start, or None if its state is complete."""
    role.write(folder, files)
    before = role.read(folder)
    try:
        found = role.content(folder)
    except VeilringError as error:
        said = str(error)
    else:
        assert found == whole, "something was lost in silence"
        return ""
    named = [name for name in role.files if Path(name).name in said]
    assert named, said
    for name, content in role.read(folder).items():
        if name.startswith(tuple(named)):
            assert content == before[name], "a refused file is left as it is"
    return said


def _require_refused_by_process(role: Role, folder: Path) -> None:
    log = folder / "refused.log"
    command = Command(folder, *role.start, output=log)
    assert command.wait(SECONDS) in {1, 2}
    said = log.read_text()
    assert "Traceback" not in said
    assert any(Path(name).name in said for name in role.files), said


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_damaged_store_never_gives_a_partial_estimate(tmp_path: Path, *, killed: bool) -> None:
    """Estimates never silently omit acknowledged reports."""
    folder, role, random = tmp_path / "deployed", ROLES["collector"], Random(2)
    (server,) = role.use(folder)
    if not killed:
        server.end_in_order()
    server.kill()
    damaged, removed = damages(role.read(folder), random)
    named = list[bool]()
    for files in damaged + removed:
        role.write(folder, files)
        try:
            found = stored_in(folder)
        except VeilringError as error:
            named.append("collector.db" in str(error))
        else:
            assert found == 300, "something was lost in silence"
    assert named
    assert all(named)


def test_a_ledger_without_its_log_stops_the_owner(tmp_path: Path) -> None:
    """After a kill, the main file alone, moved or not, never gives an owner full budgets."""
    folder = tmp_path / "deployed"
    (server,) = use_owner(folder)
    server.kill()
    ledger = folder / "owner.db"
    for each in ("owner.db-wal", "owner.db-shm", "owner.db.lock"):
        (folder / each).unlink()
        _require_refused_by_process(ROLES["data owner"], folder)
    ledger.rename(folder / "moved.ledger")
    config = folder / "owner.toml"
    config.write_text('state = "moved.ledger"\n' + config.read_text())
    command = Command(folder, "serve", "owner.toml", output=folder / "moved.log")
    assert command.wait(SECONDS) == 1
    assert "moved.ledger was in use when it was copied" in command.output


def test_two_owners_on_one_ledger_never_both_charge(tmp_path: Path) -> None:
    """Even without the lock file, the owner that charges second makes no charge."""
    folder, other = tmp_path / "deployed", tmp_path / "other"
    (first,) = use_owner(folder)
    ledger = folder / "owner.db"
    ledger.with_name("owner.db.lock").unlink()
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("owner.db*"))
    roster, config = other / "roster.toml", other / "owner.toml"
    port = re.compile(r"^port = [0-9]+$", re.MULTILINE)
    roster.write_text(port.sub(f"port = {reserve_ports()}", roster.read_text()))
    config.write_text(f'state = "{ledger}"\n' + config.read_text())
    (second,) = serving(other, "owner")
    try:
        before = read_totals(ledger)
        for name in ("analyst-0", "analyst-1"):
            queries = folder / f"{name}.csv"
            lines = queries.read_text().splitlines()[:-1]  # another request than before
            for each in (folder, other):
                (each / f"{name}.csv").write_text("\n".join(lines))
        ask(other, "analyst-0")
        call("ask", folder / "analyst-1.toml", folder / "analyst-1.csv", code=1)
        assert "another process has written to" in first.log.read_text()
        ask(other, "analyst-1")
        after = read_totals(ledger)
        assert after.answers == before.answers + 2
        assert after.spent == pytest.approx(before.spent + 2 * 0.1)
    finally:
        second.kill()
        first.kill()
