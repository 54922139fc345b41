"""Damage to the files of a role's durable state: altered, truncated or removed.

Each role is deployed and used over TLS, and its process is stopped in order or killed. Then its
files are damaged, one location at a time, and the role restarts. Either its state is complete, or
it refuses to start with an error that names the file, and leaves the files unchanged.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest
from benchmarks.ports import reserve_ports
from tests.deployment.collection import store_of
from tests.deployment.commands import PARTIES, SECONDS, Deploy, Deployment, wait_until

from veilring.deployment.prediction import PredictionTerms, read_records
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.errors import VeilringError
from veilring.privacy.ledger import LEDGER
from veilring.privacy.statefile import open_state_file
from veilring.protocols.ldp.outbox import Outbox
from veilring.protocols.ldp.store import open_report_store
from veilring.protocols.prediction.state import open_state
from veilring.transport.roster import Roster

# Places of each file that are damaged; VEILRING_DAMAGES=200 takes some minutes.
PLACES: Final = int(os.environ.get("VEILRING_DAMAGES", "6"))
FORGOTTEN: Final = "record-7"
PRICE: Final = 0.1

Files = dict[str, bytes]


@dataclass(frozen=True)
class Role:
    """A role whose file of state is damaged, and the means to check that its state is complete.

    Attributes:
        start: The command that opens the file.
        content: Opens the file as the command does, and returns its content.
        use: Uses a deployment, whose servers then still run.
        system: The deployment, with options.
        file: The main file, without its companions.
        end: Ends all processes in order.
    """

    start: str
    content: Callable[[Path], object]
    use: Callable[[Deployment], None]
    system: tuple[object, ...]
    file: str
    end: Callable[[Deployment], None] = Deployment.end_in_order

    def read(self, folder: Path) -> Files:
        """Return all files with content that the role has written."""
        return {
            path.name: content
            for path in sorted(folder.glob(f"{self.file}*"))
            if not path.name.endswith("-shm") and (content := path.read_bytes())
        }

    def write(self, folder: Path, files: Files) -> None:
        """Replace the existing files by others."""
        for path in folder.glob(f"{self.file}*"):
            path.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def left(self, deploy: Deploy, *, killed: bool) -> Path:
        """Return the folder of a deployment that was used, and then killed or ended in order."""
        deployed = deploy(*self.system)
        self.use(deployed)
        if not killed:
            self.end(deployed)
        deployed.kill()
        return deployed.folder


def in_ledger(path: Path) -> object:
    """Return the content of a ledger."""
    with closing(open_state_file(path, LEDGER)) as file:
        return [
            file.connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  (tables of ours)
            for table in LEDGER.sealed
        ]


def use_owner(owner: Deployment) -> None:
    """Ask an owner, as two analysts."""
    owner.serve("owner")
    for client in ("analyst-0", "analyst-1"):
        owner.call("ask", f"{client}.toml", f"{client}.csv")


def use_votes(votes: Deployment) -> None:
    """Ask three members together."""
    votes.serve(*PARTIES)
    votes.call("ask", "client.toml", "queries.csv")


def use_places_client(places: Deployment) -> None:
    """Ask a server for the places near two locations."""
    places.serve("server")
    for latitude in (37.72, 37.74):
        places.call("ask", "client.toml", "--near", f"{latitude},-122.35", "--epsilon", 3)


def use_prediction(prediction: Deployment) -> None:
    """Add records, forget one, and ask."""
    prediction.serve("server")
    prediction.call("records", "add", "registrar.toml", "records.csv")
    prediction.call("records", "forget", "registrar.toml", FORGOTTEN)
    prediction.call("ask", "client-0.toml", "client-0.csv")


def in_state(folder: Path) -> object:
    """Return the state of a prediction server."""
    terms = PredictionTerms.load(folder / "terms.toml")
    records = read_records(folder / "records.csv", terms, "id")
    kept = records.take([at for at, name in enumerate(records.ids) if name != FORGOTTEN])
    with open_state(terms.rules, folder / "server.db", terms.schema_digest) as state:
        known, missing = len(state), state.add(kept)  # refuses a record that has another row
    return known, missing, in_ledger(folder / "server.db")


def stored_in(folder: Path) -> int:
    """Return the number of reports in the running sums of a collector, read like estimates."""
    task, path = SurveyTerms.load(folder / "terms.toml").task, str(folder / "collector.db")
    with closing(open_report_store(path, task, read_only=True)) as store:
        return store.tally().clients


def use_collector(survey: Deployment) -> None:
    """Accept the reports of a survey client, and then of more of its clients."""
    survey.serve("collector")
    rows = survey.folder / "survey-client-0.csv"
    lines = rows.read_text().splitlines(keepends=True)
    for part in (lines[:200], lines):
        rows.write_text("".join(part))
        survey.call("submit", "survey-client-0.toml", rows)


def in_reports(folder: Path) -> object:
    """Return all reports acknowledged by a collector, read and counted again."""
    with closing(store_of(folder)) as store:
        tally = store.recount()
        return tally.counts, [sums.tolist() for sums in tally.sums], store.members()


def use_survey_client(survey: Deployment) -> None:
    """Submit until the collector is killed: some reports are acknowledged and others are not."""
    survey.serve("collector")
    survey.running["submit"] = command = survey.command(*SUBMIT.split(), "--single")
    wait_until(lambda: stored_in(survey.folder) > 0)
    survey.kill("collector")
    # It waits, or on a busy machine it had all its receipts before.
    waits = "no receipt after attempt"  # said once all its receipts are written
    wait_until(lambda: waits in command.output or command.poll() is not None)


def end_submitting(survey: Deployment) -> None:
    """Serve the collector again, until the survey client has all its receipts."""
    survey.serve("collector")
    command = survey.running.pop("submit")
    assert command.wait(SECONDS) == 0, command.output
    survey.end_in_order()


def in_outbox(folder: Path) -> object:
    """Return the content of an outbox."""
    with Outbox(folder / "survey-client-0.db") as outbox:
        return [
            outbox._db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608, SLF001  (tables of the package; the stored content)
            for table in ("naming", "rows", "outgoing")
        ]


def ledger_role(start: str, use: Callable[[Deployment], None], *system: object, name: str) -> Role:
    """Return a role whose state is a ledger."""
    return Role(start, lambda folder: in_ledger(folder / f"{name}.db"), use, system, f"{name}.db")


SUBMIT: Final = "submit survey-client-0.toml survey-client-0.csv"
NEAR: Final = "ask client.toml --near 37.73,-122.34 --epsilon 3"
SURVEY: Final = ("survey", "--reports=300")
PRICED: Final = f"--epsilon={PRICE}"
OWNER: Final = ledger_role("serve owner.toml", use_owner, "owner", PRICED, name="owner")
COLLECTOR: Final = Role("serve collector.toml", in_reports, use_collector, SURVEY, "collector.db")
ROLES: Final = {
    "collector": COLLECTOR,
    "survey-client": Role(
        SUBMIT, in_outbox, use_survey_client, ("survey",), "survey-client-0.db", end_submitting
    ),
    "data owner": OWNER,
    "votes member": ledger_role("serve party-0.toml", use_votes, "votes", name="party-0"),
    "places-client": ledger_role(NEAR, use_places_client, "places", "--budget=9", name="client"),
    "prediction server": Role(
        "serve server.toml", in_state, use_prediction, ("prediction",), "server.db"
    ),
}
# One for each layout of files: reports, a ledger.
QUICK: Final = {"collector", "data owner"}


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
@pytest.mark.parametrize(
    "role",
    [
        pytest.param(role, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, role in ROLES.items()
    ],
)
def test_damage_is_refused_or_harmless(deploy: Deploy, role: Role, *, killed: bool) -> None:
    """A flipped bit, a missing end or a missing file loses no charge, answer, row or report."""
    folder, random = role.left(deploy, killed=killed), Random(1)
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
    assert role.file in said
    for name, content in role.read(folder).items():
        assert content == before[name], "a refused file is left as it is"
    return said


def _require_refused_by_process(role: Role, folder: Path) -> None:
    command = Deployment(folder).command(*role.start.split(), log="refused")
    assert command.wait(SECONDS) in {1, 2}
    assert "Traceback" not in command.output
    assert role.file in command.output


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_damaged_store_never_gives_a_partial_estimate(deploy: Deploy, *, killed: bool) -> None:
    """Estimates never silently omit acknowledged reports."""
    folder, random = COLLECTOR.left(deploy, killed=killed), Random(2)
    damaged, removed = damages(COLLECTOR.read(folder), random)
    named = list[bool]()
    for files in damaged + removed:
        COLLECTOR.write(folder, files)
        try:
            found = stored_in(folder)
        except VeilringError as error:
            named.append("collector.db" in str(error))
        else:
            assert found == 300, "something was lost in silence"
    assert named
    assert all(named)


def test_a_ledger_without_its_log_stops_the_owner(deploy: Deploy) -> None:
    """After a kill, the main file alone, moved or not, never gives an owner full budgets."""
    folder = OWNER.left(deploy, killed=True)
    for each in ("owner.db-wal", "owner.db-shm", "owner.db.lock"):
        (folder / each).unlink()
        _require_refused_by_process(OWNER, folder)
    (folder / "owner.db").rename(folder / "moved.ledger")
    owner = Deployment(folder)
    owner.configure("owner", 'state = "moved.ledger"')
    said = owner.ended("serve", "owner.toml", code=2)
    assert "moved.ledger was in use when it was copied" in said


def test_two_owners_on_one_ledger_never_both_charge(
    deploy: Deploy, deployed: list[Deployment], tmp_path: Path
) -> None:
    """Even without the lock file, the owner that charges second makes no charge."""
    first, second = deploy(*OWNER.system), Deployment(tmp_path / "other")
    deployed.append(second)
    use_owner(first)
    (first.folder / "owner.db.lock").unlink()
    shutil.copytree(
        first.folder, second.folder, ignore=shutil.ignore_patterns("owner.db*", "*.sock")
    )
    port = Roster.load(first.folder / "roster.toml").member("owner").port
    second.edit("roster.toml", f"port = {port}", f"port = {reserve_ports()}")
    second.configure("owner", f'state = "{first.folder / "owner.db"}"')
    second.serve("owner")
    before = first.totals("owner")
    words = {n: ("ask", f"analyst-{n}.toml", f"analyst-{n}.csv") for n in range(2)}
    for name in ("analyst-0.csv", "analyst-1.csv"):
        lines = (first.folder / name).read_text().splitlines()[:-1]  # another request
        for each in (first, second):
            (each.folder / name).write_text("\n".join(lines))
    second.call(*words[0])
    first.call(*words[1], code=1)
    assert "another process has written to" in first.log("owner")
    second.call(*words[1])
    after = first.totals("owner")
    assert after.answers == before.answers + 2
    assert after.spent == pytest.approx(before.spent + 2 * PRICE)
