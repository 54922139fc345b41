"""All systems on the same splits: the table's content, costs by closed forms, and baselines."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import Field

from veilring.arrays import Floats, Ints
from veilring.errors import UnforeseenCost
from veilring.nodes.journal import Traffic
from veilring.protocols.noisyvotes import NoisyVotesParameters, WithinRadius, votes_cost
from veilring.protocols.prediction.algorithm.directions import tau_share
from veilring.protocols.prediction.messages import stream_cost
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.radius.messages import label_cost
from veilring.protocols.radius.system import DataOwner, OwnerSetup, public_radius, radius_share
from veilring.protocols.registry import find_system
from veilring.protocols.ring import knn_cost, rounds_for
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import Play, System
from veilring.scenarios.comparison import (
    Line,
    Question,
    SystemComparison,
    compare,
    make_question,
    running,
)
from veilring.scenarios.comparison.comparison import HINDSIGHT, MAJORITY, POOLED
from veilring.scenarios.comparison.question import draw_splits, load_facts
from veilring.scenarios.comparison.running import Baseline, find_contenders, installed
from veilring.scenarios.comparison.tuning import SystemAt

FORMS: dict[str, tuple[str, ...]] = {
    "private-knn": ("",),
    "rank-search": ("",),
    "release": ("", "pure", "owner"),
    "noisy-votes": ("",),
    "ldp-bayes": ("",),
    "data-owner": ("",),
    "ind-knn": ("",),
}
QUERIES, PARTIES, FEATURES, CLASSES = 5, 4, 4, 3
LATENCY = {"distribution": "constant", "seconds": 0.05}


def _of(comparison: SystemComparison, system: str) -> list[Line]:
    return [line for line in comparison.lines if line.system == system]


def _cost(line: Line) -> Forecast:
    """Return a line's cost per batch in the form of a closed form."""
    assert line.cost is not None
    cost = line.cost
    traffic = Traffic(cost.messages, cost.bytes)
    return Forecast(cost.rounds, traffic, Traffic(cost.setup_messages, cost.setup_bytes))


@pytest.mark.slow
class TestLines:
    """The table."""

    def test_has_every_form_of_every_system_at_every_epsilon(
        self, comparison: SystemComparison
    ) -> None:
        """A system without an ε is listed once; others at each ε in order, with hindsight last."""
        found = [line.key for line in comparison.lines]
        expected: list[tuple[str, str, float | None]] = [(POOLED, "", None), (MAJORITY, "", None)]
        for system, forms in FORMS.items():
            for form in forms:
                if not find_system(system).is_bounded():
                    expected.append((system, form, None))
                    continue
                expected += [(system, form, 1.0), (system, form, 2.0)]
                expected.append((system + HINDSIGHT, form, 2.0))
        assert found == expected

    def test_accuracies_are_fractions_of_the_queries(self, comparison: SystemComparison) -> None:
        """Each split has one accuracy, and the interval is for the mean over splits."""
        for line in comparison.lines:
            assert len(line.accuracies) == 2
            assert all(
                (share * line.queries) % 1 == pytest.approx(0, abs=1e-9)
                for share in line.accuracies
            )
            assert line.accuracy.mean == pytest.approx(np.mean(line.accuracies))
            assert 0 <= line.accuracy.low <= line.accuracy.mean <= line.accuracy.high <= 1

    def test_the_ring_answers_like_the_pooled_classifier(
        self, comparison: SystemComparison
    ) -> None:
        """The ring and the pooled classifier have equal accuracy on each split."""
        (ring,) = _of(comparison, "private-knn")
        assert ring.accuracies == comparison.pooled.accuracies
        assert ring.loss == (0.0, 0.0, 0.0)
        assert ring.leakage is not None

    @pytest.mark.slow
    def test_all_held_out_rows_are_queried_at_no_extra_cost(
        self, comparison: SystemComparison
    ) -> None:
        """This holds for baselines, systems without an ε, and an ε for any number of queries."""
        facts = comparison.facts
        for line in comparison.lines:
            name = line.system.removesuffix(HINDSIGHT)
            free = line.epsilon is None or find_system(name).is_lasting
            assert line.queries == (facts.held_out if free else QUERIES * facts.batches)

    def test_losses_and_gains_are_over_the_same_queries(self, comparison: SystemComparison) -> None:
        """Split by split they add up to the differences from the baselines on these queries."""
        for line in comparison.lines:
            if line.queries == comparison.facts.held_out:
                both = np.add(line.losses, line.gains)
                apart = np.subtract(comparison.pooled.accuracies, comparison.majority.accuracies)
                assert both == pytest.approx(apart)

    def test_losses_are_divided(self, comparison: SystemComparison) -> None:
        """Rule, noise and method add up to the loss, if all splits were searched."""
        searched = [line for line in comparison.lines if line.limits is not None]
        assert len(searched) == sum(
            len(forms) for system, forms in FORMS.items() if find_system(system).is_bounded()
        )
        for line in searched:
            assert line.limits is not None
            parts = (line.limits.rule, line.limits.noise, line.limits.method)
            assert sum(part.mean for part in parts) == pytest.approx(line.loss.mean)

    def test_hindsight_is_not_private(self, comparison: SystemComparison) -> None:
        """A line found in hindsight has no guarantee or cost, and is never recommended."""
        for line in comparison.lines:
            if line.in_hindsight:
                assert line.privacy is None
                assert line.cost is None
                assert line.guarantee.startswith("not private")
                assert line.key != comparison.choice.key

    def test_promises_match_the_request(self, comparison: SystemComparison) -> None:
        """One batch spends exactly the line's ε."""
        for line in comparison.lines:
            baseline = line.system in {POOLED, MAJORITY}
            assert (line.privacy is None) == (baseline or line.in_hindsight)
            if line.epsilon is not None and line.privacy is not None:
                assert line.privacy.epsilon is not None
                assert line.privacy.epsilon == line.epsilon


@pytest.mark.slow
class TestCosts:
    """Closed forms, written independently."""

    def test_of_the_ring(self, comparison: SystemComparison) -> None:
        """These are rounds, messages and bytes, including the draw of the ring."""
        rounds = rounds_for(1e-6, 5, 1.0, 0.5)
        parameters = PrivateKNN(rounds=rounds).bind(Facts(PARTIES, FEATURES, CLASSES))
        (ring,) = _of(comparison, "private-knn")
        assert _cost(ring) == knn_cost(PARTIES, QUERIES, parameters)

    def test_of_votes_with_noise(self, comparison: SystemComparison) -> None:
        """There is one sum by shares, and two rounds of agreement, at any ε."""
        found = [_cost(line) for line in _of(comparison, "noisy-votes")]
        within = WithinRadius()  # radii come with the queries
        assert found == [
            votes_cost(
                PARTIES,
                QUERIES,
                NoisyVotesParameters(FEATURES, CLASSES, epsilon, within, tolerated=1),
            )
            for epsilon in (1.0, 2.0)
        ]
        assert found[0].traffic.messages == 4 * PARTIES * (PARTIES - 1)

    def test_of_a_trusted_party(self, comparison: SystemComparison) -> None:
        """There is one message in each direction, at any ε."""
        for line in _of(comparison, "data-owner"):
            assert _cost(line) == label_cost(QUERIES, FEATURES)
        for line in _of(comparison, "ind-knn"):
            assert _cost(line) == stream_cost([QUERIES], FEATURES)

    def test_of_a_collection(self, comparison: SystemComparison) -> None:
        """In one round, each party sends a message per question drawn by its clients."""
        for line in _of(comparison, "ldp-bayes"):
            assert line.cost is not None
            assert line.cost.rounds == 1
            assert PARTIES <= line.cost.messages <= PARTIES * (FEATURES + 1)

    def test_match_the_times_of_the_network(self) -> None:
        """With one latency on all links, a run takes its rounds plus its set-up steps."""
        asked = {"data": "iris", "parties": 3, "epsilon": (1.0,), "splits": 2, "queries": 4}
        found = compare(
            make_question(asked, {"runtime": "simulated", "latency": LATENCY}), workers=1
        )
        steps = {"private-knn": 3, "rank-search": 2, "release": 1, "noisy-votes": 1}
        for line in found.lines:
            if line.cost is not None:
                before = 0 if line.trusted else steps.get(line.system, 0)
                waits = line.cost.rounds + before
                assert line.cost.simulated_seconds == pytest.approx(0.05 * waits)

    def test_must_be_forecast(self, question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run whose cost exceeds its closed form ends the comparison."""
        play = OwnerSetup.play

        def wrongly(self: OwnerSetup, queries: Floats, **_: object) -> Play:
            other = label_cost(QUERIES + 1, FEATURES)
            return replace(play(self, queries), forecast=lambda _: other)

        monkeypatch.setattr(OwnerSetup, "play", wrongly)
        with pytest.raises(UnforeseenCost, match="closed form is"):
            compare(question, workers=1)


class TestAgain:
    """Reproducibility by seed."""

    @pytest.mark.slow
    def test_gives_equal_results_except_seconds(
        self, question: Question, comparison: SystemComparison
    ) -> None:
        """The JSON report is equal for any number of processes, except for wall-clock seconds."""
        assert _without_seconds(compare(question, workers=2)) == _without_seconds(comparison)

    def test_another_seed_gives_other_splits(self, question: Question) -> None:
        """All randomness depends on the seed."""
        table, _ = load_facts(question)
        other = question.model_copy(update={"seed": question.seed + 1})
        one, another = (next(draw_splits(table, asked)) for asked in (question, other))
        assert not np.array_equal(one.held_out.X, another.held_out.X)


def _without_seconds(comparison: SystemComparison) -> object:
    plain = json.loads(json.dumps(comparison.as_json(), allow_nan=False))
    for line in plain["lines"]:
        if line["cost"] is not None:
            del line["cost"]["seconds"]
    return plain


class TestSplits:
    """Splits: equal for all systems, and without repeated rows."""

    def test_parties_hold_all_training_rows(self, question: Question) -> None:
        """Each row belongs to one party, and no query is one of them."""
        table, facts = load_facts(question)
        for split in draw_splits(table, question):
            held = np.concatenate([rows.features for rows in split.parts.values()])
            assert sorted(held.tolist()) == sorted(split.train.X.tolist())
            assert facts.train + facts.held_out == facts.rows == 150
            sizes = [len(batch) for batch in split.batches(question.queries)]
            assert sizes == [QUERIES] * facts.batches


class TestRules:
    """Public rules do not use rows."""

    def test_the_radius_depends_on_two_numbers(self) -> None:
        """It grows with the features, falls with the rows, and stays within the cube."""
        assert public_radius(16, 100) == pytest.approx(0.8)
        assert public_radius(4, 1600) == pytest.approx(4**0.75 / 10 / math.sqrt(2))
        for features in (1, 4, 30, 784):
            assert 0 < public_radius(features, 10_000) < public_radius(features, 100)
            assert public_radius(features, 10) < math.sqrt(features)

    def test_the_radius_lets_rows_differ_in_a_category(self, tmp_path: Path) -> None:
        """With categories only, rows that differ in one category are neighbours, but not in two."""
        path = tmp_path / "shapes.csv"
        rows = [f"{'ab'[n % 2]},{'cde'[n % 3]},{'xy'[n % 2]}" for n in range(40)]
        path.write_text("form,colour,y\n" + "\n".join(rows))
        _, facts = load_facts(make_question({"data": str(path)}))
        assert facts.categorical
        for features in (2, 5, 20):
            assert 2**0.5 < public_radius(features, 100, categories=True) < 2
        assert public_radius(200, 100, categories=True) == public_radius(200, 100)

    @pytest.mark.slow
    def test_are_reported_with_their_numbers(self, comparison: SystemComparison) -> None:
        """The report has the radius, τ and the other rules."""
        said = " ".join(rule for _, rule in comparison.rules)
        share = radius_share(FEATURES, comparison.facts.train, 1.0)
        assert f"{share:.3g}" in said
        assert f"{tau_share(FEATURES, comparison.facts.train, 1.0):.3g}" in said


class TestSettings:
    """Parameters that are set instead of following a rule."""

    def test_apply_to_every_system_with_the_parameter(self, question: Question) -> None:
        """A radius applies to owner and votes at each ε, and bins to LDP only."""
        asked = question.model_copy(update={"settings": {"radius": 0.3, "bins": 5}})
        table, _ = load_facts(asked)
        found, left = find_contenders(table, asked)
        systems = [each.system for each in found if isinstance(each, SystemAt)]
        for name in ("radius", "bins"):
            having = [each for each in systems if name in each.tunable()]
            assert having
            assert all(getattr(each, name) == asked.settings[name] for each in having)
        assert [each.name for each in left] == ["tree walk"]

    def test_that_do_not_fit_exclude_a_system(self, question: Question) -> None:
        """A released grid needs few features; other systems are still compared."""
        asked = question.model_copy(update={"data": "wine", "settings": {"statistic": "grid"}})
        table, _ = load_facts(asked)
        found, left = find_contenders(table, asked)
        assert "release" in {each.name for each in left}
        assert all(each.key[0] != "release" for each in found)


class Mine(DataOwner):
    """A system of another package."""

    name: Literal["mine"] = Field("mine", description="mine")  # type: ignore[assignment]  # a subclass has another name


class Constant:
    """A classifier of another library, with a single class."""

    def __init__(self, *, epsilon: float, random_state: int, why: str = "") -> None:
        assert min(epsilon, random_state) >= 0
        if why:
            raise ImportError(why)

    def fit(self, _X: Floats, y: Ints) -> "Constant":
        """Remember the first class."""
        self.label = y[0]
        return self

    def predict(self, X: Floats) -> Ints:
        """Return that class for all rows."""
        return np.full(len(X), self.label)


@pytest.fixture
def asked(question: Question) -> Question:
    """Return the question without a search in hindsight."""
    return question.model_copy(update={"hindsight": False})


def test_are_listed_only_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package has no lines; DP-EBM supports two classes only."""
    monkeypatch.setattr(running, "find_spec", lambda package: package == "interpret" or None)
    assert [each.name for each in installed(2)] == ["dp-ebm"]
    assert not list(installed(3))


def test_a_library_that_fails_is_left_out(asked: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be imported costs its own lines only, and the reason is shown."""
    why = "cannot import name 'DOUBLE'\nfrom 'tree'"
    broken = Baseline("broken", "Broken", f"{__name__}:Constant", lambda _split: {"why": why})
    monkeypatch.setattr(running, "installed", lambda _classes: iter([broken]))
    table, _ = load_facts(asked)
    contenders, left_out = running.find_contenders(table, asked)
    assert contenders
    assert all(each.key[0] != "broken" for each in contenders)
    (found,) = [each for each in left_out if each.name == "Broken"]
    assert found.why == "tests cannot be used here: ImportError: cannot import name 'DOUBLE'"


@pytest.mark.slow
def test_have_a_line_at_each_epsilon(asked: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an owner's line with its authors' guarantee, for all held-out rows."""
    mine = Baseline("constant", "constant", f"{__name__}:Constant", lambda _split: {}, delta=1e-5)
    monkeypatch.setattr(running, "installed", lambda _classes: iter([mine]))
    found = compare(asked, workers=1)
    lines = [line for line in found.lines if line.system == "constant"]
    assert [line.epsilon for line in lines] == [1.0, 2.0]
    for line in lines:
        assert line.trusted
        assert line.queries == found.facts.held_out
        assert line.privacy is not None
        assert (line.privacy.epsilon, line.privacy.delta) == (line.epsilon, 1e-5)
        assert line.cost is None


def test_a_system_of_another_package_has_its_lines(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison finds systems only through the registry."""
    found: dict[str, type[System]] = {"mine": Mine}
    monkeypatch.setattr(running, "system_names", lambda: tuple(found))
    monkeypatch.setattr(running, "find_system", found.__getitem__)
    lines = compare(asked, workers=1).lines
    assert [line.key for line in lines[2:]] == [("mine", "", 1.0), ("mine", "", 2.0)]
