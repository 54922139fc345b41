"""All files of parties that vote with noise, and of their client, on one machine."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from veilring.config import scenario_error
from veilring.data import Table, partition
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
from veilring.deployment.trials.ring import CLIENT
from veilring.deployment.votes_terms import VotesSection, votes_terms_of_table
from veilring.randomness import Streams


def write_votes(
    table: Table, votes: Mapping[str, object], folder: Path, *, parties: int, seed: int, port: int
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows is dealt to the parties evenly; the others are queries.
        votes: How they vote, as keys of `VotesSection`; where k is given, `rows` are the table's.
        folder: It must not exist.
        parties: How many there are.
        seed: Of the split and the partition.
        port: The first party's; each next one has the next.

    Returns:
        The names of the parties; the configuration of each is `NAME.toml`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    split = hold_out(table, seed, askers=1, option="queries")
    rows = {"rows": len(split.train)} if votes.get("k") is not None else {}
    terms = votes_terms_of_table(table, _section({**votes, **rows}), parties)
    dealing = Streams(seed).generator("partition")
    dealt = partition(split.train.labels, parties, dealing)
    make_folder(folder)
    names = tuple(f"party-{number}" for number in range(parties))
    write_keys(folder, {name: port + place for place, name in enumerate(names)}, (CLIENT,))
    write_terms(folder, terms.to_toml())
    for name, own in zip(names, dealt, strict=True):
        write_table(folder / f"{name}.csv", split.train.take(own))
        config = {"role": "votes-member", "rows": f"{name}.csv", "ledger": f"{name}.db"}
        write_config(folder, name, terms=TERMS, **config)
    write_askers(folder, (CLIENT,), split.held_out, role="client", ask=names[0])
    return names


def _section(votes: Mapping[str, object]) -> VotesSection:
    try:
        return VotesSection.model_validate(votes)
    except ValidationError as error:
        raise scenario_error(error, VotesSection) from None
