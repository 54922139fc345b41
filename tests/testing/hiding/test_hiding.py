"""Audits of views: leaks fail with the message and field named, others pass, by exact tests."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator
from scipy.stats import hypergeom
from tests.testing.hiding import leaky
from tests.testing.hiding.leaky import PARTIES, Part, total

from veilring.arrays import Bools
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.testing.hiding import Ideal, SimulatedView, assert_hides, assert_simulatable
from veilring.testing.hiding.attackers import (
    KEPT,
    choose_bins,
    cut_bins,
    judge_order,
    judge_set,
    least_advantage,
    order_p,
    reject_holm,
    split_p,
)
from veilring.testing.hiding.features import COORDINATES_MAX
from veilring.testing.hiding.worlds import DRAWS_MAX, RecordingGenerator

RUNS: Final = 800
FEW: Final = 200
"""The runs of an audit of a broken role: those of the others would show the leak all the more."""
INPUTS: Final = dict(zip(PARTIES, np.array([[5, 9], [1, 4], [3, 2]], np.uint64), strict=True))
OTHER: Final = dict(zip(PARTIES, np.array([[5, 9], [3, 2], [1, 4]], np.uint64), strict=True))


def audit(role: Callable[..., Any], **options: Any) -> Any:
    """Audit a role, by default a sum whose honest parties exchange their inputs."""
    given = {"inputs": INPUTS, "other_inputs": OTHER, "coalition": ("ada",)}
    return assert_hides(role, **{**given, "runs": RUNS, "permitted": total, **options})


def vetoed(objections: Mapping[str, object]) -> bool:
    """Return the allowed leakage of a veto."""
    return any(objections.values())


ALONE, TOGETHER = ({"ada": True, "ben": ben, "cy": False} for ben in (False, True))
FOUR, SWAPPED = (
    {name: np.array([number], np.uint64) for name, number in zip("abcd", numbers, strict=True)}
    for numbers in ([0, 0, 3, 4], [0, 0, 4, 3])
)
HELD: Final = {"inputs": FOUR, "other_inputs": SWAPPED, "coalition": ("a", "b")}
VETO: Final = {"inputs": ALONE, "other_inputs": TOGETHER, "permitted": vetoed}
FIXED: Final = {
    "inputs": {"ada": 0, "ben": 2, "cy": 7},
    "other_inputs": {"ada": 0, "ben": 3, "cy": 7},
    "permitted": lambda _inputs: 0,
}
LEFT_OUT: Final = f"held-out runs, {COORDINATES_MAX + KEPT} coordinates ("
BROKEN: Final[Sequence[tuple[Callable[..., Any], dict[str, Any], str]]] = (
    (leaky.constant_mask, {}, "message 1 from ben to ada (test.hidden-part), values: entry 0"),
    # Shares that two colluders hold between them are added up, whatever their modulus.
    (leaky.two_holders, HELD, "from c to the members, modulo 2147483647, values: entry 0"),
    (leaky.multiplied, FIXED, "squared over message 2 from ben to ada (test.hidden-part), modulo"),
    (leaky.hashed, FIXED, "the sha256 of the session and a value of ben"),
    (leaky.reused_mask, {}, "(test.hidden-part), values: entry 1 minus entry 0"),
    (leaky.reused_later, {}, "minus the previous message, values: entry 0"),
    (leaky.unmasked_low_bits, {}, "(test.hidden-part), values: entry 0 modulo 16"),
    (leaky.order_leak, {}, "message 2 from cy to ada (test.hidden-part), values: entry 0"),
    (leaky.size_leak, {}, "to ada (test.hidden-part): size"),
    (leaky.late_leak, {}, "to ada (test.hidden-part): instant"),
    (leaky.one_share, {}, "plus all earlier messages, minus the first message sent back"),
    # A leak that only a member's own random number hides is found without `strip`.
    (leaky.veto, VETO, "parties of test.hidden-part number 2 minus draw 1 of ada"),
    # Each message of a long view keeps some of its coordinates.
    (leaky.many_messages, {"number": 24}, "message 24 from "),
)
"""Roles with their options, and what their audits name."""


@pytest.mark.parametrize(
    ("role", "options", "named"),
    [*BROKEN[:1], *(pytest.param(*each, marks=pytest.mark.slow) for each in BROKEN[1:])],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_broken_role_fails_at_its_mistake(
    role: Callable[..., Any], options: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the message, the field and the revealed number, and the location."""
    monkeypatch.setattr("veilring.testing.hiding.RUNS_MIN", FEW)
    with pytest.raises(AssertionError) as failed:
        audit(role, **options, runs=FEW)
    said = str(failed.value)
    members = " and ".join(options.get("coalition", ("ada",)))
    assert said.startswith(f"the view of {members} reveals more than it may\n100 held-out runs")
    assert named in said, said
    assert (LEFT_OUT in said and " more by random projection), false-alarm rate" in said) == (
        "number" in options
    )


@pytest.mark.slow
def test_a_correct_sum_passes_with_the_power_of_the_test() -> None:
    """False alarms are at 1e-6, and both controls are as expected.

    Equal seeds give equal findings, to the last digit.
    """
    found = audit(leaky.honest_sum)
    assert (found.runs, found.held_out) == (RUNS, 400)
    assert not found.verdict.differs
    assert not found.same.differs
    assert found.planted.learned
    assert found.planted.differences
    assert f"an advantage of {found.least_advantage:.3f} of the classifier" in str(found)
    assert found.least_advantage == pytest.approx(0.327, abs=1e-3)
    assert found.least_of_coordinate > found.least_advantage
    assert str(audit(leaky.honest_sum)) == str(found)


@pytest.mark.slow
def test_a_hash_under_a_secret_key_passes() -> None:
    """The false-alarm rate is 1e-6: the dictionary attack matches no token of another key."""
    assert not audit(leaky.hashed, **FIXED, is_keyed=True).verdict.differs


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        # All other parties learn the last input from the total, so two worlds cannot be equal.
        ({"coalition": ("ada", "ben")}, "ben is in the coalition and has other inputs"),
        ({"other_inputs": {**OTHER, "cy": np.array([2, 4], np.uint64)}}, "`permitted` differs"),
        *(({"runs": runs}, "multiple of 4, at least 800") for runs in (796, 802)),
        *(({"coalition": coalition}, "coalition") for coalition in ((), PARTIES, ("dee",))),
    ],
)
def test_an_audit_that_shows_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    """Nothing is run if worlds differ openly, runs are too few, or no two honest parties are left.

    A coalition has a member, no stranger, and not all parties.
    """
    with pytest.raises(InputError, match=said):
        audit(leaky.honest_sum, **wrong)


async def count_runs(_party: Party, _own: object, *, runs: int) -> int:
    """Return a public argument that has the name of an option."""
    return runs


def test_an_argument_that_is_an_option_is_refused() -> None:
    """The error names the argument, which the audit would otherwise take itself."""
    with pytest.raises(InputError, match="runs is both a public argument of count_runs"):
        audit(count_runs)


def test_a_broken_role_ends_the_audit() -> None:
    """A message that is not received is blamed on its sender, as in a session."""

    async def chatty(party: Party, own: leaky.Words) -> leaky.Words:
        await party.send(party.peers[0], Part(values=own))
        return own

    with pytest.raises(ProtocolViolation, match="which was not due"):
        audit(chatty)


def right_simulator(ideal: Any) -> dict[str, SimulatedView]:
    """Draw all masks and one party's words; the other's words complete the total."""
    view, own = SimulatedView("ada"), np.array(ideal.inputs["ada"])
    for peer in ("ben", "cy"):
        sent, mask = leaky.draw(ideal, 2), leaky.draw(ideal, 2)
        view.send(peer, Part(values=sent))
        own = own + mask - sent
        view.receive(peer, Part(values=mask))
    for peer in ("ben", "cy"):
        view.send(peer, Part(values=own))
    first = leaky.draw(ideal, 2)
    view.receive("ben", Part(values=first))
    view.receive("cy", Part(values=np.asarray(ideal.permitted) - first - own))
    return {"ada": view}


def wrong_simulator(ideal: Any) -> dict[str, SimulatedView]:
    """Forget that the words add up to the total."""
    views = right_simulator(ideal)
    told = views["ada"].received
    told[-1] = told[-1]._replace(message=Part(values=leaky.draw(ideal, 2)))
    return views


def rerun(ideal: Ideal) -> Any:
    """Run the role on invented inputs, which only need the same total."""
    rest = np.asarray(ideal.permitted) - ideal.inputs["ada"]
    return ideal.play({"ben": np.zeros(2, np.uint64), "cy": rest})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "simulator", "is_right"),
    [
        (leaky.honest_sum, right_simulator, True),
        (leaky.honest_sum, rerun, True),
        (leaky.honest_sum, wrong_simulator, False),
        (leaky.unmasked_low_bits, right_simulator, False),
    ],
)
def test_a_simulator_produces_views_from_the_total(
    role: Callable[..., Any],
    simulator: Callable[..., Any],
    *,
    is_right: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A correct sum is simulated from the coalition's input and the total.

    A wrong simulator and a leaking role are both detected.
    """
    monkeypatch.setattr("veilring.testing.hiding.RUNS_MIN", FEW)
    runs = RUNS if is_right else FEW
    given: dict[str, Any] = {"coalition": ["ada"], "permitted": total, "runs": runs}
    if is_right:
        assert not assert_simulatable(role, simulator, INPUTS, **given).verdict.differs
    else:
        with pytest.raises(AssertionError, match="the view of ada differs from the simulator's"):
            assert_simulatable(role, simulator, INPUTS, **given)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.integers(1 << 16),
        lambda rng: rng.integers(0, 1 << 64, 5, np.uint64),
        lambda rng: rng.random((2, 3)),
        lambda rng: rng.normal(size=4),
        lambda rng: rng.choice(7),
        lambda rng: rng.permutation(6),
        lambda rng: rng.laplace(),
    ],
)
def test_a_record_has_the_numbers_of_the_same_stream(draw: Callable[[Generator], object]) -> None:
    """Recording changes no draw, and a caller that changes an array does not change the record."""
    recorder = RecordingGenerator(np.random.PCG64(7))
    expected = draw(np.random.default_rng(np.random.PCG64(7)))
    drawn = draw(recorder)
    np.testing.assert_array_equal(drawn, expected)
    if isinstance(drawn, np.ndarray):
        drawn[...] = 0
    (kept,) = recorder.drawn
    np.testing.assert_array_equal(kept, expected)


def test_a_record_leaves_out_keys_and_later_draws() -> None:
    """Bytes, texts and draws after the first `DRAWS_MAX` are not recorded."""
    recorder = RecordingGenerator(np.random.PCG64(7))
    recorder.bytes(32)
    recorder.choice(["a", "b"])
    for _ in range(DRAWS_MAX + 1):
        recorder.integers(9)
    assert len(recorder.drawn) == DRAWS_MAX


ROUNDING: Final = 1 + 1e-9


@given(st.data())
@settings(max_examples=300)
def test_a_split_is_never_rarer_than_its_p_value(data: st.DataObject) -> None:
    """The bound is at least the exact tail, and at most a tenth more far from the middle."""
    runs = data.draw(st.integers(1, 300))
    inside = data.draw(st.integers(0, 2 * runs))
    of_second = data.draw(st.integers(max(0, inside - runs), min(inside, runs)))
    tail = hypergeom.sf(of_second - 1, 2 * runs, runs, inside)
    p = split_p(inside, of_second, runs)
    assert p * ROUNDING >= tail
    if of_second > 0.8 * inside and tail < 0.001:
        assert p <= 1.1 * tail * ROUNDING


def assignments(runs: int) -> Iterator[Bools]:
    """Yield all assignments of twice as many runs to two samples: whether each is in the second."""
    for chosen in combinations(range(2 * runs), runs):
        yield np.isin(np.arange(2 * runs), chosen)


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5])
def test_an_order_is_never_rarer_than_its_p_value(runs: int) -> None:
    """All assignments of runs to the samples are enumerated, with and without ties."""
    for values in (np.arange(2 * runs), np.arange(2 * runs) // 2, np.zeros(2 * runs)):
        every = [judge_order(values, second).advantage for second in assignments(runs)]
        gaps = np.rint(np.abs(every) * runs)
        for gap in range(runs + 1):
            assert np.mean(gaps >= gap) <= order_p(gap, runs) * ROUNDING


def test_few_assignments_have_small_p_values() -> None:
    """Of all assignments of 12 runs to two samples, at most a fraction p has a p-value up to p."""
    found = np.array([judge_set(np.arange(12) < 5, second).p for second in assignments(6)])
    for p in found:
        assert np.mean(found <= p * ROUNDING) <= p * ROUNDING


def test_small_p_values_are_not_lost() -> None:
    """Halves that differ completely have their exact probability, far below any table."""
    runs = 50_000
    assert split_p(runs, runs, runs) == 0.0  # e^-69000 is below the least float
    assert math.log(split_p(1_000, 1_000, runs)) == pytest.approx(-1_000 * math.log(2), rel=0.02)
    assert math.log(order_p(1_000, runs)) == pytest.approx(math.log(2) - 1_000**2 / runs, rel=0.001)


def test_nan_is_above_all_numbers() -> None:
    """Runs without the coordinate tie with each other, and with no other run."""
    values = np.array([1.0, np.nan, 2.0, np.nan])
    assert judge_order(values, np.array([True, False, True, False])).advantage == 1.0
    assert judge_order(values, np.array([True, True, False, False])).advantage == 0.5


def test_frequent_values_have_separate_bins() -> None:
    """Frequent values have separate bins, so events such as "the value is 7" can be chosen."""
    values = np.where(np.arange(1000) % 3 == 0, 7.0, np.linspace(0, 20, 1000))
    bins = cut_bins(values)
    assert len(np.unique(values[bins.place(values) == bins.place(np.array([7.0]))[0]])) == 1
    assert bins.place(values).max() < bins.number


def test_the_chosen_set_is_the_informative_one() -> None:
    """Of bins that differ by chance and one real difference, only the latter is chosen."""
    rng = np.random.default_rng(5)
    second = np.arange(20_000) % 2 == 1
    placed = rng.integers(0, 20, 20_000)
    placed[second & (rng.random(20_000) < 0.05)] = 20
    assert np.flatnonzero(choose_bins(placed, second, 21)).tolist() == [20]


def test_holm_continues_while_it_can() -> None:
    """The second smallest of three is compared with half of the rate, the largest with all."""
    assert reject_holm(np.array([0.04, 0.01, 0.02]), 0.05).tolist() == [True, True, True]
    assert reject_holm(np.array([0.04, 0.01, 0.03]), 0.05).tolist() == [False, True, False]
    assert reject_holm(np.array([0.5, 0.02, 0.03]), 0.05).tolist() == [False, False, False]


def test_the_least_advantage_is_found_at_the_promised_rate() -> None:
    """It is (4.9 + 1.65) / sqrt(100,000), or 0.021, with 100,000 held-out runs.

    95 % of samples with that advantage have a p-value within the rate of alarms. The normal
    distribution and the bound differ slightly: with a true fraction of 0.95, fewer than 0.92 of
    2,000 samples occur with probability below 1e-8.
    """
    assert least_advantage(100_000) == pytest.approx(0.0207, abs=1e-4)
    rng, runs = np.random.default_rng(6), 5_000
    advantage = least_advantage(2 * runs)
    theirs, ours = (rng.binomial(runs, 0.5 + side * advantage / 2, 2_000) for side in (-1, 1))
    pairs = zip(ours, theirs, strict=True)
    found = [split_p(one + other, one, runs) <= 5e-7 for one, other in pairs]
    assert 0.92 <= np.mean(found) <= 0.975
