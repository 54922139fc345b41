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
