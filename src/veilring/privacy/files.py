"""Files that only their owner can read, and file names that survive a power loss."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Literal

from veilring.errors import InputError, StoreFailed

# readable and writable only by the owner
PRIVATE_MODE: Final = 0o600


def require_private(file: IO[bytes], path: Path) -> None:
    """Refuse an open file with a key if other users can read or write it.

    It is refused rather than warned of, as in `ssh`: others may already know its key, and a warning
    would be overlooked.

    Raises:
        InputError: If they can; the file should get the mode `PRIVATE_MODE`.
    """
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError.because(
            f"{path} has the mode {mode:o}, which lets other users access it; run `chmod "
            f"{PRIVATE_MODE:o}` on it",
            field="path",
        )


def create_private(path: Path, name: str) -> None:
    """Create a file that only its owner can read, unless it exists.

    An existing file is not opened, because closing it would drop SQLite's locks of this process.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_MODE))
    except FileExistsError:
        return
    except OSError as error:
        allowed = f"a file that can be written ({error.strerror})"
        raise InputError(name, path, allowed) from error


def open_private(path: Path, mode: Literal["w", "x", "wb", "xb"]) -> IO[Any]:
    """Open a file for writing; a new one can only be read by its owner, whatever the umask.

    Text is in UTF-8, and line ends are written unchanged.

    Raises:
        OSError: If it cannot be created or written.
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    # `Path` has no argument for an opener
    opener = partial(os.open, mode=PRIVATE_MODE)
    return open(path, mode, encoding=encoding, newline=newline, opener=opener)


def write_whole(path: Path, text: str, *, new: bool = False, private: bool = False) -> None:
    """Write a text in UTF-8 to a file completely or not at all; line ends are written unchanged.

    A device, such as `/dev/stdout`, is written directly. An existing file is replaced, or an error
    if the file has to be `new`; only its owner can read one that is `private`.

    Raises:
        FileExistsError: If `new` and the file exists.
        OSError: If it cannot be written; no part of it stays.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", newline="")
        return
    draft = path.with_name(f".{secrets.token_hex(8)}.new")
    mode = PRIVATE_MODE if private else 0o666  # less the umask
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        if new:
            os.link(draft, path)  # unlike a rename, this fails if the path exists
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def keep_owner(path: Path, like: Path) -> None:
    """Give a file the owner and the group of another one, if root works for a service's user.

    Raises:
        OSError: If this user may not do so.
    """
    if os.name == "posix":
        wanted, found = like.stat(), path.stat()
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            os.chown(path, wanted.st_uid, wanted.st_gid)


def sync_folder(folder: Path) -> None:
    """Make sure that the names of new files also survive a power loss."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def as_store_failed(what: str, path: Path | None = None) -> Iterator[None]:
    """Raise an SQLite error as `StoreFailed`, which names the file if given."""
    import sqlite3  # noqa: PLC0415  (most files are no databases, and a browser may have none)

    try:
        yield
    except sqlite3.Error as error:
        where = f" {path}" if path else ""
        raise StoreFailed(f"{what}{where}: {error}") from error
