"""A deployed data owner: `veilring serve` and `veilring ask`, with kills in between."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.commands import Deploy, call

from veilring.deployment import load_config_of
from veilring.deployment.owner import AnalystConfig, OwnerTerms, make_request
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.system import DataOwner


def test_a_deployed_owner_labels_remembers_and_leaves_in_order(deploy: Deploy) -> None:
    """A repeated command gets the same labels at one price, even after a kill.

    The owner does not start with changed budgets unless they are amended.
    """
    deployed = deploy("owner", "--radius=0.2", "--total=1.5", "--analyst=1.5")
    for name in ("analyst-0", "analyst-1"):
        deployed.edit(f"{name}.toml", "radius = 0.2", "k = 7")
    words = ("ask", "analyst-0.toml", "analyst-0.csv")
    deployed.serve("owner")
    first = deployed.call(*words)
    rows = list(csv.DictReader(first.stdout.splitlines()))
    with (deployed.folder / "analyst-0.csv").open() as file:
        assert len(rows) == len(list(csv.DictReader(file)))
    assert {row["label"] for row in rows} <= {"setosa", "versicolor", "virginica"}
    assert all(0 < float(row["radius"]) <= 2 for row in rows)

    deployed.kill()
    deployed.serve("owner")
    assert deployed.call(*words).stdout == first.stdout
    refused = deployed.call("ask", "analyst-1.toml", "analyst-1.csv", code=1)
    assert refused.stdout == ""
    assert "privacy budget (total) is exhausted: 1 epsilon requested, 0.5 left" in refused.stderr
    shown = deployed.call("ledger", "show", "owner.db", "--json")
    assert json.loads(shown.stdout)["spent"] == 1.0  # read while it is served
    deployed.end_in_order()

    deployed.edit("owner.toml", "total = 1.5", "total = 2.0")
    refused = deployed.call("serve", "owner.toml", code=2)
    assert "ledger was created with other budgets" in refused.stderr
    deployed.configure("owner", "amend = true")
    deployed.serve("owner")
    assert deployed.totals("owner").budget == 2.0


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
    path.write_text(f'classes = ["a", "b"]\nfeatures = [{{ name = "x" }}]\n[protocol]\n{protocol}')
    asking = {"identity": "ann.key", "roster": "roster.toml", "terms": str(path), "ask": "owner"}
    given = {**asking, "role": "client", "epsilon": 1.0, **own}
    config = AnalystConfig.model_validate(given)
    request = make_request(config, OwnerTerms.load(path), np.full((2, 1), 0.5))
    assert request.k == k
    assert request.radii.tolist() == ([] if radius is None else [radius] * 2)
