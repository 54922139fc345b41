"""Every system on the same splits: what is in the table, and that costs are the closed forms."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from veilring.errors import UnforeseenCost
from veilring.nodes.cost import Traffic
from veilring.protocols.forecast import Forecast
from veilring.protocols.noisyvotes import NoisyVotesParameters, WithinRadius, votes_cost
from veilring.protocols.prediction.algorithm.kernels import tau_share
from veilring.protocols.prediction.messages import stream_cost
from veilring.protocols.radius.messages import label_cost
from veilring.protocols.radius.system import OwnerSetup, public_radius, radius_share
from veilring.protocols.registry import find_system
from veilring.protocols.ring import KNNParameters, knn_cost, rounds_for
from veilring.protocols.system import Play
from veilring.scenarios.comparison import Line, Question, SystemComparison, compare, make_question
from veilring.scenarios.comparison.comparison import HINDSIGHT, MAJORITY, POOLED
from veilring.scenarios.comparison.evaluation import SystemAt
from veilring.scenarios.comparison.running import find_contenders
from veilring.scenarios.comparison.splits import draw_splits, load_facts

FORMS: dict[str, tuple[str, ...]] = {
    "private-knn": ("",),
    "rank-search": ("",),
    "release": ("", "pure", "owner"),
    "noisy-votes": ("",),
    "ldp-bayes": ("",),
    "radius": ("",),
    "prediction": ("",),
}
QUERIES, PARTIES, FEATURES, CLASSES = 5, 4, 4, 3
LATENCY = {"law": "constant", "seconds": 0.05}


def _of(comparison: SystemComparison, system: str) -> list[Line]:
    return [line for line in comparison.lines if line.system == system]


def _cost(line: Line) -> Forecast:
    """Return what a line says a batch costs, as a closed form would."""
    assert line.cost is not None
    cost = line.cost
    traffic = Traffic(cost.messages, cost.bytes)
    return Forecast(cost.rounds, traffic, Traffic(cost.setup_messages, cost.setup_bytes))


class TestLines:
    """The table."""

    def test_has_every_form_of_every_system_at_every_epsilon(
        self, comparison: SystemComparison
    ) -> None:
        """A system without an ε stands once; others at each in order, the last in hindsight too."""
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

    def test_accuracies_are_shares_of_the_queries(self, comparison: SystemComparison) -> None:
        """Each split has one accuracy, and the interval is about the mean of the splits."""
        for line in comparison.lines:
            assert len(line.accuracies) == 2
            assert all(
                (share * line.queries) % 1 == pytest.approx(0, abs=1e-9)
                for share in line.accuracies
            )
            assert line.accuracy.mean == pytest.approx(np.mean(line.accuracies))
            assert 0 <= line.accuracy.low <= line.accuracy.mean <= line.accuracy.high <= 1

    def test_the_ring_answers_as_the_pooled_classifier(self, comparison: SystemComparison) -> None:
        """The ring and the pooled classifier have equal accuracy on each split."""
        (ring,) = _of(comparison, "private-knn")
        assert ring.accuracies == comparison.pooled.accuracies
        assert ring.loss == (0.0, 0.0, 0.0)
        assert ring.leakage is not None

    @pytest.mark.slow
    def test_all_held_out_rows_are_asked_where_they_cost_nothing(
        self, comparison: SystemComparison
    ) -> None:
        """So it is for the baselines, without an ε, and where an ε covers any number of queries."""
        facts = comparison.facts
        for line in comparison.lines:
            name = line.system.removesuffix(HINDSIGHT)
            free = line.epsilon is None or find_system(name).is_lasting
            assert line.queries == (facts.held_out if free else QUERIES * facts.batches)

    def test_losses_and_gains_are_of_the_same_queries(self, comparison: SystemComparison) -> None:
        """Split by split they add up to what the baselines differ by on these queries."""
        for line in comparison.lines:
            if line.queries == comparison.facts.held_out:
                both = np.add(line.losses, line.gains)
                apart = np.subtract(comparison.pooled.accuracies, comparison.majority.accuracies)
                assert both == pytest.approx(apart)

    def test_what_is_lost_is_divided(self, comparison: SystemComparison) -> None:
        """Rule, noise and method add up to the loss, where all splits were searched."""
        searched = [line for line in comparison.lines if line.limits is not None]
        assert len(searched) == sum(
            len(forms) for system, forms in FORMS.items() if find_system(system).is_bounded()
        )
        for line in searched:
            assert line.limits is not None
            parts = (line.limits.rule, line.limits.noise, line.limits.method)
            assert sum(part.mean for part in parts) == pytest.approx(line.loss.mean)

    def test_what_is_found_in_hindsight_is_not_private(self, comparison: SystemComparison) -> None:
        """It has no promise and no cost, says so, and is never recommended."""
        for line in comparison.lines:
            if line.in_hindsight:
                assert line.privacy is None
                assert line.cost is None
                assert line.guarantee.startswith("not private")
                assert line.key != comparison.choice.key

    def test_promises_are_what_was_asked(self, comparison: SystemComparison) -> None:
        """One batch has spent the line's ε, and no more."""
        for line in comparison.lines:
            baseline = line.system in {POOLED, MAJORITY}
            assert (line.privacy is None) == (baseline or line.in_hindsight)
            if line.epsilon is not None and line.privacy is not None:
                assert line.privacy.epsilon is not None
                assert line.privacy.epsilon == line.epsilon

    def test_says_why_the_tree_walk_is_not_there(self, comparison: SystemComparison) -> None:
        """It hides queries from public places, and here rows are private."""
        (left,) = comparison.left_out
        assert left.name == "tree walk"
        assert "not rows" in left.why


class TestCosts:
    """Closed forms, written here a second time."""

    def test_of_the_ring(self, comparison: SystemComparison) -> None:
        """Rounds, messages and bytes, and those of drawing it."""
        rounds = rounds_for(1e-6, 5, 1.0, 0.5)
        parameters = KNNParameters(features=FEATURES, classes=CLASSES, k=5, rounds=rounds)
        (ring,) = _of(comparison, "private-knn")
        assert _cost(ring) == knn_cost(PARTIES, QUERIES, parameters)

    def test_of_votes_with_noise(self, comparison: SystemComparison) -> None:
        """One sum by shares, and two rounds in which all agree, whatever ε."""
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
        """One message there and one back, whatever ε."""
        for line in _of(comparison, "radius"):
            assert _cost(line) == label_cost(QUERIES, FEATURES)
        for line in _of(comparison, "prediction"):
            assert _cost(line) == stream_cost([QUERIES], FEATURES)

    def test_of_a_collection(self, comparison: SystemComparison) -> None:
        """One round; each party sends a message for each question that a client of it drew."""
        for line in _of(comparison, "ldp-bayes"):
            assert line.cost is not None
            assert line.cost.rounds == 1
            assert PARTIES <= line.cost.messages <= PARTIES * (FEATURES + 1)

    @pytest.mark.slow
    def test_take_as_long_as_the_network_says(self) -> None:
        """With one latency on all links, a run takes its rounds and the steps of its set-up."""
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

    @pytest.mark.slow
    def test_that_are_not_forecast_are_an_error(
        self, question: Question, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run that costs more than its closed form is ends the comparison."""
        play = OwnerSetup.play

        def wrongly(self: OwnerSetup, queries: NDArray[np.float64], **_: object) -> Play:
            other = label_cost(QUERIES + 1, FEATURES)
            return replace(play(self, queries), forecast=lambda _: other)

        monkeypatch.setattr(OwnerSetup, "play", wrongly)
        with pytest.raises(UnforeseenCost, match="closed form is"):
            compare(question, workers=1)


class TestAgain:
    """The same seed."""

    @pytest.mark.slow
    def test_gives_the_same_but_for_seconds(
        self, question: Question, comparison: SystemComparison
    ) -> None:
        """The JSON report is equal for any number of processes, except for wall-clock seconds."""
        assert _without_seconds(compare(question, workers=2)) == _without_seconds(comparison)

    def test_another_seed_gives_other_splits(self, question: Question) -> None:
        """What is random follows from the seed."""
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
    """The same for all, and no row twice."""

    def test_parties_hold_all_training_rows(self, question: Question) -> None:
        """Each row is one party's, and none of them is asked."""
        table, facts = load_facts(question)
        for split in draw_splits(table, question):
            held = np.concatenate([rows.features for rows in split.parts.values()])
            assert sorted(held.tolist()) == sorted(split.train.X.tolist())
            assert facts.train + facts.held_out == facts.rows == 150
            sizes = [len(batch) for batch in split.batches(question.queries)]
            assert sizes == [QUERIES] * facts.batches

    def test_says_where_the_ranges_came_from(self, question: Question) -> None:
        """The extremes of a table are public for one that is public itself, and only then."""
        _, facts = load_facts(question)
        assert "table is public" in facts.bounds


class TestRules:
    """Public rules know nothing of rows."""

    def test_the_radius_follows_from_two_numbers(self) -> None:
        """It grows with the features, falls with the rows, and is within the cube."""
        assert public_radius(16, 100) == pytest.approx(0.8)
        assert public_radius(4, 1600) == pytest.approx(4**0.75 / 10 / math.sqrt(2))
        for features in (1, 4, 30, 784):
            assert 0 < public_radius(features, 10_000) < public_radius(features, 100)
            assert public_radius(features, 10) < math.sqrt(features)

    def test_the_radius_lets_rows_differ_in_a_category(self, tmp_path: Path) -> None:
        """Where all columns are categories such rows are neighbours, and those of two are not."""
        path = tmp_path / "shapes.csv"
        rows = [f"{'ab'[n % 2]},{'cde'[n % 3]},{'xy'[n % 2]}" for n in range(40)]
        path.write_text("form,colour,y\n" + "\n".join(rows))
        _, facts = load_facts(make_question({"data": str(path)}))
        assert facts.categorical
        for features in (2, 5, 20):
            assert 2**0.5 < public_radius(features, 100, categories=True) < 2
        assert public_radius(200, 100, categories=True) == public_radius(200, 100)

    def test_are_said_with_their_numbers(self, comparison: SystemComparison) -> None:
        """The report has the radius, τ and the rest."""
        said = " ".join(rule for _, rule in comparison.rules)
        share = radius_share(FEATURES, comparison.facts.train, 1.0)
        assert f"{share:.3g}" in said
        assert f"{tau_share(FEATURES, comparison.facts.train, 1.0):.3g}" in said


class TestSettings:
    """Parameters that are known better than by a rule."""

    def test_are_set_for_every_system_that_has_them(self, question: Question) -> None:
        """A radius is that of owner and votes at each ε, and bins those of LDP alone."""
        asked = question.model_copy(update={"settings": {"radius": 0.3, "bins": 5}})
        table, _ = load_facts(asked)
        found, left = find_contenders(table, asked)
        systems = [each.system for each in found if isinstance(each, SystemAt)]
        for name in ("radius", "bins"):
            having = [each for each in systems if name in each.tunable()]
            assert having
            assert all(getattr(each, name) == asked.settings[name] for each in having)
        assert [each.name for each in left] == ["tree walk"]

    def test_that_do_not_fit_leave_a_system_out(self, question: Question) -> None:
        """A grid of releases needs few features; the others go on without it."""
        asked = question.model_copy(update={"data": "wine", "settings": {"statistic": "grid"}})
        table, _ = load_facts(asked)
        found, left = find_contenders(table, asked)
        assert "release" in {each.name for each in left}
        assert all(each.key[0] != "release" for each in found)
