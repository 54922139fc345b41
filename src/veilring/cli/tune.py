"""`veilring tune`: find the best public parameters of a system, on public rows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilring.cli.options import (
    AsJson,
    BatchQueries,
    CellSeparator,
    LabelColumn,
    PartiesCount,
    RandomSeed,
    RangesFile,
    TermsFile,
    Workers,
)
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.scenarios.comparison.tuning import Tuned

_SHOWN = 10  # the number of choices shown; the file contains all
_TABLE = "protocol"


def tune_command(
    data: Annotated[
        str,
        typer.Argument(
            help="PUBLIC rows: built-in data set, a .csv, a .npz, or openml:NAME.",
            metavar="PUBLIC_DATA",
            show_default=False,
        ),
    ],
    *,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="System to tune, such as noisy-votes (see `veilring systems`).",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="protocol.KEY=VALUE",
            help="Fix a parameter instead of searching for it; may be repeated.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of the system. Default: the system's.", show_default=False),
    ] = None,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    terms: TermsFile = None,
    ranges: RangesFile = None,
    parties: PartiesCount = 8,
    queries: BatchQueries = 20,
    seeds: Annotated[
        int,
        typer.Option(help="Number of repetitions, each with its own split, partition and noise."),
    ] = 10,
    seed: RandomSeed = 0,
    workers: Workers = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="File to write all results to.", show_default=False),
    ] = None,
) -> None:
    """Find the best parameters of a system on rows that are PUBLIC.

    Tuning on private rows leaks information that no budget accounts for. Use public rows that are
    similar to the private ones, and about as many: with fewer rows, the noise has more effect, and
    other parameters are best.

    Each tunable parameter is set to the best of its values in turn, until the accuracy no longer
    improves, with the evaluation of `veilring compare`. The accuracy of the best choice is measured
    on splits that were not used to choose it. At the end, the command prints a table that you can
    paste into a scenario or into terms.

    For example:

        veilring tune public.csv --protocol noisy-votes --epsilon 1

        veilring tune public.csv --protocol ind-knn --terms predict/terms.toml

        veilring tune digits --protocol ind-knn --set protocol.kernel=rbf --epsilon 2 --json
    """
    from veilring.cli.console import show_notes, show_progress
    from veilring.config import set_key
    from veilring.privacy.files import write_whole
    from veilring.scenarios.comparison import make_question
    from veilring.scenarios.comparison.tuning import tune

    if out is not None and out.exists():
        raise InputError(
            "out", out, "the path of a file that does not exist; nothing is overwritten"
        )
    tables: dict[str, Any] = {}
    for each in overrides or ():
        set_key(tables, each)
    if set(tables) - {_TABLE}:
        raise InputError("--set", next(iter(set(tables) - {_TABLE})), "protocol.KEY=VALUE")
    question = make_question(
        {
            "data": data,
            "label": label,
            "separator": separator,
            "parties": parties,
            "splits": seeds,
            "queries": queries,
            "ranges": None if ranges is None else str(ranges),
            "terms": None if terms is None else str(terms),
            "seed": seed,
        }
    )
    fixed = dict(tables.get(_TABLE, {}))
    if epsilon is not None:
        fixed["epsilon"] = epsilon
    show_notes(data, label, separator)
    with show_progress(quiet=False) as progress:
        found = tune(protocol, question, fixed, workers=workers, progress=progress)
    document = json.dumps(found.as_json(), indent=2)
    if out is not None:
        write_whole(out, f"{document}\n")
    if as_json:
        typer.echo(document)
    else:
        _show(found)


def _show(found: "Tuned") -> None:
    from rich.table import Table

    from veilring.cli.console import make_console
    from veilring.scenarios.comparison.comparison import parameters_text
    from veilring.scenarios.reporting.summary import interval_text, percent

    title = (
        f"{found.rows:,} public rows, {found.queries:,} queries in each of {found.splits} splits:"
        f" the best of {len(found.tried)} choices"
    )
    table = Table("parameters", "accuracy")
    for each in found.tried[:_SHOWN]:
        table.add_row(parameters_text(each.parameters) or "unchanged", percent(each.mean))
    console = make_console()
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    said = (
        f"{percent(found.accuracy.mean)} ({interval_text(found.accuracy)}) on splits not used for"
        f" the choice; {percent(found.before.mean)} ({interval_text(found.before)}) with the"
        " original parameters."
    )
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    console.print(found.toml, end="", highlight=False, markup=False, soft_wrap=True)
