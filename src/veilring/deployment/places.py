"""Deployed places: their terms and projection, the server, and a client with a private place."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats
from veilring.config import Section, as_scenario_errors, same_field
from veilring.data.csv import read_cells
from veilring.deployment.asking import Client
from veilring.deployment.config import (
    Duty,
    FilePath,
    QueryingConfig,
    ServerConfig,
    StateConfig,
    Terms,
    name_of,
)
from veilring.deployment.policy import Request
from veilring.deployment.start import Start, Step
from veilring.errors import InputError, ScenarioError
from veilring.extras import require_extra
from veilring.nodes.service import opening
from veilring.privacy.budgets import Budgets
from veilring.privacy.checks import require
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.privacy.selection import EPSILON_MAX
from veilring.protocols.admission import guarded
from veilring.protocols.promise import Facts
from veilring.protocols.treewalk.algorithm.mechanisms import SPLITS_MAX
from veilring.protocols.treewalk.algorithm.tree import POINTS_MAX, Places
from veilring.protocols.treewalk.memory import RememberedAnswer, WalkMemory, ask_once, snap
from veilring.protocols.treewalk.plan import BUCKET_SPLITS, own_probability
from veilring.protocols.treewalk.roles import (
    BUCKET_SERVICE,
    WALK_SERVICE,
    Keeper,
    NearestPlaces,
    offers,
)
from veilring.protocols.treewalk.system import Lookup, TreeWalk

if TYPE_CHECKING:
    from pyproj import Transformer

_log = logging.getLogger("veilring.places")
LATITUDE_MAX: Final = 90.0
"""The maximum latitude in degrees, north and south."""
LONGITUDE_MAX: Final = 180.0
"""The maximum longitude in degrees, east and west."""
PLACES_REQUEST: Final = Request("", name_of(TreeWalk), epsilon=0.0, counted=False)
"""A search, for a policy; each client spends its own ε."""
_WGS84: Final = "EPSG:4326"
_AXES: Final = 2
_LATITUDE: Final = f"a number from {-LATITUDE_MAX:g} to {LATITUDE_MAX:g}"
_LONGITUDE: Final = f"a number from {-LONGITUDE_MAX:g} to {LONGITUDE_MAX:g}"
# A client at the edge of a town may search, too, though the nearest place is in the town.
_MARGIN: Final = 0.1
_MARGIN_DEGREES: Final = 0.01  # about a kilometre
_DECIMALS: Final = 4  # some ten metres
_DEGREES: Final = 6  # decimals: a tenth of a metre
_METRES: Final = 1


@dataclass(frozen=True, slots=True)
class MapProjection:
    """A projection between latitudes and longitudes of WGS 84 and a plane in metres."""

    _to_plane: "Transformer"

    def to_metres(self, degrees: Floats) -> Floats:
        """Return the places in the plane, shape (places, 2): east and north.

        Args:
            degrees: The latitude and longitude of each place, shape (places, 2).
        """
        latitudes, longitudes = degrees.T
        on_earth = (np.abs(latitudes) <= LATITUDE_MAX) & (np.abs(longitudes) <= LONGITUDE_MAX)
        plane = np.stack(self._to_plane.transform(longitudes, latitudes), axis=1)
        if not (on_earth.all() and np.isfinite(plane).all()):
            raise InputError.because(
                "the projection is inaccurate at some places; they are too far from its centre",
                field="places",
            )
        return np.asarray(plane, dtype=np.float64)

    def to_degrees(self, metres: Floats) -> Floats:
        """Return latitude and longitude of each place in the plane, shape (places, 2)."""
        east, north = metres.T
        longitudes, latitudes = self._to_plane.transform(east, north, direction="INVERSE")
        return np.stack([latitudes, longitudes], axis=1)


def load_projection(crs: str) -> MapProjection:
    """Return the projection to a plane by its name, such as `EPSG:32610`."""
    pyproj = _pyproj()
    try:
        plane = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise ScenarioError("crs", crs, "a plane known to PROJ, such as EPSG:32610") from None
    units = {axis.unit_name for axis in plane.axis_info}
    if not plane.is_projected or len(plane.axis_info) != _AXES or units != {"metre"}:
        raise ScenarioError("crs", crs, "a plane with two axes in metres")
    return MapProjection(pyproj.Transformer.from_crs(_WGS84, plane, always_xy=True))


def utm_around(degrees: Floats) -> str:
    """Return the name of the UTM zone around the middle of some places.

    Within a zone, lengths are accurate to 1 in 1,000.

    Args:
        degrees: The latitude and longitude of each place, shape (places, 2).
    """
    pyproj = _pyproj()
    latitude, longitude = degrees.mean(axis=0).tolist()
    area = pyproj.aoi.AreaOfInterest(longitude, latitude, longitude, latitude)
    found = pyproj.database.query_utm_crs_info("WGS 84", area)
    if not found:
        raise InputError.because(
            "the places are outside of all zones of the projection; they must be between 80 S and"
            " 84 N",
            field="places",
        )
    return f"{found[0].auth_name}:{found[0].code}"


def _pyproj() -> ModuleType:
    require_extra("pyproj")
    import pyproj
    import pyproj.aoi
    import pyproj.database

    return pyproj


class Area(Section):
    """A box in degrees of WGS 84. It is public, so refusing a place outside costs nothing.

    Attributes:
        south: The minimum latitude.
        north: The maximum latitude.
        west: The minimum longitude.
        east: The maximum longitude.
    """

    south: float = Field(-LATITUDE_MAX, ge=-LATITUDE_MAX, le=LATITUDE_MAX)
    north: float = Field(LATITUDE_MAX, ge=-LATITUDE_MAX, le=LATITUDE_MAX)
    west: float = Field(-LONGITUDE_MAX, ge=-LONGITUDE_MAX, le=LONGITUDE_MAX)
    east: float = Field(LONGITUDE_MAX, ge=-LONGITUDE_MAX, le=LONGITUDE_MAX)

    def __str__(self) -> str:
        south, west, north, east = self.south, self.west, self.north, self.east
        return f"latitudes from {south:g} to {north:g} and longitudes from {west:g} to {east:g}"

    @classmethod
    def around(cls, degrees: Floats) -> Self:
        """Return a box around some places, with a margin on each side.

        Args:
            degrees: The latitude and longitude of each place, shape (places, 2).
        """
        least, most = degrees.min(axis=0), degrees.max(axis=0)
        margin = np.maximum((most - least) * _MARGIN, _MARGIN_DEGREES)
        ends = np.array([LATITUDE_MAX, LONGITUDE_MAX])
        south, west = np.maximum(least - margin, -ends).round(_DECIMALS).tolist()
        north, east = np.minimum(most + margin, ends).round(_DECIMALS).tolist()
        return cls(south=south, north=north, west=west, east=east)

    def contains(self, degrees: Floats) -> bool:
        """Return whether all places are inside.

        Args:
            degrees: The latitude and longitude of each place, shape (places, 2).
        """
        least, most = (self.south, self.west), (self.north, self.east)
        return bool(((degrees >= least) & (degrees <= most)).all())


class PlacesProtocol(Section):
    """The system of a server of places; each client chooses the parameters of its own questions.

    Attributes:
        name: `tree-walk`.
    """

    name: Literal["tree-walk"] = "tree-walk"


class PlacesTerms(Terms):
    """The public terms of a server of places and its clients.

    Attributes:
        protocol: The system.
        crs: The plane for distances, in metres, by its EPSG code.
        places: The number of places, which determines the possible privacy of a step.
        edition: The name of this version of the places. Repeating a question for another edition
            costs budget again.
        latitude: The column with the places' latitudes in degrees.
        longitude: The column with their longitudes.
        area: The area of the places, in which clients may ask; by default anywhere.
    """

    system: ClassVar[type[TreeWalk]] = TreeWalk
    # It is the same in all terms, and left out of their hash, under which clients keep answers.
    protocol: PlacesProtocol = Field(PlacesProtocol(), exclude=True)
    crs: str = Field(description="a plane in metres, such as EPSG:32610")
    places: int = Field(ge=2, le=POINTS_MAX)
    edition: str = "1"
    latitude: str = Field("lat", description="the header of a column")
    longitude: str = Field("lon", description="the header of a column")
    area: Area = Area()

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        _ = self.projection
        area = self.area
        if not (area.south < area.north and area.west < area.east):
            raise ScenarioError.because(
                f"south must be below north, and west below east; they are {area}", field="area"
            )
        return self

    @cached_property
    def projection(self) -> MapProjection:
        """The projection to the plane."""
        return load_projection(self.crs)

    def read_degrees(self, path: Path) -> Floats:
        """Read a CSV file of places, shape (places, 2), ignoring other columns."""
        cells = read_cells(path)
        columns = []
        for name in (self.latitude, self.longitude):
            require(name in cells, "rows", path, f"a file with the column {name!r}")
            try:
                columns.append(cells[name].astype(np.float64))
            except ValueError:
                raise InputError("rows", path, f"numbers in the column {name!r}") from None
        degrees = np.stack(columns, axis=1)
        require(bool(np.isfinite(degrees).all()), "rows", path, "finite numbers in both columns")
        return degrees


class PlacesConfig(ServerConfig):
    """A server of places.

    Attributes:
        role: `server`.
        rows: The CSV file with the places, which are public.
    """

    role: Literal["server"]
    rows: FilePath


class PlacesStart(Start[PlacesConfig]):
    """The checks at the start of a server of places."""

    @cached_property
    def terms(self) -> PlacesTerms:
        """The terms."""
        return PlacesTerms.load(Path(self.config.terms))

    @cached_property
    def degrees(self) -> Floats:
        """The places of its file, shape (places, 2)."""
        terms, rows = self.terms, self.config.rows
        degrees = terms.read_degrees(Path(rows))
        if len(degrees) != terms.places:
            raise ScenarioError.because(
                f"the terms have {terms.places} places, but {rows} has {len(degrees)}",
                field="places",
            )
        if not terms.area.contains(degrees):
            raise ScenarioError.because(
                f"{terms.area} does not contain all places of {rows}", field="area"
            )
        return degrees

    @property
    @override
    def request(self) -> Request:
        return PLACES_REQUEST

    @override
    def files(self) -> Iterator[Step]:
        yield "rows", lambda: f"{len(self.degrees):,} places"


async def serve_places(
    config: PlacesConfig, *, on_ready: Callable[[Places], None] | None = None
) -> None:
    """Serve places until cancelled.

    All files are read and checked first, and the tree is built.

    Args:
        on_ready: Called once the server answers questions.
    """
    start = PlacesStart(config, _log)
    start.begin()
    terms = start.terms
    admission = start.admission()
    places = Places.of(terms.projection.to_metres(start.degrees))
    services = guarded(offers(places, terms.digest), admission)
    async with start.server.listen(services, terms=terms.keys):
        if on_ready is not None:
            on_ready(places)
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, repr=False)
class Near:
    """A private place, with the epsilon of a question about it.

    Attributes:
        latitude: The latitude in degrees.
        longitude: The longitude in degrees.
        epsilon: The epsilon of the question, at delta 0; above 0 and at most 40.
    """

    latitude: float
    longitude: float
    epsilon: float

    def __post_init__(self) -> None:
        if not (abs(self.latitude) <= LATITUDE_MAX and abs(self.longitude) <= LONGITUDE_MAX):
            allowed = f"a latitude up to ±{LATITUDE_MAX:g} and a longitude up to ±{LONGITUDE_MAX:g}"
            raise InputError.because(f"--near is not on Earth; give {allowed}", field="--near")
        if not 0 < self.epsilon <= EPSILON_MAX:
            raise InputError("--epsilon", self.epsilon, f"above 0 and up to {EPSILON_MAX:g}")

    @classmethod
    def parse(cls, text: str, epsilon: float) -> Self:
        """Parse `LAT,LON`."""
        try:
            latitude, longitude = map(float, text.split(","))
        except ValueError:
            allowed = "LAT,LON in degrees, such as 37.77,-122.42"
            raise InputError.because(f"--near must be {allowed}", field="--near") from None
        return cls(latitude, longitude, epsilon)


class PlacesClientConfig(QueryingConfig, StateConfig):
    """A client that searches near private places.

    Attributes:
        role: `client`.
        ask: The server of places.
        budget: The total epsilon of all questions.
        by: `response` names one bucket in one message; `walk` takes one step per level, and needs
            far more epsilon for the same accuracy.
        splits: 2**splits places are returned.
        grid: The distance in metres between the points of the grid to which a place is rounded
            first, so that the same place gives the same question.
        show: The number of returned places to show.
        amend: Whether to accept a changed budget; charges are kept.
    """

    role: Literal["client"]
    budget: float = Field(gt=0)
    by: Literal["response", "walk"] = same_field(TreeWalk, "by")
    splits: int = Field(BUCKET_SPLITS, ge=0, le=SPLITS_MAX)
    grid: float = Field(10.0, gt=0)
    show: int = Field(5, ge=1)
    amend: bool = False


async def ask_places(config: PlacesClientConfig, near: Near) -> dict[str, list[object]]:
    """Return the nearest of the places found around a private place.

    Repeating a place, up to the grid's resolution, returns the same answer: nothing is sent or
    spent. After an interruption at any point, repeating the question continues it.

    Returns:
        The columns `place` (its row in the server's file, from 1), `latitude`, `longitude` and
        `metres`, the nearest first.

    Raises:
        BudgetExhausted: If the budget is insufficient. Nothing was sent.
    """
    client, terms = Client(config), PlacesTerms.load(Path(config.terms))
    degrees = np.array([[near.latitude, near.longitude]])
    if not terms.area.contains(degrees):
        raise InputError.because(
            f"--near is outside of the map, which is {terms.area}", field="--near"
        )
    here = terms.projection.to_metres(degrees)
    lookup = _lookup(config, terms, near.epsilon)
    service = BUCKET_SERVICE if lookup.names_bucket else WALK_SERVICE
    how = (config.by, config.splits, config.grid, near.epsilon)

    async def ask(queries: Floats, keeper: Keeper) -> NearestPlaces:
        async with client.connect(terms.keys) as connection:
            return await connection.run(opening(lookup.ask, service, terms.digest), queries, keeper)

    with _open_ledger(config) as ledger:
        memory = WalkMemory(ledger, config.ask, terms.digest + repr(how).encode())
        (answer,) = await ask_once(memory, snap(here, config.grid), ask, most=near.epsilon)
    return _columns(answer, here[0], terms, config.show)


def begin_places_client(config: PlacesClientConfig) -> bool:
    """Create the ledger of a client's questions: see `begin_state` of the duties."""
    _open_ledger(config, new=True).close()
    return True


def _open_ledger(config: PlacesClientConfig, *, new: bool = False) -> Ledger:
    budgets = Budgets("epsilon", total=config.budget)
    return open_ledger(Path(config.state), budgets, amend=config.amend, new=new)


@dataclass(frozen=True, slots=True)
class Chance:
    """The public probability that an answer is about the requested place, equal for all places."""

    probability: float
    buckets: int


def chance_of(config: PlacesClientConfig, epsilon: float) -> Chance:
    """Return the probability that a question of this epsilon gets the places of its own bucket."""
    lookup = _lookup(config, PlacesTerms.load(Path(config.terms)), epsilon)
    levels = lookup.depth - lookup.splits
    distribution = lookup.distribution
    if lookup.names_bucket:
        return Chance(float(distribution.p), distribution.domain)
    return Chance(own_probability(levels, epsilon), distribution.domain)


def _lookup(config: PlacesClientConfig, terms: PlacesTerms, epsilon: float) -> Lookup:
    """Return the mechanism of a question."""
    system = TreeWalk(epsilon=epsilon, by=config.by, splits=config.splits)
    with as_scenario_errors({"splits": "splits", "epsilon": "--epsilon"}, "terms"):
        return system.bind(Facts(parties=2, features=_AXES, classes=1, rows=terms.places))


def _columns(
    answer: RememberedAnswer, here: Floats, terms: PlacesTerms, show: int
) -> dict[str, list[object]]:
    # A place whose leaf is early in the tree was returned twice.
    numbers, first = np.unique(answer.found, return_index=True)
    points = answer.points[first]
    metres = np.sqrt(np.square(points - here).sum(axis=1))
    nearest = np.argsort(metres, kind="stable")[:show]
    degrees = terms.projection.to_degrees(points[nearest]).round(_DEGREES)
    return {
        "place": (numbers[nearest] + 1).tolist(),
        "latitude": degrees[:, 0].tolist(),
        "longitude": degrees[:, 1].tolist(),
        "metres": metres[nearest].round(_METRES).tolist(),
    }


DUTIES: Final[Mapping[str, Duty]] = {
    "server": Duty(PlacesConfig, serve=serve_places, start=partial(PlacesStart, log=_log)),
    "client": Duty(PlacesClientConfig, near=ask_places, begin=begin_places_client),
}
"""The duties of a server of places and its clients."""
