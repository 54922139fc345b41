"""`veilring keys`: the files of all parties or none, and the roster made of their public parts."""

import datetime as dt
import os
import stat
import subprocess
import sys
import tomllib
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


UNTIL = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=30)


def test_a_next_key_waits_beside_the_present_one_until_it_is_used(tmp_path: Path) -> None:
    """Only its owner can read it, and no key is ever overwritten."""
    done("keys", "new", *NAMES, "--out", tmp_path)
    done("keys", "new", "clerk", "--client", "--out", tmp_path)
    parts = [tmp_path / f"{name}.member.toml" for name in (*NAMES, "clerk")]
    roster, key = tmp_path / "roster.toml", tmp_path / "ada.key"
    done("keys", "roster", *parts, "--out", roster)
    before, present = Roster.load(roster), key.read_bytes()
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # who renews the key of a service
        os.chown(key, 12_345, 12_345)
    renew = ("keys", "renew", key, "--roster", roster)
    assert "give the roster with --roster" in refused("keys", "renew", key)
    assert "ada.key.new" in refused(*renew, "--use")
    late = str(UNTIL + dt.timedelta(days=400))
    assert "a certificate that is replaced ends on" in refused(*renew, "--until", late)
    shown = done(*renew, "--until", str(UNTIL), "--days", "99")
    following, after = tmp_path / "ada.key.new", Roster.load(tmp_path / "roster.toml.new")
    assert stat.S_IMODE(following.stat().st_mode) == 0o600
    assert following.stat().st_uid == key.stat().st_uid
    assert load_identity(following).fingerprint in shown
    assert after.hashes(UNTIL)[0].hex() in shown
    ada, old = after.member("ada"), before.member("ada")
    assert (ada.host, ada.port, ada.days_left(dt.datetime.now(dt.UTC))) == (old.host, old.port, 98)
    assert (ada.previous, ada.previous_until) == (old.certificate, UNTIL)
    assert after.members[1:] == before.members[1:]
    assert key.read_bytes() == present
    for words in (renew, (*renew, "--until", str(UNTIL), "--out", tmp_path / "other.toml")):
        assert "a file that does not exist yet" in refused(*words)
    assert not (tmp_path / "other.toml").exists()
    assert "all members need a roster that accepts both keys" in refused(*renew, "--use")
    renew = ("keys", "renew", key, "--roster", tmp_path / "roster.toml.new")
    made = following.read_bytes()
    (tmp_path / "ada.key.old").write_bytes(b"another")
    assert "ada.key.old is an earlier key; remove it first" in refused(*renew, "--use")
    (tmp_path / "ada.key.old").unlink()
    (tmp_path / "ada.key.old").hardlink_to(key)  # as an interrupted command leaves it
    done(*renew, "--use")
    assert key.read_bytes() == made
    assert (tmp_path / "ada.key.old").read_bytes() == present
    assert not following.exists()
    assert Roster.load(tmp_path / "ada.member.toml").members[0].fingerprint == ada.fingerprint
    assert not list(tmp_path.glob("*.new.*"))


def test_only_the_key_of_the_roster_is_renewed(tmp_path: Path) -> None:
    """A key that is not in use yet has no next one."""
    for folder in (tmp_path, tmp_path / "other"):
        done("keys", "new", "ada", "--out", folder)
    done("keys", "roster", tmp_path / "ada.member.toml", "--out", tmp_path / "roster.toml")
    key = tmp_path / "other" / "ada.key"
    said = refused("keys", "renew", key, "--roster", tmp_path / "roster.toml")
    assert "other/ada.key is not the key of ada in" in said
    assert not list(tmp_path.glob("**/*.new"))


def test_a_new_roster_needs_only_the_public_parts_that_changed(tmp_path: Path) -> None:
    """The others and the order are those of the roster before; nobody is added."""
    done("keys", "new", *NAMES, "--out", tmp_path)
    done("keys", "new", "bob", "cyd", "--port", "7320", "--out", tmp_path / "new")
    parts = [tmp_path / f"{name}.member.toml" for name in NAMES]
    before, after = tmp_path / "roster.toml", tmp_path / "after.toml"
    done("keys", "roster", *parts, "--out", before)
    words = ("--previous", before, "--until", str(UNTIL), "--out", after)
    said = refused("keys", "roster", tmp_path / "new" / "cyd.member.toml", *words)
    assert "the previous roster has other members" in said
    done("keys", "roster", tmp_path / "new" / "bob.member.toml", *words)
    whole = Roster.load(after)
    assert whole.names == NAMES
    assert [each.previous_until for each in whole.members] == [None, UNTIL]


def test_the_key_of_an_aggregator_is_drawn_and_renewed(tmp_path: Path) -> None:
    """Only its owner can read the file; a further key comes before the earlier one."""
    path = tmp_path / "leader.hpke"
    done("keys", "sealing", path)
    (first,) = tomllib.loads(path.read_text())["keys"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    done("keys", "sealing", path)
    newest, earlier = tomllib.loads(path.read_text())["keys"]
    assert earlier["secret"] == first["secret"] != newest["secret"]
