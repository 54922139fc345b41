"""Deployed parties whose label is a number: members, their ledgers, and the client's answers."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.ports import reserve_ports
from tests.deployment.commands import PARTIES, Deployment
from tests.deployment.members import all_served

import veilring as vr
from veilring.data.columns import Target
from veilring.deployment.duties import perform
from veilring.deployment.examples.peers import write_peers
from veilring.deployment.owner import OwnerTerms
from veilring.deployment.peers import PeerTerms
from veilring.errors import ScenarioError
from veilring.protocols.release.model import load_model

TARGET = Target(low=0.0, high=10.0, resolution=0.5)
DRAFTED = TARGET.model_copy(update={"agreed": False})


def table() -> vr.Table:
    """Return rows whose target is their first feature, scaled."""
    drawn = np.random.default_rng(1).random((60, 2))
    features = vr.Features(("size", "age"), vr.Ranges.unit(2), (), target=TARGET)
    return vr.Table("drawn", drawn, TARGET.labels_of(10 * drawn[:, 0]), features)


def written(folder: Path, system: vr.System, budget: float | None = None) -> Deployment:
    """Write the files of a deployment on the table."""
    port = reserve_ports(len(PARTIES))
    write_peers(table(), system, folder, parties=PARTIES, seed=0, port=port, budget=budget)
    return Deployment(folder)


async def test_members_predict_the_pooled_mean(tmp_path: Path) -> None:
    """The client's answers are numbers near the target, in steps of the terms' resolution."""
    deployed = written(tmp_path / "peers", vr.RankSearch(k=3))
    terms = PeerTerms.load(deployed.folder / "terms.toml", 3)
    assert terms.target == DRAFTED
    assert "the sum of their targets" in terms.promise(3).learned
    async with all_served(deployed.folder) as served:
        found = np.array(await served.labels(), np.float64)
    assert set(found % 0.5) == {0.0}
    header, *cells = (deployed.folder / "queries.csv").read_text().splitlines()
    sizes = [float(row.split(",")[header.split(",").index("size")]) for row in cells]
    assert np.abs(found - 10 * np.array(sizes)).max() < 2.5


async def test_a_release_is_charged_once_and_is_a_file(tmp_path: Path) -> None:
    """The ledger of each member is charged; the client's model predicts what the client does."""
    deployed = written(tmp_path / "peers", vr.Release(epsilon=2.0), budget=2.0)
    folder = deployed.folder
    async with all_served(folder) as served:
        found = await served.labels()
        assert served.spent() == [2.0] * 3
        assert await served.labels(3, 6) == found[3:6]
        (await perform(folder / "client.toml", "model")).save(folder / "model.json")
        assert served.spent() == [2.0] * 3
    model = load_model(folder / "model.json")
    assert list(map(str, model.predict(folder / "queries.csv"))) == found
    assert model.schema.target == DRAFTED


@pytest.mark.parametrize("terms", [PeerTerms, OwnerTerms])
def test_terms_of_a_system_for_classes_refuse_numbers(terms: type[PeerTerms]) -> None:
    """The error is about the key of the target, and names the systems that predict numbers."""
    with pytest.raises(ScenarioError, match="use rank-search or release") as refused:
        terms.of_table(table()).checked(3)
    assert refused.value.field == "target"
