"""Growth of a simulated ring: reproducible, and consistent with the closed forms."""

from pathlib import Path

import pytest
from benchmarks.growth_ring import (
    PARTIES_MAX,
    WAN,
    Batch,
    largest,
    load_network,
    make_network,
    simulate,
    study_ring,
)
from benchmarks.studies import format_study

from veilring.errors import InputError, ScenarioError
from veilring.scenarios.schema import NetworkSection

SMALL = Batch(queries=4, features=3, k=2)
JITTERY = NetworkSection(
    latency={"distribution": "lognormal", "median_seconds": 0.04, "sigma": 0.5}
)


def test_with_equal_links_the_model_is_exact() -> None:
    """With one latency and one bandwidth the factor is 1."""
    study = study_ring(SMALL, (9, 20, 40), within=5.0)
    assert study.simulated
    (curve,) = study.curves
    assert curve.fit.factors == pytest.approx((1.0,), rel=1e-9)
    assert curve.fit.worst < 1e-9
    assert curve.fit.left_out == pytest.approx(0.0, abs=1e-9)
    for parties, messages in zip((9, 20, 40), curve.beside["messages"], strict=True):
        assert messages == SMALL.forecast(parties).traffic.messages


def test_random_links_take_longer_reproducibly() -> None:
    """A batch takes longer over links with random delays, and equal seeds give equal text."""
    batch = Batch(queries=4, features=3, k=2, network=JITTERY, seed=5)
    one, other = (study_ring(batch, (9, 25)) for _ in range(2))
    assert format_study(one, "here") == format_study(other, "there")
    assert one.curves[0].fit.factors[0] >= 1.0
    assert one.curves[0].fit.worst > 0.0


def test_the_largest_number_within_the_time_is_found() -> None:
    """One more takes too long; without any fitting number the result is None, and it is capped."""
    assert largest(lambda n: 0.5 * n, 60.0, 3) == 120
    assert largest(lambda n: 0.5 * n, 60.2, 3) == 120
    assert largest(float, 2.0, 3) is None
    assert largest(lambda _n: 1.0, 2.0, 3) == PARTIES_MAX


def test_the_findings_name_the_largest_number_within_the_time() -> None:
    """Simulations just below and just above the stated limit confirm it."""
    study = study_ring(SMALL, (9, 20), within=6.0)
    assert "within 6 s: up to 14 parties, according to the model" in study.findings
    assert simulate(SMALL, 14).seconds <= 6.0 < simulate(SMALL, 15).seconds


@pytest.mark.parametrize("parties", [(9,), (2, 20), (20, 9), (9, 9)])
def test_invalid_sizes_are_refused(parties: tuple[int, ...]) -> None:
    """Too few sizes, too small ones and sizes out of order are refused."""
    with pytest.raises(InputError, match="two or more from 3 up"):
        study_ring(SMALL, parties)


def test_links_come_from_a_file_or_from_two_numbers(tmp_path: Path) -> None:
    """A file contains a scenario's table and nothing else; numbers given as well are refused."""
    path = tmp_path / "wan.toml"
    path.write_text('[network]\nlatency = { distribution = "constant", seconds = 0.02 }\n')
    assert load_network(path).latency == {"distribution": "constant", "seconds": 0.02}
    assert make_network(None, latency=None, bandwidth=None) == WAN
    made = make_network(None, latency=0.1, bandwidth=2.0)
    assert made.latency["seconds"] == 0.1
    assert made.bandwidth_bytes_per_second == 2.0
    with pytest.raises(ScenarioError, match="--bandwidth is 2"):
        make_network(path, latency=None, bandwidth=2.0)
    with pytest.raises(ScenarioError, match="--bandwidth is 0"):
        make_network(None, latency=None, bandwidth=0.0)
    with pytest.raises(ScenarioError, match=r"network\.graph is 'cycle'"):
        Batch(network=NetworkSection(graph="cycle"))
    path.write_text("[network]\nspeed = 3\n")
    with pytest.raises(ScenarioError, match=r"network\.speed"):
        load_network(path)
    with pytest.raises(ScenarioError, match="--network"):
        load_network(tmp_path / "none.toml")
