"""Output on a disk that is full: one sentence, and nothing half-written."""

import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from veilring.cli.answers import write_answer
from veilring.errors import StoreFailed
from veilring.privacy.files import write_whole

REMEDY = "ask again: the same request costs nothing"


@pytest.fixture
def full() -> Iterator[None]:
    """Let no file of this process grow beyond 4 KiB, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full")
def test_an_answer_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    """The next try is not refused because a file exists already."""
    out = tmp_path / "labels.csv"
    with pytest.raises(StoreFailed, match=f"the labels could not be written .*; {REMEDY}"):
        write_answer("x" * 10_000, out, REMEDY)
    assert list(tmp_path.iterdir()) == []
    write_answer("label\n", out, REMEDY)
    assert out.read_text() == "label\n"
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("full")
def test_a_file_that_is_replaced_stays_whole(tmp_path: Path) -> None:
    """A page or a table that cannot be written leaves the earlier one as it was."""
    page = tmp_path / "report.html"
    write_whole(page, "earlier")
    with pytest.raises(OSError, match="File too large") as caught:
        write_whole(page, "x" * 10_000)
    assert caught.value.errno == errno.EFBIG
    assert page.read_text() == "earlier"
    write_whole(page, "later")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["later"]
    with pytest.raises(FileExistsError):
        write_whole(page, "new", new=True)


@pytest.mark.parametrize("words", [("systems",), ("scenarios",), ("oracles", "--help")])
def test_standard_output_on_a_full_disk_is_one_sentence(words: tuple[str, ...]) -> None:
    """A command whose output cannot be written ends with 1 and without a traceback."""
    with Path("/dev/full").open("w") as output:
        command = [sys.executable, "-m", "veilring", *words]
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == "veilring: cannot write the output: No space left on device\n"
    assert done.returncode == 1
