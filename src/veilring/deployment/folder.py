"""The files of a deployment on one machine: terms, keys, a roster, configurations and tables."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w

from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.data.table import Table
from veilring.deployment.config import Terms
from veilring.deployment.roles import begin_state
from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

TERMS: Final = "terms.toml"
"""The name of the file of the terms."""
_ROSTER: Final = "roster.toml"


def begin_folder(
    folder: Path, terms: Terms, parties: Mapping[str, int], clients: Iterable[str]
) -> None:
    """Create the folder of a deployment, with the terms, a key for each member, and their roster.

    Args:
        folder: The folder, which must not exist.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be created ({error})") from error
    members = []
    for name in (*parties, *clients):
        identity = make_identity(name)
        save_identity(identity, folder)
        if name in parties:
            members.append(Member.of(identity, LOOPBACK, parties[name]))
        else:
            members.append(Member.of(identity, kind="client"))
    Roster(tuple(members)).save(folder / _ROSTER)
    (folder / TERMS).write_text(terms.to_toml(), encoding="utf-8")


def write_config(folder: Path, name: str, **own: object) -> None:
    """Write a party's configuration, `NAME.toml`, and create its state."""
    config, path = {"identity": f"{name}.key", "roster": _ROSTER, **own}, folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    begin_state(path)


def write_clients(
    folder: Path, names: Sequence[str], queries: Table, ending: str = ".csv", /, **own: object
) -> None:
    """Divide queries among clients: write a table, and a configuration, `NAME.toml`, for each."""
    for number, name in enumerate(names):
        dealt = np.arange(number, len(queries), len(names))
        write_table(folder / f"{name}{ending}", queries.take(dealt))
        write_config(folder, name, terms=TERMS, **own)


def write_table(
    path: Path,
    table: Table,
    *,
    ids: Sequence[str] = (),
    key: str = "id",
    labelled: bool = True,
    encoded: bool = False,
) -> None:
    """Write a table as a CSV file whose last column is the label, or as an .npz file.

    Args:
        path: The file; its suffix determines the format.
        ids: The ids of the rows, if wanted; in a CSV file as its first column.
    """
    if path.suffix == NPZ:
        labels, names = (table.y, table.features.classes) if labelled else (None, None)
        write_vectors(Vectors(table.X, labels, names, tuple(ids) or None), path)
        return
    columns: list[list[object]] = [[key, *ids]] if ids else []
    columns += _features_of(table) if encoded else _columns_of(table)
    if labelled:
        columns.append(["label", *(table.features.classes[label] for label in table.y.tolist())])
    with open_private(path, "w") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))


def _columns_of(table: Table) -> Iterator[list[object]]:
    """Yield the header and the cells of each column except the label, as in the table's source."""
    by_first = {each.first: each for each in table.features.categories}
    position = 0
    while position < len(table.features):
        if position in by_first:
            column = by_first[position]
            held = table.X[:, column.features].argmax(axis=1)
            yield [column.column, *(column.values[value] for value in held.tolist())]
            position = column.features.stop
        else:
            yield [table.features.names[position], *table.X[:, position].tolist()]
            position += 1


def _features_of(table: Table) -> Iterator[list[object]]:
    """Yield the name and the numbers of each feature: a category becomes one-hot numbers."""
    for name, values in zip(table.features.names, table.X.T.tolist(), strict=True):
        yield [name, *values]
