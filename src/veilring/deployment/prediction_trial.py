"""All files of a prediction server and its clients at once, on one machine: to try it."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w

from veilring.data import Table, split
from veilring.deployment.prediction_terms import PredictionSection, prediction_terms_of_table
from veilring.errors import InputError
from veilring.randomness import Streams
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("CURATOR", "SERVER", "write_prediction")

SERVER: Final = "server"
CURATOR: Final = "curator"
_TEST_SHARE: Final = 0.25
_KEY: Final = "id"


def write_prediction(
    table: Table,
    prediction: PredictionSection,
    folder: Path,
    *,
    queriers: int,
    seed: int,
    port: int,
) -> tuple[str, ...]:
    """Write keys, roster, terms, records, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows are records; the others are queries.
        prediction: What is answered.
        folder: It must not exist.
        queriers: How many there are, at least 1; the queries are dealt among them.
        seed: Of the split.
        port: The server's.

    Returns:
        The names of the queriers; each has `NAME.toml` and `NAME.csv`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    terms = prediction_terms_of_table(table, prediction)
    rows, queries = split(table, _TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= queriers <= len(queries):
        raise InputError("--queriers", queriers, f"1 to {len(queries)}, as queries")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    names = tuple(f"querier-{number}" for number in range(queriers))
    _write_roster(folder, (CURATOR, *names), port)
    (folder / "terms.toml").write_text(terms.to_toml(), encoding="utf-8")
    _write_rows(folder / "records.csv", rows, [f"record-{row}" for row in range(len(rows))])
    _write_config(folder, SERVER, role="prediction-server", curators=[CURATOR])
    _write_config(folder, CURATOR, role="curator", server=SERVER)
    for number, name in enumerate(names):
        dealt = np.arange(number, len(queries), queriers)
        _write_rows(folder / f"{name}.csv", queries.take(dealt), None)
        _write_config(folder, name, role="querier", ask=SERVER)
    return names


def _write_roster(folder: Path, clients: tuple[str, ...], port: int) -> None:
    server, *others = [make_identity(name) for name in (SERVER, *clients)]
    for identity in (server, *others):
        save_identity(identity, folder)
    members = (Member.of(other, kind="client") for other in others)
    Roster((Member.of(server, LOOPBACK, port), *members)).save(folder / "roster.toml")


def _write_config(folder: Path, name: str, **own: object) -> None:
    config = {"identity": f"{name}.key", "roster": "roster.toml", "terms": "terms.toml", **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def _write_rows(path: Path, table: Table, ids: Sequence[str] | None) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*([_KEY] if ids else []), *table.feature_names, "label"])
        rows = zip(table.features.tolist(), table.labels.tolist(), strict=True)
        for row, (features, label) in enumerate(rows):
            writer.writerow([*([ids[row]] if ids else []), *features, table.class_names[label]])
