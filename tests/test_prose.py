"""The prose check finds violations of the house style, with their location, outside code."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("harper", reason="the engine is part of the extra `lint`")

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


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    """Import the script, which is not part of a package."""
    path = Path(__file__).resolve().parents[1] / ".ci" / "prose.py"
    spec = importlib.util.spec_from_file_location("prose", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module  # where its data classes look for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_each_rule_finds_its_bad_example_and_passes_its_good_one(prose: ModuleType) -> None:
    """Rules are data with examples, and every example behaves as written."""
    assert prose.examples() == []


def found(prose: ModuleType, root: Path, name: str, text: str) -> list[tuple[int, str]]:
    """Return the line and the rule of each finding in a file with this text."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")
    return [(finding.line, finding.rule) for finding in prose.check([name])]


@pytest.fixture
def root(prose: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Check the files of another folder."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    return tmp_path


def test_a_page_is_checked_outside_its_code(prose: ModuleType, root: Path) -> None:
    """Findings have the file's line numbers; blocks of code and inline code are skipped."""
    assert found(prose, root, "page.md", PAGE) == [(4, "Anew"), (10, "HeadlessWhat")]


def test_a_module_is_checked_in_its_docstrings_and_messages(prose: ModuleType, root: Path) -> None:
    """Docstrings, their parameters and messages are prose; commands in docstrings are not."""
    assert found(prose, root, "src/module.py", MODULE) == [
        (1, "Anew"),
        (7, "OfParameter"),
        (14, "Whoever"),
        (16, "Whoever"),
    ]


def test_strings_of_a_test_are_not_prose(prose: ModuleType, root: Path) -> None:
    """A test quotes the text that it checks, so only its docstrings are read."""
    rules = [rule for _, rule in found(prose, root, "tests/test_it.py", MODULE)]
    assert rules == ["Anew", "OfParameter", "Whoever"]
