"""Refresh the page on scaling: measure its text, points, models and pictures again.

Usage: python docs/scale/refresh.py [NAME...]

Without a name all are measured, which takes a quarter of an hour on a machine that does nothing
else. The page includes the files as they are: it needs no hand.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ring": ("ring", "--full"),
    "jitter": ("ring", "--network", str(_HERE / "wan.toml")),
    "serve": ("serve", "--full"),
    "collect": ("collect", "--full"),
    "records": ("records", "--full"),
}
"""What is measured for each name. The second is kept in a folder of its own."""


def main(names: Sequence[str]) -> None:
    """Measure each, and put its files in the place of the old ones when all of them are there."""
    for name in names or COMMANDS:
        command = COMMANDS[name]
        folder = _HERE / name if name != command[0] else _HERE
        with tempfile.TemporaryDirectory() as made:
            whole = [sys.executable, "-m", "benchmarks", "scale", *command, "--out", made]
            subprocess.run(whole, cwd=_HERE.parents[1], check=True)
            for file in Path(made).iterdir():
                shutil.copy(file, folder / file.name)


if __name__ == "__main__":
    main(sys.argv[1:])
