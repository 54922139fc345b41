"""Anyone who builds a release gets the same bytes, and needs nothing besides the source."""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE_BYTES_MAX: Final = 4 << 20
"""The size of a source distribution: it has text, pictures and small tables, and no package."""
# A mask of new files, a time zone, a seed of hashes, and the time of all files.
HERE: Final = (0o022, "UTC", "1", 1_700_000_000)
THERE: Final = (0o077, "Asia/Tokyo", "2", 1_000_000_000)


def build(source: Path, to: Path, surroundings: tuple[int, str, str, int]) -> dict[str, str]:
    """Build both distributions from a folder, and return the hash of each by its name."""
    umask, zone, seed, time = surroundings
    for path in source.rglob("*"):
        os.utime(path, (time, time))
    environment = os.environ | {"TZ": zone, "PYTHONHASHSEED": seed}
    environment.pop("SOURCE_DATE_EPOCH", None)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(to)]
    subprocess.run(
        command, cwd=source, env=environment, umask=umask, check=True, capture_output=True
    )
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in to.iterdir()}


@pytest.mark.slow
def test_distributions_are_equal_to_the_byte(tmp_path: Path) -> None:
    """A clone and its source distribution, elsewhere and at another time, build the same files."""
    pytest.importorskip("hatchling", reason="the extra lint is not installed")
    tracked = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(tracked, check=False, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no clone")
    for name in listed.stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():  # and has not just been removed
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "clone" / name)
    first = build(tmp_path / "clone", tmp_path / "first", HERE)
    (archive,) = (tmp_path / "first").glob("*.tar.gz")
    assert archive.stat().st_size <= SOURCE_BYTES_MAX
    elsewhere = tmp_path / "a place with spaces"
    elsewhere.mkdir()
    unpack = ["tar", "-C", str(elsewhere), "-xzf", str(archive)]
    subprocess.run(unpack, check=True)
    (source,) = elsewhere.iterdir()
    (source / "PKG-INFO").unlink()  # each source distribution gets a new one
    assert build(source, tmp_path / "second", THERE) == first
    assert {Path(name).suffix for name in first} == {".gz", ".whl"}
