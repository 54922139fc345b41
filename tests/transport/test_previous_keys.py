"""New keys: a roster accepts previous keys up to a day, and agrees with the one it replaces."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from tests.transport.refusals import both_fail
from tests.transport.rosters import Town
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.deployment.connecting import expiry_warnings
from veilring.errors import InputError, ScenarioError
from veilring.transport.roster import Member, Roster, make_identity, save_identity

TODAY = dt.datetime.now(dt.UTC).date()
DAY = dt.timedelta(days=1)
UNTIL = TODAY + 30 * DAY


def with_new_key(roster: Roster, name: str) -> Roster:
    """Return the roster with a new key of a member, and no previous one."""
    old = roster.member(name)
    new = Member.of(make_identity(name), old.host, old.port, old.kind)
    return Roster(tuple(new if each is old else each for each in roster.members))


def ended(roster: Roster) -> Roster:
    """Return the roster with previous keys whose last day was yesterday."""
    return Roster(
        tuple(
            replace(each, previous_until=TODAY - DAY) if each.previous else each
            for each in roster.members
        )
    )


class Rotation(Town):
    """Two parties and a client, one of which gets a new key.

    Attributes:
        new: The roster that accepts its new and its previous key.
    """

    def __init__(self, name: str = "alice") -> None:
        super().__init__(("alice", "bob"), ("carol",))
        self.key = make_identity(name)
        old = self.roster.member(name)
        new = Member.of(self.key, old.host, old.port, old.kind)
        members = (new if each is old else each for each in self.roster.members)
        self.new = Roster(tuple(members)).replacing(self.roster, UNTIL, TODAY)


@pytest.mark.parametrize(
    "updated",
    [("bob",), ("alice",), ("carol",), ("alice", "bob"), ("alice", "bob", "carol")],
    ids=" and ".join,
)
async def test_members_get_the_new_roster_one_after_another(updated: tuple[str, ...]) -> None:
    """While some have the new roster and others the old one, all connect with their old keys."""
    town = Rotation()
    town.rosters = dict.fromkeys(updated, town.new)
    async with town.start_all() as endpoints:
        assert set(endpoints["carol"].connected) == {"alice", "bob"}
        assert "bob" in endpoints["alice"].connected


@pytest.mark.parametrize("name", ["alice", "bob", "carol"])
async def test_the_new_key_is_used_last(name: str) -> None:
    """Once all members have the new roster, its new key connects to all of them."""
    town = Rotation(name)
    town.roster, town.identities[name] = town.new, town.key
    async with town.start_all() as endpoints:
        assert set(endpoints["carol"].connected) == {"alice", "bob"}


async def test_a_new_key_is_unknown_to_the_old_roster() -> None:
    """A new key that is used too early is refused."""
    town = Rotation()
    town.identities["alice"], town.rosters["alice"] = town.key, town.new
    assert "self-signed certificate" in (await both_fail(town))[1]


async def test_a_previous_key_ends() -> None:
    """After its last day both sides learn when it ended, and what to do."""
    town = Rotation()
    town.rosters["bob"] = ended(town.new)
    reason = f"the previous key of alice was accepted until {TODAY - DAY}; restart alice with its"
    assert all(reason in each for each in await both_fail(town))


async def test_a_previous_roster_ends() -> None:
    """After the last day the old roster is refused by name, and the error shows its last day."""
    town = Rotation("carol")
    town.rosters["bob"] = ended(town.new)
    reason = f"alice has the previous roster, which was accepted until {TODAY - DAY}; give it ours"
    assert all(reason in each for each in await both_fail(town))


async def test_two_new_rosters_never_agree() -> None:
    """Members that were given different new keys of a third refuse each other."""
    town = Rotation("carol")
    other = with_new_key(town.roster, "carol").replacing(town.roster, UNTIL, TODAY)
    town.rosters = {"alice": town.new, "bob": other}
    assert all("the rosters differ" in each for each in await both_fail(town))


async def test_different_previous_keys_never_agree() -> None:
    """Equal new keys are not enough: the hash covers previous keys and their last days."""
    town = Rotation("carol")
    liar = with_new_key(town.roster, "carol")
    bare = Roster(tuple(replace(m, previous="", previous_until=None) for m in town.new.members))
    town.rosters = {"alice": town.new, "bob": bare.replacing(liar, UNTIL, TODAY)}
    assert all("the rosters differ" in each for each in await both_fail(town))
    hashes = {town.new.hashes(TODAY)[0], bare.hashes(TODAY)[0]}
    hashes.add(bare.replacing(town.roster, UNTIL + DAY, TODAY).hashes(TODAY)[0])
    assert len(hashes) == 3


async def test_own_previous_key_that_has_ended_is_named_at_once() -> None:
    """A party does not start with a key that no peer accepts."""
    town = Rotation()
    town.roster = ended(town.new)
    with pytest.raises(InputError, match=f"was accepted until {TODAY - DAY}; use the new key"):
        await town.start("alice")
    town.close()


def test_ended_keys_do_not_count() -> None:
    """The entries of keys that have ended may be removed by one member after another."""
    town = Rotation()
    bare = Roster(tuple(replace(m, previous="", previous_until=None) for m in town.new.members))
    assert ended(town.new).hashes(TODAY) == bare.hashes(TODAY) == (bare.hash,)
    assert len(town.new.hashes(UNTIL)) == 2
    assert len(town.new.hashes(UNTIL + DAY)) == 1
    town.close()


def test_only_keys_may_differ_from_the_previous_roster() -> None:
    """A roster that changes more than keys, or changes none, replaces no other without a stop."""
    town = Rotation()
    old, new = town.roster, with_new_key(town.roster, "bob")
    for other, until, says in (
        (Roster(new.members[::-1]), UNTIL, "other members, or another order"),
        (Roster(new.members[1:]), UNTIL, "other members, or another order"),
        (old, UNTIL, "has the same keys"),
        (new, TODAY - DAY, f"until is .*; allowed: {TODAY} or later"),
    ):
        with pytest.raises(InputError, match=says):
            other.replacing(old, until, TODAY)
    with pytest.raises(InputError, match=f"accepts a previous key of alice until {UNTIL}; wait"):
        with_new_key(town.new, "bob").replacing(town.new, UNTIL, TODAY)
    town.close()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"previous": ""}, "alice has only one of previous and previous_until"),
        ({"previous_until": None}, "alice has only one of previous and previous_until"),
        ({"previous": make_identity("eve").certificate_pem}, "certificate of alice is for 'eve'"),
    ],
    ids=["no key", "no day", "the key of another"],
)
def test_bad_entries_are_named(changed: dict[str, object], says: str) -> None:
    """A previous key has the member's name, and a last day."""
    town = Rotation()
    town.close()
    with pytest.raises(InputError, match=says):
        replace(town.new.member("alice"), **changed)  # type: ignore[arg-type]  # each case has a type of its own


def test_a_previous_key_is_another_key() -> None:
    """A member's current key is not its previous one, too."""
    town = Rotation()
    town.close()
    alice = town.new.member("alice")
    with pytest.raises(InputError, match="the previous key of alice is its key"):
        replace(alice, previous=alice.certificate)


def test_days_that_are_no_dates_are_refused() -> None:
    """In a roster file, the last day is a date of TOML."""
    town = Rotation()
    town.close()
    text = town.new.to_toml()
    assert Roster.from_toml(text) == town.new
    with pytest.raises(ScenarioError, match="previous_until is 'str'; allowed: date"):
        Roster.from_toml(text.replace(f"previous_until = {UNTIL}", 'previous_until = "soon"'))


def test_the_command_makes_and_shows_the_roster(tmp_path: Path) -> None:
    """`keys roster --previous --until` adds previous keys, and `keys show` prints them."""
    files = list[str]()
    for folder, name in (("old", "ada"), ("old", "bob"), ("new", "ada")):
        identity = make_identity(name)
        (tmp_path / folder).mkdir(exist_ok=True)
        save_identity(identity, tmp_path / folder)
        Roster((Member.of(identity, "127.0.0.1", 7000 + len(files)),)).save(
            tmp_path / folder / f"{name}.member.toml"
        )
        files.append(str(tmp_path / folder / f"{name}.member.toml"))
    ada, bob, new = files
    before, after = str(tmp_path / "before.toml"), str(tmp_path / "after.toml")
    run = CliRunner().invoke
    assert run(app, ["keys", "roster", ada, bob, "--out", before]).exit_code == 0
    words = ["keys", "roster", new, bob, "--previous", before, "--out", after]
    assert "--previous and --until" in run(app, words).output
    made = run(app, [*words, "--until", str(UNTIL)])
    assert made.exit_code == 0, made.output
    shown = run(app, ["keys", "show", after]).output
    assert shown == made.output
    old = Roster.load(tmp_path / "before.toml").member("ada").fingerprint
    assert f"{old} accepted until {UNTIL}" in shown
    assert Roster.load(tmp_path / "after.toml").hashes(TODAY)[0].hex() in shown


def test_the_end_of_a_previous_key_is_announced() -> None:
    """Parties warn of it each day, beginning 30 days before."""
    town = Rotation()
    town.close()
    alice = town.new.member("alice")
    now = dt.datetime.now(dt.UTC).replace(year=TODAY.year, month=TODAY.month, day=TODAY.day)
    said = f"the previous key of alice is accepted until {UNTIL} (days left: 30); restart alice"
    assert any(line.startswith(said) for line in expiry_warnings((alice,), now))
    assert expiry_warnings((alice,), now - DAY) == []
