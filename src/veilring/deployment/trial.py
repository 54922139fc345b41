"""All files of a deployment at once, on one machine: to try what `serve` and `ask` do."""

import csv
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w

from veilring.data import Table, load_table, partition, split
from veilring.deployment.terms import terms_of_table
from veilring.errors import InputError
from veilring.randomness import Streams
from veilring.scenarios.schema import Scenario
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("CLIENT", "write_deployment")

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
    table = load_table(scenario.data.source)
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
    terms.parameters.sum.check(len(parties))
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    _write_roster(folder, parties, port)
    (folder / "terms.toml").write_text(terms.to_toml(), encoding="utf-8")
    for name, rows in zip(parties, dealt, strict=True):
        _write_table(folder / f"{name}.csv", train.take(rows))
        _write_config(folder, name, role="ring-member", rows=f"{name}.csv")
    queries = len(held_out) if scenario.data.queries == "all" else scenario.data.queries
    _write_table(folder / "queries.csv", held_out.take(np.arange(min(queries, len(held_out)))))
    _write_config(folder, CLIENT, role="client", ask=parties[0])
    return parties


def _write_roster(folder: Path, parties: tuple[str, ...], port: int) -> None:
    members = []
    for offset, name in enumerate(parties):
        identity = make_identity(name)
        save_identity(identity, folder)
        members.append(Member.of(identity, LOOPBACK, port + offset))
    client = make_identity(CLIENT)
    save_identity(client, folder)
    Roster((*members, Member.of(client, kind="client"))).save(folder / "roster.toml")


def _write_config(folder: Path, name: str, **own: str) -> None:
    config = {"identity": f"{name}.key", "roster": "roster.toml", "terms": "terms.toml", **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def _write_table(path: Path, table: Table) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.feature_names, "label"])
        for features, label in zip(table.features.tolist(), table.labels.tolist(), strict=True):
            writer.writerow([*features, table.class_names[label]])
