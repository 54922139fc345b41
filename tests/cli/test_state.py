"""`veilring state`: state is created once, by intention, and one command copies each kind."""

import shutil
import signal
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import invoke
from tests.deployment.commands import VOTES

from veilring.privacy.ledger import LEDGER
from veilring.privacy.statefile import Section, open_state_file
from veilring.protocols.ldp.outbox import OUTBOX
from veilring.protocols.ldp.store.sqlite import REPORTS
from veilring.protocols.ranksearch.memory import QUERIES

DEPLOYMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "peers": ("peers", "iris", "--protocol", "release", "--set", "parties.count=3"),
    "votes": ("peers", "iris", *VOTES),
    "owner": ("owner", "iris"),
    "prediction": ("prediction", "iris"),
    "survey": ("survey", "iris", "--reports", "2000"),
    "places": ("places",),
}
STATES: Final = [
    ("peers", "party-1", "party-1.db", ("serve",)),
    ("votes", "party-1", "party-1.db", ("serve",)),
    ("owner", "owner", "owner.db", ("serve",)),
    ("prediction", "server", "server.db", ("serve",)),
    ("survey", "collector", "collector.db", ("serve",)),
    ("places", "client", "client.db", ("ask", "--near", "37.75,-122.45", "--epsilon", "4")),
]


def deployed(name: str, folder: Path) -> Path:
    """Write a trial deployment, and return its folder."""
    words = list(DEPLOYMENTS[name])
    if name == "places":
        places = folder / "places.csv"
        rows = "".join(f"37.7{n},-122.4{n}\n" for n in range(10))
        places.write_text(f"lat,lon\n{rows}", encoding="utf-8")
        words.append(str(places))
    code, _, err = invoke("deploy", *words, "--out", str(folder / "trial"))
    assert code == 0, err
    return folder / "trial"


@pytest.mark.parametrize(("name", "party", "state", "command"), STATES)
def test_a_party_without_its_state_does_not_start(
    name: str, party: str, state: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    """It ends with exit code 2, the place, the cause and the remedy, and Ctrl-C works as before."""
    folder = deployed(name, tmp_path)
    lost = tmp_path / "lost"
    lost.mkdir()
    for path in folder.glob(f"{state}*"):
        shutil.move(path, lost)
    before = sorted(folder.iterdir())
    word, *options = command
    code, _, err = invoke(word, f"{folder / party}.toml", *options)
    assert code == 2
    said = " ".join(err.split())
    assert f"at {folder / state}" in said.replace("\n", "")
    assert "its disk may not be mounted" in said
    assert "create it with `veilring state new CONFIG`" in said
    assert sorted(folder.iterdir()) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code, out, err = invoke("state", "new", f"{folder / party}.toml")
    assert code == 0, err
    assert "created the state" in out
    assert any(folder.glob(f"{state}*"))


def test_a_survey_client_without_its_outbox_sends_nothing(tmp_path: Path) -> None:
    """Reports of a lost outbox would be made again, and their clients would pay twice."""
    folder = deployed("survey", tmp_path)
    for path in folder.glob("survey-client-0.db*"):
        path.unlink()
    code, _, err = invoke(
        "submit", str(folder / "survey-client-0.toml"), str(folder / "survey-client-0.csv")
    )
    assert code == 2
    assert "clients report again with new noise" in " ".join(err.split())
    assert not list(folder.glob("survey-client-0.db*"))


def test_state_is_never_created_twice(tmp_path: Path) -> None:
    """A second `state new` is refused, and so is one whose lock file shows that state was lost."""
    folder = deployed("owner", tmp_path)
    config = str(folder / "owner.toml")
    code, _, err = invoke("state", "new", config)
    assert code == 2
    assert "there is a ledger at" in err
    (folder / "owner.db").unlink()
    code, _, err = invoke("state", "new", config)
    assert code == 1
    assert "missing or empty, although owner.db.lock" in " ".join(err.split())


def test_a_party_without_state_is_named(tmp_path: Path) -> None:
    """Roles that keep nothing, and members that spend no ε, need no state."""
    folder = deployed("peers", tmp_path)
    code, _, err = invoke("state", "new", str(folder / "client.toml"))
    assert code == 2
    assert "client keeps no state" in " ".join(err.split())
    assert not list(folder.glob("client.db*"))


@pytest.mark.parametrize("kind", [LEDGER, REPORTS, OUTBOX, QUERIES], ids=attrgetter("name"))
def test_one_command_copies_each_kind_of_state(kind: Section, tmp_path: Path) -> None:
    """The copy is one file, complete without a log, that can be copied again."""
    path, copy = tmp_path / "kept.db", tmp_path / "copy.db"
    open_state_file(path, kind, new=True).close()
    code, out, err = invoke("state", "backup", str(path), str(copy))
    assert code == 0, err
    assert f"copied {path} to {copy}" in out.replace("\n", "")
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy.db"]
    assert invoke("state", "backup", str(copy), str(tmp_path / "again.db"))[0] == 0


@pytest.mark.parametrize("content", [None, b"", b"veilring" * 1000])
def test_only_files_of_state_are_copied(content: bytes | None, tmp_path: Path) -> None:
    """A file that is missing or of another program is refused, and nothing is left behind."""
    path = tmp_path / "kept.db"
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    code, _, err = invoke("state", "backup", str(path), str(tmp_path / "copy.db"))
    assert code == 2
    said = " ".join(err.split())
    assert ("an existing file" if content is None else "a state file of veilring") in said
    assert sorted(tmp_path.iterdir()) == before
