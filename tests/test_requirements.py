"""Locked versions: equal in all files, and with hashes where pip installs them."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
HASHED: Final = ("requirements.lock", "requirements-server.lock")
TOOLS: Final = {"pytest", "sphinx", "mypy", "ruff", "furo", "hypothesis", "import-linter"}
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:.*\\\n)*.*)", re.MULTILINE)


def pinned(name: str) -> dict[str, set[str]]:
    """Return the versions of each package in a file of locked versions."""
    found: dict[str, set[str]] = {}
    for package, version, _ in _PINNED.findall((ROOT / name).read_text()):
        found.setdefault(package, set()).add(version)
    return found


@pytest.mark.parametrize("name", HASHED)
def test_all_files_have_the_same_versions(name: str) -> None:
    """Each version in a file of hashes is one of `constraints.txt`."""
    constraints = pinned("constraints.txt")
    assert all(versions <= constraints[package] for package, versions in pinned(name).items())


def test_tools_are_not_installed_on_servers() -> None:
    """The tools for tests and documentation are in `requirements.lock`, and not on servers."""
    assert set(pinned("requirements.lock")) >= TOOLS
    assert not TOOLS & set(pinned("requirements-server.lock"))


def test_a_server_has_all_requirements() -> None:
    """It has every dependency of the package, and the extras that servers use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for name in ("uvloop", "postgres", "geo") for each in optional(project, name)]
    served = pinned("requirements-server.lock")
    for requirement in (*project["dependencies"], *extras):
        assert re.split(r"[\[>=;]", requirement)[0] in served


def test_contributors_have_all_requirements() -> None:
    """They have everything for the package, its tests, its checks and its pages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("dask", "docs", "geo", "lab", "lint", "parquet", "plot", "postgres", "test", "uvloop")
    locked = pinned("requirements.lock")
    needed = {
        *project["dependencies"],
        *(each for name in extras for each in optional(project, name)),
    }
    assert {re.split(r"[\[>=;]", each)[0] for each in needed} <= {*locked, "veilring"}


def optional(project: dict[str, dict[str, list[str]]], extra: str) -> list[str]:
    """Return the requirements of an extra."""
    return project["optional-dependencies"][extra]


@pytest.mark.parametrize("name", HASHED)
def test_each_version_has_hashes(name: str) -> None:
    """Each requirement has hashes, as `pip install --require-hashes` demands."""
    entries = _PINNED.findall((ROOT / name).read_text())
    assert len(entries) > 20
    assert all("--hash=sha256:" in rest for _, _, rest in entries)
