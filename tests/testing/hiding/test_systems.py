"""The built-in protocols: those that hide pass, and PP-TopK fails as much as it leaks.

The audits of a hundred thousand held-out runs are `python -m benchmarks --only hiding`.
"""

import re
from typing import Any, Final

import numpy as np
import pytest
from benchmarks.hiding import SUBJECTS

from veilring.nodes.ring import Ring
from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.roles import pp_topk
from veilring.testing.hiding import Audit, assert_hides, measure_leakage
from veilring.testing.hiding.audit import RUNS_MIN

pytestmark = pytest.mark.slow

RING: Final = ("ada", "ben", "cy", "dee")
# ben holds one of the three smallest values, or dee does: all learn the same three.
WORLD: Final = dict(zip(RING, np.array([[[1, 7]], [[2, 9]], [[3, 8]], [[5, 6]]]) / 10, strict=True))
OTHER: Final = {**WORLD, "ben": np.array([[0.5, 0.9]]), "dee": np.array([[0.2, 0.6]])}

FOUND: Final = r"ring\.topk\.vector\), values: "
SLOW: Final = ("rank search", "noisy votes", "shares to all")


def smallest(inputs: Any) -> Any:
    """Return the allowed leakage of PP-TopK."""
    return np.sort(np.concatenate(list(inputs.values()), axis=1))[:, :3]


def audit_topk(
    coalition: tuple[str, ...], *, P0: float = 1.0, runs: int = 2_000, other: Any = None
) -> Audit:
    """Audit PP-TopK among four parties."""
    parameters = TopKParameters(k=3, P0=P0, d=0.5, rounds=2, delta=0.1, upper=1.0)
    return assert_hides(
        pp_topk,
        WORLD,
        OTHER if other is None else other,
        coalition=coalition,
        permitted=smallest,
        runs=runs,
        ring=Ring(RING),
        parameters=parameters,
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SUBJECTS],
)
def test_protocols_that_hide_pass(name: str) -> None:
    """No test of ada's view distinguishes which of the other two parties holds which input."""
    audit = SUBJECTS[name].audit(RUNS_MIN)
    assert not audit.verdict.differs
    assert audit.least_advantage < 0.33


def test_topk_fails_for_a_successor() -> None:
    """It fails within 2,000 runs, by a vector of the victim."""
    with pytest.raises(AssertionError, match=FOUND):
        audit_topk(("cy",))


def test_two_neighbours_see_nearly_everything_without_noise() -> None:
    """If the victim never hides its value, the worlds are distinguished in each run."""
    with pytest.raises(AssertionError, match=r"advantage 1\.000") as failed:
        audit_topk(("ada", "cy"), P0=0.0, runs=RUNS_MIN)
    assert "from ben to cy (ring.topk.vector), values: entry" in str(failed.value)


def test_topk_between_equal_worlds_passes() -> None:
    """The leakage of PP-TopK is found between worlds that differ, and never between equal ones."""
    assert not audit_topk(("ada", "cy"), runs=RUNS_MIN, other=WORLD).verdict.differs


@pytest.mark.parametrize("coalition", [("ada", "cy"), ("cy",)], ids=["neighbours", "successor"])
def test_topk_fails_as_much_as_it_leaks(coalition: tuple[str, ...]) -> None:
    """The advantage in the error is that of a coalition that guesses the world: 2 p - 1.

    Each has a standard error of at most 1 / sqrt(1000); 5 standard errors of their difference give
    a false-alarm rate of one in 2 million.
    """
    worlds = [np.stack(list(each.values())) for each in (WORLD, OTHER)]
    leaked = measure_leakage(
        pp_topk,
        lambda rng: list(worlds[int(rng.integers(2))]),
        secret=lambda played: bool(np.array_equal(played.inputs["ben"], OTHER["ben"])),  # type: ignore[arg-type]  # inputs are arrays here
        coalition=coalition,
        parties=RING,
        runs=2_000,
        ring=Ring(RING),
        parameters=TopKParameters(k=3, P0=1.0, d=0.5, rounds=2, delta=0.1, upper=1.0),
    )
    with pytest.raises(AssertionError, match=FOUND) as failed:
        audit_topk(coalition)
    (found,) = re.findall(r"classifier \(.*\): advantage ([\d.]+)", str(failed.value))
    measured = 2 * leaked.from_view.rate.value - 1
    assert abs(float(found) - measured) < 5 * np.sqrt(2 / 1_000)
