"""Parameter selection in two rounds, as in the paper on private prediction."""

from dataclasses import replace

import numpy as np
import pytest
from papers.tuning import THRESHOLDS, PublicTable, best_tau, stream_accuracy, tune_parameters
from tests.protocols.prediction.serving import clustered

from veilring.errors import InputError
from veilring.protocols.prediction.algorithm.directions import Kernel, kernel_vote
from veilring.protocols.prediction.algorithm.filter import FilterParameters

PARAMETERS = FilterParameters(classes=3, queries=60, budget=0.1, sigma2=1.0)


def _public() -> PublicTable:
    table = clustered(460, 12, 3, np.random.default_rng(1))
    rows, queries = table.take(slice(0, 400)), table.take(slice(400, 460))
    return PublicTable(rows.features, rows.labels, queries.features, queries.labels)


def test_the_first_round_finds_the_best_threshold_without_noise() -> None:
    """No threshold gives a better vote, and no lower threshold an equally good one."""
    public = _public()

    def accuracy(tau: float) -> float:
        labels = kernel_vote(
            public.rows, public.labels, public.queries, Kernel("cosine", tau), classes=3
        )
        return float((labels == public.truth).mean())

    found = best_tau(public, Kernel(), 3)
    assert all(accuracy(tau) <= accuracy(found) for tau in THRESHOLDS)
    assert all(accuracy(tau) < accuracy(found) for tau in THRESHOLDS if tau < found)


@pytest.mark.parametrize("step", [0.05, 0.2])
def test_the_second_round_continues_while_it_improves(step: float) -> None:
    """It has tried one step beyond the best pair on each side, and measured every pair."""
    public = _public()
    found = tune_parameters(
        public, PARAMETERS, Kernel(), np.random.default_rng(2), sigmas=(0.3, 1.0), step=step
    )
    taus = {each.tau for each in found}
    start, best = best_tau(public, Kernel(), 3), found[0]
    assert start in taus
    assert best.accuracy == max(each.accuracy for each in found)
    for side in (-step, step):
        assert round(best.tau + side, 9) in taus or not 0 < best.tau + side <= 1
    seed = np.random.default_rng(2).integers(2**62, size=1)[0]
    again = stream_accuracy(
        public,
        replace(PARAMETERS, sigma2=best.sigma2),
        replace(Kernel(), tau=best.tau),
        np.random.default_rng(seed),
    )
    assert again == best.accuracy


def test_tuning_needs_data() -> None:
    """There is at least one row and one query."""
    public = _public()
    with pytest.raises(InputError, match="rows"):
        PublicTable(public.rows[:0], public.labels[:0], public.queries, public.truth)
