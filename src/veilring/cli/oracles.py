"""`veilring oracles`: which frequency oracle to take."""

from pathlib import Path
from typing import Annotated

import typer


def oracles(
    *,
    domain: Annotated[
        list[int] | None,
        typer.Option(help="How many values there are; may be given many times. Else 4, 32, 1024."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What a report may spend, up to 20.")] = 1.0,
    max_bytes: Annotated[
        int | None, typer.Option(help="The most that a report may have.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Draw all oracles by domain and by epsilon; .svg or .png.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what each frequency oracle gives and costs, from its exact law; nothing is measured.

    The variance is that of an estimated share, on average over the values, times the number of
    clients: with 10,000 clients and a variance of 4 a share is off by 0.02 (one standard
    deviation). One lie is the number of clients by which a single false report can move a count,
    1 / (p - q). The exact epsilon is what a report really spends. A star marks what `oracle =
    "auto"` takes: the shortest report among those whose variance is at most 1 % above the least.

    For example:

        veilring oracles --domain 32 --epsilon 1

        veilring oracles --epsilon 0.5 --plot oracles.svg
    """
    from veilring.protocols.ldp.algorithm.planner import oracle_options, recommend_oracle

    domains = domain or [4, 32, 1024]
    tables = [
        (
            values,
            oracle_options(values, epsilon),
            recommend_oracle(values, epsilon, max_bytes=max_bytes).name,
        )
        for values in domains
    ]
    if plot is not None:
        from veilring.scenarios.oracle_charts import draw_oracles

        draw_oracles(plot, domain=domains[-1], epsilon=epsilon)
    rows = [
        {
            "domain": values,
            "oracle": each.name,
            "variance": each.variance,
            "influence": each.influence,
            "report_bytes": each.report_bytes,
            "exact_epsilon": each.exact_epsilon,
            "recommended": each.name == best,
        }
        for values, found, best in tables
        for each in found
    ]
    if json:
        from json import dumps

        typer.echo(dumps(rows, indent=2))
    else:
        _show(rows, epsilon)


def _show(rows: list[dict[str, object]], epsilon: float) -> None:
    from itertools import groupby

    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=f"Frequency oracles at epsilon {epsilon:g}", title_justify="left")
    for name in ("values", "oracle", "variance", "one lie", "bytes", "exact epsilon"):
        table.add_column(name, justify="left" if name == "oracle" else "right", no_wrap=True)
    for _, group in groupby(rows, key=lambda row: row["domain"]):
        for row in group:
            star = " *" if row["recommended"] else ""
            table.add_row(
                str(row["domain"]),
                f"{row['oracle']}{star}",
                f"{row['variance']:.4g}",
                f"{row['influence']:,.1f}",
                f"{row['report_bytes']:,}",
                f"{row['exact_epsilon']:.6f}",
            )
        table.add_section()
    make_console().print(table)
