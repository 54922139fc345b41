"""What all trials write: a folder with keys and a roster, terms, configurations, tables."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w

from veilring.data import Split, Table, split
from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.deployment.trials.columns import columns_of, features_of
from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.randomness import Streams
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

TERMS: Final = "terms.toml"
_ROSTER: Final = "roster.toml"
_TEST_SHARE: Final = 0.25


def hold_out(table: Table, seed: int, *, askers: int, option: str) -> Split:
    """Return the rows that are served, and the queries that some ask.

    Args:
        table: A quarter of its rows are queries.
        seed: Of the split.
        askers: How many the queries are dealt among.
        option: What that number is called.

    Raises:
        InputError: If there is nobody to ask, or not a query for each.
    """
    held_out = split(table, _TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= askers <= len(held_out.held_out):
        raise InputError(option, askers, f"1 to {len(held_out.held_out)}, as queries")
    return held_out


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


def write_terms(folder: Path, text: str) -> None:
    """Write what all have agreed on."""
    (folder / TERMS).write_text(text, encoding="utf-8")


def write_config(folder: Path, name: str, **own: object) -> None:
    """Write a party's configuration, `NAME.toml`; what it has beside its key and the roster."""
    config = {"identity": f"{name}.key", "roster": _ROSTER, **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def write_askers(
    folder: Path, names: Sequence[str], queries: Table, ending: str = ".csv", /, **own: object
) -> None:
    """Deal queries among those who ask: a table, and a configuration, `NAME.toml`, for each."""
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
        path: The file; its ending says which.
        table: The rows.
        ids: Whose or which each row is, if that is wanted; in a CSV file as its first column.
        key: The header of that column.
        labelled: Whether the labels are written.
        encoded: Whether a CSV file has the features that categories became, and not the columns.
    """
    if path.suffix == NPZ:
        labels, names = (table.labels, table.class_names) if labelled else (None, None)
        write_vectors(Vectors(table.features, labels, names, tuple(ids) or None), path)
        return
    columns: list[list[object]] = [[key, *ids]] if ids else []
    columns += features_of(table) if encoded else columns_of(table)
    if labelled:
        columns.append(["label", *(table.class_names[label] for label in table.labels.tolist())])
    with open_private(path, "w") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))
