"""The figures of the treewalk family: their measures are the stated ones."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from docs.examples.treewalk_where import CELLS, beliefs_after, draw_beliefs
from papers.claims import Measured
from papers.overheard import overheard_response
from papers.reproduce import reproduce_figure
from papers.treewalk import (
    SIDE,
    Points,
    SearchWay,
    bucket_response,
    by_comparison,
    by_distance,
    early,
    load_points,
)
from papers.treewalk_figures import EQUAL, PRINTED, RAW, SPENT, TOP
from scipy.spatial import cKDTree
from tests.papers.conftest import measure
from tests.refusals import require_refused

from veilring.protocols.treewalk.algorithm.mechanisms import bucket_distribution
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.randomness import Streams

pytestmark = pytest.mark.slow

POINTS = load_points("uniform:512")


def _measure(number: int) -> Measured:
    return measure(f"treewalk/figure-6.{number}", POINTS)


def test_drawn_points_are_new_for_each_split() -> None:
    """Different generators give different points, and equal ones equal points."""
    drawn = Points("drawn", 100)
    one, same, other = (drawn.draw(2, 3, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.shape == (300, 2)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("number", [2, 4, 9, 13, 16, 18, 21, 25, 31])
def test_all_claims_of_a_figure_can_be_decided(number: int) -> None:
    """Every series in a claim is measured; raw fractions are at most those of the top 5."""
    measured = _measure(number)
    for suffix in {"", EQUAL, PRINTED, SPENT}:
        for series, raw in measured.of(RAW + suffix).items():
            assert (raw <= measured.of(TOP + suffix)[series]).all()


def test_figures_share_their_measurement() -> None:
    """Equal curves of two figures and equal accounts of a basic walk have equal numbers."""
    one, other = (_measure(number).of(RAW) for number in (14, 7))
    equal = _measure(14).of(RAW + EQUAL)
    for series in ("basic", "E8"):
        np.testing.assert_array_equal(one[series], other[series])
    np.testing.assert_array_equal(one["basic"], equal["basic"])
    assert equal["GS"].sum() < one["GS"].sum()


def test_a_large_epsilon_finds_the_results_of_a_search() -> None:
    """On a line, walks with almost no noise find all nearest points, even early walks."""
    way = SearchWay("basic", dimensions=1)
    assert by_comparison(POINTS, 3, way, 600.0, "spent").raw == 1.0
    assert by_comparison(POINTS, 3, early(8).at(1), 100.0, "spent").top == 1.0
    assert by_distance(POINTS, 3, way, 1.0).top > 0.9


def test_a_response_beats_the_walk_of_its_buckets() -> None:
    """At the same epsilon a response finds the nearest point more often than an early walk."""
    points = load_points("uniform:4096")
    one, other = (
        by_comparison(points, 4, way, 6.0, "spent").raw for way in (bucket_response(5), early(5))
    )
    assert one > other + 0.1


def _csv(folder: Path, *columns: str, rows: int = 300) -> Path:
    drawn = np.random.default_rng(6).uniform(30, 40, (rows, len(columns)))
    lines = [",".join(map(repr, row)) for row in drawn.tolist()]
    path = folder / "-".join(columns) / "places.csv"
    path.parent.mkdir()
    path.write_text("\n".join([",".join(columns), *lines]) + "\n", encoding="utf-8")
    return path


def test_places_keep_their_proportions(tmp_path: Path) -> None:
    """Distances in degrees equal those of the plane at their middle, up to one factor."""
    path = _csv(tmp_path, "lat", "lon")
    points = load_points(str(path)).draw(2, 1, np.random.default_rng(0))
    degrees = np.loadtxt(path, delimiter=",", skiprows=1)
    plane = degrees * [1.0, np.cos(np.radians(degrees[:, 0].mean()))]
    one, other = (np.asarray(cKDTree(each).query(each, k=2)[0])[:, 1] for each in (points, plane))
    np.testing.assert_allclose(one / other, (one / other).mean(), rtol=1e-6)
    assert points.min() == 0.0
    assert points.max() == SIDE


def test_an_invalid_source_of_points_is_refused(tmp_path: Path) -> None:
    """Too few points, a table of labelled rows, a missing file, and points on one line."""
    for source in ("uniform:256", "wine", "uniform:x", "nowhere.csv"):
        require_refused(re.escape(source.removeprefix("uniform:")), load_points, source)
    path = tmp_path / "places.csv"
    for row in ("{0},7", "7,{0}", "7,7"):
        path.write_text("\n".join(["x,y", *map(row.format, range(300))]) + "\n", encoding="utf-8")
        require_refused("more than one value", load_points, str(path))


def test_a_file_has_its_own_numbers_of_points_and_coordinates(tmp_path: Path) -> None:
    """One column has no plane; a figure that compares numbers of points is refused for a file."""
    points, rng = load_points(str(_csv(tmp_path, "x"))), np.random.default_rng(0)
    assert points.draw(1, 1, rng).shape == (300, 1)
    require_refused(r"data is '?places\.csv", points.draw, 2, 1, rng)
    draw = partial(reproduce_figure, "treewalk/figure-6.3", quick=True)
    require_refused("10 times as many", draw, [str(_csv(tmp_path, "x", "y"))], tmp_path / "out")


def test_files_are_written_for_points(tmp_path: Path) -> None:
    """`reproduce` measures a file of places and writes numbers, verdicts and plots."""
    path = _csv(tmp_path, "lat", "lon")
    done = reproduce_figure("treewalk/figure-6.31", [str(path)], tmp_path / "out", quick=True)
    assert [file.suffix for file in done.files] == [".csv", ".json", ".png", ".svg"]
    assert all(file.stat().st_size for file in done.files)
    assert done.measured[0].data == "places.csv"


def test_a_map_shows_the_servers_posterior(tmp_path: Path) -> None:
    """A response leaves two levels of probability, and the cells of the named bucket share one."""
    rng = Streams(7).generator("map")
    points = rng.random((300, 2))
    tree = build_tree(points)
    distribution = bucket_distribution(tree.depth, 5, 3.0)
    asked = {"response": overheard_response(tree, distribution)}
    beliefs = beliefs_after(asked, points, np.array([0.3, 0.6]), rng)
    shares = beliefs.shares["response"]
    assert shares.shape == (CELLS**2,)
    assert shares.sum() == pytest.approx(1.0)
    levels = np.unique(shares.round(15))
    assert len(levels) == 2
    assert levels[1] / levels[0] == pytest.approx(np.exp(3.0), rel=1e-6)
    path = tmp_path / "map.png"
    draw_beliefs(beliefs, points, [path], title="where")
    assert path.stat().st_size > 10_000
    require_refused("points has", beliefs_after, asked, points[:, :1], np.array([0.3]), rng)
