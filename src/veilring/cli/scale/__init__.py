"""`veilring scale`: how far each system grows, measured to what fits and extrapolated by models."""

import typer

from veilring.cli.scale.collect import collect
from veilring.cli.scale.records import records
from veilring.cli.scale.ring import ring
from veilring.cli.scale.serve import serve

__all__ = ("app",)

app = typer.Typer(
    help="Measure how a system grows, fit a model, and say how far that is off.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command()(ring)
app.command()(serve)
app.command()(collect)
app.command()(records)
