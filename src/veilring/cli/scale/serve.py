"""`veilring scale serve`: queries a second of each deployment."""

from typing import Annotated

import typer

from veilring.cli.scale.options import Full, Out, Sizes, show


def serve(
    *,
    sizes: Sizes = None,
    full: Full = False,
    parties: Annotated[int, typer.Option(help="Of the ring.", min=3)] = 5,
    seed: Annotated[int, typer.Option(help="Of rows, queries and noise.", min=0)] = 0,
    out: Out = None,
) -> None:
    """Measure seconds and queries a second, over how many queries are asked at once.

    A ring in memory, over TLS and as processes; a data owner; a prediction server. The numbers are
    this machine's. Sizes are numbers of queries.

    For example:

        veilring scale serve --out growth
    """
    from veilring.scenarios.scale.serve import FULL, QUICK, Asked, study_serve

    asked, at_once = Asked(parties, seed), sizes or (FULL if full else QUICK)
    show("serve", lambda tell: study_serve(asked, at_once, tell=tell), out)
