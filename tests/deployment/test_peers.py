"""Deployed parties that all hold rows: members that charge their ledgers, and their clients."""

import csv
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.ports import reserve_ports
from tests.deployment import commands
from tests.deployment.commands import PARTIES, SECONDS, Deploy, Deployment, wait_until
from tests.deployment.members import all_served
from typing_extensions import override

from veilring.arrays import Floats
from veilring.data.sources import load
from veilring.deployment import asking
from veilring.deployment.duties import load_config_of, perform
from veilring.deployment.examples.peers import write_peers
from veilring.deployment.peers import MemberConfig, MemberStart, PeerTerms, serve_member
from veilring.errors import (
    BudgetExhausted,
    InputError,
    ScenarioError,
    SessionAborted,
    VeilringError,
)
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import LEDGER, open_ledger, read_totals
from veilring.privacy.statefile import read_state_file
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.once import OnceMember
from veilring.protocols.peers import PeerMember
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.release.model import load_model
from veilring.protocols.release.system import Release
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import System
from veilring.randomness import Streams
from veilring.transport.roster import Roster

EPSILON, BATCH = 3.0, 4.0


def written(
    folder: Path, system: System, budget: float | None = None, names: tuple[str, ...] = PARTIES
) -> Deployment:
    """Write the files of a deployment on iris."""
    port = reserve_ports(len(names))
    write_peers(load("iris"), system, folder, parties=names, seed=0, port=port, budget=budget)
    return Deployment(folder)


@pytest.fixture
def release(tmp_path: Path) -> Deployment:
    """Write three parties whose budgets suffice for one and a half releases."""
    return written(tmp_path / "release", Release(epsilon=EPSILON), 1.5 * EPSILON)


@pytest.fixture
def votes(tmp_path: Path) -> Deployment:
    """Write three parties whose budgets suffice for two batches."""
    return written(tmp_path / "votes", NoisyVotes(epsilon=BATCH, radius=0.3), 2 * BATCH)


async def test_a_release_labels_any_queries_at_one_price(release: Deployment) -> None:
    """All members pay once; a second release is refused if the budgets do not suffice.

    The client may keep the model of a release, which labels as the client does.
    """
    folder, path = release.folder, release.folder / "model.json"
    async with all_served(folder) as served:
        first = await served.labels()
        assert served.spent() == [EPSILON] * 3
        release.edit("client.toml", "party-0", "party-2")
        assert await served.labels() == first
        assert await served.labels(5, 9) == first[5:9]
        (await perform(folder / "client.toml", "model")).save(path)
        assert served.spent() == [EPSILON] * 3
    model = load_model(path)
    assert model.predict(folder / "queries.csv").tolist() == first
    promised = PeerTerms.load(folder / "terms.toml", 3).protocol.promise(parties=3)
    assert model.promise == replace(promised, delta=0.0, measure="pure ε-DP")  # a grid is pure
    release.edit("terms.toml", "budget = 4.5", "budget = 5.5")
    config = load_config_of(folder / "party-0.toml", MemberConfig, "this")
    with pytest.raises(InputError, match="ledger was created with other budgets"):
        await serve_member(config)
    for name in PARTIES:
        release.configure(name, "amend = true")
    async with all_served(folder) as served:
        assert await served.labels() == first  # another budget, the same release
        assert served.spent() == [EPSILON] * 3
    release.edit("terms.toml", "epsilon = 3.0", "epsilon = 2.5")
    async with all_served(folder) as served:
        await served.labels()
        assert served.spent() == [5.5] * 3
    release.edit("terms.toml", "epsilon = 2.5", "epsilon = 2.0")
    async with all_served(folder) as served:
        with pytest.raises(BudgetExhausted) as refused:
            await served.labels()
        assert refused.value.__notes__ == [
            "party-2 has less left than the 2 epsilon that the release costs."
        ]
        assert served.spent() == [5.5] * 3


async def test_queries_are_not_repeated_without_a_member(tmp_path: Path) -> None:
    """Members restart with a smaller roster, and refuse the queries that they took part in."""
    names = (*PARTIES, "party-3")
    peers = written(tmp_path / "peers", RankSearch(), None, names)
    folder = peers.folder
    async with all_served(folder, names) as served:
        await served.labels(0, 2)
    for name in PARTIES:
        peers.edit(f"{name}.policy.toml", "parties = 4", "parties = 3")
    members = Roster.load(folder / "roster.toml").members
    Roster(tuple(each for each in members if each.name != "party-3")).save(folder / "roster.toml")
    async with all_served(folder) as served:
        with pytest.raises(SessionAborted) as refused:
            await served.labels(0, 2)
        assert refused.value.reason == "AskedBefore"
        assert len(await served.labels(2, 4)) == 2


async def test_changed_rows_are_released_as_another_edition(release: Deployment) -> None:
    """It is charged separately, and the first edition stays as it is."""
    folder = release.folder
    release.edit("terms.toml", "budget = 4.5", "budget = 6.0")
    async with all_served(folder) as served:
        before = await served.labels()
    header, *rows = (folder / "party-0.csv").read_text().splitlines()
    (folder / "party-0.csv").write_text("\n".join([header, *rows[:5]]))
    release.configure("terms", 'edition = "2026-11"')
    async with all_served(folder) as served:
        after = await served.labels()
        assert await served.labels() == after
        assert served.spent() == [2 * EPSILON] * 3
    release.edit("terms.toml", "2026-11", "1")
    async with all_served(folder) as served:
        assert await served.labels() == before
        assert served.spent() == [2 * EPSILON] * 3


async def test_an_owner_releases_alone(tmp_path: Path) -> None:
    """The roster is one party with all rows, and its client."""
    folder = written(tmp_path / "one", Release(trusted=True), 1.0).folder
    async with all_served(folder, ("owner",)) as served:
        labels = await served.labels()
        assert labels == await served.labels()
        assert served.spent() == [1.0]
    rows = (folder / "queries.csv").read_text().splitlines()[1:]
    right = [row.rpartition(",")[2] == label for row, label in zip(rows, labels, strict=True)]
    assert sum(right) > 0.6 * len(right)


def die_before_it_is_kept(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, and lose power between a release and its storage."""

    def die(_member: OnceMember, _kept: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    setattr(OnceMember, "_keep", die)  # noqa: B010  (mypy allows no other way)
    commands.run(folder, words, output)


@pytest.mark.slow
def test_a_member_killed_before_storing_a_release_gets_it_from_the_others(deploy: Deploy) -> None:
    """It has paid and pays no more; its peers, which have the release, are not charged again."""
    release = deploy("release", f"--set=protocol.epsilon={EPSILON}")
    words, others = ("ask", "client.toml", "queries.csv"), PARTIES[1:]

    def kept(name: str) -> list[tuple[int, int]]:
        """Return for each entry of a ledger whether it was paid for, and whether it has content."""
        find = "SELECT units > 0, answer != x'' FROM answers ORDER BY units DESC"
        with read_state_file(release.folder / f"{name}.db", LEDGER) as connection:
            return connection.execute(find).fetchall()

    release.start("party-0", body=die_before_it_is_kept)
    release.serve(*others)
    release.wait_for("party-0", "is ready")
    release.call(*words, code=1)
    assert release.running["party-0"].wait(SECONDS) == -signal.SIGKILL
    wait_until(lambda: all(kept(name) == [(1, 0), (0, 1)] for name in others))
    assert kept("party-0") == [(1, 0)]
    release.serve("party-0")
    answer = release.call(*words).stdout
    assert [release.totals(name).spent for name in PARTIES] == [EPSILON] * 3
    release.edit("client.toml", "party-0", "party-1")
    assert release.call(*words).stdout == answer


async def test_the_log_has_the_delta_that_was_charged(release: Deployment) -> None:
    """A release under other terms counts with its own δ, and the rest of the budget at today's."""
    means = 'epsilon = 3.0\nstatistic = "means"'  # a grid of the four columns has no δ
    release.edit("terms.toml", "epsilon = 3.0", means)
    async with all_served(release.folder) as served:
        await served.labels()
    first = PeerTerms.load(release.folder / "terms.toml", 3).promise(3).delta
    assert read_totals(release.folder / "party-0.db").delta == first > 0
    release.edit("terms.toml", "epsilon = 3.0", "epsilon = 1.0\ndelta = 1e-6")
    second = PeerTerms.load(release.folder / "terms.toml", 3).promise(3).delta
    assert second != first
    config = load_config_of(release.folder / "party-0.toml", MemberConfig, "this")
    (state,) = (each for each in MemberStart(config).run() if each.name == "state")
    said = f"1 more payments, to a total of epsilon 4 and delta {first + second:g}"
    assert said in state.found


async def test_batches_are_paid_by_all_members_once_until_a_budget_ends(votes: Deployment) -> None:
    """A batch costs each member epsilon, a repeated batch nothing, and one too many is refused.

    There is no model of these labels.
    """
    with pytest.raises(ScenarioError, match="release no model"):
        await perform(votes.folder / "client.toml", "model")
    async with all_served(votes.folder) as served:
        first = await served.labels(0, 20)
        assert len(first) == 20
        assert served.spent() == [BATCH] * 3
        assert await served.labels(0, 20) == first
        assert served.spent() == [BATCH] * 3
        totals = [read_totals(votes.folder / f"{name}.db") for name in PARTIES]
        assert [(each.answers, each.analysts[0].name) for each in totals] == [
            (1, "client"),
            (1, "party-0"),
            (1, "party-0"),
        ]
        await served.labels(20, 30)
        assert served.spent() == [2 * BATCH] * 3
        with pytest.raises(BudgetExhausted, match="member") as refused:
            await served.labels(30, 38)
        assert refused.value.__notes__ == [
            "party-0 has less left than the 4 epsilon that a batch costs."
        ]
        assert await served.labels(0, 20) == first  # which was paid for
        assert served.spent() == [2 * BATCH] * 3


@pytest.mark.parametrize("chosen", ["k = 20", ""], ids=["k", "auto"])
async def test_the_releases_of_a_batch_are_one_charge(votes: Deployment, chosen: str) -> None:
    """A batch about k, which takes two sums, costs epsilon once.

    With the system's default radius, the asked member chooses it from the number of rows.
    """
    votes.edit("terms.toml", "radius = 0.3", chosen)
    if not chosen:
        votes.configure("terms", "rows = 112")
    async with all_served(votes.folder) as served:
        assert len(set(await served.labels(0, 20))) > 1
        assert served.spent() == [BATCH] * 3


async def test_no_member_pays_if_one_cannot(votes: Deployment) -> None:
    """A member with an insufficient budget is named before any member is charged."""
    with open_ledger(votes.folder / "party-2.db", Budgets(total=2 * BATCH)) as ledger:
        ledger.charge(Charge("party-1", "before", b"", b"", 5.0))
    async with all_served(votes.folder) as served:
        with pytest.raises(BudgetExhausted) as refused:
            await served.labels(0, 20)
        assert "party-2" in refused.value.__notes__[0]
        assert served.spent() == [0.0, 0.0, 5.0]


async def test_a_member_that_dies_between_charge_and_sum_has_paid(
    votes: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays again if the batch is asked again."""
    async with all_served(votes.folder) as served:
        dying: PeerMember = served.members["party-1"]
        assert dying.till is not None
        charge = dying.till.ledger.charge

        def charge_and_die(given: Charge, *rest: Any) -> bytes:
            paid = charge(given, *rest)
            dying.node.abort()  # as if the process had been killed
            return paid

        monkeypatch.setattr(dying.till.ledger, "charge", charge_and_die)
        with pytest.raises(VeilringError) as failed:
            await served.labels(0, 20)
        assert not isinstance(failed.value, BudgetExhausted)
        await served.end("party-1")
        assert served.spent()[1] == BATCH
        await served.serve("party-1")
        assert len(await served.labels(0, 20)) == 20
        assert served.spent()[1] == 2 * BATCH
        with pytest.raises(BudgetExhausted):
            await served.labels(20, 30)
        assert max(served.spent()) == 2 * BATCH


async def test_a_reused_session_name_is_charged_again(
    votes: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that reuses a name, even after a restart, gets no second sum at no cost."""

    class OneName(Streams):
        @override
        def token(self, *name: str | int, size: int = 16) -> bytes:
            return bytes(size) if name == ("session",) else Streams.token(self, *name, size=size)

    monkeypatch.setattr("veilring.protocols.peers.Streams", OneName)
    for first in (0, 10):
        async with all_served(votes.folder) as served:
            await served.labels(first, first + 10)
    assert served.spent() == [2 * BATCH] * 3


async def test_a_client_has_its_own_budget_at_the_asked_member(votes: Deployment) -> None:
    """A refusal precedes all payments, and paid answers stay available to all clients."""
    folder = votes.folder
    votes.configure("party-0", "client = 0.0", f"clients = {{ client = {BATCH} }}")
    for name in PARTIES:  # party-1 asks for itself below
        votes.edit(f"{name}.policy.toml", '"client",', '"client", "party-1",')
    async with all_served(folder) as served:
        first = await served.labels(0, 20)
        assert served.spent() == [BATCH] * 3
        with pytest.raises(BudgetExhausted, match="client") as refused:
            await served.labels(20, 30)
        assert refused.value.__notes__ == [
            "client has less left at party-0 than the 4 epsilon that a batch costs."
        ]
        assert served.spent() == [BATCH] * 3
        assert await served.labels(0, 20) == first
        # The other parties know only party-0, which has the budget in the terms.
        assert [each.name for each in votes.totals("party-1").analysts] == ["party-0"]
        assert len((await served.members["party-1"].ask(np.full((2, 4), 0.5))).labels) == 2
        assert served.spent() == [2 * BATCH] * 3


async def test_a_client_batches_queries_as_the_terms_require(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `protocol.batch` of 20, a ring of five on two cycles gets 38 queries as 20 and 18."""
    asked: list[int] = []
    usual = PeerMember.ask

    async def counting(member: PeerMember, queries: Floats, *given: Any) -> object:
        asked.append(len(queries))
        return await usual(member, queries, *given)

    monkeypatch.setattr(PeerMember, "ask", counting)
    system, names = PrivateKNN(sum="cycles", cycles=2, batch=20), (*PARTIES, "party-3", "party-4")
    folder = written(tmp_path / "ring", system, None, names).folder
    async with all_served(folder, names) as served:
        assert len(await served.labels()) == 38
    assert asked == [20, 18]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["ring", "rank-search"])
def test_a_deployed_ring_answers_survives_a_crash_and_leaves_in_order(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """It labels queries, also from a pipe, readmits a dead party, and ends on SIGTERM with 0."""
    monkeypatch.setattr(asking, "REPEAT_PAUSES", (0.1,))
    ring = deploy(system)
    folder, words = ring.folder, ("ask", "client.toml", "queries.csv")
    ring.serve(*PARTIES)
    first = ring.call(*words)
    ring.wait_for("party-0", "party-0 had 44 queries labelled for client")
    labels = [row["label"] for row in csv.DictReader(first.stdout.splitlines())]
    given = (folder / "queries.csv").read_bytes()
    truth = [row["label"] for row in csv.DictReader(given.decode().splitlines())]
    assert len(labels) == len(truth)
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) > 0.9 * len(truth)

    os.mkfifo(folder / "pipe")
    writing = threading.Thread(target=(folder / "pipe").write_bytes, args=(given,))
    writing.start()
    assert ring.call("ask", "client.toml", "pipe").stdout == first.stdout
    writing.join()
    command = [sys.executable, "-m", "veilring", "ask", "client.toml", "-"]
    piped = subprocess.run(command, cwd=folder, input=given, capture_output=True, check=True)
    assert piped.stdout.decode() == first.stdout

    ring.kill("party-1")
    failed = ring.call(*words, code=1)
    assert "party-1" in failed.stderr
    assert failed.stdout == ""  # no partial answer

    ring.serve("party-1")
    assert ring.call(*words).stdout == first.stdout
    ring.wait_for("party-0", "party-0 is connected to party-1 again")
    again = ring.command("serve", "party-1.toml", log="again")
    assert again.wait(SECONDS) in {1, 2}
    if (folder / "party-1.db").exists():  # which is opened before the port
        assert "party-1.db is locked: another process is writing" in again.output
    else:
        assert again.poll() == 1  # and not 2: the port may be free in a moment
        assert "veilring: another process is listening at 127.0.0.1:" in again.output
    ring.end_in_order()
