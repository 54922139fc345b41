"""The README's command omits marked tests, and `.ci/run` runs them as well."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def test_ci_runs_all_tests_omitted_by_default() -> None:
    """By default no test with a custom mark runs, and `.ci/run` runs all of them."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
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
