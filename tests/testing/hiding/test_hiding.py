"""Audits of views: leaks fail with the message and field named, and other views pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest
from numpy.random import Generator
from tests.testing.hiding import leaky
from tests.testing.hiding.leaky import PARTIES, Part, total

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party
from veilring.testing.hiding import Ideal, SimulatedView, assert_hides, assert_simulatable
from veilring.testing.hiding.features import COORDINATES_MAX
from veilring.testing.hiding.worlds import DRAWS_MAX, RecordingGenerator

RUNS: Final = 800
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
LEFT_OUT: Final = f"held-out runs, {COORDINATES_MAX} coordinates ("


BROKEN: Final[Sequence[tuple[Callable[..., Any], dict[str, Any], str]]] = (
    (leaky.constant_mask, {}, "message 1 from ben to ada (test.hidden-part), values: entry 0"),
    # Shares that two colluders hold between them are added up, whatever their modulus.
    (leaky.two_holders, HELD, "plus the same message to another member, values: entry 0"),
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
    [*BROKEN[:2], *(pytest.param(*each, marks=pytest.mark.slow) for each in BROKEN[2:])],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_broken_role_fails_at_its_mistake(
    role: Callable[..., Any], options: dict[str, Any], named: str
) -> None:
    """The error names the message, the field and the revealed number, and the location."""
    with pytest.raises(AssertionError) as failed:
        audit(role, **options)
    said = str(failed.value)
    members = " and ".join(options.get("coalition", ("ada",)))
    assert said.startswith(f"the view of {members} reveals more than it may\n400 held-out runs")
    assert named in said, said
    assert (LEFT_OUT in said and " left out), false-alarm rate" in said) == ("number" in options)


@pytest.fixture(scope="module")
def found() -> Any:
    """Return the audit of a correct sum, once for all tests."""
    return audit(leaky.honest_sum)


@pytest.mark.slow
def test_a_correct_sum_passes_with_the_power_of_the_test(found: Any) -> None:
    """False alarms are at 1e-6, and both controls are as expected."""
    assert (found.runs, found.held_out) == (RUNS, 400)
    assert not found.verdict.differs
    assert not found.same.differs
    assert found.planted.learned
    assert found.planted.differences
    assert f"an advantage of {found.least_advantage:.3f} of the classifier" in str(found)
    assert found.least_advantage == pytest.approx(0.327, abs=1e-3)
    assert found.least_of_coordinate > found.least_advantage


@pytest.mark.slow
def test_an_audit_is_reproducible(found: Any) -> None:
    """Equal seeds give equal findings, to the last digit."""
    assert str(audit(leaky.honest_sum)) == str(found)


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
    role: Callable[..., Any], simulator: Callable[..., Any], *, is_right: bool
) -> None:
    """A correct sum is simulated from the coalition's input and the total.

    A wrong simulator and a leaking role are both detected.
    """
    given: dict[str, Any] = {"coalition": ["ada"], "permitted": total, "runs": RUNS}
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
