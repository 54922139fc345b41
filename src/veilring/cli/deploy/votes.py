"""`veilring deploy votes`: all files of a small deployment of noisy votes, to try it."""

from typing import Annotated

import typer

from veilring.cli.options import CellSeparator, LabelColumn, NewFolder


def votes(  # noqa: PLR0913  (each option is an argument)
    source: Annotated[
        str, typer.Argument(help="A data set, such as iris, or a path to a .csv file.")
    ],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    epsilon: Annotated[float, typer.Option(help="What a batch of queries costs.")] = 4.0,
    budget: Annotated[float, typer.Option(help="What all batches together may cost.")] = 8.0,
    r: Annotated[float | None, typer.Option(help="The radius within which rows vote.")] = None,
    k: Annotated[int | None, typer.Option(help="Or about how many rows vote.")] = None,
    parties: Annotated[int, typer.Option(help="How many parties.")] = 3,
    tolerated: Annotated[
        int,
        typer.Option(help="How many may pool what they see, or add no noise, whoever looks too."),
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the split and the partition.")] = 0,
    port: Annotated[
        int, typer.Option(help="The first party's port; the next has the next.")
    ] = 7311,
    out: NewFolder,
) -> None:
    """Write what each party of noisy votes, and their client, would hold on a machine of its own.

    Then start each party, in a terminal of its own, and ask them:

        veilring deploy votes iris --r 0.3 --out votes

        veilring serve votes/party-0.toml        # and party-1, party-2

        veilring ask votes/client.toml votes/client.csv

        veilring ledger show votes/party-1.db

    In earnest each party makes its own key (`veilring keys new`), and the ranges in terms.toml come
    from what a column can hold, not from anybody's rows. With --k the number of all rows is public.
    """
    from veilring.cli.console import load_noting
    from veilring.deployment.examples import CLIENT, write_votes

    given = {"epsilon": epsilon, "budget": budget, "r": r, "k": k, "tolerated": tolerated}
    names = write_votes(
        load_noting(source, label, separator), given, out, parties=parties, seed=seed, port=port
    )
    for name in names:
        typer.echo(f"veilring serve {out / name}.toml")
    typer.echo(f"veilring ask {out / CLIENT}.toml {out / CLIENT}.csv")
    typer.echo(f"veilring ledger show {out / names[0]}.db")
