"""All files of a collection at once, on one machine: to try `serve`, `submit` and `estimate`."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import ValidationError

from veilring.data import Table, bounds_of
from veilring.deployment.survey_terms import SurveyTerms, check_survey_terms
from veilring.errors import InputError
from veilring.randomness import Streams
from veilring.scenarios.mistakes import scenario_error
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("COLLECTOR", "KEY", "Trial", "write_collection")

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

    Raises:
        InputError: If there is no submitter, or not a client for each.
    """

    kind: str
    epsilon: float
    clients: int
    submitters: int

    def __post_init__(self) -> None:
        if not 1 <= self.submitters <= self.clients:
            raise InputError("--submitters", self.submitters, f"1 to {self.clients}, as clients")


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
    terms = _terms(table, trial)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    names = tuple(f"submitter-{number}" for number in range(trial.submitters))
    _write_roster(folder, names, port)
    (folder / "terms.toml").write_text(terms.to_toml(), encoding="utf-8")
    _write_config(folder, COLLECTOR, role="collector", terms="terms.toml", store="reports.sqlite")
    drawn = Streams(seed).generator("clients").integers(len(table), size=trial.clients)
    for number, name in enumerate(names):
        own = np.arange(number, trial.clients, trial.submitters)
        _write_rows(folder / f"{name}.csv", table.take(drawn[own]), own, bool(terms.classes))
        submitter = {"role": "submitter", "collector": COLLECTOR, "key": KEY}
        outbox = f"{name}.outbox.sqlite"
        _write_config(folder, name, **submitter, outbox=outbox, budget=trial.epsilon)
    return names


def _terms(table: Table, trial: Trial) -> SurveyTerms:
    lows, highs = bounds_of(table)
    needs_classes = trial.kind not in {"frequency", "means"}
    content = {
        "survey": {"kind": trial.kind, "epsilon": trial.epsilon},
        "classes": table.class_names if needs_classes else (),
        "features": [
            {"name": name, "low": float(low), "high": float(high)}
            for name, low, high in zip(table.feature_names, lows, highs, strict=True)
        ],
    }
    try:
        terms = SurveyTerms.model_validate(content)
    except ValidationError as error:
        raise scenario_error(error, SurveyTerms) from None
    check_survey_terms(terms)
    return terms


def _write_roster(folder: Path, submitters: tuple[str, ...], port: int) -> None:
    identities = [make_identity(name) for name in (COLLECTOR, *submitters)]
    for identity in identities:
        save_identity(identity, folder)
    collector, *others = identities
    clients = (Member.of(other, kind="client") for other in others)
    Roster((Member.of(collector, LOOPBACK, port), *clients)).save(folder / "roster.toml")


def _write_config(folder: Path, name: str, **own: str | float) -> None:
    config = {"identity": f"{name}.key", "roster": "roster.toml", **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def _write_rows(path: Path, table: Table, clients: NDArray[np.int64], labelled: bool) -> None:  # noqa: FBT001  (a fact of the table)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        label = ["label"] if labelled else []
        writer.writerow([KEY, *table.feature_names, *label])
        rows = zip(clients.tolist(), table.features.tolist(), table.labels.tolist(), strict=True)
        for client, features, number in rows:
            own = [table.class_names[number]] if labelled else []
            writer.writerow([f"client-{client}", *features, *own])
