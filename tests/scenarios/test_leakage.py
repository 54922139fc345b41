"""What a hop leaks on a scenario's own distances."""

import pytest
from tests.scenarios.wine import wine_report

from veilring.randomness import Streams
from veilring.scenarios import load_scenario
from veilring.scenarios.leakage import estimate_leakage, trials_for
from veilring.scenarios.prepare import prepare


class TestLeakage:
    """What a hop leaks on a scenario's own distances."""

    def test_is_a_share_and_comes_with_its_error(self) -> None:
        """All estimates are within their ranges, and the peak is no less than the mean."""
        leakage = wine_report("memory").leakage
        assert leakage is not None
        assert leakage.trials == 200
        assert 0 < leakage.exposure.value < 1
        assert 0 < leakage.claim.value <= 1
        assert leakage.lop.value <= leakage.lop_peak.value
        assert leakage.exposure.standard_error > 0

    def test_who_holds_all_rows_is_who_leaks(self) -> None:
        """Of three parties the one with all rows is exposed once in each run, and nobody else."""
        overrides = [
            "parties.count=3",
            "partition.kind=sizes",
            "partition.sizes=[134, 0, 0]",
            "protocol.P0=0",
        ]
        prepared = prepare(load_scenario("wine", overrides), Streams(1))
        found = estimate_leakage(prepared, 100, Streams(1).generator("leakage"))
        assert prepared.parameters.rounds == 1
        assert found.exposure.value == pytest.approx(1 / 3)
        assert found.exposure_by_party.sum() == pytest.approx(1.0)

    def test_trials_are_fewer_where_each_is_large(self) -> None:
        """A thousand parties get as many trials as memory and patience allow, and at least two."""
        scenario = load_scenario("wine", ["parties.count=1000", "protocol.k=100"])
        prepared = prepare(scenario, Streams(1))
        assert 2 <= trials_for(prepared, 20_000) < 100
        assert trials_for(prepared, 2) == 2
