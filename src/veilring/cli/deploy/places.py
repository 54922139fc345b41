"""`veilring deploy places`: all files of a server of places and a seeker, on one machine."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.options import NewFolder


def places(
    places: Annotated[
        Path, typer.Argument(help="A CSV file with latitudes and longitudes.", metavar="PLACES")
    ],
    *,
    latitude: Annotated[str, typer.Option(help="The column of latitudes.")] = "lat",
    longitude: Annotated[str, typer.Option(help="The column of longitudes.")] = "lon",
    budget: Annotated[float, typer.Option(help="What all of the seeker's questions may spend.")] = (
        40.0
    ),
    port: Annotated[int, typer.Option(help="The server's port.")] = 7311,
    out: NewFolder,
) -> None:
    """Write what a server of places and a seeker would hold on machines of their own.

    Then start the server, and look for what is near, in a terminal of your own:

        veilring deploy places places.csv --out atlas

        veilring serve atlas/server.toml

        veilring ask atlas/seeker.toml --near 37.7749,-122.4194 --epsilon 6

        veilring ledger show atlas/questions.ledger

    The plane is the UTM zone around the places, good to a metre in a kilometre.
    """
    from veilring.deployment.examples import write_places

    write_places(places, out, columns=(latitude, longitude), budget=budget, port=port)
    typer.echo(f"veilring serve {out / 'server.toml'}")
    typer.echo(f"veilring ask {out / 'seeker.toml'} --near LAT,LON --epsilon 6")
    typer.echo(f"veilring ledger show {out / 'questions.ledger'}")
