"""`veilring keys`: the files of all parties or none, and the roster made of their public parts."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.invoking import done, refused
from tests.deployment.commands import SECONDS

from veilring.transport.roster import Member, Roster, load_identity

NAMES = ("ada", "bob")
# Makes the keys of two parties again and again, and kills itself at each step: before the
# file or folder operation of that number. Prints the number of operations.
KILLED = """
import os, signal, sys
from pathlib import Path
from veilring.cli.keys import make_key

names, out = ["ada", "bob"], Path(sys.argv[1])
shown = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
make_key(names, out=out / "all")  # imports everything
step, code = -1, None
while code != 0:
    step += 1
    if (child := os.fork()) == 0:
        left = step

        def hook(event, arguments):
            global left
            if event in EVENTS:
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

        EVENTS = {"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir"}
        sys.addaudithook(hook)
        make_key(names, out=out / str(step))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, code
os.write(shown, str(step).encode())
"""


def test_keys_are_created_once_and_added_to_a_roster(tmp_path: Path) -> None:
    """Each party creates its own key; the roster is assembled from the public parts.

    In one command each name gets, in this order, the next port. Nothing is overwritten.
    """
    new = ("keys", "new", "ada", "bob", "--host", "10.0.0.1", "--port", "7311", "--out", tmp_path)
    assert done(*new).count("fingerprint ") == 2
    done("keys", "new", "clerk", "--client", "--out", tmp_path)
    parts = [tmp_path / f"{name}.member.toml" for name in (*NAMES, "clerk")]
    keys = {name: (tmp_path / f"{name}.key").read_bytes() for name in NAMES}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")} == {0o600}
    assert "a file that does not exist yet" in refused(*new)
    assert {name: (tmp_path / f"{name}.key").read_bytes() for name in NAMES} == keys
    roster = tmp_path / "roster.toml"
    shown = done("keys", "roster", *parts, "--out", roster)
    loaded = Roster.load(roster)
    assert (loaded.names, loaded.parties) == ((*NAMES, "clerk"), NAMES)
    assert [loaded.member(name).port for name in NAMES] == [7311, 7312]
    assert len({member.fingerprint for member in loaded.members}) == 3
    assert loaded.hash.hex() in shown
    assert done("keys", "show", roster) == shown
    assert "PRIVATE" not in "".join(part.read_text() for part in parts)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a process kills itself")
def test_a_kill_at_any_step_leaves_all_files_or_none(tmp_path: Path) -> None:
    """After a kill, no party has a file, or the next command completes the files of all."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], check=True, capture_output=True, timeout=SECONDS
    )
    outcomes = set()
    for step in range(int(ended.stdout)):
        folder = tmp_path / str(step)
        done("keys", "new", "cyd", "--client", "--out", folder)
        made = sorted(each.name.split(".")[0] for each in folder.glob("*.key"))
        assert len(list(folder.glob("*.member.toml"))) == len(made)
        for name in made:
            (member,) = Roster.load(folder / f"{name}.member.toml").members
            assert Member.of(load_identity(folder / f"{name}.key"), kind="client").fingerprint == (
                member.fingerprint
            )
        outcomes.add(tuple(made))
        assert not list(folder.glob(".keys-complete-*"))
    assert outcomes == {("cyd",), (*NAMES, "cyd")}


def test_the_next_command_completes_the_files_of_an_interrupted_one(tmp_path: Path) -> None:
    """Parties whose files lack their final names get them, and the others keep theirs."""
    complete = tmp_path / ".keys-complete-1"
    done("keys", "new", *NAMES, "--out", complete)
    (tmp_path / "ada.key").hardlink_to(complete / "ada.key")
    made = {file.name: file.read_bytes() for file in complete.iterdir()}
    done("keys", "new", "cyd", "--out", tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in made} == made
    assert len(made) == 4
    assert len(list(tmp_path.iterdir())) == 6


def test_a_key_is_never_replaced_by_that_of_an_interrupted_command(tmp_path: Path) -> None:
    """Both keys are kept until one of them is removed."""
    complete = tmp_path / ".keys-complete-1"
    for folder in (tmp_path, complete):
        done("keys", "new", "ada", "--out", folder)
    before = (tmp_path / "ada.key").read_bytes()
    said = refused("keys", "new", "bob", "--out", tmp_path)
    assert "remove the one that you do not need" in said
    assert (tmp_path / "ada.key").read_bytes() == before
    assert (complete / "ada.key").exists()
    assert not (tmp_path / "bob.key").exists()
