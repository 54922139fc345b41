"""Deployed systems with an ε: members that pay under terms with the table `protocol`."""

import datetime as dt
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployment import commands
from tests.deployment.commands import Command, Server, call, wait_until
from tests.deployment.members import all_served, labels_of
from typer.testing import CliRunner, Result

from veilring.cli.app import app
from veilring.data.sources import load
from veilring.deployment.duties import load_config_of, perform
from veilring.deployment.examples import write_peers
from veilring.deployment.peers import MemberConfig, PeerTerms, serve_member
from veilring.errors import BudgetExhausted, InputError, ScenarioError, SessionAborted, StoreFailed
from veilring.privacy.ledger import read_totals
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.once import OnceMember
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.release.model import load_model
from veilring.protocols.release.system import Release
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import System
from veilring.testing.ports import reserve_ports
from veilring.transport.roster import Member, Roster, make_identity, save_identity

EPSILON = 3.0
NAMES = ("party-0", "party-1", "party-2")
QUERIES = "queries.csv"


def written(
    folder: Path, system: System, budget: float | None, names: tuple[str, ...] = NAMES
) -> Path:
    """Write the files of a deployment on iris."""
    port = reserve_ports(len(names))
    write_peers(load("iris"), system, folder, parties=names, seed=0, port=port, budget=budget)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three parties whose budgets suffice for one and a half releases."""
    return written(tmp_path / "peers", Release(epsilon=EPSILON), 1.5 * EPSILON)


def change(path: Path, old: str, new: str) -> None:
    """Replace a text in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


async def test_a_release_labels_any_queries_at_one_price(folder: Path) -> None:
    """All members pay once; a second release is refused if the budgets do not suffice."""
    async with all_served(folder, NAMES) as served:
        first = await labels_of(folder, 0, 38, QUERIES)
        assert served.spent() == [EPSILON] * 3
        change(folder / "client.toml", "party-0", "party-2")
        assert await labels_of(folder, 0, 38, QUERIES) == first
        assert await labels_of(folder, 5, 9, QUERIES) == first[5:9]
    change(folder / "terms.toml", "budget = 4.5", "budget = 5.5")
    for name in NAMES:
        (folder / f"{name}.toml").write_text((folder / f"{name}.toml").read_text() + "amend = true")
    async with all_served(folder, NAMES) as served:
        assert await labels_of(folder, 0, 38, QUERIES) == first  # another budget, the same release
        assert served.spent() == [EPSILON] * 3
    change(folder / "terms.toml", "epsilon = 3.0", "epsilon = 2.5")
    async with all_served(folder, NAMES) as served:
        await labels_of(folder, 0, 38, QUERIES)
        assert served.spent() == [5.5] * 3
    change(folder / "terms.toml", "epsilon = 2.5", "epsilon = 2.0")
    async with all_served(folder, NAMES) as served:
        with pytest.raises(BudgetExhausted) as refused:
            await labels_of(folder, 0, 38, QUERIES)
        assert refused.value.__notes__ == [
            "party-2 has less left than the 2 epsilon that the release costs."
        ]
        assert served.spent() == [5.5] * 3


async def test_a_release_is_made_while_the_first_party_is_down(tmp_path: Path) -> None:
    """The others release without its rows; it fetches their release later, and pays nothing."""
    system = Release(epsilon=EPSILON, tolerated=1, lost=1)
    folder = written(tmp_path / "peers", system, EPSILON)
    change(folder / "client.toml", "party-0", "party-2")
    async with all_served(folder, NAMES) as served:
        await served.end("party-0")
        first = await labels_of(folder, 0, 38, QUERIES)
        assert served.spent() == [0.0, EPSILON, EPSILON]
        await served.serve("party-0")
        change(folder / "client.toml", "party-2", "party-0")
        assert await labels_of(folder, 0, 38, QUERIES) == first
        assert served.spent() == [0.0, EPSILON, EPSILON]


async def test_a_key_is_changed_while_the_others_answer(tmp_path: Path) -> None:
    """Members restart one after another, first with the new roster, and last with the new key."""
    folder = written(tmp_path / "peers", PrivateKNN(), None)
    old, key = Roster.load(folder / "roster.toml"), make_identity("party-1")
    save_identity(key, tmp_path)
    place = old.member("party-1")
    moved = Member.of(key, place.host, place.port)
    members = tuple(moved if each is place else each for each in old.members)
    today = dt.datetime.now(dt.UTC).date()
    Roster(members).replacing(old, today + dt.timedelta(days=2), today).save(folder / "new.toml")
    async with all_served(folder, NAMES) as served:
        first = await labels_of(folder, 0, 2, QUERIES)
        for name in (*NAMES, "client", "party-1"):
            config = folder / f"{name}.toml"
            if "new.toml" in config.read_text():
                change(config, "party-1.key", str(tmp_path / "party-1.key"))
            else:
                change(config, "roster.toml", "new.toml")
            if name in NAMES:
                await served.end(name)
                await served.serve(name)
            assert await labels_of(folder, 0, 2, QUERIES) == first


async def test_queries_are_not_repeated_without_a_member(tmp_path: Path) -> None:
    """Members restart with a smaller roster, and refuse the queries that they took part in."""
    names = (*NAMES, "party-3")
    folder = written(tmp_path / "peers", RankSearch(), None, names)
    async with all_served(folder, names):
        await labels_of(folder, 0, 2, QUERIES)
    members = Roster.load(folder / "roster.toml").members
    Roster(tuple(each for each in members if each.name != "party-3")).save(folder / "roster.toml")
    async with all_served(folder, NAMES):
        with pytest.raises(SessionAborted) as refused:
            await labels_of(folder, 0, 2, QUERIES)
        assert refused.value.reason == "AskedBefore"
        assert len(await labels_of(folder, 2, 4, QUERIES)) == 2


async def test_a_member_that_cannot_remember_queries_ends(tmp_path: Path) -> None:
    """Its disk has failed, so the batch fails and it takes part in no other one."""
    folder = written(tmp_path / "peers", RankSearch(), None)
    async with all_served(folder, NAMES) as served:
        served.members["party-1"].kept.file.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(SessionAborted):
            await labels_of(folder, 0, 2, QUERIES)
        with pytest.raises(StoreFailed, match="the memory of queries failed: attempt to write"):
            await served.until_ended("party-1")


async def test_changed_rows_are_released_as_another_edition(folder: Path) -> None:
    """It is charged separately, and the first edition stays as it is."""
    first, second = 'edition = "1"\n', 'edition = "2026-11"\n'
    change(folder / "terms.toml", "budget = 4.5", "budget = 6.0")
    async with all_served(folder, NAMES):
        before = await labels_of(folder, 0, 38, QUERIES)
    header, *rows = (folder / "party-0.csv").read_text().splitlines()
    (folder / "party-0.csv").write_text("\n".join([header, *rows[:5]]))
    terms = (folder / "terms.toml").read_text()
    (folder / "terms.toml").write_text(second + terms)
    async with all_served(folder, NAMES) as served:
        after = await labels_of(folder, 0, 38, QUERIES)
        assert await labels_of(folder, 0, 38, QUERIES) == after
        assert served.spent() == [2 * EPSILON] * 3
    (folder / "terms.toml").write_text(first + terms)
    async with all_served(folder, NAMES) as served:
        assert await labels_of(folder, 0, 38, QUERIES) == before
        assert served.spent() == [2 * EPSILON] * 3


async def test_an_owner_releases_alone(tmp_path: Path) -> None:
    """The roster is one party with all rows, and its client."""
    folder = written(tmp_path / "one", Release(trusted=True), 1.0)
    async with all_served(folder, ("owner",)) as served:
        labels = await labels_of(folder, 0, 38, QUERIES)
        assert labels == await labels_of(folder, 0, 38, QUERIES)
        assert served.spent() == [1.0]
    rows = (folder / QUERIES).read_text().splitlines()[1:]
    right = [row.rpartition(",")[2] == label for row, label in zip(rows, labels, strict=True)]
    assert sum(right) > 0.6 * len(right)


@pytest.mark.parametrize(
    ("old", "new", "parties", "message"),
    [
        ("epsilon = 3.0", "epsilon = 0", 3, "protocol.epsilon is 0; allowed: a number above 0"),
        ("epsilon = 3.0", "epsilon = 1e4", 3, "protocol.epsilon is 10000"),
        ("epsilon = 3.0", "delta = 0.5", 3, "protocol.delta is 0.5; allowed: a number from 0"),
        ("epsilon = 3.0", "delta = -1", 3, "protocol.delta is -1; allowed: a number from 0"),
        ("rows = 112", "", 3, "rows: .*must be declared"),
        (
            "epsilon = 3.0",
            "epsilon = 3.0\ntolerated = 3",
            3,
            "protocol.tolerated: with 3 colluding",
        ),
        (
            "epsilon = 3.0",
            "epsilon = 3.0\ntrusted = true",
            3,
            "roster: if `protocol.trusted` is true",
        ),
        ("rows = 112", "rows = 112", 2, "roster is 2; allowed: at least 3"),
        ("budget = 4.5", "", 3, "budget: release spends epsilon; set the total"),
        ("budget = 4.5", "budget = 2.9", 3, "budget is 2.9; allowed: at least the 3 epsilon"),
        ("budget = 4.5", "budget = 0", 3, "budget is 0; allowed: a number above 0"),
        ('name = "release"\nepsilon = 3.0', "", 3, "budget: private-knn spends no"),
        ("rows = 112", "rows = 0", 3, "rows is 0; allowed: a whole number of at least 1"),
    ],
)
def test_invalid_terms_are_refused(
    folder: Path, old: str, new: str, parties: int, message: str
) -> None:
    """The error names the key and the allowed values."""
    path = folder / "terms.toml"
    change(path, old, new)
    with pytest.raises(ScenarioError, match=message):
        PeerTerms.load(path, parties)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("party-1.csv", "setosa", "orchid", "orchid"),
        ("party-1.csv", "sepal", "petiole", "lacks the column"),
        ("terms.toml", "high = 7.9", "high = 5.0", "outside of the range"),
    ],
)
async def test_invalid_rows_are_refused_before_the_ledger_is_opened(
    folder: Path, name: str, old: str, new: str, message: str
) -> None:
    """The member does not start, so nothing is sent or charged."""
    change(folder / name, old, new)
    config = load_config_of(folder / "party-1.toml", MemberConfig, "this")
    with pytest.raises(InputError, match=message):
        await serve_member(config)
    assert read_totals(folder / "party-1.db").answers == 0


def die_before_it_is_kept(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, and lose power between a release and its storage."""

    def die(_member: OnceMember, _kept: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    setattr(OnceMember, "_keep", die)  # noqa: B010  (mypy allows no other way)
    commands.run(folder, words, output)


@pytest.mark.slow
def test_a_member_killed_before_storing_a_release_gets_it_from_the_others(folder: Path) -> None:
    """It has paid and pays no more; its peers, which have the release, are not charged again."""
    servers = {name: Server(folder, name) for name in NAMES}
    dying = Command(
        folder, "serve", "party-0.toml", output=servers["party-0"].log, body=die_before_it_is_kept
    )
    try:
        for name in NAMES[1:]:
            servers[name].start()
        for name in NAMES[1:]:
            servers[name].wait_until_ready()
        commands.wait_for(dying, "is ready")
        assert asked(folder).exit_code == 1
        assert dying.wait(commands.SECONDS) == -signal.SIGKILL
        wait_until(lambda: all(spent_at(folder, name) == (EPSILON, 2) for name in NAMES[1:]))
        assert spent_at(folder, "party-0") == (EPSILON, 1)
        servers["party-0"].serve()
        answer = asked(folder)
        assert answer.exit_code == 0, answer.stderr
        assert [spent_at(folder, name)[0] for name in NAMES] == [EPSILON] * 3
        change(folder / "client.toml", "party-0", "party-1")
        assert asked(folder).stdout == answer.stdout
    finally:
        dying.kill()
        for server in servers.values():
            server.kill()


async def test_a_client_keeps_the_model_of_a_release(folder: Path, tmp_path: Path) -> None:
    """The model labels as the client does; members of other systems report that they have none."""
    path = tmp_path / "model.json"
    async with all_served(folder, NAMES) as served:
        labels = await labels_of(folder, 0, 38, QUERIES)
        (await perform(folder / "client.toml", "model")).save(path)
        assert served.spent() == [EPSILON] * 3
    model = load_model(path)
    assert model.predict(folder / QUERIES).tolist() == labels
    promised = PeerTerms.load(folder / "terms.toml", 3).protocol.promise(parties=3)
    assert model.promise == replace(promised, delta=0.0, measure="pure ε-DP")  # a grid is pure
    votes = written(tmp_path / "votes", NoisyVotes(epsilon=EPSILON, k=20), EPSILON)
    with pytest.raises(ScenarioError, match="release no model"):
        await perform(votes / "client.toml", "model")


@pytest.mark.parametrize("extra", [["queries.csv"], ["--out", "labels.csv"], ["--epsilon", "1"]])
def test_a_model_is_requested_alone(folder: Path, extra: list[str]) -> None:
    """The command refuses options that it would not use, and an existing file."""
    command = ["ask", str(folder / "client.toml"), "--model"]
    refused = call(*command, folder / "model.json", *extra, code=2)
    assert "--model fetches only the model" in refused.stderr
    refused = call(*command, folder / "terms.toml", code=2)
    assert "allowed: a file that does not exist yet" in refused.stderr


def spent_at(folder: Path, name: str) -> tuple[float, int]:
    """Return a party's spending, and the number of entries in its ledger."""
    totals = read_totals(folder / f"{name}.db")
    return totals.spent, totals.answers


def asked(folder: Path) -> Result:
    """Run the client's command in this process."""
    return CliRunner().invoke(app, ["ask", str(folder / "client.toml"), str(folder / QUERIES)])


def test_deploy_writes_what_serve_reads(tmp_path: Path) -> None:
    """The command declares the rows, sets a budget, and refuses one that pays for nothing."""
    out = tmp_path / "release"
    command = ["deploy", "peers", "wine", "--protocol", "release", "--out", str(out)]
    refused = call(*command, "--budget", "0.5", code=2)
    assert "budget is 0.5; allowed: at least the 1 epsilon that a release costs" in refused.stderr
    assert not out.exists()
    call(*command, "--port", reserve_ports())
    terms = PeerTerms.load(out / "terms.toml", 8)
    assert isinstance(terms.protocol, Release)
    assert (terms.budget, terms.rows) == (2.0, 134)
    assert load_config_of(out / "party-7.toml", MemberConfig, "this").state.endswith("party-7.db")
