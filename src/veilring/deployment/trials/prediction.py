"""All files of a prediction server and its clients at once, on one machine: to try it."""

from pathlib import Path
from typing import Final, Literal

import numpy as np

from veilring.data import Table
from veilring.data.npz import NPZ
from veilring.deployment.prediction_terms import PredictionSection, prediction_terms_of_table
from veilring.deployment.trials.kit import (
    TERMS,
    hold_out,
    make_folder,
    write_askers,
    write_config,
    write_keys,
    write_table,
    write_terms,
)

SERVER: Final = "server"
CURATOR: Final = "curator"


def write_prediction(
    table: Table,
    prediction: PredictionSection,
    folder: Path,
    *,
    queriers: int,
    seed: int,
    port: int,
    ending: Literal[".csv", ".npz"] = ".csv",
) -> tuple[str, ...]:
    """Write keys, roster, terms, records, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows are records; the others are queries, as many as are answered.
        prediction: What is answered.
        folder: It must not exist.
        queriers: How many there are, at least 1; the queries are dealt among them.
        seed: Of the split.
        port: The server's.
        ending: Of the files of records and queries; with `.npz` rows are taken for embeddings.

    Returns:
        The names of the queriers; each has `NAME.toml`, and queries in `NAME.csv` or `NAME.npz`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    terms = prediction_terms_of_table(table, prediction, embedded=ending == NPZ)
    rows, queries = hold_out(table, seed, askers=queriers, option="--queriers")
    make_folder(folder)
    names = tuple(f"querier-{number}" for number in range(queriers))
    write_keys(folder, {SERVER: port}, (CURATOR, *names))
    write_terms(folder, terms.to_toml())
    ids = [f"record-{row}" for row in range(len(rows))]
    write_table(folder / f"records{ending}", rows, ids=ids)
    write_config(folder, SERVER, terms=TERMS, role="prediction-server", curators=[CURATOR])
    write_config(folder, CURATOR, terms=TERMS, role="curator", server=SERVER)
    answered = prediction.queries * (queriers if prediction.queriers == "apart" else 1)
    queries = queries.take(np.arange(min(len(queries), answered)))
    write_askers(folder, names, queries, ending, role="querier", ask=SERVER)
    return names
