"""All files of a collection at once, on one machine: to try `serve`, `submit` and `estimate`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import ValidationError

from veilring.config import scenario_error
from veilring.data import Table, bounds_of
from veilring.data.table import Categories
from veilring.deployment.schema import features_of_table
from veilring.deployment.survey_terms import SurveyTerms, check_survey_terms
from veilring.deployment.trials.kit import (
    TERMS,
    make_folder,
    write_config,
    write_keys,
    write_table,
    write_terms,
)
from veilring.errors import InputError
from veilring.randomness import Streams

COLLECTOR: Final = "collector"
KEY: Final = "client"
"""The column that says whose row it is."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried.

    Attributes:
        kind: What is asked.
        epsilon: What a report may spend.
        clients: How many rows are drawn.
        submitters: Among how many they are dealt.
        column: The column whose values are counted, for `frequency` alone.

    Raises:
        InputError: If there is no submitter, or not a client for each, or `column` is missing for
            `frequency` or given for another kind.
    """

    kind: str
    epsilon: float
    clients: int
    submitters: int
    column: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.submitters <= self.clients:
            raise InputError("--submitters", self.submitters, f"1 to {self.clients}, as clients")
        if (self.kind == "frequency") != (self.column is not None):
            given = "missing" if self.column is None else self.column
            raise InputError("--column", given, "a column with --kind frequency, and only then")


def write_collection(
    table: Table, trial: Trial, folder: Path, *, seed: int, port: int
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: Clients are drawn from its rows, with replacement.
        trial: What is tried.
        folder: It must not exist.
        seed: Of the draw.
        port: The collector's.

    Returns:
        The names of the submitters; each has `NAME.toml` and `NAME.csv`.

    Raises:
        InputError: If the folder exists or the trial does not fit.
    """
    if trial.column is not None:
        table = _only(table, trial.column)
    terms = _terms(table, trial)
    make_folder(folder)
    names = tuple(f"submitter-{number}" for number in range(trial.submitters))
    write_keys(folder, {COLLECTOR: port}, names)
    write_terms(folder, terms.to_toml())
    collector = {"role": "collector", "store": "reports.sqlite"}
    write_config(folder, COLLECTOR, terms=TERMS, **collector)
    drawn = Streams(seed).generator("clients").integers(len(table), size=trial.clients)
    for number, name in enumerate(names):
        own = np.arange(number, trial.clients, trial.submitters)
        ids = [f"client-{number}" for number in own.tolist()]
        rows, labelled = table.take(drawn[own]), bool(terms.classes)
        encoded = trial.column is None  # one column is counted by its categories
        write_table(
            folder / f"{name}.csv", rows, ids=ids, key=KEY, labelled=labelled, encoded=encoded
        )
        submitter = {"role": "submitter", "collector": COLLECTOR, "key": KEY}
        outbox = f"{name}.outbox.sqlite"
        write_config(folder, name, **submitter, outbox=outbox, budget=trial.epsilon)
    return names


def _only(table: Table, column: str) -> Table:
    """Return a table with one of its columns."""
    kept = {feature.name: feature for feature in features_of_table(table)}
    if column not in kept:
        raise InputError("--column", column, f"a column: {', '.join(kept)}")
    categories = {each.column: each for each in table.categories}
    if column not in categories:
        place = slice(first := table.feature_names.index(column), first + 1)
        of_it: tuple[Categories, ...] = ()
    else:
        place, of_it = categories[column].features, (categories[column]._replace(first=0),)
    return replace(
        table,
        features=table.features[:, place],
        feature_names=table.feature_names[place],
        categories=of_it,
    )


def _terms(table: Table, trial: Trial) -> SurveyTerms:
    lows, highs = bounds_of(table)
    columns = [
        {"name": name, "low": float(low), "high": float(high)}
        for name, low, high in zip(table.feature_names, lows, highs, strict=True)
    ]
    if trial.column is not None:
        columns = [each.model_dump(exclude_defaults=True) for each in features_of_table(table)]
    needs_classes = trial.kind not in {"frequency", "means"}
    content = {
        "survey": {"kind": trial.kind, "epsilon": trial.epsilon},
        "classes": table.class_names if needs_classes else (),
        "features": columns,
    }
    try:
        terms = SurveyTerms.model_validate(content)
    except ValidationError as error:
        raise scenario_error(error, SurveyTerms) from None
    check_survey_terms(terms)
    return terms
