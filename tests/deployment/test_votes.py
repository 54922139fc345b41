"""Deployed noisy votes: each member charges its own ledger before it adds to a sum."""

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest
from tests.deployment import members
from tests.deployment.commands import Server
from tests.deployment.disks import FAULTS
from tests.deployment.member_crashes import crash_rounds
from tests.deployment.members import Served, labels_of
from typer.testing import CliRunner, Result
from typing_extensions import override

from veilring.cli.app import app
from veilring.data.sources import load
from veilring.deployment.duties import load_config_of
from veilring.deployment.examples import write_peers
from veilring.deployment.peers import MemberConfig, PeerTerms, serve_member
from veilring.errors import BudgetExhausted, InputError, ScenarioError, StoreFailed, VeilringError
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import open_ledger, read_totals
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.peers import PeerMember
from veilring.randomness import Streams
from veilring.testing.ports import reserve_ports

EPSILON, BUDGET = 4.0, 8.0
CRASHES = 4
NAMES = ("party-0", "party-1", "party-2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three parties whose budgets suffice for two batches."""
    system, port = NoisyVotes(epsilon=EPSILON, radius=0.3), reserve_ports(len(NAMES))
    folder = tmp_path / "votes"
    write_peers(load("iris"), system, folder, parties=NAMES, seed=0, port=port, budget=BUDGET)
    (folder / "queries.csv").rename(folder / "client.csv")
    return folder


def all_served(folder: Path) -> AbstractAsyncContextManager[Served]:
    """Serve all three."""
    return members.all_served(folder, NAMES)


async def test_batches_are_paid_by_all_members_once_until_a_budget_ends(folder: Path) -> None:
    """A batch costs each member epsilon, a repeated batch nothing, and one too many is refused."""
    async with all_served(folder) as served:
        first = await labels_of(folder, 0, 20)
        assert len(first) == 20
        assert served.spent() == [EPSILON] * 3
        assert await labels_of(folder, 0, 20) == first
        assert served.spent() == [EPSILON] * 3
        await labels_of(folder, 20, 30)
        assert served.spent() == [BUDGET] * 3
        with pytest.raises(BudgetExhausted, match="member") as refused:
            await labels_of(folder, 30, 38)
        assert refused.value.__notes__ == [
            "party-0 has less left than the 4 epsilon that a batch costs."
        ]
        assert await labels_of(folder, 0, 20) == first  # which was paid for
        assert served.spent() == [BUDGET] * 3


async def test_the_releases_of_a_batch_are_one_charge(folder: Path) -> None:
    """A batch about k, which takes two sums, costs epsilon once."""
    terms = folder / "terms.toml"
    terms.write_text(terms.read_text().replace("radius = 0.3", "k = 20", 1))
    async with all_served(folder) as served:
        assert len(await labels_of(folder, 0, 20)) == 20
        assert served.spent() == [EPSILON] * 3


async def test_a_radius_follows_from_the_stated_number_of_rows(tmp_path: Path) -> None:
    """With the system's default radius, the asked member chooses it, as in an experiment."""
    folder, port = tmp_path / "auto", reserve_ports(len(NAMES))
    system = NoisyVotes(epsilon=EPSILON)
    write_peers(load("iris"), system, folder, parties=NAMES, seed=0, port=port)
    (folder / "queries.csv").rename(folder / "client.csv")
    terms = PeerTerms.load(folder / "terms.toml", 3)
    assert (terms.rows, terms.protocol) == (112, system)
    async with all_served(folder) as served:
        labels = await labels_of(folder, 0, 20)
        assert len(set(labels)) > 1
        assert served.spent() == [EPSILON] * 3


async def test_no_member_pays_if_one_cannot(folder: Path) -> None:
    """A member with an insufficient budget is named before any member is charged."""
    with open_ledger(folder / "party-2.db", Budgets(total=BUDGET)) as ledger:
        ledger.charge(Charge("party-1", "before", b"", b"", 5.0))
    async with all_served(folder) as served:
        with pytest.raises(BudgetExhausted) as refused:
            await labels_of(folder, 0, 20)
        assert "party-2" in refused.value.__notes__[0]
        assert served.spent() == [0.0, 0.0, 5.0]


async def test_a_member_that_dies_between_charge_and_sum_has_paid(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays again if the batch is asked again."""
    async with all_served(folder) as served:
        dying: PeerMember = served.members["party-1"]
        assert dying.till is not None
        charge = dying.till.ledger.charge

        def charge_and_die(given: Charge) -> bytes:
            paid = charge(given)
            dying.node.abort()  # as if the process had been killed
            return paid

        monkeypatch.setattr(dying.till.ledger, "charge", charge_and_die)
        with pytest.raises(VeilringError) as failed:
            await labels_of(folder, 0, 20)
        assert not isinstance(failed.value, BudgetExhausted)
        await served.end("party-1")
        assert served.spent()[1] == EPSILON
        await served.serve("party-1")
        assert len(await labels_of(folder, 0, 20)) == 20
        assert served.spent()[1] == BUDGET
        with pytest.raises(BudgetExhausted):
            await labels_of(folder, 20, 30)
        assert max(served.spent()) == BUDGET


@pytest.mark.slow
async def test_kills_of_members_lose_and_refund_no_charge(tmp_path: Path) -> None:
    """For any kill, each answered batch was paid by all members, and repeating it costs nothing."""
    trial = await crash_rounds(tmp_path / "votes", CRASHES, seed=7)
    assert trial.retried >= len(trial.told) >= CRASHES  # each round ends with an answer


async def test_a_reused_session_name_is_charged_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that reuses a name, even after a restart, gets no second sum at no cost."""

    class OneName(Streams):
        @override
        def token(self, *name: str | int, size: int = 16) -> bytes:
            return bytes(size) if name == ("session",) else Streams.token(self, *name, size=size)

    monkeypatch.setattr("veilring.protocols.peers.Streams", OneName)
    for first in (0, 10):
        async with all_served(folder) as served:
            await labels_of(folder, first, first + 10)
    assert served.spent() == [BUDGET] * 3


async def test_a_client_has_its_own_budget_at_the_asked_member(folder: Path) -> None:
    """A refusal precedes all payments, and paid answers stay available to all clients."""
    config = folder / "party-0.toml"
    config.write_text(config.read_text() + f"client = 0.0\nclients = {{ client = {EPSILON} }}\n")
    async with all_served(folder) as served:
        first = await labels_of(folder, 0, 20)
        assert served.spent() == [EPSILON] * 3
        with pytest.raises(BudgetExhausted, match="client") as refused:
            await labels_of(folder, 20, 30)
        assert refused.value.__notes__ == [
            "client has less left at party-0 than the 4 epsilon that a batch costs."
        ]
        assert served.spent() == [EPSILON] * 3
        assert await labels_of(folder, 0, 20) == first
        # The other parties know only party-0, which has the budget in the terms.
        assert [each.name for each in read_totals(folder / "party-1.db").analysts] == ["party-0"]
        assert len((await served.members["party-1"].ask(np.full((2, 4), 0.5))).labels) == 2
        assert served.spent() == [BUDGET] * 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("client = -1.0", "client is -1"),
        ("clients = { client = -1.0 }", "clients is -1"),
        ("clients = { party-1 = 1.0 }", "clients: party-1 are not clients of the roster"),
        ("client = 1e7", "client: .* must be from 0"),
    ],
)
async def test_invalid_budgets_of_clients_are_refused(
    folder: Path, line: str, message: str
) -> None:
    """The error names the key and the allowed values, before the ledger is opened."""
    path = folder / "party-0.toml"
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(ScenarioError, match=message):
        await serve_member(load_config_of(path, MemberConfig, "this"))
    assert read_totals(folder / "party-0.db").answers == 0


def test_a_member_with_a_failing_disk_ends(folder: Path) -> None:
    """It is named and ends with exit code 1; the others do not pay for a batch without it."""
    servers = {name: Server(folder, name) for name in NAMES}
    try:
        for server in servers.values():
            server.start()
        for server in servers.values():
            server.wait_until_ready()
        first = _asked(folder, 0, 20)
        assert first.exit_code == 0, first.stderr
        failing = servers["party-2"]
        with FAULTS["full"](folder / "party-2.db", failing.pid):
            told = _asked(folder, 20, 30)
            assert failing.fail().startswith("veilring: the ledger failed: ")
        assert told.exit_code == 1
        assert "party-2" in told.stderr
        assert "StoreFailed" in told.stderr
        spent = [read_totals(folder / f"{name}.db").spent for name in NAMES]
        assert spent == [EPSILON] * 3
        for _ in range(2):
            assert _asked(folder, 20, 30).exit_code == 1
        assert [read_totals(folder / f"{name}.db").spent for name in NAMES] == spent
        assert _asked(folder, 0, 20).stdout == first.stdout
        assert "Traceback" not in "".join(server.log.read_text() for server in servers.values())
    finally:
        for server in servers.values():
            server.kill()


async def test_a_member_with_a_full_disk_does_not_start(folder: Path) -> None:
    """It writes as much as a charge before it connects to the others, and names the cause."""
    async with all_served(folder) as served:
        before = await labels_of(folder, 0, 20)
        spent = served.spent()
    config = load_config_of(folder / "party-2.toml", MemberConfig, "this")
    with (
        FAULTS["full"](folder / "party-2.db", os.getpid()),
        pytest.raises(StoreFailed, match=r"the ledger failed: .* Check the disk"),
    ):
        await serve_member(config)
    async with all_served(folder) as served:  # with space again
        assert await labels_of(folder, 0, 20) == before
        assert served.spent() == spent


def _asked(folder: Path, first: int, last: int) -> Result:
    """Run the client's command on some queries in this process."""
    header, *rows = (folder / "client.csv").read_text().splitlines()
    queries = folder / f"{first}-{last}.csv"
    queries.write_text("\n".join([header, *rows[first:last]]))
    return CliRunner().invoke(app, ["ask", str(folder / "client.toml"), str(queries)])


async def test_another_budget_must_be_intended(folder: Path) -> None:
    """A member with a changed budget does not start unless it is amended."""
    with open_ledger(folder / "party-0.db", Budgets(total=1.0)) as ledger:
        ledger.charge(Charge("client", "before", b"?", b"!", 0.5))
    config = load_config_of(folder / "party-0.toml", MemberConfig, "this")
    with pytest.raises(InputError, match="ledger was created with other budgets"):
        await serve_member(config)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("radius = 0.3", "r = 0.3", "protocol.r: there is no such key"),
        ("radius = 0.3", "radius = 0.3\ntolerated = 3", "protocol.tolerated is 3; allowed: below"),
        ("radius = 0.3", 'radius = 0.3\nsum = "cycles"\ncycles = 2', "protocol.cycles is 2"),
        ("[protocol]", "[votes]", "votes: .* renamed to protocol, with name = .noisy-votes"),
        ("budget = 8.0", "budget = 3.0", "budget is 3.0; allowed: at least"),
        ("epsilon = 4.0", "epsilon = 0", "protocol.epsilon is 0; allowed: a number above"),
    ],
)
def test_invalid_terms_are_refused(folder: Path, old: str, new: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    path = folder / "terms.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ScenarioError, match=message):
        PeerTerms.load(path, 3)
