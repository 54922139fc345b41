"""All files of a deployment at once, on one machine: to try what `serve` and `ask` do."""

from pathlib import Path
from typing import Final

import numpy as np

from veilring.config import as_scenario_errors
from veilring.data import partition, split
from veilring.deployment.terms import terms_of_table
from veilring.deployment.trials.kit import (
    TERMS,
    make_folder,
    write_config,
    write_keys,
    write_table,
    write_terms,
)
from veilring.randomness import Streams
from veilring.scenarios.prepare import KNN_KEYS, load_rows
from veilring.scenarios.schema import Scenario

CLIENT: Final = "client"


def write_deployment(scenario: Scenario, folder: Path, *, seed: int, port: int) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    Args:
        scenario: Its data, partition, parties and protocol; its network does not matter.
        folder: It must not exist.
        seed: Of the split and the partition.
        port: The first party's; each next one has the next.

    Returns:
        The names of the parties; the configuration of each is `NAME.toml`.

    Raises:
        InputError: If the folder exists or the scenario does not fit.
    """
    streams, parties = Streams(seed), scenario.parties.all
    table = load_rows(scenario.data)
    train, held_out = split(table, scenario.data.test_share, streams.generator("split"))
    dealt = partition(
        train.labels,
        len(parties),
        streams.generator("partition"),
        kind=scenario.partition.kind,
        alpha=scenario.partition.alpha,
        sizes=scenario.partition.sizes,
    )
    terms = terms_of_table(table, scenario.protocol)
    with as_scenario_errors({**KNN_KEYS, "parties": "parties.count"}, "protocol"):
        terms.parameters.sum.check(len(parties))
    make_folder(folder)
    ports = {name: port + offset for offset, name in enumerate(parties)}
    write_keys(folder, ports, (CLIENT,))
    write_terms(folder, terms.to_toml())
    for name, rows in zip(parties, dealt, strict=True):
        write_table(folder / f"{name}.csv", train.take(rows))
        write_config(folder, name, terms=TERMS, role="ring-member", rows=f"{name}.csv")
    queries = len(held_out) if scenario.data.queries == "all" else scenario.data.queries
    write_table(folder / "queries.csv", held_out.take(np.arange(min(queries, len(held_out)))))
    write_config(folder, CLIENT, terms=TERMS, role="client", ask=parties[0])
    return parties
