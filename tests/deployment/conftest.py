"""Fixtures of the tests of deployments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployment.collection import Collect, Collection
from tests.deployment.commands import Deploy, Deployment


@pytest.fixture
def deployed() -> Iterator[list[Deployment]]:
    """Yield an empty list, and kill the processes of all deployments in it at the end."""
    made = list[Deployment]()
    yield made
    for deployment in made:
        deployment.kill()


@pytest.fixture
def deploy(tmp_path: Path, deployed: list[Deployment]) -> Deploy:
    """Write deployments, and kill their processes at the end."""

    def write(system: str, *options: object) -> Deployment:
        deployed.append(Deployment(tmp_path / f"{system}-{len(deployed)}", system, *options))
        return deployed[-1]

    return write


@pytest.fixture
def collect(tmp_path: Path, deployed: list[Deployment]) -> Collect:
    """Deploy and serve collections, and kill their processes at the end."""

    def serve(reports: int, survey_clients: int = 1) -> Collection:
        folder = tmp_path / f"survey-{len(deployed)}"
        collection = Collection(folder, reports=reports, survey_clients=survey_clients)
        deployed.append(collection)
        collection.collect()
        return collection

    return serve
