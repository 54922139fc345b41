"""`veilring scale collect`: clients of one collector, and collectors of one task."""

from typing import Annotated

import typer

from veilring.cli.scale.options import Full, Out, Sizes, show


def collect(
    *,
    sizes: Sizes = None,
    full: Full = False,
    submitters: Annotated[int, typer.Option(help="How many processes send.", min=1)] = 2,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            help="With how many Dask workers files are added up; may be given many times. "
            "Else 1 and 2.",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Measure a collector over the number of reports, and the tally of files by workers.

    The collector is `veilring serve` in a process of its own, to which others submit over TLS. That
    the sums of all pieces of the files are those of one pass is checked. The numbers are this
    machine's. Sizes are numbers of reports, each a multiple of the submitters.

    For example:

        veilring scale collect --out growth
    """
    from veilring.deployment.trials.collecting import Drive, Driven
    from veilring.scenarios.scale.collect import FULL, QUICK, study_collect

    reports, clusters = sizes or (FULL if full else QUICK), workers or (1, 2)
    driven = Driven(Drive(submitters))
    show("collect", lambda tell: study_collect(driven, reports, workers=clusters, tell=tell), out)
