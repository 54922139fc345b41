"""Leakage per hop on the distances of a scenario."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.scenarios.wine import wine_report

from veilring.protocols.promise import Estimate, Leakage
from veilring.protocols.registry import find_system
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.prepare import prepare
from veilring.scenarios.report import leaks


def _leakage(overrides: list[str], trials: int) -> Leakage:
    prepared = prepare(load_scenario("wine", overrides), Streams(1))
    queries, rng = prepared.held_out.X, Streams(1).generator("leakage")
    leakage = prepared.setup.leakage(queries, trials, rng)
    assert leakage is not None
    return leakage


class TestLeakage:
    """Leakage per hop on the distances of a scenario."""

    def test_is_a_fraction_with_an_error(self) -> None:
        """All estimates are within their ranges, and the peak is at least the mean."""
        leakage = wine_report("memory").leakage
        assert leakage is not None
        assert leakage.trials == 200
        values = {name: each.value for name, each in leakage.estimates.items()}
        assert 0 < values["exposure"] < 1
        assert 0 < values["claim"] <= 1
        assert values["lop"] <= values["lop_peak"]
        assert leakage.estimates["exposure"].standard_error > 0

    def test_only_a_party_with_all_rows_leaks(self) -> None:
        """Of three parties, only the one with all rows is exposed, once per run."""
        overrides = [
            "parties.count=3",
            "partition.kind=sizes",
            "partition.sizes=[134, 0, 0]",
            "protocol.P0=0",
        ]
        assert prepare(load_scenario("wine", overrides), Streams(1)).setup.rounds == 1
        found = _leakage(overrides, 100).estimates
        assert found["exposure"].value == pytest.approx(1 / 3)

    @pytest.mark.slow
    def test_large_trials_are_fewer(self) -> None:
        """A thousand parties get as many trials as memory and time allow, and at least two."""
        overrides = ["parties.count=1000", "protocol.k=100"]
        assert 2 <= _leakage(overrides, 20_000).trials < 100
        assert _leakage(overrides, 2).trials == 2


class TestSimulatedViews:
    """A system whose views can be simulated from published values leaks nothing else."""

    RANK = ("protocol.name=rank-search", "data.queries=12")

    def test_the_measures_of_a_hop_are_0_with_a_reason(self) -> None:
        """All four measures of the ring are 0 by proof; published values are estimated."""
        report = run_scenario(load_scenario("wine", [*self.RANK]), runtime="memory", seed=1)
        assert report.leakage is not None
        ring = find_system("private-knn").measures
        shown = {leaked.label: leaked for leaked in leaks(report.leakage, "rank-search")}
        for name, measure in ring.items():
            assert report.leakage.estimates[name] == Estimate(0.0, 0.0)
            leaked = shown.pop(measure.label)
            assert leaked.value == "0"
            assert leaked.meaning.startswith("by proof: ")
        assert len(shown) == len(report.leakage.published) == 3
        assert all(leaked.is_estimated for leaked in shown.values())
        assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report

    def test_published_values_are_measured_on_the_queries(self) -> None:
        """There is one search per query or trial; intervals contain the distances, so none is 0."""
        leakage = _leakage([*self.RANK], 20_000)
        assert (leakage.trials, _leakage([*self.RANK], 5).trials) == (12, 5)
        assert 0 < leakage.published["radius"].value < 0.1
        assert 0 < leakage.published["above"].value < 1

    def test_ties_are_reported_as_revealed(self) -> None:
        """If all rows occur twice, an odd k ends each search at the distance of a row."""
        prepared = prepare(load_scenario("wine", [*self.RANK, "protocol.k=1"]), Streams(1))
        setup, rows = prepared.setup, list(prepared.setup.parts.values())
        twice = {f"party-{n}": rows[n % 8] for n in range(16)}
        doubled = setup.system.setup(twice, replace(setup.facts, parties=16))
        found = doubled.leakage(prepared.held_out.X, 100, np.random.default_rng(0))
        assert found is not None
        assert found.published["tied"] == Estimate(1.0, 0.0)
        assert found.published["radius"] == Estimate(0.0, 0.0)

    def test_without_totals_none_is_above_k(self) -> None:
        """A search that reveals votes opens comparisons only."""
        leakage = _leakage([*self.RANK, "protocol.reveal=votes"], 100)
        assert leakage.published["above"] == Estimate(0.0, 0.0)
