"""Rank search for numbers: the mean target of the nearest rows, equal to pooled regression."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.neighbors import KNeighborsRegressor
from tests.protocols.ranksearch.worlds import label

import veilring as vr
from veilring.arrays import Floats, Ints
from veilring.data.columns import STEPS_MAX, Target
from veilring.data.table import Features, Rows, scale_to_unit
from veilring.errors import InputError, RunFailed
from veilring.nodes.cluster import RuntimeName
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.adversaries import WrongVotes
from veilring.protocols.ranksearch.algorithm.search import End
from veilring.protocols.ranksearch.algorithm.votes import (
    TIED_ROWS,
    Votes,
    could_be_votes,
    nearest_rows,
    own_votes,
)
from veilring.protocols.ranksearch.shared import found_cost, search_cost
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import together
from veilring.testing.auditing.findings import AuditedSystem

SCORE = Target(low=-1.0, high=9.0, resolution=0.25)


def facts(parties: int, features: int, target: Target = SCORE) -> Facts:
    """Return the public facts about rows with a number as the label."""
    schema = Features.of_numbers(features, ())
    return Facts.of(parties, vr.Features(schema.names, schema.ranges, (), target=target))


def ready(parts: list[Rows], **settings: Any) -> SearchSetup:
    """Return parties that are ready to search."""
    named = {f"party-{n}": rows for n, rows in enumerate(parts)}
    return RankSearch(**settings).setup(named, facts(len(parts), parts[0].features.shape[1]))


def dealt(rows: Rows, parties: int = 3) -> list[Rows]:
    """Deal rows to all parties but one, which has none."""
    held = [Rows(rows.features[n::parties], rows.labels[n::parties]) for n in range(parties)]
    return [*held, Rows(rows.features[:0], rows.labels[:0])]


def table(resolution: float) -> vr.Table:
    """Return scikit-learn's diabetes, in the unit cube."""
    rows, values = load_diabetes(return_X_y=True)
    target = Target(low=25.0, high=346.0, resolution=resolution)
    ranges = vr.Ranges.of(rows)
    names = tuple(f"x{n}" for n in range(rows.shape[1]))
    features = vr.Features(names, ranges, (), target=target)
    return scale_to_unit(vr.Table("diabetes", rows, target.labels_of(values), features))


@pytest.mark.parametrize("resolution", [0.25, 1.0, 107.0])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_predictions_equal_scikit_learns(k: int, resolution: float) -> None:
    """On each query they are within half a step of the regression on the pooled, rounded rows."""
    train, test = table(resolution).split(test_share=0.25, seed=1)
    target = train.features.target
    assert target is not None
    run = vr.run(vr.RankSearch(k=k), train.partition(4, seed=1), test, seed=1)
    theirs = KNeighborsRegressor(k).fit(train.X, target.values_of(train.y)).predict(test.X)
    found = np.array(run.labels, np.float64)
    np.testing.assert_allclose(found, theirs, rtol=0, atol=resolution / 2 + 1e-9)
    assert run.labels == run.reference
    assert run.cost == run.forecast


@pytest.mark.parametrize("reveal", ["totals", "votes"])
@pytest.mark.parametrize("runtime", ["tls", "simulated"])
def test_runs_are_equal_on_each_runtime(runtime: RuntimeName, reveal: Any) -> None:
    """Predictions, costs and transcripts are those in memory; costs equal their closed forms."""
    train, test = table(0.5).take(np.arange(60)).split(test_share=0.1, seed=1)
    parts, system = train.partition(3, seed=1), vr.RankSearch(k=3, reveal=reveal)
    runs = [vr.run(system, parts, test, runtime=where, seed=1) for where in ("memory", runtime)]
    assert runs[0].labels == runs[1].labels == runs[0].reference
    assert runs[0].transcript == runs[1].transcript
    assert runs[0].cost == runs[1].cost == runs[0].forecast


def pooled(queries: Floats, rows: Rows, k: int) -> Ints:
    """Return the mean target of all rows as near as the k-th nearest, rounded half up."""
    found = []
    for query in queries:
        apart = np.sqrt(((rows.features - query) ** 2).sum(axis=1))
        near = rows.labels[apart <= np.sort(apart)[min(k, len(apart)) - 1]] if len(apart) else []
        found.append(int(np.floor(np.mean(near) + 0.5)) if len(near) else 0)
    return np.array(found)


@settings(max_examples=40)
@given(
    st.integers(1, 9),
    st.integers(0, 12),
    st.integers(1, 3),
    st.sampled_from(["totals", "votes"]),
    st.integers(0, 2**16),
)
def test_any_rows_give_the_pooled_mean(
    k: int, rows: int, places: int, reveal: Any, seed: int
) -> None:
    """With ties, few rows or none, predictions are the mean target; no honest check fails.

    The cost is within its forecast, and exact given the search.
    """
    rng = np.random.default_rng(seed)
    all_rows = Rows(rng.integers(0, places + 1, (rows, 2)) / places, rng.integers(0, 41, rows))
    queries, parts = rng.integers(0, places + 1, (4, 2)) / places, dealt(all_rows)
    setup = ready(parts, k=k, reveal=reveal, arity=4)
    ranked = setup.search(queries, parts)
    np.testing.assert_array_equal(ranked.votes.labels, pooled(queries, all_rows, k))
    np.testing.assert_array_equal(ranked.votes.labels, setup.reference(queries))
    for held in parts:
        own = setup.parameters.votes_of(queries, held, nearest_rows(queries, held, k), ranked.found)
        rows_within = ranked.votes.counts[:, 0].astype(np.int64)
        assert could_be_votes(ranked.votes, own, ranked.found, rows_within)
    cost = found_cost(4, ranked.found, setup.parameters, ranked.tied_rows)
    range_ = search_cost(4, len(queries), setup.parameters)
    assert range_.most is not None
    assert range_.traffic.bytes <= cost.traffic.bytes <= range_.most.traffic.bytes


def test_ties_and_few_rows_are_played_as_computed() -> None:
    """Over messages, tied rows all count, and a query without k rows has the mean of all."""
    rng = np.random.default_rng(3)
    rows = Rows(rng.integers(0, 3, (40, 2)) / 2, rng.integers(0, 41, 40))
    for k, ends in ((4, End.TIED), (60, End.FEW)):
        setup = ready(dealt(rows), k=k)
        queries = rng.integers(0, 3, (8, 2)) / 2
        run = vr.simulate(label(setup, {}, queries))
        answer = run.results["party-1"]
        assert (answer.found.ends == ends).any()
        np.testing.assert_array_equal(answer.labels, pooled(queries, rows, k))
        assert answer.votes is not None
        np.testing.assert_array_equal(answer.votes, setup.search(queries, [rows]).votes.values)
        assert setup.play(queries).forecast(run).traffic == (run.cost.messages, run.cost.bytes)


def test_sums_fit_their_words() -> None:
    """All rows of all parties may tie at the highest target: their sum is below 2^63."""
    each = np.array([[TIED_ROWS]], dtype=np.uint64)
    sums = each[:, 0] * np.uint64(STEPS_MAX)
    votes = Votes(each, sums=sums, steps=STEPS_MAX)
    tied = np.array([True])
    assert Votes.of(votes.arrays(tied, 1), tied, STEPS_MAX).sums == sums
    assert votes.labels == [STEPS_MAX]
    assert int(sums[0]) < 2**63


@pytest.mark.parametrize(("more", "passes"), [(0, True), (40, True), (-1, False), (81, False)])
def test_impossible_sums_fail_a_check(more: int, passes: bool) -> None:
    """The targets of other parties' rows are from 0 to the highest one."""
    rows = Rows(np.array([[0.1], [0.2]]), np.array([7, 40]))
    setup = ready([rows, rows, rows], k=2)
    query = np.array([[0.0]])
    found = setup.search(query, [rows]).found
    near = nearest_rows(query, rows, 2)
    own = own_votes(query, rows, near, found, classes=1, weights="uniform", steps=40)
    assert own.sums is not None
    sums = (own.sums.astype(np.int64) + more).astype(np.uint64)
    total = Votes(own.counts + np.uint64(2), sums=sums, steps=40)
    at_radius = total.counts[:, 0].astype(np.int64)
    assert could_be_votes(total, own, found, at_radius) == passes


async def _with_liar(setup: SearchSetup, queries: Floats) -> object:
    return await label(setup, {"party-2": WrongVotes()}, queries)


def test_a_wrong_number_of_rows_is_noticed() -> None:
    """A party that claims another row without having counted it fails the checks of the others."""
    rng = np.random.default_rng(3)
    setup = ready(dealt(Rows(rng.random((40, 2)), rng.integers(0, 41, 40))), k=4)
    with pytest.raises(RunFailed, match=r"party-2.*caused results that honest rows cannot have"):
        vr.simulate(_with_liar(setup, rng.random((3, 2))))


@pytest.mark.parametrize(
    ("changed", "field"), [({"reveal": "label"}, "reveal"), ({"weights": "distance"}, "weights")]
)
def test_settings_for_classes_are_refused(changed: dict[str, Any], field: str) -> None:
    """Only whole votes are summed, and the sum itself is revealed."""
    with pytest.raises(InputError, match="a number is predicted with") as refused:
        RankSearch(**changed).bind(facts(3, 2))
    assert refused.value.field == field


def test_the_promise_names_the_sums() -> None:
    """For a number, the parties learn a sum and no votes; the forecast needs no number of rows."""
    system = RankSearch()
    told = system.promise_about(facts(5, 2)).learned
    assert "the sum of their targets, and the prediction" in told
    assert "votes" not in told
    assert system.promise_about(Facts(5, 2, 3)) == system.promise(parties=5)
    assert system.forecast_for(facts(5, 2), 10).most is not None


def test_a_system_for_classes_refuses_numbers() -> None:
    """The error names the regressors."""
    rows = Rows(np.array([[0.1], [0.2]]), np.array([7, 40]))
    parts = {f"party-{n}": rows for n in range(3)}
    with pytest.raises(InputError, match="RankSearchRegressor or ReleasedRegressor"):
        PrivateKNN().setup(parts, facts(3, 1))
    assert len(together(parts)) == 6


def test_an_audit_compares_worlds_with_numbers() -> None:
    """Two parties exchange rows with targets, and the sum of all targets stays the same."""
    subject = AuditedSystem(RankSearch(), RankSearch().example())
    (compared,) = (each for each in subject.comparisons if each.long == "numbers as labels")
    assert (compared.epsilon, compared.delta) == (0.0, 0.0)
    sums = [
        subject.setup(world).score(world.queries, np.random.default_rng(1)).labels.tolist()
        for world in (compared.one, compared.other)
    ]
    assert sums[0] == sums[1]
    assert sums[0][0] > 1  # in steps, and no class
    hidden = RankSearch(reveal="label")
    assert [each.long for each in hidden.comparisons(hidden.example())] == ["", "tied rows"]
