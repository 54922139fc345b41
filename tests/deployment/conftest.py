"""Fixtures of the tests of deployments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import Browser, open_browser
from tests.deployment.collection import Collect, Collection
from tests.deployment.commands import Deploy, Deployment
from tests.deployment.pages import PACKAGE
from tests.deployment.uploading import write_certificate
from tests.npm import install


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


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the package is installed."""
    return install(tmp_path_factory.mktemp("npm"), PACKAGE)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key."""
    return write_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser that accepts any certificate."""
    profile = tmp_path_factory.mktemp("browser")
    with open_browser(profile, "--ignore-certificate-errors") as browser:
        yield browser
