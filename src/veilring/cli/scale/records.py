"""`veilring scale records`: records of one prediction server."""

from typing import Annotated

import typer

from veilring.cli.scale.options import Full, Out, Sizes, show


def records(
    *,
    sizes: Sizes = None,
    full: Full = False,
    features: Annotated[int, typer.Option(help="Of a record.", min=1)] = 768,
    gib: Annotated[
        float, typer.Option(help="Of a machine's memory: how many records does it hold?")
    ] = 16.0,
    seed: Annotated[int, typer.Option(help="Of rows, queries and noise.", min=0)] = 0,
    out: Out = None,
) -> None:
    """Measure a prediction server over the number of its records: seconds a query, and memory.

    Each size has a process of its own, whose linear algebra takes one core. The numbers are this
    machine's. Sizes are numbers of records.

    For example:

        veilring scale records --features 384 --gib 32 --out growth
    """
    from veilring.scenarios.scale.records import FULL, QUICK, Table, study_records

    table, counts = Table(features=features, seed=seed), sizes or (FULL if full else QUICK)
    show("records", lambda tell: study_records(table, counts, gib=gib, tell=tell), out)
