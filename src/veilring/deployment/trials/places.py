"""All files of a server of places and a seeker at once, on one machine: to try them."""

import shutil
from pathlib import Path
from typing import Final

from veilring.deployment.places import Area, PlacesTerms
from veilring.deployment.projection import utm_around
from veilring.deployment.trials.kit import TERMS, make_folder, write_config, write_keys, write_terms

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
    found = {"crs": utm_around(degrees), "places": len(degrees), "area": Area.around(degrees)}
    terms = named.model_copy(update=found)
    terms.projection.to_metres(degrees)
    make_folder(folder)
    write_keys(folder, {SERVER: port}, (SEEKER,))
    write_terms(folder, terms.to_toml())
    shutil.copyfile(places, folder / "places.csv")
    write_config(folder, SERVER, terms=TERMS, role="places", rows="places.csv")
    write_config(folder, SEEKER, terms=TERMS, role="seeker", ask=SERVER, budget=budget)
    return terms
