"""From degrees to metres: a map projection that server and clients agree on, by PROJ."""

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ScenarioError

if TYPE_CHECKING:
    from pyproj import Transformer

_DEGREES: Final = "EPSG:4326"
_AXES: Final = 2
LATITUDE_MAX: Final = 90.0
"""In degrees, north and south."""
LONGITUDE_MAX: Final = 180.0
"""In degrees, east and west."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Between latitudes and longitudes of WGS 84, in degrees, and a plane in metres."""

    _to_plane: "Transformer"

    def to_metres(self, degrees: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the places in the plane, shape (places, 2): east and north.

        Args:
            degrees: Latitude and longitude of each, shape (places, 2).

        Raises:
            InputError: If one is no place on earth, or so far away that it has none in the plane.
        """
        latitudes, longitudes = degrees.T
        on_earth = (np.abs(latitudes) <= LATITUDE_MAX) & (np.abs(longitudes) <= LONGITUDE_MAX)
        plane = np.stack(self._to_plane.transform(longitudes, latitudes), axis=1)
        if not (on_earth.all() and np.isfinite(plane).all()):
            raise InputError("places", "outside", "latitudes and longitudes where the map is good")
        return np.asarray(plane, dtype=np.float64)

    def to_degrees(self, metres: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return latitude and longitude of each place in the plane, shape (places, 2)."""
        east, north = metres.T
        longitudes, latitudes = self._to_plane.transform(east, north, direction="INVERSE")
        return np.stack([latitudes, longitudes], axis=1)


def load_projection(crs: str) -> Projection:
    """Return the projection to a plane by its name, such as `EPSG:32610`.

    Raises:
        ScenarioError: If there is no such plane, its unit is not the metre, or the extra `geo` is
            not installed.
    """
    pyproj = _pyproj()
    try:
        plane = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise ScenarioError("crs", crs, "a plane that PROJ knows, such as EPSG:32610") from None
    units = {axis.unit_name for axis in plane.axis_info}
    if not plane.is_projected or len(plane.axis_info) != _AXES or units != {"metre"}:
        raise ScenarioError("crs", crs, "a plane with two axes in metres")
    return Projection(pyproj.Transformer.from_crs(_DEGREES, plane, always_xy=True))


def utm_around(degrees: NDArray[np.float64]) -> str:
    """Return the name of the UTM zone around the middle of some places.

    Within a zone, lengths are true to 1 in 1,000.

    Args:
        degrees: Latitude and longitude of each, shape (places, 2).

    Raises:
        InputError: If there is none there, as at the poles.
    """
    pyproj = _pyproj()
    latitude, longitude = degrees.mean(axis=0).tolist()
    area = pyproj.aoi.AreaOfInterest(longitude, latitude, longitude, latitude)
    found = pyproj.database.query_utm_crs_info("WGS 84", area)
    if not found:
        raise InputError("places", "outside of all zones", "places between 80 S and 84 N")
    return f"{found[0].auth_name}:{found[0].code}"


def _pyproj() -> ModuleType:
    try:
        import pyproj  # noqa: PLC0415  (an extra, and 0.1 s)
        import pyproj.aoi  # noqa: PLC0415  (as above)
        import pyproj.database  # noqa: PLC0415  (as above)
    except ImportError as error:
        raise ScenarioError("crs", "unusable", "the extra veilring[geo] installed") from error
    return pyproj
