"""`veilring deploy owner`: all files of a data owner and its analysts, to try it on one machine."""

from typing import Annotated

import typer

from veilring.cli.options import CellSeparator, LabelColumn, NewFolder


def owner(  # noqa: PLR0913  (each option is an argument)
    source: Annotated[
        str, typer.Argument(help="A data set, such as wine, or a path to a .csv file.")
    ],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    total: Annotated[
        float | None,
        typer.Option(
            help="What all analysts together may spend: 4, or 100 with --record.",
            show_default=False,
        ),
    ] = None,
    analyst: Annotated[
        float | None,
        typer.Option(
            help="What any one of them may spend: 2, or with --record no less than all.",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        float | None,
        typer.Option(help="Let each row have this budget, and pay for the balls it votes in."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What an analyst asks for.")] = 1.0,
    r: Annotated[float | None, typer.Option(help="The radius that an analyst asks for.")] = None,
    k: Annotated[int | None, typer.Option(help="Or how many neighbours.")] = None,
    analysts: Annotated[int, typer.Option(help="Among how many the queries are dealt.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    port: Annotated[int, typer.Option(help="The owner's port.")] = 7311,
    out: NewFolder,
) -> None:
    """Write what a data owner and its analysts would hold on machines of their own.

    Then start the owner, and ask it, in a terminal of your own:

        veilring deploy owner iris --r 0.2 --out owner

        veilring serve owner/owner.toml

        veilring ask owner/analyst-0.toml owner/analyst-0.csv

        veilring ledger show owner/queries.ledger

    In earnest each makes its own key (`veilring keys new`), and the ranges in terms.toml come from
    what a column can hold, not from anybody's rows.
    """
    from veilring.cli.console import load_noting
    from veilring.deployment.examples import OWNER, write_owner
    from veilring.deployment.owner import LabellingSection
    from veilring.errors import InputError

    if (r is None) == (k is None):
        raise InputError("--r", "missing, and so is --k" if r is None else "given with --k", "one")
    labelling = LabellingSection(accounting="batch" if record is None else "record")
    # Where rows pay, an analyst pays epsilon for each query: a file of them costs tens.
    usual = {"total": 4.0, "analyst": 2.0} if record is None else {"total": 100.0}
    given = {"total": total, "analyst": analyst, "record": record}
    budgets = usual | {name: each for name, each in given.items() if each is not None}
    asked = {"epsilon": epsilon, "r": r, "k": k}
    names = write_owner(
        load_noting(source, label, separator),
        labelling,
        out,
        budgets=budgets,
        asked={name: each for name, each in asked.items() if each is not None},
        analysts=analysts,
        seed=seed,
        port=port,
    )
    typer.echo(f"veilring serve {out / OWNER}.toml")
    for name in names:
        typer.echo(f"veilring ask {out / name}.toml {out / name}.csv")
    typer.echo(f"veilring ledger show {out / 'queries.ledger'}")
