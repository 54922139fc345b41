"""`veilring serve` for a server of places: anybody may ask what is near, and need not say where."""

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.data.csv import read_cells
from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import answering, require_party
from veilring.deployment.files import Agreed, read_toml
from veilring.deployment.projection import Projection, load_projection
from veilring.errors import InputError, ScenarioError
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX
from veilring.protocols.treewalk.service import offers
from veilring.transport.tls import LOOPBACK

__all__ = ("PlacesConfig", "PlacesTerms", "load_places_terms", "serve_places")

_log = logging.getLogger("veilring.places")


class PlacesTerms(Agreed):
    """What a server and its clients agree on. It is public.

    Attributes:
        crs: The plane in which distances are measured, in metres, by its EPSG code.
        places: How many there are: it decides how much privacy a step may have.
        edition: Names this state of the places. A client that asks again of another edition spends
            again.
        latitude: The column of the places' latitudes in degrees.
        longitude: The column of their longitudes.
    """

    crs: str = Field(description="a plane in metres, such as EPSG:32610")
    places: int = Field(ge=2, le=POINTS_MAX, description=f"a whole number from 2 to {POINTS_MAX}")
    edition: str = Field("1", description="a text")
    latitude: str = Field("lat", description="the header of a column")
    longitude: str = Field("lon", description="the header of a column")

    @cached_property
    def projection(self) -> Projection:
        """Into the plane."""
        return load_projection(self.crs)

    def read_degrees(self, path: Path) -> NDArray[np.float64]:
        """Read a CSV file of places, shape (places, 2); columns but the two are passed over.

        Raises:
            InputError: If a column is missing, or a cell is no finite number.
        """
        cells = read_cells(path)
        columns = []
        for name in (self.latitude, self.longitude):
            if name not in cells:
                raise InputError("rows", path, f"a file with the column {name!r}")
            try:
                columns.append(cells[name].astype(np.float64))
            except ValueError:
                raise InputError("rows", path, f"numbers in the column {name!r}") from None
        degrees = np.stack(columns, axis=1)
        if not np.isfinite(degrees).all():
            raise InputError("rows", path, "finite numbers in both columns")
        return degrees


class PlacesConfig(TermsConfig):
    """A server of places.

    Attributes:
        role: `places`.
        rows: The CSV file with the places, which are public.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["places"] = Field(description="places")
    rows: FilePath
    listen: AnAddress = LOOPBACK


def load_places_terms(path: Path) -> PlacesTerms:
    """Read a file of terms and check it.

    Raises:
        ScenarioError: With all mistakes: the key, its value and what is allowed.
    """
    terms = read_toml(path, PlacesTerms)
    load_projection(terms.crs)
    return terms


async def serve_places(
    config: PlacesConfig, *, on_ready: Callable[[Places], None] | None = None
) -> None:
    """Serve places until cancelled.

    All files are read and checked first, and the tree is built.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once questions are answered.

    Raises:
        ScenarioError: If a file does not fit.
    """
    identity, roster = load_credentials(config)
    terms = load_places_terms(Path(config.terms))
    require_party(roster, "identity", identity.name)
    degrees = terms.read_degrees(Path(config.rows))
    if len(degrees) != terms.places:
        raise ScenarioError("places", terms.places, f"{len(degrees)}, as in {config.rows}")
    places = Places.of(terms.projection.to_metres(degrees))
    offered = offers(places, terms.digest)
    async with answering(identity, roster, config.listen, offered, _log):
        if on_ready is not None:
            on_ready(places)
        await asyncio.Event().wait()
