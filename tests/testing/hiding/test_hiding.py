"""Audits of views: leaks fail with the message and field named, and other views pass."""

from collections.abc import Callable, Mapping
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


def audit(role: Callable[..., Any], coalition: tuple[str, ...] = ("ada",), **options: Any) -> Any:
    """Audit a sum whose honest parties exchange their inputs."""
    options = {"runs": RUNS, "permitted": total, **options}
    return assert_hides(role, INPUTS, OTHER, coalition=coalition, **options)


BROKEN: Final = {
    leaky.reused_mask: "(test.hidden-part), values: entry 1 minus entry 0",
    leaky.reused_later: "minus the previous message, values: entry 0",
    leaky.constant_mask: "message 1 from ben to ada (test.hidden-part), values: entry 0",
    leaky.unmasked_low_bits: "(test.hidden-part), values: entry 0 modulo 16",
    leaky.order_leak: "message 2 from cy to ada (test.hidden-part), values: entry 0",
    leaky.size_leak: "to ada (test.hidden-part): size",
    leaky.late_leak: "to ada (test.hidden-part): instant",
    leaky.one_share: "plus all earlier messages, minus the first message sent back",
}
"""Roles, and what their audits name."""


@pytest.mark.parametrize(
    "role",
    [
        leaky.constant_mask,
        *(
            pytest.param(role, marks=pytest.mark.slow)
            for role in BROKEN
            if role != leaky.constant_mask
        ),
    ],
    ids=lambda role: role.__name__,
)
def test_a_broken_sum_fails_at_its_mistake(role: Callable[..., Any]) -> None:
    """The error names the message, the field and the revealed number, and the location."""
    with pytest.raises(AssertionError) as failed:
        audit(role)
    said = str(failed.value)
    assert said.startswith("the view of ada reveals more than it may\n400 held-out runs")
    assert BROKEN[role] in said, said


def test_two_members_add_up_the_shares_of_a_third_party() -> None:
    """Shares that two colluders hold between them are added up, whatever their modulus."""
    four = {"ada": 0, "ben": 0, "cy": 3, "dee": 4}
    inputs, others = (
        {name: np.array([number], np.uint64) for name, number in each.items()}
        for each in (four, four | {"cy": 4, "dee": 3})
    )
    with pytest.raises(AssertionError) as failed:
        assert_hides(
            leaky.two_holders, inputs, others, coalition=("ada", "ben"), permitted=total, runs=RUNS
        )
    assert "plus the same message to another member, values: entry 0" in str(failed.value)


@pytest.mark.slow
def test_a_long_view_is_examined_in_part() -> None:
    """Each message keeps some of its coordinates, so a leak in the last one is found."""
    with pytest.raises(AssertionError) as failed:
        audit(leaky.many_messages, number=24)
    assert "message 24 from " in str(failed.value)
    assert f"held-out runs, {COORDINATES_MAX} coordinates (" in str(failed.value)
    assert " left out), false-alarm rate" in str(failed.value)


def vetoed(objections: Mapping[str, object]) -> bool:
    """Return the allowed leakage of a veto."""
    return any(objections.values())


@pytest.mark.slow
def test_members_subtract_their_own_draws() -> None:
    """A leak that only a member's own random number hides is found without `strip`."""
    alone, together = ({"ada": True, "ben": ben, "cy": False} for ben in (False, True))
    with pytest.raises(AssertionError) as failed:
        assert_hides(leaky.veto, alone, together, coalition=["ada"], permitted=vetoed, runs=RUNS)
    assert "parties of test.hidden-part number 2 minus draw 1 of ada" in str(failed.value), (
        failed.value
    )


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


def test_two_honest_parties_are_needed_in_a_coalition_of_all_others() -> None:
    """All other parties learn the last input from the total, so two worlds cannot be equal."""
    with pytest.raises(InputError, match="ben is in the coalition and has other inputs"):
        audit(leaky.honest_sum, ("ada", "ben"))


def test_distinguishable_worlds_are_refused() -> None:
    """Nothing is run if the allowed leakage differs between the worlds."""
    more = {**OTHER, "cy": np.array([2, 4], np.uint64)}
    with pytest.raises(InputError, match="`permitted` differs"):
        assert_hides(leaky.honest_sum, INPUTS, more, coalition=["ada"], permitted=total)


@pytest.mark.parametrize("runs", [796, 802])
def test_too_few_runs_are_refused(runs: int) -> None:
    """Numbers that do not divide into halves of both worlds are refused as well."""
    with pytest.raises(InputError, match="multiple of 4, at least 800"):
        audit(leaky.honest_sum, runs=runs)


@pytest.mark.parametrize("coalition", [(), PARTIES, ("dee",)])
def test_a_coalition_is_a_proper_subset(coalition: tuple[str, ...]) -> None:
    """It has a member, no stranger, and not all parties."""
    with pytest.raises(InputError, match="coalition"):
        audit(leaky.honest_sum, coalition)


def test_a_broken_role_ends_the_audit() -> None:
    """A message that is not received is blamed on its sender, as in a session."""

    async def chatty(party: Party, own: leaky.Words) -> leaky.Words:
        await party.send(party.peers[0], Part(values=own))
        return own

    with pytest.raises(ProtocolViolation, match="which was not due"):
        audit(chatty)


def right_simulator(ideal: Ideal) -> dict[str, SimulatedView]:
    """Draw all masks and one party's words; the other's words complete the total."""
    view = SimulatedView("ada")
    sent = {}
    for peer in ("ben", "cy"):
        sent[peer] = leaky.draw(ideal, 2)  # type: ignore[arg-type]  # it has an `rng`
        view.send(peer, Part(values=sent[peer]))
    own = np.array(ideal.inputs["ada"])
    for peer in ("ben", "cy"):
        mask = leaky.draw(ideal, 2)  # type: ignore[arg-type]  # as above
        own = own + mask - sent[peer]
        view.receive(peer, Part(values=mask))
    for peer in ("ben", "cy"):
        view.send(peer, Part(values=own))
    first = leaky.draw(ideal, 2)  # type: ignore[arg-type]  # as above
    view.receive("ben", Part(values=first))
    view.receive("cy", Part(values=np.asarray(ideal.permitted) - first - own))
    return {"ada": view}


def wrong_simulator(ideal: Ideal) -> dict[str, SimulatedView]:
    """Forget that the words add up to the total."""
    views = right_simulator(ideal)
    last = views["ada"].received[-1]
    views["ada"].received[-1] = last._replace(
        message=Part(values=leaky.draw(ideal, 2))  # type: ignore[arg-type]  # it has an `rng`
    )
    return views


def simulated(role: Callable[..., Any], simulator: Callable[..., Any]) -> Any:
    """Compare a role's views with a simulator's."""
    return assert_simulatable(
        role, simulator, INPUTS, coalition=["ada"], permitted=total, runs=RUNS
    )


@pytest.mark.slow
def test_a_simulator_produces_views_from_the_total() -> None:
    """A correct sum is simulated from the coalition's input and the total."""
    assert not simulated(leaky.honest_sum, right_simulator).verdict.differs


@pytest.mark.slow
def test_a_simulator_may_run_the_role_on_invented_inputs() -> None:
    """The invented inputs only need the same total."""

    def rerun(ideal: Ideal) -> Any:
        rest = np.asarray(ideal.permitted) - ideal.inputs["ada"]
        return ideal.play({"ben": np.zeros(2, np.uint64), "cy": rest})

    assert not simulated(leaky.honest_sum, rerun).verdict.differs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "simulator"),
    [(leaky.honest_sum, wrong_simulator), (leaky.unmasked_low_bits, right_simulator)],
)
def test_views_that_differ_from_the_simulators_fail(
    role: Callable[..., Any], simulator: Callable[..., Any]
) -> None:
    """A wrong simulator and a leaking role are both detected."""
    with pytest.raises(AssertionError, match="the view of ada differs from the simulator's"):
        simulated(role, simulator)


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
