"""What a hop leaks on a scenario's own distances."""

import pytest
from tests.scenarios.wine import wine_report

from veilring.protocols.system import Leakage
from veilring.randomness import Streams
from veilring.scenarios import load_scenario
from veilring.scenarios.prepare import prepare


def _leakage(overrides: list[str], trials: int) -> Leakage:
    prepared = prepare(load_scenario("wine", overrides), Streams(1))
    queries, rng = prepared.held_out.X, Streams(1).generator("leakage")
    leakage = prepared.setup.leakage(queries, trials, rng)
    assert leakage is not None
    return leakage


class TestLeakage:
    """What a hop leaks on a scenario's own distances."""

    def test_is_a_share_and_comes_with_its_error(self) -> None:
        """All estimates are within their ranges, and the peak is no less than the mean."""
        leakage = wine_report("memory").leakage
        assert leakage is not None
        assert leakage.trials == 200
        values = {name: each.value for name, each in leakage.estimates.items()}
        assert 0 < values["exposure"] < 1
        assert 0 < values["claim"] <= 1
        assert values["lop"] <= values["lop_peak"]
        assert leakage.estimates["exposure"].standard_error > 0

    def test_a_party_that_holds_all_rows_is_the_one_that_leaks(self) -> None:
        """Of three parties the one with all rows is exposed once in each run, and nobody else."""
        overrides = [
            "parties.count=3",
            "partition.kind=sizes",
            "partition.sizes=[134, 0, 0]",
            "protocol.P0=0",
        ]
        assert prepare(load_scenario("wine", overrides), Streams(1)).setup.rounds == 1
        found = _leakage(overrides, 100).estimates
        assert found["exposure"].value == pytest.approx(1 / 3)

    def test_trials_are_fewer_where_each_is_large(self) -> None:
        """A thousand parties get as many trials as memory and patience allow, and at least two."""
        overrides = ["parties.count=1000", "protocol.k=100"]
        assert 2 <= _leakage(overrides, 20_000).trials < 100
        assert _leakage(overrides, 2).trials == 2
