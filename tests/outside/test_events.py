"""The sums of a ledger, against those of dp_accounting for the same answers as events.

dp_accounting rounds each event up to a grid of losses, by `GRID` at most; no other bound here is
rounded by more. Nothing that a ledger charges is subsampled.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final, get_args

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    RandomizedResponseDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from veilring.errors import BudgetExhausted
from veilring.privacy.accounting import ZCDP, Accountant, GaussianDP, PureSteps, individual_budget
from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.ledger import Totals, open_ledger

GRID: Final = 1e-4
DELTA: Final = 1e-5


def composed(events: Iterable[DpEvent]) -> ComposedDpEvent:
    """Return events as one, each listed: of repeated reports, dp_accounting counts one."""
    return ComposedDpEvent(list(events))


def spent(prices: Iterable[tuple[float, float]]) -> Totals:
    """Return the totals of a ledger that has charged answers, each with an ε and a δ."""
    with open_ledger(None, Budgets()) as ledger:
        for number, (epsilon, delta) in enumerate(prices):
            ledger.charge(Charge("ann", f"{number}", b"?", b"!", epsilon, delta=delta))
        return ledger.totals()


@pytest.mark.parametrize("epsilons", [(1.0,), (0.1,) * 8, (0.05, 0.5, 0.5, 2.0)])
def test_a_sum_of_pure_charges_is_the_loss_of_their_noise(epsilons: tuple[float, ...]) -> None:
    """It is no less than that of Laplace or discrete Laplace noise, and the same at a tiny δ."""
    total, rounded = spent((each, 0.0) for each in epsilons), len(epsilons) * GRID
    laplace = composed(LaplaceDpEvent(1 / each) for each in epsilons)
    discrete = composed(DiscreteLaplaceDpEvent(each, 1) for each in epsilons)
    for events in (laplace, discrete):
        accountant = PLDAccountant(value_discretization_interval=GRID).compose(events)
        assert accountant.get_epsilon(DELTA) <= total.spent + rounded
        assert accountant.get_epsilon(1e-12) == pytest.approx(total.spent, abs=rounded)


@pytest.mark.parametrize(("count", "margin"), [(1, 1.0), (4, 2.3), (16, 4.3)])
def test_a_sum_of_gaussian_charges_is_no_less_than_their_loss(count: int, margin: float) -> None:
    """One release costs what its noise does; the sum of more exceeds it by a stated factor."""
    each = GaussianDP.calibrate(0.5, DELTA)
    total = spent([(0.5, DELTA)] * count)
    accountant = PLDAccountant(value_discretization_interval=GRID)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(each.sigma()), count))
    exact = accountant.get_epsilon(total.delta)
    assert exact <= total.spent + GRID
    assert total.spent <= margin * exact + GRID


ANSWERS: Final = 20  # of the largest sensitivity, which a record can pay


def exhausted(budget: float, sigma: float) -> Counter[float]:
    """Charge a record for answers until it cannot pay; return how many had each sensitivity."""
    paid = Counter[float]()
    with open_ledger(None, Budgets(unit="rho", record=budget)) as ledger:
        (slot,) = ledger.records.add(["record"])
        for number in range(10 * ANSWERS):
            sensitivity = math.exp(-(number % 3))
            price = RecordCharge.of([slot], ZCDP.of_gaussian(sigma, sensitivity).rho)
            charge = Charge("ann", f"{number}", b"?", b"!", records=price)
            if isinstance(ledger.charge_many([charge])[0], BudgetExhausted):
                return paid
            paid[sensitivity] += 1
    raise AssertionError("the record pays for ever")


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("accountant", get_args(Accountant))
def test_the_answers_that_a_record_paid_for_cost_at_most_its_budget(
    accountant: Accountant, epsilon: float
) -> None:
    """The ε of these answers reaches 95 % of the promised one, and never exceeds it."""
    budget = individual_budget(epsilon, DELTA, accountant)
    sigma = math.sqrt(ANSWERS / (2 * budget))
    events = composed(
        SelfComposedDpEvent(GaussianDpEvent(sigma / sensitivity), count)
        for sensitivity, count in exhausted(budget, sigma).items()
    )
    renyi = RdpAccountant(1 + np.geomspace(1e-1, 1e3, 2000)).compose(events).get_epsilon(DELTA)
    exact = PLDAccountant(value_discretization_interval=GRID).compose(events).get_epsilon(DELTA)
    assert 0.95 * epsilon <= (renyi if accountant == "rdp" else exact) <= epsilon + GRID
    assert exact <= renyi


@pytest.mark.parametrize("rho", [0.001, 0.1, 3.0])
def test_a_sum_of_zcdp_is_converted_as_by_dp_accounting(rho: float) -> None:
    """Five equal charges of ρ have the ε of their events, to five digits, and never less."""
    orders = 1 + np.geomspace(1e-2, 1e4, 20_000)
    accountant = RdpAccountant(orders).compose(composed([ZCDpEvent(rho)] * 5))
    ours, theirs = ZCDP(rho).repeat(5).epsilon(DELTA), accountant.get_epsilon(DELTA)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert ours <= theirs * (1 + 1e-12)  # theirs has fewer orders, each of which is a bound


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 60), (0.5, 12), (2.0, 4)])
def test_pure_steps_are_events_of_randomized_response(epsilon: float, count: int) -> None:
    """The ε of repeated reports is the exact one, within the rounding of each event."""
    lie = 2 / (1 + math.exp(epsilon))
    events = composed([RandomizedResponseDpEvent(lie, 2)] * count)
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, GRID).compose(events)
    found, theirs = PureSteps(epsilon, count).epsilon(DELTA), accountant.get_epsilon(DELTA)
    assert theirs - count * GRID <= found <= theirs + 1e-9
