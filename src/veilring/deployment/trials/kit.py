"""What all trials write: a folder with keys and a roster, configurations, tables."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import tomli_w

from veilring.data import Table
from veilring.errors import InputError
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("TERMS", "make_folder", "write_config", "write_keys", "write_table")

TERMS: Final = "terms.toml"
_ROSTER: Final = "roster.toml"


def make_folder(folder: Path) -> None:
    """Make the folder of a trial.

    Raises:
        InputError: If it exists or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error


def write_keys(folder: Path, parties: Mapping[str, int], clients: Iterable[str]) -> None:
    """Make a key for each, and the roster that names them all.

    Args:
        folder: Where to.
        parties: The port of each party that is served.
        clients: Those who only ask.
    """
    members = []
    for name in (*parties, *clients):
        identity = make_identity(name)
        save_identity(identity, folder)
        if name in parties:
            members.append(Member.of(identity, LOOPBACK, parties[name]))
        else:
            members.append(Member.of(identity, kind="client"))
    Roster(tuple(members)).save(folder / _ROSTER)


def write_config(folder: Path, name: str, **own: object) -> None:
    """Write a party's configuration, `NAME.toml`; what it has beside its key and the roster."""
    config = {"identity": f"{name}.key", "roster": _ROSTER, **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def write_table(
    path: Path, table: Table, *, ids: Sequence[str] = (), key: str = "id", labelled: bool = True
) -> None:
    """Write a table as a CSV file whose last column is the label.

    Args:
        path: The file.
        table: The rows.
        ids: Whose or which each row is, as its first column, if that is wanted.
        key: The header of that column.
        labelled: Whether the labels are written.
    """
    columns = [[key, *ids]] if ids else []
    columns += [
        [name, *values]
        for name, values in zip(table.feature_names, table.features.T.tolist(), strict=True)
    ]
    if labelled:
        columns.append(["label", *(table.class_names[label] for label in table.labels.tolist())])
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))
