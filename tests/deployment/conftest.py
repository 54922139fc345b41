"""Fixtures of the tests of deployments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployment.collection import Collect, Collection
from tests.deployment.commands import Deploy, Deployment


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Write deployments, and kill their processes at the end."""
    made = list[Deployment]()

    def make(system: str, *options: object) -> Deployment:
        made.append(Deployment(tmp_path / f"{system}-{len(made)}", system, *options))
        return made[-1]

    yield make
    for deployment in made:
        deployment.kill()


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Collect]:
    """Deploy and serve collections, and kill their processes at the end."""
    made = list[Collection]()

    def serve(reports: int, survey_clients: int = 1) -> Collection:
        folder = tmp_path / f"survey-{len(made)}"
        made.append(Collection(folder, reports=reports, survey_clients=survey_clients))
        made[-1].collect()
        return made[-1]

    yield serve
    for collection in made:
        collection.kill()
