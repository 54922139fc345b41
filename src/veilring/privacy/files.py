"""Files that only their owner reads, and names of files that survive a loss of power."""

import os
from pathlib import Path
from typing import IO, Any, Literal

from veilring.errors import InputError


def create_private(path: Path, name: str) -> None:
    """Make a file that only its owner reads, unless it is there.

    One that is there is not opened: closing it would drop SQLite's locks of this process.

    Args:
        path: Where it is to be.
        name: What it is, as a noun for the message.

    Raises:
        InputError: If it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        allowed = f"a file that can be written ({error.strerror})"
        raise InputError(name, path, allowed) from error


def open_private(path: Path, mode: Literal["w", "x", "wb", "xb"]) -> IO[Any]:
    """Open a file for writing that, if it is made, only its owner reads, whatever the umask.

    Text is in UTF-8, and its ends of lines are written as they are.

    Raises:
        OSError: If it cannot be made or written.
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    # A `Path` takes no opener.
    return open(path, mode, encoding=encoding, newline=newline, opener=_for_the_owner)


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make sure that the names of new files survive a loss of power, too."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
