"""A deployed data owner: `veilring serve` and `veilring ask`, with kills in between."""

import asyncio
import contextlib
import csv
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.commands import call
from tests.deployment.disks import FAULTS, Fault
from tests.deployment.owner_crashes import Deployed, crash_rounds

from veilring.deployment import load_config, load_config_of
from veilring.deployment.duties import ask, serve
from veilring.deployment.owner import (
    AnalystConfig,
    OwnerConfig,
    OwnerTerms,
    make_request,
    serve_owner,
)
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

    shown = call("ledger", "show", deployed.ledger, "--json")
    assert json.loads(shown.stdout)["spent"] == 1.0  # read while it is served

    deployed.end_in_order()


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
    with open_ledger(path.parent / "owner.db", Budgets(total=1.0)) as ledger:
        ledger.charge(Charge("analyst-0", "before", b"?", b"!", 0.5))
    path.write_text(path.read_text().replace("total = 1.0", "total = 2.0"))
    with pytest.raises(InputError, match="ledger was created with other budgets"):
        asyncio.run(_serve_once(path))
    path.write_text("amend = true\n" + path.read_text())
    asyncio.run(_serve_once(path))
    assert read_totals(path.parent / "owner.db").budget == 2.0


def test_the_default_of_the_system_is_deployed(tmp_path: Path) -> None:
    """Without options, an analyst asks for the default radius of the system."""
    folder = tmp_path / "owner"
    call("deploy", "owner", "iris", "--out", folder)
    config = load_config_of(folder / "analyst-0.toml", AnalystConfig, "this")
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
    ],
    ids=" ".join,
)
def test_deploy_owner_refuses_what_the_owner_would_refuse(
    options: list[str], tmp_path: Path
) -> None:
    """Settings that the owner would refuse later are refused before a folder is created."""
    folder = tmp_path / "owner"
    call("deploy", "owner", "iris", *options, "--out", folder, code=2)
    assert not folder.exists()


TERMS = """
classes = ["a", "b"]
features = [{ name = "x" }]
"""


@pytest.mark.parametrize(
    ("protocol", "own", "k", "radius"),
    [
        ("k = 7", {}, 7, None),
        ("radius = 0.25", {}, 0, 0.25),
        ("k = 7", {"radius": 0.5}, 0, 0.5),
        ("radius = 0.25", {"k": 3}, 3, None),
    ],
)
def test_an_analyst_asks_as_the_terms_say_unless_it_chooses(
    tmp_path: Path, protocol: str, own: dict[str, float], k: int, radius: float | None
) -> None:
    """A radius or k of its own replaces both those of the terms."""
    path = tmp_path / "terms.toml"
    path.write_text(f"{TERMS}[protocol]\n{protocol}")
    asking = {"identity": "ann.key", "roster": "roster.toml", "terms": str(path), "ask": "owner"}
    given = {**asking, "role": "client", "epsilon": 1.0, **own}
    config = AnalystConfig.model_validate(given)
    request = make_request(config, OwnerTerms.load(path), np.full((2, 1), 0.5))
    assert request.k == k
    assert request.radii.tolist() == ([] if radius is None else [radius] * 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[protocol]\naccounting = "record"', "protocol.accounting: there is no such key"),
        ("[protocol]\nepsilon = 99.0", "protocol.epsilon is 99"),
        ("[protocol]\nepsilon_max = 0.5", "protocol.epsilon_max: there is no such key"),
        (
            "[labelling]\nepsilon = 0.5",
            "labelling: .* renamed to protocol, with name = .data-owner",
        ),
        ("[protocol]\npublic_rows = true", "rows is None; allowed: a number, since"),
        ("row = 3\n[protocol]\npublic_rows = true", "row: there is no such key"),
        ('[protocol]\nconversion = "none"', "protocol.conversion is 'none'"),
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
        ("analyst-0", "radius = 0.2", "radius = 0.2\nk = 5", "give either radius or k"),
        ("analyst-0", "radius = 0.2", "", "the number of rows .* not public here; give a number"),
        ("analyst-0", "radius = 0.2", "radius = 2.5", "radii must be from"),
        ("analyst-0", "epsilon = 1.0", "epsilon = 1.5", "epsilon is 1.5"),
        ("analyst-0", 'ask = "owner"', 'ask = "ann"', "ask is 'ann'"),
    ],
)
def test_an_invalid_configuration_is_refused_before_sending(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    """The error names the key, the value and the allowed values, for owner and analyst."""
    folder = Deployed(tmp_path / "owner", budgets={"total": 100.0}).folder
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
