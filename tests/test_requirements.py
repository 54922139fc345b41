"""The locked versions: those of servers have hashes, and are those that the tests run with."""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TOOLS: Final = {"pytest", "sphinx", "mypy", "ruff", "furo", "hypothesis", "import-linter"}
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:.*\\\n)*.*)", re.MULTILINE)


def pinned(name: str) -> dict[str, set[str]]:
    """Return the versions of each package in a file of locked versions."""
    found: dict[str, set[str]] = {}
    for package, version, _ in _PINNED.findall((ROOT / name).read_text()):
        found.setdefault(package, set()).add(version)
    return found


def test_a_server_installs_what_was_tested() -> None:
    """Each version for servers is one of `requirements.lock`, and no tool is among them."""
    everything, served = pinned("requirements.lock"), pinned("requirements-server.lock")
    assert all(versions <= everything[package] for package, versions in served.items())
    assert not TOOLS & set(served)
    assert set(everything) >= TOOLS


def test_a_server_has_all_that_it_needs() -> None:
    """Everything that the package depends on, and the extras that servers use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for name in ("uvloop", "postgres", "geo") for each in optional(project, name)]
    served = pinned("requirements-server.lock")
    for requirement in (*project["dependencies"], *extras):
        assert re.split(r"[\[>=;]", requirement)[0] in served


def optional(project: dict[str, dict[str, list[str]]], extra: str) -> list[str]:
    """Return the requirements of an extra."""
    return project["optional-dependencies"][extra]


def test_each_version_of_a_server_has_hashes() -> None:
    """Each requirement has hashes, as `pip install --require-hashes` demands."""
    entries = _PINNED.findall((ROOT / "requirements-server.lock").read_text())
    assert len(entries) > 20
    assert all("--hash=sha256:" in rest for _, _, rest in entries)
