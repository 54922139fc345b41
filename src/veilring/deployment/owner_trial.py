"""All files of a data owner and its analysts at once, on one machine: to try `serve` and `ask`."""

import csv
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w

from veilring.data import Table, split
from veilring.deployment.owner_terms import LabellingSection, owner_terms_of_table
from veilring.errors import InputError
from veilring.randomness import Streams
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("OWNER", "write_owner")

OWNER: Final = "owner"
_TEST_SHARE: Final = 0.25


def write_owner(
    table: Table,
    labelling: LabellingSection,
    folder: Path,
    *,
    budgets: dict[str, float],
    asked: dict[str, float],
    analysts: int,
    seed: int,
    port: int,
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows is the owner's; the others are queries.
        labelling: How the owner labels.
        folder: It must not exist.
        budgets: As the owner's configuration has them.
        asked: What an analyst asks for: `epsilon`, and `r` or `k`.
        analysts: How many there are, at least 1; the queries are dealt among them.
        seed: Of the split.
        port: The owner's.

    Returns:
        The names of the analysts; each has `NAME.toml` and `NAME.csv`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    terms = owner_terms_of_table(table, labelling)
    rows, queries = split(table, _TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= analysts <= len(queries):
        raise InputError("--analysts", analysts, f"1 to {len(queries)}, as queries")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    names = tuple(f"analyst-{number}" for number in range(analysts))
    _write_roster(folder, names, port)
    (folder / "terms.toml").write_text(terms.to_toml(), encoding="utf-8")
    _write_rows(folder / f"{OWNER}.csv", rows)
    _write_config(folder, OWNER, role="data-owner", rows=f"{OWNER}.csv", budgets=budgets)
    for number, name in enumerate(names):
        dealt = np.arange(number, len(queries), analysts)
        _write_rows(folder / f"{name}.csv", queries.take(dealt))
        _write_config(folder, name, role="analyst", ask=OWNER, **asked)
    return names


def _write_roster(folder: Path, analysts: tuple[str, ...], port: int) -> None:
    identities = [make_identity(name) for name in (OWNER, *analysts)]
    for identity in identities:
        save_identity(identity, folder)
    owner, *others = identities
    clients = (Member.of(other, kind="client") for other in others)
    Roster((Member.of(owner, LOOPBACK, port), *clients)).save(folder / "roster.toml")


def _write_config(folder: Path, name: str, **own: object) -> None:
    config = {"identity": f"{name}.key", "roster": "roster.toml", "terms": "terms.toml", **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def _write_rows(path: Path, table: Table) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.feature_names, "label"])
        for features, label in zip(table.features.tolist(), table.labels.tolist(), strict=True):
            writer.writerow([*features, table.class_names[label]])
