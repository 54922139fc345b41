"""The benchmarks of rank search: their measurements equal the costs of the run."""

import pytest
from benchmarks.measurement import Measurement
from benchmarks.ranksearch import WAYS, Dealt, measure_batch, simulate
from benchmarks.ranksearch_mpyc import measure

from veilring.protocols.ranksearch.system import RankSearch


@pytest.fixture(scope="module")
def batch() -> dict[str, Measurement]:
    """Return the measurements of a small batch, by name."""
    return {found.name: found for found in measure_batch(quick=True)}


@pytest.mark.slow
def test_each_variant_is_measured(batch: dict[str, Measurement]) -> None:
    """Rounds, payload and simulated seconds of every variant, and of ties, are measured."""
    for way, kind in ((name, type(way.system)) for name, way in WAYS.items()):
        for title in (way, f"{way}, ties") if kind is RankSearch else (way,):
            for what in ("rounds", "payload", "links of 20 ms"):
                assert batch[f"{title}: {what}"].median > 0


@pytest.mark.slow
def test_a_small_batch_has_no_bounds(batch: dict[str, Measurement]) -> None:
    """Bounds are for 1,000 queries: a quick run neither meets nor misses them."""
    assert {found.verdict for found in batch.values()} == {""}


@pytest.mark.slow
def test_links_cost_their_latency_once_a_round(batch: dict[str, Measurement]) -> None:
    """A batch takes its rounds and two of set-up, times the latency, and little more."""
    for title in ("rank search, totals", "rank search, totals, ties"):
        rounds = batch[f"{title}: rounds"].median + 2
        seconds = batch[f"{title}: links of 20 ms"].median
        assert 0.02 * rounds <= seconds <= 0.021 * rounds


def test_ties_take_more_rounds() -> None:
    """Only the table with ties needs the extra rounds."""
    few, many = (
        simulate(RankSearch(), Dealt.draw(3, 20, ties=ties), latency=0.0).result.found.tied.mean()
        for ties in (False, True)
    )
    assert few == 0
    assert many > 0.5


def test_mpyc_finds_the_same_values() -> None:
    """MPyC reports seconds and bytes per query, and agrees with a plain sort."""
    pytest.importorskip("mpyc", reason="MPyC is part of the extra `benchmark`")
    found = measure(quick=True)
    assert len(found) % 2 == 0
    assert all(measured.unit == "x" and measured.median > 0 for measured in found)
