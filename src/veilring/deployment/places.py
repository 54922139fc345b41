"""`veilring serve` for a server of places: anybody may ask what is near, and need not say where."""

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.config import Agreed, Section, read_toml
from veilring.data.csv import read_cells
from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import answering, require_party
from veilring.deployment.projection import (
    LATITUDE_MAX,
    LONGITUDE_MAX,
    Projection,
    load_projection,
)
from veilring.errors import InputError, ScenarioError
from veilring.protocols.treewalk.algorithm.places import Places
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX
from veilring.protocols.treewalk.service import offers
from veilring.transport.tls import LOOPBACK

_log = logging.getLogger("veilring.places")
_LATITUDE: Final = f"a number from {-LATITUDE_MAX:g} to {LATITUDE_MAX:g}"
_LONGITUDE: Final = f"a number from {-LONGITUDE_MAX:g} to {LONGITUDE_MAX:g}"
# A client at the edge of a town may search, too, and the nearest place is in the town.
_MARGIN: Final = 0.1
_MARGIN_DEGREES: Final = 0.01  # about a kilometre
_DECIMALS: Final = 4  # some ten metres


class Area(Section):
    """A box in degrees of WGS 84. It is public, so a place outside is refused for nothing.

    Attributes:
        south: The least latitude.
        north: The greatest.
        west: The least longitude.
        east: The greatest.
    """

    south: float = Field(-LATITUDE_MAX, ge=-LATITUDE_MAX, le=LATITUDE_MAX, description=_LATITUDE)
    north: float = Field(LATITUDE_MAX, ge=-LATITUDE_MAX, le=LATITUDE_MAX, description=_LATITUDE)
    west: float = Field(-LONGITUDE_MAX, ge=-LONGITUDE_MAX, le=LONGITUDE_MAX, description=_LONGITUDE)
    east: float = Field(LONGITUDE_MAX, ge=-LONGITUDE_MAX, le=LONGITUDE_MAX, description=_LONGITUDE)

    def __str__(self) -> str:
        south, west, north, east = self.south, self.west, self.north, self.east
        return f"latitudes from {south:g} to {north:g} and longitudes from {west:g} to {east:g}"

    @classmethod
    def around(cls, degrees: NDArray[np.float64]) -> Self:
        """Return a box around some places, with a margin on each side.

        Args:
            degrees: Latitude and longitude of each, shape (places, 2).
        """
        least, most = degrees.min(axis=0), degrees.max(axis=0)
        margin = np.maximum((most - least) * _MARGIN, _MARGIN_DEGREES)
        ends = np.array([LATITUDE_MAX, LONGITUDE_MAX])
        south, west = np.maximum(least - margin, -ends).round(_DECIMALS).tolist()
        north, east = np.minimum(most + margin, ends).round(_DECIMALS).tolist()
        return cls(south=south, north=north, west=west, east=east)

    def contains(self, degrees: NDArray[np.float64]) -> bool:
        """Return whether all places are inside.

        Args:
            degrees: Latitude and longitude of each, shape (places, 2).
        """
        least, most = (self.south, self.west), (self.north, self.east)
        return bool(((degrees >= least) & (degrees <= most)).all())


class PlacesTerms(Agreed):
    """What a server and its clients agree on. It is public.

    Attributes:
        crs: The plane in which distances are measured, in metres, by its EPSG code.
        places: How many there are: it decides how much privacy a step may have.
        edition: Names this state of the places. A client that asks again of another edition spends
            again.
        latitude: The column of the places' latitudes in degrees.
        longitude: The column of their longitudes.
        area: Where the places are, and where a client may ask; anywhere if left out.
    """

    crs: str = Field(description="a plane in metres, such as EPSG:32610")
    places: int = Field(ge=2, le=POINTS_MAX, description=f"a whole number from 2 to {POINTS_MAX}")
    edition: str = Field("1", description="a text")
    latitude: str = Field("lat", description="the header of a column")
    longitude: str = Field("lon", description="the header of a column")
    area: Area = Area()

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
    area = terms.area
    if not (area.south < area.north and area.west < area.east):
        raise ScenarioError("area", area, "south below north, and west below east")
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
    if not terms.area.contains(degrees):
        raise ScenarioError("area", terms.area, f"a box around all places of {config.rows}")
    places = Places.of(terms.projection.to_metres(degrees))
    offered = offers(places, terms.digest)
    place = (identity, roster, config.listen, offered, _log)
    async with answering(*place, limits=config.limits, terms=terms.keys):
        if on_ready is not None:
            on_ready(places)
        await asyncio.Event().wait()
