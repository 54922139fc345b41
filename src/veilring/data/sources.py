"""One name for each data set, wherever it comes from."""

from pathlib import Path
from typing import Final

from veilring.config import did_you_mean
from veilring.data.builtin import BUILTIN, read_builtin
from veilring.data.csv import Separator, read_csv
from veilring.data.npz import NPZ, read_npz
from veilring.data.openml import fetch_openml
from veilring.data.table import Table
from veilring.errors import InputError

_OPENML: Final = "openml:"
_CSV: Final = ".csv"


def load(source: str, *, label: str | None = None, separator: Separator = ",") -> Table:
    """Load a data set.

    Args:
        source: `wine`, `breast-cancer`, `digits` or `iris` (they come with scikit-learn);
            `openml:NAME`; or the path of a CSV file, which ends in `.csv`, or of a file that
            `read_npz` takes, which ends in `.npz`.
        label: In a CSV file: the column with the class of each row; the last one if left out.
        separator: In a CSV file: what stands between cells.

    Raises:
        InputError: If there is no such data set, or it is not a table for classification, or
            `label` or `separator` is given for another source than a CSV file.
    """
    if source.lower().endswith(_CSV) and not source.startswith(_OPENML):
        return read_csv(Path(source), label=label, separator=separator)
    if label is not None or separator != ",":
        field = "separator" if label is None else "label"
        raise InputError(field, separator if label is None else label, "left out but for a .csv")
    if source in BUILTIN:
        return read_builtin(source)
    if source.startswith(_OPENML):
        return fetch_openml(source.removeprefix(_OPENML))
    if source.lower().endswith(NPZ):
        return read_npz(Path(source))
    allowed = f"{', '.join(BUILTIN)}, openml:NAME, or a path to a .csv or an .npz"
    raise InputError("source", source, allowed + did_you_mean(source, BUILTIN))
