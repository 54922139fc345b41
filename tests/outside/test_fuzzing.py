"""Some thousand inputs for all parsers, chosen by the lines of code that they reach."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

# The first ones, which reach each branch of a parser that a mistake of a few bytes reaches. An hour
# by hand makes some millions.
RUNS = 500
PARSERS = 13


@pytest.mark.slow
def test_a_parser_raises_only_documented_errors(tmp_path: Path) -> None:
    """Inputs that libFuzzer makes from real ones end in a value or in an error of veilring."""
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    command = (sys.executable, "-m", "tests.outside.fuzzing", "all")
    options = (f"-runs={RUNS}", "-seed=1", f"-artifact_prefix={tmp_path}/")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr[-4000:]
    runs = [int(number) for number in re.findall(r"Done (\d+) runs", done.stderr)]
    assert len(runs) == PARSERS, done.stderr[-4000:]
    assert min(runs) >= RUNS
