"""`veilring deploy survey`: all files of a small collection, to try it on one machine."""

from typing import Annotated

import typer

from veilring.cli.options import CellSeparator, LabelColumn, NewFolder


def survey(  # noqa: PLR0913  (each option is an argument)
    source: Annotated[
        str, typer.Argument(help="A data set, such as wine, or a path to a .csv file.")
    ],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    kind: Annotated[
        str, typer.Option(help="frequency, means, discrete-bayes or gaussian-bayes.")
    ] = "discrete-bayes",
    column: Annotated[
        str | None,
        typer.Option(help="For frequency: the column whose values are counted."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What a client's report may spend.")] = 1.0,
    clients: Annotated[
        int, typer.Option(help="How many rows, drawn from the data set again and again.")
    ] = 10_000,
    submitters: Annotated[int, typer.Option(help="Among how many the clients are dealt.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    port: Annotated[int, typer.Option(help="The collector's port.")] = 7311,
    out: NewFolder,
) -> None:
    """Write what a collector and those who submit to it would hold on machines of their own.

    Then start the collector, submit, and estimate, also while they submit:

        veilring deploy survey wine --out survey

        veilring serve survey/collector.toml

        veilring submit survey/submitter-0.toml survey/submitter-0.csv

        veilring estimate survey/collector.toml

    In earnest each makes its own key (`veilring keys new`), and the ranges in terms.toml come from
    what a column can hold, not from anybody's rows.
    """
    from veilring.cli.console import load_noting
    from veilring.deployment.examples import Trial, write_collection

    trial = Trial(kind, epsilon, clients, submitters, column)
    names = write_collection(
        load_noting(source, label, separator), trial, out, seed=seed, port=port
    )
    typer.echo(f"veilring serve {out / 'collector.toml'}")
    for name in names:
        typer.echo(f"veilring submit {out / name}.toml {out / name}.csv")
    typer.echo(f"veilring estimate {out / 'collector.toml'}")
