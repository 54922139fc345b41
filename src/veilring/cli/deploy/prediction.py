"""`veilring deploy prediction`: all files of a small prediction server, to try it."""

from typing import Annotated, Literal

import typer

from veilring.cli.options import CellSeparator, LabelColumn, NewFolder


def prediction(  # noqa: PLR0913  (each option is an argument)
    source: Annotated[
        str, typer.Argument(help="A data set, such as digits, or a path to a .csv or an .npz.")
    ],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    epsilon: Annotated[float, typer.Option(help="Of all answers together.")] = 3.0,
    queries: Annotated[int, typer.Option(help="How many are answered in all.")] = 500,
    apart: Annotated[
        bool, typer.Option("--apart", help="Make the promise to each querier alone.")
    ] = False,
    tau: Annotated[
        float | None,
        typer.Option(help="Minimum cosine similarity of a neighbour.", show_default="0.8"),
    ] = None,
    sigma2: Annotated[
        float | None, typer.Option(help="The noise of a vote.", show_default="1.4")
    ] = None,
    queriers: Annotated[int, typer.Option(help="Among how many the queries are dealt.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    port: Annotated[int, typer.Option(help="The server's port.")] = 7311,
    out: NewFolder,
) -> None:
    """Write what a prediction server, its records administrator and its queriers would each hold.

    Then start the server, add records, and ask it:

        veilring deploy prediction digits --out predict

        veilring serve predict/server.toml

        veilring records add predict/registrar.toml predict/records.csv

        veilring ask predict/querier-0.toml predict/querier-0.csv

        veilring records forget predict/registrar.toml record-17

        veilring ledger show predict/state/budgets.sqlite

    The rows of an .npz file are taken for embeddings, and its records and queries are .npz files.

    In earnest each makes its own key (`veilring keys new`), and the ranges in terms.toml come from
    what a column can hold, not from anybody's rows.
    """
    from veilring.cli.console import load_noting
    from veilring.data.npz import NPZ
    from veilring.deployment.examples import REGISTRAR, SERVER, write_prediction
    from veilring.deployment.prediction import PredictionSection

    section = PredictionSection(
        epsilon=epsilon,
        queries=queries,
        queriers="apart" if apart else "together",
    )
    given = {"tau": tau, "sigma2": sigma2}
    section = section.model_copy(
        update={key: value for key, value in given.items() if value is not None}
    )
    ending: Literal[".csv", ".npz"] = ".npz" if source.lower().endswith(NPZ) else ".csv"
    names = write_prediction(
        load_noting(source, label, separator),
        section,
        out,
        queriers=queriers,
        seed=seed,
        port=port,
        ending=ending,
    )
    typer.echo(f"veilring serve {out / SERVER}.toml")
    typer.echo(f"veilring records add {out / REGISTRAR}.toml {out / 'records'}{ending}")
    for name in names:
        typer.echo(f"veilring ask {out / name}.toml {out / name}{ending}")
    typer.echo(f"veilring records forget {out / REGISTRAR}.toml record-0")
    typer.echo(f"veilring ledger show {out / 'state' / 'budgets.sqlite'}")
