"""A deployed data owner: `veilring serve` and `veilring ask`, with kills in between."""

import asyncio
import contextlib
import csv
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.disks import FAULTS, Fault
from tests.deployment.owner_crashes import Deployed, crash_rounds
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.data.sources import load
from veilring.deployment import load_config
from veilring.deployment.owner import (
    AnalystConfig,
    OwnerConfig,
    OwnerTerms,
    make_request,
    serve_owner,
)
from veilring.deployment.roles import ask, serve
from veilring.errors import InputError, ScenarioError
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import open_ledger, read_totals
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.system import DataOwner

CRASHES = 3

Deploy = Callable[..., Deployed]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Deploy owners that are killed at the end."""
    made: list[Deployed] = []

    def make(budgets: dict[str, float], **asked: float) -> Deployed:
        made.append(Deployed(tmp_path / f"owner-{len(made)}", budgets=budgets, asked=asked))
        return made[-1]

    yield make
    for deployed in made:
        deployed.kill()


@pytest.mark.slow
def test_kills_between_charge_and_answer_cost_nothing(tmp_path: Path) -> None:
    """For any kill, no request is charged twice or answered in two ways."""
    seen = asyncio.run(crash_rounds(tmp_path / "owner", CRASHES, seed=7))
    assert seen.answered > CRASHES
    assert seen.interrupted >= CRASHES


def test_a_deployed_owner_labels_remembers_and_leaves_in_order(deploy: Deploy) -> None:
    """A repeated command gets the same labels at one price, even after a kill."""
    deployed = deploy({"total": 1.5}, epsilon=1.0, k=7)
    deployed.serve()
    first = deployed.ask(0)
    assert first.exit_code == 0, first.stderr
    rows = list(csv.DictReader(first.stdout.splitlines()))
    with (deployed.folder / "analyst-0.csv").open() as file:
        assert len(rows) == len(list(csv.DictReader(file)))
    assert {row["label"] for row in rows} <= {"setosa", "versicolor", "virginica"}
    assert all(0 < float(row["radius"]) <= 2 for row in rows)

    deployed.kill()
    deployed.serve()
    assert deployed.ask(0).stdout == first.stdout

    refused = deployed.ask(1)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "privacy budget (total) is exhausted: 1 epsilon requested, 0.5 left" in refused.stderr

    shown = CliRunner().invoke(app, ["ledger", "show", str(deployed.ledger), "--json"])
    assert json.loads(shown.stdout)["spent"] == 1.0  # read while it is served

    deployed.end_in_order()


def test_rows_with_budgets_are_recognised_after_a_restart(deploy: Deploy) -> None:
    """An owner with row budgets continues, and no other process can write its ledger."""
    deployed = deploy({"total": 100.0, "record": 0.5}, epsilon=0.25, radius=0.3)
    deployed.serve()
    first = deployed.ask(0)
    assert first.exit_code == 0, first.stderr
    with pytest.raises(InputError, match="is locked"):
        asyncio.run(serve(load_config(deployed.folder / "owner.toml")))
    deployed.kill()
    with open_ledger(deployed.ledger, Budgets(total=100.0, record=0.5)) as ledger:
        left = ledger.records.remaining()
    assert set(left.tolist()) <= {0, 250_000_000_000, 500_000_000_000}
    deployed.serve()
    assert deployed.ask(0).stdout == first.stdout
    deployed.kill()
    with open_ledger(deployed.ledger, Budgets(total=100.0, record=0.5)) as ledger:
        assert ledger.records.remaining().tolist() == left.tolist()


async def _serve_once(path: Path) -> None:
    """Serve until ready, and stop."""
    config, ready = load_config(path), asyncio.Event()
    assert isinstance(config, OwnerConfig)
    serve = asyncio.create_task(serve_owner(config, on_ready=lambda _owner: ready.set()))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((serve, waiting), return_when=asyncio.FIRST_COMPLETED)
    serve.cancel()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serve


def test_other_budgets_must_be_intended(tmp_path: Path) -> None:
    """An owner with changed budgets does not start unless they are amended."""
    path = Deployed(tmp_path / "owner", budgets={"total": 1.0}).folder / "owner.toml"
    asyncio.run(_serve_once(path))
    with open_ledger(path.parent / "queries.ledger", Budgets(total=1.0)) as ledger:
        ledger.charge(Charge("analyst-0", "before", b"?", b"!", 0.5))
    path.write_text(path.read_text().replace("total = 1.0", "total = 2.0"))
    with pytest.raises(InputError, match="ledger was created with other budgets"):
        asyncio.run(_serve_once(path))
    path.write_text("amend = true\n" + path.read_text())
    asyncio.run(_serve_once(path))
    assert read_totals(path.parent / "queries.ledger").budget == 2.0


def test_rows_cannot_get_budgets_after_unpaid_answers(tmp_path: Path) -> None:
    """An owner whose table paid for batches refuses other accounting on the same ledger."""
    folder = Deployed(
        tmp_path / "owner", budgets={"total": 9.0}, asked={"epsilon": 0.5, "radius": 0.2}
    ).folder
    with open_ledger(folder / "queries.ledger", Budgets(total=9.0)) as ledger:
        ledger.charge(Charge("analyst-0", "before", b"?", b"!", 5.0))
    with (folder / "terms.toml").open("a") as terms:
        terms.write('accounting = "record"\n')
    for name, old, new in (
        ("owner", "total = 9.0", "total = 9.0\nrecord = 1.0"),
        ("owner", 'role = "data-owner"', 'role = "data-owner"\namend = true'),
    ):
        path = folder / f"{name}.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match="each record cannot be added after answers were charged"):
        asyncio.run(_serve_once(folder / "owner.toml"))


def test_rows_keep_their_names_and_positions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows with budgets may be appended; moved or renamed rows are refused.

    Cells corrected in place must be amended explicitly.
    """
    folder = Deployed(tmp_path / "owner", budgets={"total": 9.0, "record": 1.0}).folder
    path, table = folder / "owner.toml", folder / "owner.csv"
    header, *rows = table.read_text().splitlines()

    def serve(*given: str, config: str = "") -> None:
        table.write_text("\n".join([header, *given]) + "\n")
        path.write_text(config + configured)
        asyncio.run(_serve_once(path))

    configured = path.read_text()
    serve(*rows[:50])
    serve(*rows[:52])
    for moved in ([rows[60], *rows[:52]], rows[:50], [rows[1], rows[0], *rows[2:52]]):
        with pytest.raises(ScenarioError, match="existing rows were changed, moved or removed"):
            serve(*moved)
    with pytest.raises(ScenarioError, match="rows have been identified by their places"):
        serve(*rows[:52], config='key = "label"\n')
    assert "remove it from the configuration" not in caplog.text
    serve(rows[60], *rows[1:52], config="amend = true\n")
    assert "remove it from the configuration" in caplog.text
    serve(rows[60], *rows[1:53])


def test_a_ledger_has_no_hash_that_tests_guesses_of_rows(tmp_path: Path) -> None:
    """Hashes of rows depend on a key that no other ledger has."""
    kept = []
    budgets = {"total": 9.0, "record": 1.0}
    for name in ("one", "other"):
        deployed = Deployed(tmp_path / name, budgets=budgets)
        asyncio.run(_serve_once(deployed.folder / "owner.toml"))
        with open_ledger(deployed.ledger, Budgets(total=9.0, record=1.0)) as ledger:
            kept.append((ledger.recall("rows") or "").split(" "))
    (rows, fingerprint), (same_rows, other_fingerprint) = kept
    assert rows == same_rows
    assert fingerprint != other_fingerprint


def test_deploy_owner_writes_what_serve_and_ask_read(tmp_path: Path) -> None:
    """The files of `deploy owner` are consistent and contain each party's commands."""
    folder = tmp_path / "owner"
    command = ["deploy", "owner", "iris", "--k", "5", "--out", str(folder)]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    config = load_config(folder / "owner.toml")
    assert isinstance(config, OwnerConfig)
    assert config.budgets.total == 4.0
    assert OwnerTerms.load(Path(config.terms)).rules.features == 4
    assert f"veilring serve {folder}/owner.toml" in made.output
    assert CliRunner().invoke(app, command).exit_code == 2  # nothing is overwritten


def test_the_default_of_the_system_is_deployed(tmp_path: Path) -> None:
    """Without options, an analyst asks for the default radius of the system."""
    folder = tmp_path / "owner"
    made = CliRunner().invoke(app, ["deploy", "owner", "iris", "--out", str(folder)])
    assert made.exit_code == 0, made.output
    config = load_config(folder / "analyst-0.toml")
    assert isinstance(config, AnalystConfig)
    terms = OwnerTerms.load(Path(config.terms))
    queries = terms.read_queries(folder / "analyst-0.csv")
    rows = terms.read_rows(folder / "owner.csv")
    facts = replace(terms.facts(1), rows=len(rows), queries=len(queries))
    setup = DataOwner().setup({"owner": rows}, facts)
    expected = setup.play(queries).only[setup.client]["request"]
    assert isinstance(expected, LabelRequest)
    assert (make_request(config, terms, queries).radii == expected.radii).all()


@pytest.mark.parametrize(
    "options",
    [
        ["--radius", "0.2", "--k", "5"],
        ["--radius", "-0.1"],
        ["--k", "0"],
        ["--radius", "0.2", "--epsilon", "2", "--set", "protocol.epsilon=1"],
        ["--radius", "0.2", "--analyst", "-1"],
        ["--k", "5", "--record", "1"],
    ],
    ids=" ".join,
)
def test_deploy_owner_refuses_what_the_owner_would_refuse(
    options: list[str], tmp_path: Path
) -> None:
    """Settings that the owner would refuse later are refused before a folder is created."""
    folder = tmp_path / "owner"
    refused = CliRunner().invoke(app, ["deploy", "owner", "iris", *options, "--out", str(folder)])
    assert refused.exit_code == 2
    assert not folder.exists()


def test_an_owner_with_row_budgets_can_be_tried(tmp_path: Path) -> None:
    """With --record the default budgets pay for the files of queries that are written."""
    command = ["deploy", "owner", "iris", "--radius", "0.2", "--record", "1"]
    made = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "owner")])
    assert made.exit_code == 0, made.output
    config = load_config(tmp_path / "owner" / "owner.toml")
    assert isinstance(config, OwnerConfig)
    queries = len(load("iris")) // 4
    assert config.budgets.analyst is None
    assert config.budgets.total >= queries


TERMS = """
classes = ["a", "b"]
features = [{ name = "x" }]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[protocol]\naccounting = "nobody"', "protocol.accounting is 'nobody'"),
        ("[protocol]\nepsilon = 99.0", "protocol.epsilon is 99"),
        ("[protocol]\nepsilon_max = 0.5", "protocol.epsilon_max: this key was renamed to epsilon"),
        ("[labelling]\nepsilon = 0.5", "labelling: this key was renamed to protocol"),
        ("[protocol]\nrow = 3", r"no such key; .*did you mean rows\?"),
        ('[protocol]\naccounting = "record"\nconversion = "grid"', "protocol.conversion"),
    ],
)
def test_invalid_terms_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    path = tmp_path / "terms.toml"
    path.write_text(TERMS + text)
    with pytest.raises(ScenarioError, match=message):
        OwnerTerms.load(path)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("owner", "total = 100.0", "total = -1.0", "budgets.total is -1"),
        ("owner", "total = 100.0", "", "budgets.total: the key is missing"),
        ("owner", "record = 0.5", "", "record is None; allowed: a number if"),
        ("owner", 'role = "data-owner"', 'role = "data-owner"\nkey = "id"', "has no column 'id'"),
        ("terms", 'accounting = "record"', 'accounting = "batch"', "left out unless protocol"),
        ("analyst-0", "radius = 0.2", "radius = 0.2\nk = 5", "give either radius or k"),
        ("analyst-0", "radius = 0.2", "", "the number of rows .* not public here; give a number"),
        ("analyst-0", "radius = 0.2", "k = 5", "send radii"),
        ("analyst-0", "radius = 0.2", "radius = 2.5", "radii must be from"),
        ("analyst-0", "epsilon = 1.0", "epsilon = 1.5", "epsilon is 1.5"),
        ("analyst-0", 'ask = "owner"', 'ask = "ann"', "ask is 'ann'"),
    ],
)
def test_an_invalid_configuration_is_refused_before_sending(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    """The error names the key, the value and the allowed values, for owner and analyst."""
    folder = Deployed(tmp_path / "owner", budgets={"total": 100.0, "record": 0.5}).folder
    path = folder / f"{name}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    play = _playing(folder / ("analyst-0.toml" if name == "analyst-0" else "owner.toml"))
    with pytest.raises(InputError, match=message):
        asyncio.run(play())


def _playing(path: Path) -> Callable[[], Coroutine[Any, Any, object]]:
    """Return a function that reads a configuration and plays its role."""

    async def run() -> object:
        config = load_config(path)
        queries = path.with_suffix(".csv")
        if isinstance(config, OwnerConfig):
            await serve(config)
            return None
        return await ask(config, queries)

    return run


@pytest.mark.parametrize(
    "fault", [pytest.param(FAULTS["locked"], marks=pytest.mark.slow), FAULTS["full"]], ids=FAULTS
)
def test_an_owner_with_a_failing_disk_ends_and_recovers(deploy: Deploy, fault: Fault) -> None:
    """It ends with exit code 1 and one sentence, the analyst learns why, and nothing is lost."""
    deployed = deploy({"total": 4.0}, epsilon=1.0, radius=0.2)
    deployed.serve()
    first = deployed.ask(0)
    assert first.exit_code == 0, first.stderr
    with fault(deployed.ledger, deployed.pid):
        told = deployed.ask(1)
        said = deployed.fail()
    assert told.exit_code == 1
    assert "StoreFailed" in told.stderr
    assert said.startswith("veilring: the ledger failed: ")
    assert "start the server again" in said
    deployed.serve()
    assert deployed.ask(0).stdout == first.stdout
    assert deployed.ask(1).exit_code == 0
    assert read_totals(deployed.ledger).spent == 2.0
    deployed.end_in_order()
