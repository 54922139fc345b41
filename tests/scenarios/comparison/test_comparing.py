"""Comparisons: their questions and rows, and all systems on the same splits at their costs."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import Field

from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Features, scale_to_unit
from veilring.errors import InputError, ScenarioError, UnforeseenCost
from veilring.nodes.journal import Traffic
from veilring.protocols.prediction.algorithm.directions import tau_share
from veilring.protocols.prediction.messages import stream_cost
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.radius.messages import label_cost
from veilring.protocols.radius.neighbourhood import public_radius, radius_share
from veilring.protocols.radius.system import DataOwner, OwnerSetup
from veilring.protocols.registry import find_system
from veilring.protocols.release.system import Release
from veilring.protocols.ring.algorithm.topk import rounds_for
from veilring.protocols.ring.cost import knn_cost
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import Play, System
from veilring.scenarios import load_scenario
from veilring.scenarios.comparison import compare, find_contenders
from veilring.scenarios.comparison.baselines import Baseline, installed
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.decision import Decision
from veilring.scenarios.comparison.lines import HINDSIGHT, MAJORITY, POOLED, Line
from veilring.scenarios.comparison.question import (
    DealtSplit,
    Question,
    draw_split,
    find_question,
    load_facts,
    make_question,
    read_network,
)
from veilring.scenarios.comparison.tuning import SystemAt

MISTAKES = (
    ("epsilon", (0.0, 1.0), "from 0.05 to 10"),
    ("epsilon", (-1.0,), "from 0.05 to 10"),
    ("epsilon", (11.0,), "from 0.05 to 10"),
    ("epsilon", (float("nan"),), "from 0.05 to 10"),
    ("epsilon", (), "up to 12 numbers"),
    ("parties", 2, "from 3 to 100"),
    ("splits", 1, "from 2 to 100"),
    ("queries", 3, "from 4 to 1,000"),
    ("k", 0, "at least 1"),
    ("partition", "sizes", "iid, dirichlet or by-label"),
    ("tolerated", 0, "at least 1"),
    ("seed", -1, "at least 0"),
)
RANGES = (
    '[[features]]\nname = "a"\nlow = 0\nhigh = 10\n\n[[features]]\nname = "b"\nlow = -1\nhigh = 1\n'
)


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def _table(folder: Path, rows: int = 40) -> str:
    """Return a file of rows with two columns, an id and a label."""
    lines = (f"{n},{n % 5},{(n % 3) / 3},{'xy'[n % 2]}\n" for n in range(rows))
    return _write(folder / "rows.csv", "id,a,b,label\n" + "".join(lines))


@pytest.mark.parametrize(("field", "value", "allowed"), MISTAKES)
def test_a_mistake_is_named(field: str, value: object, allowed: str) -> None:
    """The error has the field and the allowed values, before data are read."""
    with pytest.raises(InputError, match=allowed) as caught:
        make_question({"data": "nowhere.csv", field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("rows", "given", "told"),
    [
        (40, {"parties": 31}, "^parties is 31; .*at most 30"),
        (40, {"k": 31}, "^k is 31; .*at most 30"),
        (40, {"tolerated": 8}, "^tolerated is 8; .*at most 7"),
        (10, {"parties": 3, "k": 1}, "10 rows"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_named(
    rows: int, given: dict[str, int], told: str, tmp_path: Path
) -> None:
    """Parties hold thirty of forty rows; of ten, too few are held out for a batch."""
    with pytest.raises(InputError, match=told):
        load_facts(make_question({"data": _table(tmp_path, rows), **given}))


def test_all_mistakes_are_reported_at_once() -> None:
    """There is one line per mistake, such as a parameter that is not tunable."""
    with pytest.raises(InputError, match=r"batch.*radius"):
        make_question({"data": "iris", "settings": {"batch": 3}})
    with pytest.raises(ScenarioError) as caught:
        make_question({"data": "iris", "parties": 1, "splits": 0, "colour": "red"})
    told = str(caught.value)
    assert all(field in told for field in ("parties", "splits", "colour"))


def test_what_a_question_leaves_out_has_defaults() -> None:
    """Fewer than half may collude, each ε is compared once, and the network is a scenario's."""
    for given, colluding in (({}, 3), ({"parties": 3}, 1), ({"tolerated": 7}, 7)):
        assert make_question({"data": "iris", **given}).colluding == colluding
    asked = make_question({"data": "iris", "epsilon": (2.0, 0.5, 2.0)})
    assert asked.epsilon == (0.5, 2.0)
    assert asked.network.latency == load_scenario("wine").network.latency
    assert asked.network.latency["median_seconds"] == 0.02


def test_a_network_file_has_the_keys_of_a_scenarios_table(tmp_path: Path) -> None:
    """It may have the table's heading; a graph's path is relative to the file."""
    latency = 'latency = { distribution = "constant", seconds = 0.1 }'
    limit = "bandwidth_bytes_per_second = 1e6"
    path = tmp_path / "wan.toml"
    for heading, graph, found in (
        ("", "mine.graphml", str(tmp_path / "mine.graphml")),
        ("[network]\n", "star", "star"),
    ):
        path.write_text(f'{heading}{latency}\n{limit}\ngraph = "{graph}"\n')
        network = make_question({"data": "iris"}, read_network(path)).network
        assert network.latency == {"distribution": "constant", "seconds": 0.1}
        assert (network.bandwidth_bytes_per_second, network.graph) == (1e6, found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('runtime = "tls"', "network.runtime: there is no such key"),
        ("latancy = 1", "network.latancy: .*did you mean latency?"),
        ("bandwidth_bytes_per_second = 0", "network.bandwidth_bytes_per_second is 0; .*above 0"),
        ("latency = ", "--network.*TOML"),
        (None, r"--network: there is no file .*wan\.toml"),
    ],
)
def test_a_mistake_in_the_network_file_is_named(
    text: str | None, told: str, tmp_path: Path
) -> None:
    """It is named by its dotted key, or by the option if the file is no TOML or missing."""
    if text is not None:
        _write(tmp_path / "wan.toml", text)
    with pytest.raises(InputError, match=f"^{told}"):
        make_question({"data": "iris"}, read_network(tmp_path / "wan.toml"))


def test_rows_are_scaled_by_the_ranges_of_a_schema(tmp_path: Path) -> None:
    """A value's place does not depend on the extremes, which are not public in a private file."""
    _, facts = load_facts(make_question({"data": _table(tmp_path)}))
    assert facts.name == "rows"
    assert "They are not public" in facts.bounds
    assert "table is public" in load_facts(make_question({"data": "iris"}))[1].bounds
    rows = "a,b,label\n" + "".join(f"{n % 5},0.5,{n % 2}\n" for n in range(40))
    schema = _write(tmp_path / "schema.toml", f'classes = ["0", "1"]\n{RANGES}')
    asked = make_question({"data": _write(tmp_path / "rows.csv", rows), "schema_file": schema})
    table, facts = load_facts(asked)
    assert np.unique(table.X[:, 0]) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert np.unique(table.X[:, 1]) == pytest.approx([0.75])
    assert facts.bounds.startswith("the given ones")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'classes = ["x"]\n{RANGES}\n[[features]]\nname = "c"\n', "lacks the column 'c'"),
        (RANGES, "classes"),
        ("k = 1\n", "features"),
    ],
)
def test_a_schema_of_another_table_is_refused(text: str, told: str, tmp_path: Path) -> None:
    """A missing column or key is not replaced by those of the rows."""
    schema = _write(tmp_path / "schema.toml", text)
    with pytest.raises(InputError, match=told):
        load_facts(make_question({"data": _table(tmp_path), "schema_file": schema}))


def test_terms_select_columns_and_set_parameters(tmp_path: Path) -> None:
    """Other columns are ignored; parameters of the terms apply unless given."""
    text = f'classes = ["x", "y", "z"]\n\n{RANGES}\n[protocol]\nradius = 0.4\nk = 7\n'
    terms = _write(tmp_path / "terms.toml", text)
    asked = make_question({"data": _table(tmp_path), "terms": terms, "settings": {"k": 9}})
    assert asked.settings == {"radius": 0.4, "k": 9}
    table, facts = load_facts(asked)
    assert table.features.names == ("a", "b")
    assert facts.classes == 3
    assert table.X.max(axis=0) == pytest.approx([0.4, (2 / 3 + 1) / 2])


def test_embeddings_are_scaled_about_their_origin(tmp_path: Path) -> None:
    """Directions from the cube's centre equal those from the origin in the terms."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(40) % 2)
    text = 'classes = ["0", "1"]\ndimensions = 3\norigin = [0.5, 0.0, -0.5]\n'
    terms = _write(tmp_path / "terms.toml", text)
    table, _ = load_facts(make_question({"data": str(tmp_path / "rows.npz"), "terms": terms}))
    found, expected = table.X - 0.5, X - np.array([0.5, 0.0, -0.5])
    found /= np.linalg.norm(found, axis=1)[:, None]
    expected /= np.linalg.norm(expected, axis=1)[:, None]
    assert found == pytest.approx(expected)


FORMS = {  # of the systems that are compared
    "private-knn": ("",),
    "rank-search": ("",),
    "release": ("", "owner"),  # four columns have a grid, whose noise is pure
    "noisy-votes": ("", "pure"),
    "prio": ("",),
    **dict.fromkeys(("ldp-bayes", "data-owner", "ind-knn"), ("",)),
}
QUERIES, PARTIES, FEATURES, CLASSES = 5, 4, 4, 3
LATENCY = {"distribution": "constant", "seconds": 0.05}


def _of(comparison: SystemComparison, system: str) -> list[Line]:
    return [line for line in comparison.lines if line.system == system]


def _costs(comparison: SystemComparison, system: str) -> list[Forecast]:
    """Return the cost per batch of each line of a system in the form of a closed form."""
    return [
        Forecast(
            cost.rounds,
            Traffic(cost.messages, cost.bytes),
            Traffic(cost.setup_messages, cost.setup_bytes),
        )
        for line in _of(comparison, system)
        if (cost := line.cost) is not None
    ]


@pytest.mark.slow
def test_a_table_has_every_form_of_every_system_at_every_epsilon(
    comparison: SystemComparison,
) -> None:
    """A system without an ε is listed once; others at each ε in order, with hindsight last.

    A batch spends exactly a line's ε. A line found in hindsight, like a baseline, has no promise,
    and is never recommended.
    """
    expected: list[tuple[str, str, float | None]] = [(POOLED, "", None), (MAJORITY, "", None)]
    for system, form in ((system, form) for system, forms in FORMS.items() for form in forms):
        if not find_system(system).is_bounded():
            expected.append((system, form, None))
            continue
        expected += [(system, form, 1.0), (system, form, 2.0), (system + HINDSIGHT, form, 2.0)]
    assert [line.key for line in comparison.lines] == expected
    for line in comparison.lines:
        assert (line.privacy is None) == (line.system in {POOLED, MAJORITY} or line.in_hindsight)
        if line.in_hindsight:
            assert line.cost is None
            assert line.guarantee.startswith("not private")
            assert line.key != comparison.decision.key
        elif line.epsilon is not None:
            assert line.privacy is not None
            assert line.privacy.epsilon == line.epsilon


@pytest.mark.slow
def test_accuracies_are_over_the_queries_that_a_line_answers(comparison: SystemComparison) -> None:
    """All held-out rows are queried where that costs nothing more; other lines answer batches.

    These are baselines, systems without an ε, and an ε for any number of queries. Losses and gains
    add up to the difference of the baselines, and rule, noise and method to the loss. Measures of
    scores exist where a system reveals them. The majority class has the measures of a guess.
    """
    guess = comparison.majority.measures["balanced-accuracy"].mean
    assert guess == pytest.approx(1 / comparison.facts.classes)
    facts = comparison.facts
    apart = np.subtract(comparison.pooled.accuracies, comparison.majority.accuracies)
    for line in comparison.lines:
        assert len(line.accuracies) == 2
        assert all(
            (share * line.queries) % 1 == pytest.approx(0, abs=1e-9) for share in line.accuracies
        )
        assert line.accuracy.mean == pytest.approx(np.mean(line.accuracies))
        assert 0 <= line.accuracy.low <= line.accuracy.mean <= line.accuracy.high <= 1
        free = line.epsilon is None or find_system(line.system.removesuffix(HINDSIGHT)).is_lasting
        assert line.queries == (facts.held_out if free else QUERIES * facts.batches)
        if line.queries == facts.held_out:
            assert np.add(line.losses, line.gains) == pytest.approx(apart)
        if line.in_hindsight:
            assert not line.measures
        else:
            assert line.measures["accuracy"].mean == pytest.approx(line.accuracy.mean)
            scored = line.cost is not None and find_system(line.system)().reveals_scores
            assert ("auc" in line.measures) == scored
        for name, measured in line.measures.items():  # with two splits, intervals are wide
            assert (-1.0 if name == "calibration" else 0.0) <= measured.low <= measured.mean
            assert measured.mean <= measured.high <= 1.0
        if line.limits is not None:
            parts = (line.limits.rule, line.limits.noise, line.limits.method)
            assert sum(part.mean for part in parts) == pytest.approx(line.loss.mean)
    bounded = [forms for system, forms in FORMS.items() if find_system(system).is_bounded()]
    assert sum(line.limits is not None for line in comparison.lines) == sum(map(len, bounded))


@pytest.mark.slow
def test_rules_and_costs_are_closed_forms(comparison: SystemComparison) -> None:
    """The ring costs its draw and answers like pooled rows; an owner costs the same at any ε."""
    (ring,) = _of(comparison, "private-knn")
    assert ring.accuracies == comparison.pooled.accuracies
    assert ring.loss == (0.0, 0.0, 0.0)
    assert ring.leakage is not None
    rounds = rounds_for(1e-6, 5, 1.0, 0.5)
    bound = PrivateKNN(rounds=rounds).bind(Facts(PARTIES, FEATURES, CLASSES))
    assert _costs(comparison, "private-knn") == [knn_cost(PARTIES, QUERIES, bound)]
    assert _costs(comparison, "data-owner") == [label_cost(QUERIES, FEATURES)] * 2
    assert _costs(comparison, "ind-knn") == [stream_cost([QUERIES], FEATURES)] * 2
    said = " ".join(rule for _, rule in comparison.rules)
    for share in (radius_share, tau_share):
        assert f"{share(FEATURES, comparison.facts.train, 1.0):.3g}" in said


@pytest.mark.slow
def test_costs_match_the_times_of_the_network() -> None:
    """With one latency on all links, a run takes its rounds plus its set-up steps."""
    asked = {"data": "iris", "parties": 3, "epsilon": (1.0,), "splits": 2, "queries": 4}
    asked |= {"hindsight": False}  # whose lines cost nothing
    network = {"runtime": "simulated", "latency": LATENCY}
    steps = {"private-knn": 3, "rank-search": 2, "release": 1, "noisy-votes": 1}
    for line in compare(make_question(asked, network), workers=1).lines:
        if line.cost is not None:
            waits = line.cost.rounds + (0 if line.trusted else steps.get(line.system, 0))
            assert line.cost.simulated_seconds == pytest.approx(0.05 * waits)


@pytest.mark.slow
def test_costs_must_be_forecast(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose cost exceeds its closed form ends the comparison."""
    play = OwnerSetup.play

    def wrongly(self: OwnerSetup, queries: Floats, **_: object) -> Play:
        other = label_cost(QUERIES + 1, FEATURES)
        return replace(play(self, queries), forecast=lambda _: other)

    monkeypatch.setattr(OwnerSetup, "play", wrongly)
    monkeypatch.setattr(f"{REGISTRY}.system_names", lambda: ("data-owner",))
    with pytest.raises(UnforeseenCost, match="closed form is"):
        compare(question, workers=1)


@pytest.mark.slow
def test_a_seed_gives_equal_results_except_seconds(
    question: Question, comparison: SystemComparison
) -> None:
    """The JSON report is equal for any number of processes, except for wall-clock seconds."""
    one, other = (
        json.loads(json.dumps(each.as_json(), allow_nan=False))
        for each in (compare(question, workers=2), comparison)
    )
    for line in (*one["lines"], *other["lines"]):
        if line["cost"] is not None:
            del line["cost"]["seconds"]
    assert one == other


def test_parties_hold_all_training_rows(question: Question) -> None:
    """Each row belongs to one party, and no query is one of them; another seed splits otherwise."""
    table, facts = load_facts(question)
    assert facts.train + facts.held_out == facts.rows == 150
    for number in range(question.splits):
        split = draw_split(table, question, number)
        held = np.concatenate([rows.features for rows in split.parts.values()])
        assert sorted(held.tolist()) == sorted(split.train.X.tolist())
        sizes = [len(batch) for batch in split.batches(question.queries)]
        assert sizes == [QUERIES] * facts.batches
    other = question.model_copy(update={"seed": question.seed + 1})
    one, another = (draw_split(table, asked, 0).held_out.X for asked in (question, other))
    assert not np.array_equal(one, another)


def test_the_public_radius_depends_on_two_numbers(tmp_path: Path) -> None:
    """It grows with features, falls with rows, fits the cube, and lets one category differ."""
    assert public_radius(16, 100) == pytest.approx(0.8)
    assert public_radius(4, 1600) == pytest.approx(4**0.75 / 10 / math.sqrt(2))
    for features in (1, 4, 30, 784):
        assert 0 < public_radius(features, 10_000) < public_radius(features, 100)
        assert public_radius(features, 10) < math.sqrt(features)
    path = tmp_path / "shapes.csv"
    rows = [f"{'ab'[n % 2]},{'cde'[n % 3]},{'xy'[n % 2]}" for n in range(40)]
    path.write_text("form,colour,y\n" + "\n".join(rows))
    assert load_facts(make_question({"data": str(path)}))[1].categorical
    for features in (2, 5, 20):
        assert 2**0.5 < public_radius(features, 100, categories=True) < 2
    assert public_radius(200, 100, categories=True) == public_radius(200, 100)


def test_settings_apply_to_every_system_with_the_parameter(question: Question) -> None:
    """A radius applies to owner and votes, bins to LDP; what settings do not fit is left out."""
    asked = question.model_copy(update={"settings": {"radius": 0.3, "bins": 5}})
    found, left = find_contenders(load_facts(asked)[0], asked)
    systems = [each.system for each in found if isinstance(each, SystemAt)]
    for name in ("radius", "bins"):
        having = [getattr(each, name) for each in systems if name in each.tunable()]
        assert set(having) == {asked.settings[name]}
    assert {each.name for each in left} <= {"release, pure", "verified sums, pure", "tree walk"}
    asked = question.model_copy(update={"data": "wine", "settings": {"statistic": "grid"}})
    found, left = find_contenders(load_facts(asked)[0], asked)
    assert "release" in {each.name for each in left}
    assert "release" not in {each.key[0] for each in found}


@pytest.mark.parametrize(
    ("data", "forms", "delta"),
    [("iris", ["", "owner"], 0.0), ("wine", ["", "pure", "owner"], 1e-5)],
)
def test_forms_of_one_guarantee_are_one_line(data: str, forms: list[str], delta: float) -> None:
    """The rule takes a grid for four columns, whose noise is pure even where a δ is allowed."""
    asked = make_question({"data": data, "epsilon": (1.0,)})
    table, _ = load_facts(asked)
    found, left = find_contenders(table, asked)
    assert [form for name, form, _ in (each.key for each in found) if name == "release"] == forms
    assert ("release, pure" in {each.name for each in left}) == ("pure" not in forms)
    public = draw_split(table, asked, 0).facts
    assert Release().promise_about(public).delta == delta
    assert Release().promise_about(replace(public, rows=None)).delta == 1e-5


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


REGISTRY = "veilring.scenarios.comparison.contenders"
"""The module that finds systems and baselines."""


@pytest.fixture
def asked(question: Question) -> Question:
    """Return the question without a search in hindsight."""
    return question.model_copy(update={"hindsight": False})


def test_a_baseline_that_cannot_be_used_is_left_out(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is missing, or fits fewer classes, has no line; its import error is shown."""
    with monkeypatch.context() as patch:
        patch.setattr("veilring.scenarios.comparison.baselines.find_spec", {"interpret": True}.get)
        assert [each.name for each in installed(Features.of_numbers(4, 2))] == ["dp-ebm"]
        assert not list(installed(Features.of_numbers(4, 3)))
    why = "cannot import name 'DOUBLE'\nfrom 'tree'"
    broken = Baseline("broken", "Broken", f"{__name__}:Constant", lambda _split: {"why": why})
    monkeypatch.setattr(f"{REGISTRY}.installed", lambda _features: iter([broken]))
    contenders, left_out = find_contenders(load_facts(asked)[0], asked)
    assert "broken" not in {each.key[0] for each in contenders} != set()
    (found,) = [each for each in left_out if each.name == "Broken"]
    assert found.why == "tests cannot be used here: ImportError: cannot import name 'DOUBLE'"


@pytest.mark.slow
def test_a_baseline_has_a_line_at_each_epsilon(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an owner's line with its authors' guarantee, for all held-out rows."""
    mine = Baseline("constant", "constant", f"{__name__}:Constant", lambda _split: {}, delta=1e-5)
    monkeypatch.setattr(f"{REGISTRY}.installed", lambda _features: iter([mine]))
    found = compare(asked, workers=1)
    lines = _of(found, "constant")
    assert [line.epsilon for line in lines] == [1.0, 2.0]
    for line in lines:
        assert line.trusted
        assert line.queries == found.facts.held_out
        assert line.privacy is not None
        assert (line.privacy.epsilon, line.privacy.delta) == (line.epsilon, 1e-5)
        assert line.cost is None


def test_a_baseline_that_fails_on_a_split_has_no_line(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison goes on without it, and says why."""

    def options(split: DealtSplit) -> dict[str, str]:
        return {"why": "a singular matrix"} if split.number else {}

    mine = Baseline("constant", "constant", f"{__name__}:Constant", options)
    monkeypatch.setattr(f"{REGISTRY}.installed", lambda _features: iter([mine]))
    monkeypatch.setattr(f"{REGISTRY}.system_names", tuple)
    found = compare(asked, workers=1)
    assert not _of(found, "constant")
    assert [each.name for each in found.left_out] == ["constant, ε = 1", "constant, ε = 2"]
    assert {each.why for each in found.left_out} == {
        "tests cannot be used here: ImportError: a singular matrix"
    }


def test_more_splits_are_drawn_while_a_preferred_line_is_open(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at the given number of splits; each comparison so far is shown."""
    found: dict[str, type[System]] = {"mine": Mine}
    monkeypatch.setattr(f"{REGISTRY}.system_names", lambda: tuple(found))
    monkeypatch.setattr(f"{REGISTRY}.find_system", found.__getitem__)
    seen = list[int]()
    monkeypatch.setattr(Decision, "open", property(lambda self: self.standings))
    more = asked.model_copy(update={"splits": 6, "splits_max": 15})
    comparison = compare(more, workers=1, watch=lambda each: seen.append(each.splits))
    assert seen == [5, 6, 12]
    assert comparison.splits == 15


def test_a_system_of_another_package_has_its_lines(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison finds systems only through the registry."""
    found: dict[str, type[System]] = {"mine": Mine}
    monkeypatch.setattr(f"{REGISTRY}.system_names", lambda: tuple(found))
    monkeypatch.setattr(f"{REGISTRY}.find_system", found.__getitem__)
    lines = compare(asked, workers=1).lines
    assert [line.key for line in lines[2:]] == [("mine", "", 1.0), ("mine", "", 2.0)]


def test_data_may_be_a_name_a_table_or_the_table_of_each_party(
    asked: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of a question are arguments; each party keeps its rows, on every split."""
    monkeypatch.setattr(f"{REGISTRY}.system_names", tuple)
    monkeypatch.setattr(f"{REGISTRY}.installed", lambda _features: iter(()))
    named = compare("iris", parties=3, splits=2, workers=1)
    assert (named.facts.name, named.question.parties, named.splits) == ("iris", 3, 2)
    table = load("iris")
    assert compare(table, parties=3, splits=2, workers=1).lines == named.lines
    parts = [table.take(np.arange(*ends)) for ends in ((0, 20), (20, 70), (70, 150))]
    question, pooled = find_question(parts, {"splits": 2})
    assert question.parties == 3
    rows, _ = load_facts(question, pooled)
    for number in range(2):
        split = draw_split(rows, question, number)
        for part, own in zip(parts, split.parts.values(), strict=True):
            assert 0 < len(own) <= len(part)
            assert {*map(tuple, own.features)} <= {*map(tuple, scale_to_unit(part).X)}
        assert sum(map(len, split.parts.values())) == len(split.train)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: compare(parts, parties=4), "parties is 4; allowed: 3, one for each table"),
        (lambda: compare([]), "there are no parties"),
        (lambda: compare(asked, parties=4), "the question already has parties"),
        (lambda: compare("iris", partys=4), "did you mean parties"),
        (lambda: compare([table, load("wine")]), "the parts have different schemas"),
    ]
    for call, says in wrong:
        with pytest.raises(InputError, match=says):
            call()


def test_a_comparison_is_a_frame_and_a_table_of_a_notebook(comparison: SystemComparison) -> None:
    """Both have a row for each line."""
    frame = comparison.to_frame()
    assert frame["name"].to_list() == [line.name for line in comparison.lines]
    assert frame["accuracy"].to_list() == [line.accuracy.mean for line in comparison.lines]
    assert comparison._repr_html_().count("<tr>") == 1 + len(comparison.lines)
