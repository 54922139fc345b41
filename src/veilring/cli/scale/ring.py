"""`veilring scale ring`: parties in one ring and in rings of rings."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.scale.options import Full, Out, Sizes, show


def ring(  # noqa: PLR0913  (each option is an argument)
    *,
    sizes: Sizes = None,
    full: Full = False,
    latency: Annotated[
        float | None,
        typer.Option(help="Of each message, in seconds: 0.05.", min=0, show_default=False),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(help="Of each link, in bytes a second: 12.5e6.", show_default=False),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="In place of both: a file with the table \\[network] of a scenario.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[int, typer.Option(help="In a batch.", min=1)] = 100,
    k: Annotated[int, typer.Option(help="How many neighbours vote.", min=1)] = 5,
    within: Annotated[
        float, typer.Option(help="In how many seconds a batch shall be labelled.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    out: Out = None,
) -> None:
    """Simulate a batch of PP-kNN over the number of parties, in one ring and in rings of rings.

    All is simulated: the same seed gives the same numbers on any machine. Sizes are numbers of
    parties, at least 9.

    For example:

        veilring scale ring --within 60

        veilring scale ring --size 9 --size 50 --size 200 --latency 0.02 --out growth

        veilring scale ring --network wan.toml
    """
    from veilring.scenarios.scale.ring import FULL, QUICK, study_ring
    from veilring.scenarios.scale.wan import Batch, make_network

    links = make_network(network, latency=latency, bandwidth=bandwidth)
    batch = Batch(queries=queries, k=k, network=links, seed=seed)
    parties = sizes or (FULL if full else QUICK)
    show("ring", lambda tell: study_ring(batch, parties, within=within, tell=tell), out)
