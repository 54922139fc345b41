"""The command of the README leaves tests out; `.ci/run` runs them as well."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def test_ci_runs_all_that_the_default_leaves_out() -> None:
    """By default no test with a mark of ours runs, and `.ci/run` runs those with any of them."""
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
