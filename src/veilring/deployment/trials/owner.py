"""All files of a data owner and its analysts at once, on one machine: to try `serve` and `ask`."""

from pathlib import Path
from typing import Final

import numpy as np

from veilring.data import Table
from veilring.deployment.owner_terms import (
    LabellingSection,
    OwnerTerms,
    owner_terms_of_table,
)
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
from veilring.errors import InputError
from veilring.privacy.ledger import Budgets
from veilring.protocols.radius.analyst import ask_nearest, ask_within

OWNER: Final = "owner"


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
        InputError: If the folder exists or something does not fit; it names an option.
    """
    terms = owner_terms_of_table(table, labelling)
    _require(terms, budgets, asked)
    rows, queries = hold_out(table, seed, askers=analysts, option="--analysts")
    make_folder(folder)
    names = tuple(f"analyst-{number}" for number in range(analysts))
    write_keys(folder, {OWNER: port}, names)
    write_terms(folder, terms.to_toml())
    write_table(folder / f"{OWNER}.csv", rows)
    owner = {"role": "data-owner", "rows": f"{OWNER}.csv", "budgets": budgets}
    write_config(folder, OWNER, terms=TERMS, **owner)
    write_askers(folder, names, queries, role="analyst", ask=OWNER, **asked)
    return names


def _require(terms: OwnerTerms, budgets: dict[str, float], asked: dict[str, float]) -> None:
    """Refuse what the owner would not start with, or not answer."""
    query, epsilon = np.zeros((1, terms.width)), asked["epsilon"]
    try:
        Budgets("epsilon", budgets["total"], budgets.get("analyst"), {}, budgets.get("record"))
        if "k" in asked:
            request = ask_nearest(query, int(asked["k"]), epsilon)
        else:
            request = ask_within(query, np.array([asked["r"]]), epsilon)
        terms.rules.check(request)
    except InputError as error:
        option = "--r" if error.field == "radii" else f"--{error.field}"
        raise InputError(option, error.value, error.allowed) from error
