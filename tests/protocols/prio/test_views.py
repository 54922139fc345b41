"""Views of one aggregator and of all clients but one: they tell no more than noisy totals."""

from typing import Any

import numpy as np
import pytest
from tests.protocols.release.schemas import facts_of, schema

import veilring as vr
from veilring.arrays import Bools, Ints
from veilring.protocols.prio.algorithm import steps
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.algorithm.steps import Verification
from veilring.protocols.prio.roles import Clients, sum_reports
from veilring.protocols.prio.system import HELPER, LEADER, Prio
from veilring.protocols.release.algorithm.noise import SumNoise
from veilring.testing.hiding import assert_hides

SCHEMA = schema(1)
PARAMETERS = Prio(statistic="counts").bind(facts_of(SCHEMA, 3, 3))


def clients(value: float, label: int) -> Clients:
    """Return one client."""
    return Clients(vr.Rows(np.full((1, len(SCHEMA)), value), np.array([label])))


FIRST, ONE, OTHER = clients(0.1, 0), clients(0.2, 1), clients(0.9, 2)
NAMES = (LEADER, HELPER, "pool-0", "pool-1", "pool-2")


# Of 240 judged runs, a test with a false-alarm rate of 5e-7 finds an advantage of 0.47 with 99 %:
# whose row is whose shows in each run, or in none.
RUNS = 480
FEW = 200
"""The runs that show a planted mistake: those of the others would show it all the more."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow audits of few runs."""
    monkeypatch.setattr("veilring.testing.hiding.RUNS_MIN", FEW)


def examine(aggregator: str, *, alike: bool = True, runs: int = RUNS) -> None:
    """Require that an aggregator and a client cannot tell two worlds apart.

    Args:
        alike: Whether two other clients have exchanged their rows, so that totals are equal;
            otherwise the last client has another row, and noise alone hides it.
    """
    other = (OTHER, ONE) if alike else (ONE, clients(0.9, 1))
    assert_hides(
        sum_reports,
        dict(zip(NAMES, (None, None, FIRST, ONE, OTHER), strict=True)),
        dict(zip(NAMES, (None, None, FIRST, *other), strict=True)),
        coalition=(aggregator, "pool-0"),
        permitted=lambda _inputs: None,
        leader=LEADER,
        helper=HELPER,
        parameters=PARAMETERS,
        runs=runs,
    )


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", [LEADER, HELPER])
def test_an_aggregator_cannot_tell_whose_row_is_whose(aggregator: str) -> None:
    """The view of either aggregator, with a client, is the same if two others exchange rows."""
    examine(aggregator)


@pytest.mark.slow
def test_reused_randomness_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If clients always draw the same randomness, the leader's shares show whose row is whose."""
    draw = steps._draw  # noqa: SLF001  (the client's coins)
    monkeypatch.setattr(steps, "_draw", lambda rng, *shape: 0 * draw(rng, *shape))
    with pytest.raises(AssertionError, match="reveals more than it may"):
        examine(LEADER, runs=FEW)


@pytest.mark.slow
def test_missing_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the noise of the honest helper, the leader sees which row the last client has."""

    def silent(noise: SumNoise, _rng: np.random.Generator) -> Ints:
        return np.zeros(noise.sensitivity.dimensions, np.int64)

    monkeypatch.setattr(SumNoise, "share", silent)
    with pytest.raises(AssertionError, match="reveals more than it may"):
        examine(LEADER, alike=False, runs=FEW)


def test_a_skipped_proof_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without verification, a report with a thousand rows would count; with it, it does not."""
    rows = OTHER.rows
    honest = steps.share_reports(PARAMETERS, rows, 0, np.random.default_rng(1))
    scheme = PARAMETERS.form.scheme
    size = scheme.field.element_bytes
    forged = honest[0].secret.copy()
    numbers, _ = scheme.field.decode(forged[:, :size])
    more = scheme.field.add(numbers, scheme.field.elements([1000])[..., None])
    forged[:, :size] = scheme.field.encode(more)
    parts = [honest[0]._replace(secret=forged), honest[1]]

    def total() -> list[int]:
        both = [
            Verification.begin(PARAMETERS, bytes(16), n, [part]) for n, part in enumerate(parts)
        ]
        counted = np.logical_and(*(each.judge(*(b.proof_shares for b in both)) for each in both))
        shares = [scheme.aggregate(each.preparation.out_shares, counted) for each in both]
        return scheme.unshard(shares, int(counted.sum()))

    def skip(_prio: Prio3, *shares: Any) -> tuple[Any, Bools]:
        messages, proved = combine(_prio, *shares)
        return messages, np.ones_like(proved)

    assert total() == [0] * PARAMETERS.statistic.length
    combine = Prio3.combine
    monkeypatch.setattr(Prio3, "combine", skip)
    monkeypatch.setattr(Prio3, "finish", lambda _, each, __: (each.out_shares, each.valid))
    assert max(total()) >= 1000
