"""The examples of the documentation run and print their `.out` files."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.docs
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_what_the_pages_show(example: Path) -> None:
    """The output of each example equals its `.out` file exactly."""
    run = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.stdout == example.with_suffix(".out").read_text(encoding="utf-8")
