"""`veilring deploy`: all files of a small deployment, to try it on one machine."""

import typer

from veilring.cli.deploy.owner import owner
from veilring.cli.deploy.places import places
from veilring.cli.deploy.prediction import prediction
from veilring.cli.deploy.ring import ring
from veilring.cli.deploy.survey import survey
from veilring.cli.deploy.votes import votes

__all__ = ("app",)

app = typer.Typer(
    help="Write all files of a small deployment, to try on one machine what runs on many.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command()(ring)
app.command()(votes)
app.command()(survey)
app.command()(owner)
app.command()(prediction)
app.command()(places)
