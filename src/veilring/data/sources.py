"""One name for each data set, wherever it comes from."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from veilring.data.builtin import BUILTIN, read_builtin
from veilring.data.csv import read_csv
from veilring.data.npz import NPZ, read_npz
from veilring.data.openml import fetch_openml
from veilring.data.table import Table
from veilring.errors import InputError

__all__ = ("did_you_mean", "load_table")

_OPENML: Final = "openml:"
_CSV: Final = ".csv"


def load_table(source: str) -> Table:
    """Load a data set.

    Args:
        source: `wine`, `breast-cancer`, `digits` or `iris` (they come with scikit-learn);
            `openml:NAME`; or the path of a CSV file, which ends in `.csv`, or of a file that
            `read_npz` takes, which ends in `.npz`.

    Raises:
        InputError: If there is no such data set, or it is not a table for classification.
    """
    if source in BUILTIN:
        return read_builtin(source)
    if source.startswith(_OPENML):
        return fetch_openml(source.removeprefix(_OPENML))
    if source.lower().endswith(_CSV):
        return read_csv(Path(source))
    if source.lower().endswith(NPZ):
        return read_npz(Path(source))
    allowed = f"{', '.join(BUILTIN)}, openml:NAME, or a path to a .csv or an .npz"
    raise InputError("source", source, allowed + did_you_mean(source, BUILTIN))


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a hint at the name nearest to what was given, or nothing if none is near."""
    near = get_close_matches(given, tuple(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
