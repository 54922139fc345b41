"""Arguments out of range are refused by name, by every mechanism, account and charge."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from papers.accounting import BoundedRange, least_noise, subsampled_gaussian
from papers.owner import exponential_mechanism
from tests.privacy.generators import seeded

from veilring.errors import InputError
from veilring.privacy import divisible as div
from veilring.privacy.accounting import (
    STEPS_MAX,
    ZCDP,
    GaussianDP,
    PureDP,
    PureSteps,
    RenyiDP,
    individual_budget,
)
from veilring.privacy.budgets import ANSWER_BYTES_MAX, KEY_SIZE, Budgets, Charge, RecordCharge
from veilring.privacy.draws import geometric, packed_bernoulli
from veilring.privacy.exact import Dyadic, exp_floor, log_ceil, loss, unary_epsilon
from veilring.privacy.noise import discrete_gaussian, discrete_laplace
from veilring.privacy.selection import ResponseDistribution, permute_and_flip
from veilring.privacy.shares import (
    NearGaussian,
    count_loss,
    gaussian_shares,
    skellam_noise,
    vector_loss,
)

Case = tuple[str, Callable[[], object]]
"""The name of an argument, perhaps with words of the error, and a call with a wrong one."""
WHOLE = np.zeros((2, 2), dtype=np.int64)
NO_SLOTS: list[Any] = [[0.5], [1.0], ["1"], [True], [None]]
HALF = Fraction(1, 2)
ACCOUNTS: tuple[Case, ...] = (
    ("bound", lambda: PureDP(-0.1)),
    ("rho", lambda: ZCDP(math.nan)),
    ("mu", lambda: GaussianDP(-1)),
    ("delta", lambda: ZCDP(1.0).epsilon(0.0)),
    ("delta", lambda: GaussianDP(1.0).epsilon(1.0)),
    ("epsilon", lambda: individual_budget(-1.0, 1e-5)),
    ("sigma", lambda: GaussianDP.of_gaussian(0.0)),
    ("sensitivity", lambda: ZCDP(1.0).sigma(math.inf)),
    ("orders", lambda: RenyiDP((1.0,), (0.0,))),
    ("divergences", lambda: RenyiDP((2.0, 3.0), (0.0,))),
    ("divergences", lambda: RenyiDP((2.0,), (math.nan,))),
    ("orders", lambda: subsampled_gaussian(1.0, 0.1, orders=(1.5,))),
    ("orders", lambda: RenyiDP.of_gaussian(1.0).compose(RenyiDP((2.0,), (0.0,)))),
    ("steps", lambda: BoundedRange.calibrate(1.0, 1e-5, 0)),
    ("count", lambda: PureDP(1.0).repeat(-1)),
    ("target", lambda: least_noise(lambda _: ZCDP(1.0), 0.1, 1e-5)),
    ("count", lambda: PureSteps(0.1, STEPS_MAX + 1)),
    ("count", lambda: PureSteps(0.1, STEPS_MAX).repeat(2)),
    ("bound", lambda: PureSteps(0.1).compose(PureSteps(0.2))),
    ("bound", lambda: PureSteps(math.inf)),
    ("bound", lambda: PureSteps(math.nan)),
    ("bound", lambda: PureSteps(-0.1)),
    ("sigma", lambda: gaussian_shares(1.9, 2, 1.0, 1)),
    ("shares", lambda: gaussian_shares(3.0, 0, 1.0, 1)),
    ("sensitivity", lambda: gaussian_shares(3.0, 2, 0.0, 1)),
    ("dimensions", lambda: gaussian_shares(3.0, 2, 1.0, 0)),
    ("slack", lambda: NearGaussian(GaussianDP(1.0), -0.1)),
    ("orders", lambda: skellam_noise(9.0, 1.0, 1.0, (2.5,))),
    ("sensitivity", lambda: vector_loss(1.0, Fraction(1), 0, 1)),
    ("dimensions", lambda: vector_loss(1.0, Fraction(1), 1, 0)),
    ("units", lambda: count_loss(1.0, HALF, -1)),
)
NUMBERS: tuple[Case, ...] = (
    ("numerator", lambda: Dyadic(-1, 3)),
    ("numerator", lambda: Dyadic(9, 3)),
    ("numerator", lambda: Dyadic(2**64 + 1, 64)),
    ("bits", lambda: Dyadic(0, -1)),
    ("bits", lambda: Dyadic(0, 65)),
    ("b: length", lambda: loss((Fraction(1),), (HALF, HALF))),
    ("a, b: negative", lambda: loss((Fraction(-1), Fraction(2)), (Fraction(1), Fraction(0)))),
    ("p: at least q", lambda: unary_epsilon(Fraction(1, 4), HALF)),
    ("ratio: at least 1", lambda: log_ceil(HALF)),
    ("x: 10000", lambda: exp_floor(10_001)),
    ("x: 10000", lambda: exp_floor(-10_001)),
    ("rows: at least 0", lambda: packed_bernoulli(Dyadic(1, 1), -1, 3, seeded())),
    ("columns: at least 0", lambda: packed_bernoulli(Dyadic(1, 1), 3, -1, seeded())),
    ("exponent", lambda: div.polya(0, 1, 3, seeded())),
    ("exponent: above 0 and at most 1", lambda: div.polya(1.5, 1, 3, seeded())),
    ("scale", lambda: div.polya(0.5, div.POLYA_SCALE_MAX + 1, 3, seeded())),
    ("scale", lambda: div.polya(0.5, 0, 3, seeded())),
    ("scale", lambda: div.polya(1, 0, 3, seeded())),
    ("exponent", lambda: div.polya_difference_pmf(np.arange(3), -1, 2)),
    ("domain", lambda: ResponseDistribution(1, 1, 1)),
    ("other", lambda: ResponseDistribution(3, 1, 2)),
    ("other", lambda: ResponseDistribution(3, 1, 0)),
    ("own, other", lambda: ResponseDistribution(3, 2**63, 1)),
    ("domain", lambda: ResponseDistribution.spending(1.0, 1)),
    ("domain", lambda: ResponseDistribution.spending(1.0, 2**63)),
    ("domain", lambda: ResponseDistribution.spending(1e-300, 2**63 + 1)),
)


def _of_mechanisms() -> Iterator[Case]:
    """Yield values that several functions refuse alike."""
    for x in (-1e-9, 1.0000001, math.nan, Fraction(-1, 3)):
        yield from (("x", partial(rounded, x, 16)) for rounded in (Dyadic.floor, Dyadic.ceil))
    for field, draw in (("scale", discrete_laplace), ("sigma", discrete_gaussian)):
        yield f"{field}: does not fit (4, 3)", partial(draw, np.ones(2), (4, 3), seeded())
    yield "scale: does not fit (4, 3)", partial(geometric, np.ones(2), (4, 3), seeded())
    for scale in (0, -1.0, math.inf, math.nan, 2.0**41, 2.0**-21):
        for field, draw in (("scale", discrete_laplace), ("sigma", discrete_gaussian)):
            yield field, partial(draw, scale, 3, seeded())
            yield field, partial(draw, np.array([1.0, scale]), 2, seeded())
    for variance in (1.9, 0, -3.0, math.nan, math.inf, div.SKELLAM_VARIANCE_MAX * 2):
        yield "variance", partial(div.skellam, variance, 3, seeded())
        yield "variance", partial(div.skellam_pmf, [0], variance)
        yield "mean", partial(div.poisson, variance / 2, 3, seeded())
    for epsilon in (0.0, -1.0, math.inf, math.nan, 41.0):
        yield "epsilon", partial(ResponseDistribution.spending, epsilon, 4)
    mechanisms: tuple[Callable[..., object], ...] = (exponential_mechanism, permute_and_flip)
    for choose in mechanisms:
        for scores in (WHOLE[0], WHOLE[:, :0], np.zeros((2, 2)), np.full((2, 2), -(2**63))):
            yield "scores", partial(choose, scores, 1.0, seeded())
        for budget in (0.0, math.inf, [1.0, math.nan], [1.0, 1.0, 1.0]):
            yield "epsilon", partial(choose, WHOLE, budget, seeded())
        yield "sensitivity", partial(choose, WHOLE, 1.0, seeded(), sensitivity=0)


charge = partial(Charge, analyst="ann", key="1", request=b"?", answer=b"!", amount=0.1)
CHARGES: tuple[Case, ...] = (
    ("analyst", lambda: charge(analyst="")),
    ("key", lambda: charge(key="k" * (KEY_SIZE + 1))),
    ("key", lambda: charge(key="\ud800")),
    ("answer", lambda: charge(answer=bytes(ANSWER_BYTES_MAX + 1))),
    ("amount", lambda: charge(amount=-0.1)),
    ("total", lambda: Budgets(total=-1.0)),
    ("record", lambda: Budgets(record=math.nan)),
    ("unit", lambda: Budgets(unit="")),
    ("analysts.eve", lambda: Budgets(analysts={"ann": 1.0, "eve": -1.0})),
    ("slots", lambda: RecordCharge.of([[0]], 0.1)),
    ("amounts", lambda: RecordCharge.of([0, 1], [0.1, 0.1, 0.1])),
    ("amounts", lambda: RecordCharge.of([0], [-0.1])),
    ("amounts", lambda: RecordCharge.of([0], [math.nan])),
    ("amounts", lambda: RecordCharge.of([0] * 10, 1e6)),  # beyond 64 bits in total
    # A fraction is refused: rounded, it would be another record's slot.
    *(("slots", partial(RecordCharge.of, slots, 0.5)) for slots in NO_SLOTS),
    ("slots", lambda: RecordCharge(np.array([1.0]), np.array([1]))),
    ("units", lambda: RecordCharge(np.array([1]), np.array([1.5]))),
    ("units", lambda: RecordCharge(np.array([1]), np.array([1], np.int32))),
)


@pytest.mark.parametrize(("said", "call"), [*ACCOUNTS, *NUMBERS, *CHARGES, *_of_mechanisms()])
def test_an_argument_out_of_range_is_refused(said: str, call: Callable[[], object]) -> None:
    """The error names the argument, and says what is allowed."""
    field, _, allowed = said.partition(": ")
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.field == field
    assert allowed in str(caught.value)
