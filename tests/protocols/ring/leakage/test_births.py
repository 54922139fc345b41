"""Births of values give the same counts as compared multisets."""

from dataclasses import replace

import pytest
from tests.protocols.ring.leakage.cases import HONEST, NOISY, rng

from veilring.protocols.ring import leakage
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.leakage import (
    is_noise_distinct,
    sample_hop_leakage,
    transcript,
    uniform_values,
    watch_distinct,
    watch_hops,
)


@pytest.mark.parametrize(
    ("n", "rows", "parameters"),
    [
        (3, 50, replace(HONEST, upper=1.0)),
        (5, 50, replace(NOISY, k=4, d=0.5, rounds=2, upper=1.0)),
        (4, 2, replace(NOISY, k=9, P0=0.8, d=0.6, rounds=3, delta=0.1, upper=1.0)),
        (9, 30, replace(NOISY, k=20, P0=0.7, d=0.9, rounds=4, delta=0.01, upper=1.0, lower=-1.0)),
        (3, 0, replace(NOISY, k=2, upper=1.0)),
    ],
)
def test_births_agree_with_multisets(
    n: int, rows: int, parameters: TopKParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On distinct values every count of every hop and trial equals that of multisets."""
    monkeypatch.setattr(leakage, "BLOCK_ENTRIES", 100)  # so that there are several
    values = uniform_values(70, n, parameters.k, rows, rng(12))
    vectors = transcript(values, parameters, rng(13))
    births = watch_distinct(values, parameters, rng(13))
    assert (births == watch_hops(vectors, values, parameters)).all()


def test_distinct_values_are_estimated_alike_for_any_noise() -> None:
    """Declaring values distinct changes no estimate, even for noise without a range."""
    values = uniform_values(300, 4, 3, 5, rng(14))
    for delta in (0.1, 1e-16):
        parameters = replace(NOISY, k=3, P0=0.9, d=0.7, rounds=3, delta=delta, upper=1.0)
        said, unsaid = (
            sample_hop_leakage(lambda part: values[part], (300, 4), parameters, rng(15), distinct=d)
            for d in (True, False)
        )
        assert (said.exposure, said.claim) == (unsaid.exposure, unsaid.claim)
        assert (said.by_hop.lop == unsaid.by_hop.lop).all()
        assert is_noise_distinct(parameters) == (delta > 1e-9)
