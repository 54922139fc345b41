"""`veilring tune`: the best public parameters of a system, found on rows that are public."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilring.cli.options import CellSeparator, LabelColumn, RangesFile, TermsFile, Workers
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.scenarios.comparison.tuning import Tuned

_SHOWN = 10  # choices; all are in the file
_TABLE = "protocol"


def tune_command(
    data: Annotated[
        str,
        typer.Argument(
            help="PUBLIC rows: a built-in data set, a .csv, a .npz, or openml:NAME.",
            metavar="PUBLIC_DATA",
            show_default=False,
        ),
    ],
    *,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The system to tune, such as noisy-votes: see `veilring systems`.",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="protocol.KEY=VALUE",
            help="Set a parameter, which is not searched then; may be given many times.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="The ε of the system; by default its own.", show_default=False),
    ] = None,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    terms: TermsFile = None,
    ranges: RangesFile = None,
    parties: Annotated[int, typer.Option(help="Among how many parties the rows are dealt.")] = 8,
    queries: Annotated[
        int, typer.Option(help="At most how many held-out rows are one batch, under one ε.")
    ] = 20,
    seeds: Annotated[
        int,
        typer.Option(
            help="How often to repeat everything: each time the rows are split, dealt and given"
            " noise independently."
        ),
    ] = 10,
    seed: Annotated[int, typer.Option(help="The seed of everything random.", min=0)] = 0,
    workers: Workers = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON and nothing else.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write everything here.", show_default=False),
    ] = None,
) -> None:
    """Find the best parameters of a system on rows that are PUBLIC.

    Parameters that are tuned on private rows reveal something of them that no budget pays for. Give
    public rows that resemble the private ones, about as many: with fewer rows there is less to
    outweigh the noise, and other parameters are the best.

    Each parameter that can be tuned is set to the best of its values in turn, until nothing gets
    better, by the evaluation of `veilring compare`. The accuracy of the best is measured on splits
    that did not choose it. What is printed last is the table of a scenario or of terms.

    For example:

        veilring tune public.csv --protocol noisy-votes --epsilon 1

        veilring tune public.csv --protocol prediction --terms predict/terms.toml

        veilring tune digits --protocol prediction --set protocol.kernel=rbf --epsilon 2 --json
    """
    from veilring.cli.console import show_notes, show_progress
    from veilring.config import set_key
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
        out.write_text(document + "\n", encoding="utf-8")
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
        table.add_row(parameters_text(each.parameters) or "as they are", percent(each.mean))
    console = make_console()
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    said = (
        f"{percent(found.accuracy.mean)} ({interval_text(found.accuracy)}) on splits that did not"
        f" choose; {percent(found.before.mean)} ({interval_text(found.before)}) with the parameters"
        " as they were."
    )
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    console.print(found.toml, end="", highlight=False, markup=False, soft_wrap=True)
