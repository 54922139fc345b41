"""The leakage of PP-TopK over a grid, compared with closed forms and enumeration."""

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from papers.leakage import leakage
from papers.leakage_grid import (
    LeakageGrid,
    SearchGrid,
    exposure_at_most,
    exposure_without_noise,
    is_noise_distinct,
    leakage_grid,
    search_grid,
    watch_distinct,
    write_grid,
)
from tests.papers.conftest import Program
from tests.protocols.ring.worlds import hoeffding
from tests.refusals import require_refused

from veilring.protocols.promise import Estimate
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import transcript, uniform_values, watch_hops

FALSE_ALARM = 1e-6


@pytest.mark.parametrize(("n", "rows", "k"), [(3, 2, 1), (3, 2, 2), (4, 1, 3), (3, 3, 5)])
def test_exposure_without_noise_matches_enumeration(n: int, rows: int, k: int) -> None:
    """The p-th party has one of the k smallest of the first p hands: 1 / p if k is 1."""
    exposed = 0.0
    for p in range(1, n + 1):
        hands = list(combinations(range(p * rows), rows))
        exposed += sum(min(hand) < k for hand in hands) / len(hands)
    assert exposure_without_noise(n, rows, k, rounds=1) == pytest.approx(exposed / n, rel=1e-14)
    harmonic = math.fsum(1 / p for p in range(1, 31))
    assert exposure_without_noise(30, 100, 1, 2) == pytest.approx(harmonic / 60, rel=1e-13)


@pytest.mark.parametrize("k", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_estimates_match_the_closed_forms(k: int) -> None:
    """Without noise the estimate is the closed form, and with it below the bound (alarm 1e-6).

    Both hold within Hoeffding's bound: a party inserts at most once, so at most one in `rounds` of
    a run's messages exposes. With noise only and one round, nothing is exposed.
    """
    trials = 80_000
    honest = LeakageGrid([3, 8], [k], rounds=1, P0=0.0, rows=5, trials=trials)
    noisy = LeakageGrid([3, 8], [k], rounds=3, P0=0.9, rows=5, trials=trials)
    stray = hoeffding(1, trials, FALSE_ALARM / 6) / trials
    for point in leakage_grid(honest, seed=1):
        assert point.exposure_exact is not None
        assert abs(point.exposure.value - point.exposure_exact) <= stray
    for point in leakage_grid(noisy, seed=1):
        assert point.exposure_exact is None
        assert point.exposure.value - point.exposure_at_most <= stray / 3
        assert point.exposure_at_most == exposure_at_most(0.9, 0.5, 3) < 1 / 3
    (point,) = leakage_grid(LeakageGrid([5], [k], rounds=1, trials=500))
    assert point.exposure_exact == point.exposure.value == 0.0


@pytest.mark.parametrize(
    ("measured", "grid"), [(leakage_grid, LeakageGrid), (search_grid, SearchGrid)]
)
def test_a_point_does_not_depend_on_the_rest_of_the_grid(
    measured: Callable[..., Iterator[object]], grid: type[LeakageGrid | SearchGrid]
) -> None:
    """Equal seeds give equal estimates, alone or among others."""
    all_of, alone = (
        [*measured(grid(parties, ks, trials=200), seed=3, clock=lambda: 0.0)]
        for parties, ks in (([3, 5], [1, 2]), ([5], [2]))
    )
    assert all_of[-1:] == alone


def test_an_impossible_grid_is_refused() -> None:
    """An impossible grid is refused before any estimate, and the error names the setting."""
    for grid in (LeakageGrid, SearchGrid):
        require_refused("parties is 2", grid, [3, 2], [1])
        require_refused("k is 0", grid, [3], [0])
        require_refused("rows is 0", grid, [3], [1], rows=0)
        require_refused("trials is 1", grid, [3], [1], trials=1)
    require_refused("P0 is 2", LeakageGrid, [3], [1], P0=2.0)


def test_a_file_has_each_estimate_with_its_error(tmp_path: Path) -> None:
    """There is one row per point, with its steps per second, and nothing is overwritten."""
    path, ticks = tmp_path / "grid.csv", iter((0.0, 2.0))
    (point,) = points = [*leakage_grid(LeakageGrid([4], [2], trials=50), clock=lambda: next(ticks))]
    assert (point.party_steps, point.party_steps_a_second) == (4 * 2 * 50, 200.0)
    write_grid(points, path)
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["exposure"]) == point.exposure.value
    assert float(row["exposure_error"]) == point.exposure.standard_error
    require_refused("does not exist", write_grid, points, path)


def test_the_command_prints_a_table_with_its_speed(program: Program, tmp_path: Path) -> None:
    """All points are printed in 80 columns, and written to the file or as JSON alone."""
    path = tmp_path / "grid.csv"
    small = ("--parties", "3,5", "--k", "1..5:2", "--trials", "100", "--out", str(path))
    code, out, err = program(leakage, "ring/pp-topk", *small)
    said = err.splitlines()
    assert (code, said[0]) == (0, "3 parties, k = 1: 0 of 4,800")
    assert said[-1] == "5 parties, k = 5: 3,800 of 4,800"
    assert out.count("<= 0.2500") == 6
    assert "4,800 party-steps in " in out
    assert max(map(len, out.splitlines())) <= 80
    assert len(path.read_text(encoding="utf-8").splitlines()) == 7
    assert program(leakage, "ring/pp-topk", *small)[0] == 2  # the file is there
    code, out, _ = program(leakage, "ring/pp-topk", "--parties", "3", "--trials", "100", "--json")
    (point,) = json.loads(out)
    assert (code, point["parties"], point["k"], point["party_steps"]) == (0, 3, 5, 600)


WRONG = {
    "ring/pp-topk": ("ring/pp-tokp",),
    "parties is 2": ("ring/pp-topk", "--parties", "2"),
    "k is 1.5": ("ring/pp-topk", "--k", "1.5"),
    "k is '5..1'": ("ring/pp-topk", "--k", "5..1"),
    "leave it out": ("rank-search", "--rounds", "3"),  # it would have no effect
}


@pytest.mark.parametrize("named", WRONG)
def test_wrong_input_exits_with_two(program: Program, named: str) -> None:
    """Standard error has the mistake and the allowed values."""
    code, out, err = program(leakage, *WRONG[named])
    assert (code, out) == (2, "")
    assert named in err


def test_a_hop_of_rank_search_reveals_nothing_and_totals_something() -> None:
    """Leakage per hop is exactly 0 at each point; totals narrow the radius."""
    points = list(search_grid(SearchGrid([3, 8], [1, 5], trials=500), seed=2))
    assert [(point.parties, point.k) for point in points] == [(3, 1), (3, 5), (8, 1), (8, 5)]
    for point in points:
        for hop in (point.exposure, point.claim, point.lop, point.lop_peak):
            assert hop == Estimate(0.0, 0.0)
        # The mean gap between neighbours of n times 100 uniform values, twice over.
        assert 0 < point.radius.value < 2 / (100 * point.parties)
        assert 0 < point.above.value < 1
        assert point.thresholds >= 16


def test_the_command_explains_zero_leakage_per_hop(program: Program, tmp_path: Path) -> None:
    """The table has zeros with the reason below, and the file has numbers with errors."""
    path = tmp_path / "search.csv"
    small = ("--k", "1,5", "--trials", "100", "--out", str(path))
    code, out, _ = program(leakage, "rank-search", *small)
    assert code == 0
    assert "provably 0: a view can be simulated from the" in out
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["k"] for row in rows] == ["1", "5"]
    assert all(float(row["exposure"]) == 0 < float(row["radius_error"]) for row in rows)


ONE = TopKParameters(k=1, P0=1.0, d=1.0, rounds=1, delta=0.5, upper=1.0)


@pytest.mark.parametrize(
    ("n", "rows", "parameters"),
    [
        (3, 50, replace(ONE, P0=0.0, d=0.5)),
        (5, 50, replace(ONE, k=4, d=0.5, rounds=2)),
        (4, 2, replace(ONE, k=9, P0=0.8, d=0.6, rounds=3, delta=0.1)),
        (9, 30, replace(ONE, k=20, P0=0.7, d=0.9, rounds=4, delta=0.01, lower=-1.0)),
        (3, 0, replace(ONE, k=2)),
    ],
)
def test_births_agree_with_multisets(
    n: int, rows: int, parameters: TopKParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On distinct values every count of every hop and trial equals that of multisets."""
    monkeypatch.setattr("papers.leakage_grid.BLOCK_ENTRIES", 100)  # so that there are several
    values = uniform_values(70, n, parameters.k, rows, np.random.default_rng(12))
    vectors = transcript(values, parameters, np.random.default_rng(13))
    births = watch_distinct(values, parameters, np.random.default_rng(13))
    assert (births == watch_hops(vectors, values, parameters)).all()
    # Numbers from so small a range may be equal, which births do not allow.
    assert is_noise_distinct(parameters)
    assert not is_noise_distinct(replace(ONE, delta=1e-16))
