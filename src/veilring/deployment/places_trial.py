"""All files of a server of places and a seeker at once, on one machine: to try them."""

import shutil
from pathlib import Path
from typing import Final

import tomli_w

from veilring.deployment.places import PlacesTerms
from veilring.deployment.projection import utm_around
from veilring.errors import InputError
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK

__all__ = ("SEEKER", "SERVER", "write_places")

SERVER: Final = "server"
SEEKER: Final = "seeker"
# While the places are read for the first time, neither their plane nor their number is known.
_ANY: Final = PlacesTerms(crs="EPSG:3857", places=2)


def write_places(
    places: Path, folder: Path, *, columns: tuple[str, str], budget: float, port: int
) -> PlacesTerms:
    """Write keys, roster, terms, places and configurations into a new folder.

    Args:
        places: A CSV file.
        folder: It must not exist.
        columns: Of latitudes and longitudes.
        budget: Of the seeker.
        port: The server's.

    Returns:
        The terms.

    Raises:
        InputError: If the folder exists, or the places are none.
    """
    latitude, longitude = columns
    named = _ANY.model_copy(update={"latitude": latitude, "longitude": longitude})
    degrees = named.read_degrees(places)
    terms = named.model_copy(update={"crs": utm_around(degrees), "places": len(degrees)})
    terms.projection.to_metres(degrees)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    server, seeker = make_identity(SERVER), make_identity(SEEKER)
    for identity in (server, seeker):
        save_identity(identity, folder)
    members = (Member.of(server, LOOPBACK, port), Member.of(seeker, kind="client"))
    Roster(members).save(folder / "roster.toml")
    (folder / "terms.toml").write_text(terms.to_toml(), encoding="utf-8")
    shutil.copyfile(places, folder / "places.csv")
    _write_config(folder, SERVER, role="places", rows="places.csv")
    _write_config(folder, SEEKER, role="seeker", ask=SERVER, budget=budget)
    return terms


def _write_config(folder: Path, name: str, **own: object) -> None:
    config = {"identity": f"{name}.key", "roster": "roster.toml", "terms": "terms.toml", **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
