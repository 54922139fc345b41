"""Leakage that `measure_leakage` finds, and that audits find in the built-in protocols.

The audits of a hundred thousand held-out runs are `python -m benchmarks --only hiding`.
"""

import re
from collections.abc import Mapping
from itertools import compress
from typing import Any, Final

import numpy as np
import pytest
from benchmarks.hiding import SUBJECTS
from benchmarks.leaking import RUNS, SIMULATED, attacked, hand_written, setting
from numpy.random import Generator
from tests.testing.hiding import leaky
from tests.testing.hiding.leaky import PARTIES

from veilring.errors import InputError
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm.topk import TopKParameters
from veilring.protocols.ring.roles import pp_topk
from veilring.randomness import Streams
from veilring.testing.hiding import (
    RUNS_MIN,
    Audit,
    Leakage,
    assert_hides,
    features,
    measure_leakage,
)
from veilring.testing.hiding.features import Layout
from veilring.testing.hiding.leaves import Coordinate
from veilring.testing.hiding.worlds import Played, World, name_parties, play_world

pytestmark = pytest.mark.slow


def draw(rng: Generator) -> list[leaky.Words]:
    """Draw two entries below 8 for each party."""
    return list(rng.integers(0, 8, (3, 2)).astype(np.uint64))


def lowest_bit(played: Played) -> int:
    """Return the secret: the lowest bit of ben's first entry."""
    inputs: Mapping[str, Any] = played.inputs
    return int(inputs["ben"][0]) % 2


def measure(role: Any, runs: int = 1_000, **options: Any) -> Leakage:
    """Measure ada's knowledge, by default of ben's bit."""
    given = {"secret": lowest_bit, "coalition": ["ada"], "parties": PARTIES, "runs": runs}
    return measure_leakage(role, draw, **{**given, **options})


def topk(**options: Any) -> TopKParameters:
    """Return the public parameters of PP-TopK."""
    return TopKParameters(
        **{"k": 3, "P0": 1.0, "d": 0.5, "rounds": 2, "delta": 0.1, "upper": 1.0, **options}
    )


def test_a_leak_is_found_in_full() -> None:
    """Unmasked low bits reveal a low bit in each run; the total does not.

    An attacker that knows the protocol is measured on the same runs, and used if it is best.
    """

    def peek(views: Mapping[str, Any]) -> int:
        words = [seen.message.values for seen in views["ada"].received if seen.sender == "ben"]
        return int(words[1][0]) % 2

    found = measure(leaky.unmasked_low_bits, guess={"peek": peek, "zero": lambda _views: 0})
    assert found.learned.right == found.from_view.right == found.from_view.runs == 500
    low, high = found.from_output.interval
    assert low < 0.5 < high + 0.05
    assert found.gain.value > 0.4
    assert [success.attacker for success in found.given] == ["peek", "zero"]
    assert found.given[0].right == 500
    assert found.given[1].right < 300
    assert "given: peek" in str(found)


def test_hidden_values_are_not_found() -> None:
    """The success against a correct sum is a coin's, within 5 standard errors (1 in a million)."""
    found = measure(leaky.honest_sum)
    for success in (found.from_view, found.from_output):
        assert abs(success.rate.value - 0.5) < 5 * np.sqrt(0.25 / 500)
    assert found.left_out == 0
    assert "left out" not in str(found)


def test_the_result_states_how_much_of_a_long_view_was_left_out() -> None:
    """The number of coordinates that no learning attacker examined is in the text, too."""
    long = measure(leaky.many_messages, 400, number=24)
    assert long.left_out > 0
    assert f"{long.left_out:,} further numbers of the view" in str(long)


def test_runs_without_a_secret_are_left_out() -> None:
    """Runs without a secret are left out, and too few runs with one are refused."""

    def rarely(played: Played) -> int | None:
        inputs: Mapping[str, Any] = played.inputs
        return None if inputs["ben"][1] else lowest_bit(played)

    assert 60 < measure(leaky.unmasked_low_bits, 1_600, secret=rarely).from_view.runs < 140
    with pytest.raises(InputError, match="enough that 100 have a secret"):
        measure(leaky.honest_sum, 100, secret=lambda _played: None)


def test_new_entries_are_those_of_the_party_between_two_members() -> None:
    """A member's vector is compared with the one that another member sent to its sender."""
    ring = Ring(["ada", "ben", "cy", "dee", "eve"])
    before, victim, after = ring.order[1:4]
    public = {"ring": ring, "parameters": topk(P0=0.0, rounds=1)}
    world = World(
        pp_topk,
        lambda rng: list(rng.random((5, 1, 2))),
        name_parties((), ring.order),
        (before, after),
        public,
    )
    played = list(play_world(world, 40, Streams(0)))
    layout = Layout(played)
    vector = f"message 1 from {victim} to {after} (ring.topk.vector)"
    at = layout.coordinates.index(Coordinate(vector, "values", "number of new entries"))
    seen: list[Mapping[str, Any]] = [each.views for each in played]
    expected = [
        len(np.setdiff1d(of[after].received[0].message.values, of[before].sent[0].message.values))
        for of in seen
    ]
    assert len(set(expected)) > 1
    np.testing.assert_array_equal(layout.read(played)[:, at], expected)


def test_numbers_that_vary_are_examined_before_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where coordinates are left out, each field that varies keeps one that does."""
    world = World(leaky.honest_sum, draw, name_parties((), PARTIES), PARTIES[:1], {})
    played = list(play_world(world, 40, Streams(0)))
    every = Layout(played)
    alone = every.coordinates[: every.examined]
    varied = [len(np.unique(column)) > 1 for column in every.read(played).T]
    fields = {(of.message, of.field) for of in compress(alone, varied)}
    monkeypatch.setattr(features, "COORDINATES_MAX", len(fields))
    fewer = Layout(played)
    assert fewer.left_out > 0
    kept = fewer.coordinates[: fewer.examined]
    assert {(of.message, of.field) for of in kept} == fields


@pytest.mark.parametrize("coalition", ["successor", "both neighbours"])
def test_learned_attackers_match_the_optimal_attack_on_topk(coalition: Any) -> None:
    """Learned attackers are right as often as the optimal attack, within 2 standard errors.

    The secret is whether the last new entry is the victim's own. The optimal attack knows the
    protocol: it is exact between two neighbours, and simulated for a successor.
    """
    found = attacked(setting(3, 1, 1, 1.0, 2), coalition, runs=2_000, simulated=4_000)
    optimal = found.given[0]
    assert optimal.attacker == hand_written
    assert found.from_output.rate.value < optimal.rate.value
    spread = np.hypot(found.learned.rate.standard_error, optimal.rate.standard_error)
    assert found.learned.rate.value >= optimal.rate.value - 2 * spread


def test_learners_combine_the_rounds_that_two_neighbours_see() -> None:
    """Learned attackers are within 2 standard errors of the optimal attack over four rounds.

    The seed fixes all runs and coins, so that there is no false alarm. The result alone
    tells at most 0.85 of the secrets.
    """
    of = setting(8, 4, 5, 1.0, 4)
    found = attacked(of, "both neighbours", runs=RUNS, simulated=SIMULATED)
    optimal, learned = found.given[0].rate, found.learned.rate
    assert found.from_output.rate.value < 0.85
    assert optimal.value > 0.98
    spread = np.hypot(learned.standard_error, optimal.standard_error)
    assert learned.value >= optimal.value - 2 * spread


RING: Final = ("ada", "ben", "cy", "dee")
# ben holds one of the three smallest values, or dee does: all learn the same three.
WORLD: Final = dict(zip(RING, np.array([[[1, 7]], [[2, 9]], [[3, 8]], [[5, 6]]]) / 10, strict=True))
OTHER: Final = {**WORLD, "ben": np.array([[0.5, 0.9]]), "dee": np.array([[0.2, 0.6]])}

FOUND: Final = r"ring\.topk\.vector\), values: "


def smallest(inputs: Any) -> Any:
    """Return the allowed leakage of PP-TopK."""
    return np.sort(np.concatenate(list(inputs.values()), axis=1))[:, :3]


def audit_topk(
    coalition: tuple[str, ...], *, P0: float = 1.0, runs: int = 2_000, other: Any = OTHER
) -> Audit:
    """Audit PP-TopK among four parties."""
    options: dict[str, Any] = {"coalition": coalition, "permitted": smallest, "runs": runs}
    return assert_hides(pp_topk, WORLD, other, ring=Ring(RING), parameters=topk(P0=P0), **options)


@pytest.mark.parametrize("name", SUBJECTS)
def test_protocols_that_hide_pass(name: str) -> None:
    """No test of ada's view distinguishes which of the other two parties holds which input."""
    audit = SUBJECTS[name].audit(RUNS_MIN)
    assert not audit.verdict.differs
    assert audit.least_advantage < 0.33


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

    def is_other(played: Played) -> bool:
        inputs: Mapping[str, Any] = played.inputs
        return bool(np.array_equal(inputs["ben"], OTHER["ben"]))

    leaked = measure_leakage(
        pp_topk,
        lambda rng: list(worlds[int(rng.integers(2))]),
        secret=is_other,
        coalition=coalition,
        parties=RING,
        runs=2_000,
        ring=Ring(RING),
        parameters=topk(),
    )
    with pytest.raises(AssertionError, match=FOUND) as failed:
        audit_topk(coalition)
    (found,) = re.findall(r"classifier \(.*\): advantage ([\d.]+)", str(failed.value))
    measured = 2 * leaked.from_view.rate.value - 1
    assert abs(float(found) - measured) < 5 * np.sqrt(2 / 1_000)
