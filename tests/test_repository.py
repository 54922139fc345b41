"""Files beside the package: marks, locked versions, suppressions, mutation score and prose."""

import itertools
import json
import re
import runpy
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from statistics import fmean, pvariance
from types import ModuleType
from typing import Final

import pytest

from veilring.extras import EXTRA_OF

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_ci_runs_all_tests_omitted_by_default() -> None:
    """By default no test with a custom mark runs, and `.ci/run` runs all of them."""
    options = PROJECT["tool"]["pytest"]["ini_options"]
    marks = [line.partition(":")[0] for line in options["markers"]]
    words = shlex.split(options["addopts"])
    assert words[words.index("-m") + 1] == " and ".join(f"not {mark}" for mark in marks)
    (command,) = re.findall(
        r"^time \.venv/bin/python -m pytest (.+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE
    )
    assert shlex.split(command)[-2:] == ["-m", " or ".join(marks)]
    (shown,) = re.findall(
        r"^python3 .*-m pytest(.*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert shown.split() == ["-n", "auto"]


HASHED: Final = ("requirements.lock", "requirements-server.lock")
TOOLS: Final = {"pytest", "sphinx", "mypy", "ruff", "furo", "hypothesis", "import-linter"}
SERVER_EXTRAS: Final = ("uvloop", "postgres", "geo")
EXTRAS: Final = (*SERVER_EXTRAS, "dask", "docs", "lab", "lint", "parquet", "plot", "test")
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:.*\\\n)*.*)", re.MULTILINE)


def pinned(name: str) -> dict[str, set[str]]:
    """Return the versions of each package in a file of locked versions."""
    found: dict[str, set[str]] = {}
    for package, version, _ in _PINNED.findall((ROOT / name).read_text()):
        found.setdefault(package, set()).add(version)
    return found


def required(*extras: str) -> set[str]:
    """Return the names of the packages that some extras require, or else the package itself."""
    project = PROJECT["project"]
    optional = [each for extra in extras for each in project["optional-dependencies"][extra]]
    requirements: list[str] = optional if extras else project["dependencies"]
    return {re.split(r"[\[>=;]", each)[0] for each in requirements}


@pytest.mark.parametrize("name", HASHED)
def test_all_files_have_the_same_versions_with_hashes(name: str) -> None:
    """Each version in a file is one of `constraints.txt`, with hashes as `pip` demands."""
    constraints, entries = pinned("constraints.txt"), _PINNED.findall((ROOT / name).read_text())
    assert all(versions <= constraints[package] for package, versions in pinned(name).items())
    assert len(entries) > 20
    assert all("--hash=sha256:" in rest for _, _, rest in entries)


def test_servers_and_contributors_have_all_requirements() -> None:
    """A server has its extras and no tool for tests; a contributor has everything."""
    served, locked = set(pinned("requirements-server.lock")), set(pinned("requirements.lock"))
    assert served >= required() | required(*SERVER_EXTRAS)
    assert locked | {"veilring"} >= required() | required(*EXTRAS)
    assert locked >= TOOLS
    assert not TOOLS & served


def test_each_package_is_in_the_named_extra() -> None:
    """Each package belongs to the extra that an error names, and none is a core dependency."""
    for package, extra in EXTRA_OF.items():
        other = {"sklearn": "scikit-learn", "Crypto": "pycryptodome"}
        name = other.get(package, package).replace("_", "-")
        assert name in required(extra) - required()


FOLDERS: Final = ("src", "tests", "benchmarks", "docs", ".ci")
SUPPRESSION: Final = re.compile(r"# (?:noqa|type: ignore|pragma: no cover)\b")
REASONED: Final = re.compile(
    r"# noqa: [A-Z]+\d+(?:, [A-Z]+\d+)*  \([^)]"  # with its reason in brackets
    r"|# type: ignore\[[a-z-]+(?:, ?[a-z-]+)*\]  # \w"  # with its reason as a comment
)


def test_every_suppression_has_a_reason() -> None:
    """Each `noqa` and `type: ignore` names its rule, and its reason after it."""
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if SUPPRESSION.search(line) and not REASONED.search(line)
    ]
    assert not bare


SCRIPT: Final = runpy.run_path(str(ROOT / ".ci/mutation.py"))


@pytest.mark.parametrize(("noticed", "sampled"), [(5, 2), (5, 3), (1, 4), (7, 6)])
def test_the_standard_error_is_unbiased(noticed: int, sampled: int) -> None:
    """Its square is, on average over all samples of seven changes, the variance of their shares.

    The score of all changes is exact.
    """
    changes = [True] * noticed + [False] * (7 - noticed)
    samples = [sum(each) for each in itertools.combinations(changes, sampled)]
    errors = [SCRIPT["standard_error"](each, sampled, len(changes)) for each in samples]
    shares = [each / sampled for each in samples]
    assert fmean(error**2 for error in errors) == pytest.approx(pvariance(shares), abs=1e-12)
    assert SCRIPT["standard_error"](noticed, 7, 7) == 0


def test_the_seed_determines_the_sample() -> None:
    """Equal seeds draw equal samples from any order of the changes, and no change twice."""
    draw, changes = SCRIPT["draw"], [f"change {number}" for number in range(50)]
    drawn = draw(changes, 20, 7)
    assert drawn == draw(changes[::-1], 20, 7)
    assert drawn != draw(changes, 20, 8)
    assert len(set(drawn)) == 20
    assert set(draw(changes, 99, 7)) == set(changes)


def test_hangs_and_crashes_are_noticed() -> None:
    """A change without tests counts against the score, and one that hangs or crashes for it.

    The counts of the modules in `.ci/mutation.json` add up to those of the package.
    """
    name = "veilring.privacy.bounds.x_part__mutmut_"
    statuses = ("killed", "timeout", "segfault", "survived", "no tests", "suspicious")
    results = {f"{name}{number}": status for number, status in enumerate(statuses)}
    counts = {"sampled": 6, "noticed": 3}
    assert SCRIPT["score"](results, 9) == {"changes": 9, **counts, "modules": {"bounds": counts}}
    record = json.loads((ROOT / ".ci/mutation.json").read_text(encoding="utf-8"))
    for key in counts:
        assert record[key] == sum(module[key] for module in record["modules"].values())


PAGE = """# Set-up

The client sends its
queries anew.

```sh
veilring anew
```

Call `anew()`.
What a run costs is shown.
"""
MODULE = '''"""Sum the shares anew."""

def add(count):
    """Return the sum.

    Args:
        count: Of all parties.

    For example:

        whoever anew

    Raises:
        ValueError: If whoever asks is unknown.
    """
    raise ValueError(f"the party {count} has been seen"
                     " by whoever asked first")
'''


@pytest.fixture
def prose(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the check of prose, which is not part of a package."""
    pytest.importorskip("harper", reason="the engine is part of the extra `lint`")
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return import_module("prose")


@pytest.mark.slow
def test_each_rule_finds_its_bad_example_and_passes_its_good_one(prose: ModuleType) -> None:
    """Rules are data with examples, and every example behaves as written."""
    assert prose.examples() == []


def test_prose_is_checked_outside_code(
    prose: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings have the file's line numbers; blocks of code and commands are skipped.

    Docstrings, their parameters and messages are prose. A test quotes the text that it checks, so
    only its docstrings are read.
    """
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    docstrings = [(1, "Anew"), (7, "OfParameter"), (14, "Whoever")]
    files = {
        "page.md": (PAGE, [(4, "Anew"), (10, "HeadlessWhat")]),
        "src/module.py": (MODULE, [*docstrings, (16, "Whoever")]),
        "tests/test_it.py": (MODULE, docstrings),
    }
    for name, (text, _) in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    findings = prose.check(list(files))
    for name, (_, expected) in files.items():
        assert [(each.line, each.rule) for each in findings if each.path == name] == expected
