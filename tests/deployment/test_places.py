"""A server of places and its client: in one process, and as two over TLS."""

import asyncio
import csv
import io
from math import exp
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ports import reserve_ports
from pyproj import Geod
from tests.deployment.commands import Deployment, call

from veilring.arrays import Floats
from veilring.deployment import load_config_of
from veilring.deployment.places import (
    Area,
    Near,
    PlacesClientConfig,
    PlacesConfig,
    ask_places,
    chance_of,
    load_projection,
    serve_places,
    utm_around,
)
from veilring.errors import BudgetExhausted, InputError, ScenarioError
from veilring.privacy.ledger import read_totals

HERE = (37.7749, -122.4194)
DEGREES = np.random.default_rng(5).uniform((37.70, -122.50), (37.80, -122.38), (200, 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the files of a server of 200 places and a client."""
    rows = tmp_path / "places.csv"
    lines = [f"place {row},{lat!r},{lon!r}" for row, (lat, lon) in enumerate(DEGREES.tolist())]
    rows.write_text("\n".join(["name,lat,lon", *lines]) + "\n", encoding="utf-8")
    out = tmp_path / "atlas"
    options = ["--port", str(reserve_ports()), "--budget", "90", "--out", str(out)]
    call("deploy", "places", rows, *options)
    return out


def _distances() -> Floats:
    """Return the geodesic distance to each place, in metres."""
    latitudes, longitudes = DEGREES.T
    here = np.tile(HERE, (len(DEGREES), 1)).T
    _, _, metres = Geod(ellps="WGS84").inv(here[1], here[0], longitudes, latitudes)
    return np.asarray(metres)


def _asked(folder: Path, *asked: Near, **changed: object) -> list[dict[str, list[object]]]:
    """Ask a server in this process several questions in sequence."""

    async def main() -> list[dict[str, list[object]]]:
        server = load_config_of(folder / "server.toml", PlacesConfig, "this")
        client = load_config_of(folder / "client.toml", PlacesClientConfig, "this")
        client = client.model_copy(update=changed)
        ready = asyncio.Event()
        role = serve_places(server, on_ready=lambda _places: ready.set())
        serving = asyncio.create_task(role)
        await ready.wait()
        try:
            return [await ask_places(client, near) for near in asked]
        finally:
            serving.cancel()

    return asyncio.run(main())


@pytest.mark.parametrize("by", ["response", "walk"])
def test_results_are_near_on_the_ellipsoid(by: str, folder: Path) -> None:
    """With a large epsilon the places of the own bucket are returned, at their exact distances."""
    (found,) = _asked(folder, Near(*HERE, 39.0), by=by, splits=7, show=100)
    expected = _distances()
    rows = np.array(found["place"], dtype=np.int64) - 1
    metres = np.array(found["metres"], dtype=np.float64)
    np.testing.assert_allclose(metres, expected[rows], rtol=1e-3, atol=0.1)
    assert (np.diff(metres) >= 0).all()
    assert len(set(rows.tolist())) == len(rows) == 100
    degrees = np.array([found["latitude"], found["longitude"]], dtype=np.float64).T
    np.testing.assert_allclose(degrees, DEGREES[rows], atol=1e-6)


def test_only_new_questions_within_the_map_and_the_budget_cost_anything(folder: Path) -> None:
    """A location in the same grid cell gets the same places, without a server.

    One outside of the map is refused with one error, before any message or charge. Questions
    beyond the budget are refused, and cost nothing.
    """
    (first,) = _asked(folder, Near(*HERE, 3.0), budget=5.0)
    paid = read_totals(folder / "client.db")
    assert paid.spent == pytest.approx(3.0)
    client = load_config_of(folder / "client.toml", PlacesClientConfig, "this")
    client = client.model_copy(update={"budget": 5.0})  # there is no server now
    again = asyncio.run(ask_places(client, Near(HERE[0] + 1e-6, HERE[1], 3.0)))
    assert set(map(str, again["place"])) == set(map(str, first["place"]))
    refused = set[str]()
    for place in ((40.7, -74.0), (37.6, -122.45), (37.75, -122.3)):
        with pytest.raises(InputError) as error:
            asyncio.run(ask_places(client, Near(*place, 4.0)))
        refused.add(str(error.value))
    (said,) = refused
    assert said.startswith("--near is outside of the map, which is latitudes from 37.69 to 37.8")
    with pytest.raises(BudgetExhausted):
        _asked(folder, Near(HERE[0] + 0.01, HERE[1], 3.0), budget=5.0)
    assert read_totals(folder / "client.db") == paid


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:2227", "nowhere"])
def test_a_plane_without_metres_is_refused(crs: str) -> None:
    """Planes in degrees or feet, and planes unknown to PROJ, are refused."""
    with pytest.raises(ScenarioError, match="crs is"):
        load_projection(crs)


def test_a_projection_is_invertible() -> None:
    """Places in the zone around them are restored, and poles have no zone."""
    crs = utm_around(DEGREES)
    assert crs == "EPSG:32610"
    plane = load_projection(crs)
    np.testing.assert_allclose(plane.to_degrees(plane.to_metres(DEGREES)), DEGREES, atol=1e-9)
    with pytest.raises(InputError, match="outside of all zones"):
        utm_around(np.array([[89.0, 0.0]]))
    with pytest.raises(InputError, match="projection is inaccurate at some places"):
        plane.to_metres(np.array([[95.0, 0.0]]))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ("", "1", "1,2,3", "north,west"),
            "--near must be LAT,LON in degrees, such as 37.77,-122.42",
        ),
        (
            ("300.7,-74.0", "-90.1,0", "0,180.5", "nan,0", "0,inf"),
            "--near is not on Earth; give a latitude up to ±90 and a longitude up to ±180",
        ),
    ],
)
def test_an_invalid_place_is_refused_and_not_shown(texts: tuple[str, ...], said: str) -> None:
    """An error about a place does not show it, and is equal for all such places."""
    for text in texts:
        with pytest.raises(InputError) as refused:
            Near.parse(text, 1.0)
        assert str(refused.value) == said


def test_a_map_has_a_margin_around_its_places() -> None:
    """The box contains all places, with a tenth more on each side, within the Earth's bounds."""
    around = Area.around(DEGREES)
    assert around.contains(DEGREES)
    least, most = DEGREES.min(axis=0), DEGREES.max(axis=0)
    np.testing.assert_allclose((around.south, around.west), least - (most - least) / 10, atol=1e-4)
    np.testing.assert_allclose((around.north, around.east), most + (most - least) / 10, atol=1e-4)
    assert Area.around(np.array([[89.995, 0.0]])).north == 90.0
    assert Area().contains(np.array([[-90.0, 180.0]]))


@pytest.mark.parametrize("by", ["response", "walk"])
def test_the_chance_of_the_own_bucket_is_that_of_the_distribution(by: str, folder: Path) -> None:
    """For 200 places in buckets of 4 it equals the distribution's, and rises with epsilon."""
    client = load_config_of(folder / "client.toml", PlacesClientConfig, "this")
    config = client.model_copy(update={"by": by, "splits": 2})
    chances = [chance_of(config, epsilon) for epsilon in (1.0, 6.0)]
    assert {chance.buckets for chance in chances} == {64}
    own = (
        [exp(epsilon) / (exp(epsilon) + 63) for epsilon in (1.0, 6.0)]
        if by == "response"
        else [(1 + exp(-epsilon / 6)) ** -6 for epsilon in (1.0, 6.0)]
    )
    assert [chance.probability for chance in chances] == pytest.approx(own, rel=1e-9)


def test_two_processes_over_tls(folder: Path) -> None:
    """A client in another process gets places as CSV; a wrong question exits with 2."""
    served, place = Deployment(folder), f"{HERE[0]},{HERE[1]}\n"
    served.serve("server")
    asked = served.call("ask", "client.toml", "--near", "-", "--epsilon", "12", given=place)
    rows = list(csv.DictReader(io.StringIO(asked.stdout)))
    assert "those of the right bucket, one of 8 (epsilon 12)" in asked.stderr
    assert list(rows[0]) == ["place", "latitude", "longitude", "metres"]
    assert len(rows) == 5
    expected = _distances()
    for row in rows:
        assert float(row["metres"]) == pytest.approx(expected[int(row["place"]) - 1], rel=1e-3)
    served.call("ask", "client.toml", "--near", "1,2", code=2)
    served.end_in_order()
