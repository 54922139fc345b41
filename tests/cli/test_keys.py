"""`veilring keys new`: the files of all parties, or none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.invoking import invoke
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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a process kills itself")
def test_a_kill_at_any_step_leaves_all_files_or_none(tmp_path: Path) -> None:
    """After a kill, no party has a file, or the next command completes the files of all."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], check=True, capture_output=True, timeout=SECONDS
    )
    outcomes = set()
    for step in range(int(done.stdout)):
        folder = tmp_path / str(step)
        assert invoke("keys", "new", "cyd", "--client", "--out", folder)[0] == 0
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
    assert invoke("keys", "new", *NAMES, "--out", complete)[0] == 0
    (tmp_path / "ada.key").hardlink_to(complete / "ada.key")
    made = {file.name: file.read_bytes() for file in complete.iterdir()}
    assert invoke("keys", "new", "cyd", "--out", tmp_path)[0] == 0
    assert {name: (tmp_path / name).read_bytes() for name in made} == made
    assert len(made) == 4
    assert len(list(tmp_path.iterdir())) == 6


def test_a_key_is_never_replaced_by_that_of_an_interrupted_command(tmp_path: Path) -> None:
    """Both keys are kept until one of them is removed."""
    assert invoke("keys", "new", "ada", "--out", tmp_path)[0] == 0
    complete = tmp_path / ".keys-complete-1"
    assert invoke("keys", "new", "ada", "--out", complete)[0] == 0
    before = (tmp_path / "ada.key").read_bytes()
    code, _, err = invoke("keys", "new", "bob", "--out", tmp_path)
    assert code == 2
    assert "remove the one that you do not need" in err
    assert (tmp_path / "ada.key").read_bytes() == before
    assert (complete / "ada.key").exists()
    assert not (tmp_path / "bob.key").exists()
