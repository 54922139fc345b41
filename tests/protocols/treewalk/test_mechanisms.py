"""The tree walk: trees, distributions, exact losses, a server's guesses, roles and the system."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from math import exp, log
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.random import Generator
from papers.overheard import attack_queries, overheard_response, overheard_walk, walk_log_likelihood
from scipy.spatial import cKDTree
from scipy.stats import binomtest, chi2
from sklearn.neighbors import KNeighborsClassifier
from tests.protocols.ring.worlds import play
from tests.protocols.test_served import WAYS, handed, played
from tests.protocols.treewalk.roles import lookup

from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.run import Run
from veilring.protocols.treewalk.algorithm.mechanisms import (
    Comparison,
    bucket_distribution,
    bucket_points,
    buckets_of,
    respond,
    walk,
    walk_loss,
)
from veilring.protocols.treewalk.algorithm.tree import Places, Splits, Tree, build_tree
from veilring.protocols.treewalk.plan import (
    Buckets,
    FoundPlaces,
    LookupPlan,
    Top,
    own_probability,
    recommend_lookup,
    response_cost,
    walk_cost,
)
from veilring.protocols.treewalk.system import TreeWalk
from veilring.randomness import Streams
from veilring.testing import ProtocolRunner, assert_cost
from veilring.transport.messages import Message

ROUNDING = 1e-9  # charges are rounded up by less than this, relative to themselves
RUNS, ALARM = 20_000, 1e-6
NOISELESS = Comparison(80.0)
TREE = build_tree(Streams(1).generator("points").random((16, 2)))
CANDIDATES = Streams(2).generator("candidates").random((12, 2))
PRIOR = np.arange(1.0, 13.0) / 78
Side = Literal["greater", "two-sided"]
EXACTLY = 1e-9  # a radius within which there is one candidate only

# Few values, so that duplicates and ties are the rule.
_POINTS = st.tuples(st.integers(1, 40), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 6).map(float))
)


@pytest.fixture
def rng() -> Generator:
    """Return the draws of one test, equal for each run."""
    return Streams(11).generator("walks")


def _leaves(tree: Tree, points: Floats, rows: list[int], node: int = 1) -> list[int]:
    """Check a node against Algorithm 10 (sort, cut at the median, go down); return its leaves."""
    column, median = (node.bit_length() - 1) % points.shape[1], len(rows) // 2
    rows = sorted(rows, key=lambda row: (points[row, column], row))
    np.testing.assert_array_equal(tree.points[tree.pivots[node]], points[rows[median]])
    if not median:
        return rows
    left, right = rows[:median], rows[median:]
    assert points[left, column].max() <= tree.splits[node] <= points[right, column].min()
    return [*_leaves(tree, points, left, 2 * node), *_leaves(tree, points, right, 2 * node + 1)]


@given(_POINTS, st.sampled_from(["least-right", "midpoint"]))
def test_the_tree_is_the_tree_of_the_recursion(points: Floats, splits: Splits) -> None:
    """Each node has the same point as in Algorithm 10, and separates its halves.

    The leaves in order are the given points, each once.
    """
    tree, rows = build_tree(points, splits), list(range(len(points)))
    np.testing.assert_array_equal(tree.points, points[_leaves(tree, points, rows)])
    np.testing.assert_array_equal(tree.points, points[tree.order])
    assert sorted(tree.order.tolist()) == rows
    assert sorted(set(tree.starts[1 << tree.depth :].tolist())) == rows


def test_a_split_of_neighbouring_floats_is_the_upper_one() -> None:
    """If no number lies between two coordinates, the greater one separates them."""
    high = np.nextafter(1.0, 2.0)
    assert build_tree(np.array([[1.0], [high]]), "midpoint").splits[1] == high


def _tree(points: int, rng: Generator, dimensions: int = 2, splits: Splits | None = None) -> Tree:
    """Return a tree of points, an eighth of which coincide."""
    drawn = rng.random((points, dimensions))
    drawn[: points // 8] = drawn[0]
    return build_tree(drawn, splits)


def _queries(tree: Tree, rng: Generator) -> Floats:
    """Return all points, all corners of the domain, and others at random."""
    corners = np.array(list(product((0.0, 1.0), repeat=tree.dimensions)))
    return np.vstack([tree.points, corners, rng.random((24, tree.dimensions))])


def _transcripts(steps: int) -> Bools:
    return np.array(list(product((False, True), repeat=steps)))


def test_a_walk_without_noise_is_exact(rng: Generator) -> None:
    """It ends in the query's bucket, at the nearest point on a line, and at an equal point."""
    line, plane = build_tree(rng.random((1000, 1))), build_tree(rng.random((500, 2)))
    queries, others = rng.random((500, 1)), rng.random((2000, 2))

    def end(tree: Tree, asked: Floats, splits: int = 0) -> Ints:
        found = walk(tree, asked, NOISELESS, splits, rng).found[:, 0]
        own = buckets_of(tree.splits, asked, tree.depth - splits)
        np.testing.assert_array_equal(tree.starts[own << splits], found)
        return np.asarray(found, np.int64)

    end(plane, others)
    end(plane, others, splits=4)
    np.testing.assert_array_equal(end(line, queries), cKDTree(line.points).query(queries)[1])
    np.testing.assert_array_equal(end(plane, plane.points), np.arange(500))


@pytest.mark.parametrize("epsilon", [0.7, 4.0])
@pytest.mark.parametrize("splits", [0, 2])
@pytest.mark.parametrize(("points", "dimensions"), [(5, 2), (64, 1), (64, 2), (37, 2), (50, 3)])
def test_no_walk_leaks_more_than_its_charge(
    points: int, dimensions: int, splits: int, epsilon: float, rng: Generator
) -> None:
    """The greatest loss between any two queries, over all transcripts, is at most the charge."""
    tree, steps = _tree(points, rng, dimensions), Comparison(epsilon)
    bits, queries = _transcripts(tree.depth - splits), _queries(tree, rng)
    likelihood = walk_log_likelihood(tree, steps, splits, bits, queries)
    np.testing.assert_allclose(np.exp(likelihood).sum(axis=0), 1.0, rtol=1e-9)
    loss = (likelihood.max(axis=1) - likelihood.min(axis=1)).max()
    assert 0 < loss <= walk_loss(steps, tree.depth - splits) * (1 + ROUNDING)


@pytest.mark.parametrize("splits", ["least-right", "midpoint"])
def test_a_walk_leaks_its_whole_charge(splits: Splits, rng: Generator) -> None:
    """Two opposite corners differ at each step of some path: the charge is not merely a bound."""
    tree, corners = _tree(64, rng, splits=splits), np.array([[-1.0, -1.0], [2.0, 2.0]])
    likelihood = walk_log_likelihood(tree, Comparison(1.0), 0, _transcripts(6), corners)
    charged = walk_loss(Comparison(1.0), 6)
    assert np.ptp(likelihood, axis=1).max() == pytest.approx(charged, rel=ROUNDING)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.1, 1.0, 5.0, 20.0])
def test_a_step_is_randomised_response_at_half_of_epsilon(epsilon: float) -> None:
    """A comparison slips with a probability that spends epsilon / 2, and 17 of them 17 times."""
    step, slip = Comparison(epsilon), Comparison(epsilon).slip
    assert step.step_loss == pytest.approx(epsilon / 2, rel=1e-6)
    assert step.step_loss <= epsilon / 2 * (1 + 1e-12)
    assert walk_loss(step, 17) == pytest.approx(8.5 * epsilon, rel=1e-6)
    assert slip / 2**64 == pytest.approx(1 / (1 + exp(epsilon / 2)), rel=1e-9)
    assert log((2**64 - slip) / slip) <= epsilon / 2


def test_walks_follow_the_distribution_of_the_likelihood(rng: Generator) -> None:
    """Of one query, 100,000 walks have the exact distribution of transcripts (false alarm 1e-6)."""
    tree, runs, steps = build_tree(rng.random((8, 2))), 100_000, Comparison(1.0)
    query = rng.random((1, 2))
    walks = walk(tree, np.repeat(query, runs, axis=0), steps, 0, rng)
    counts = np.bincount(walks.bits @ np.array([4, 2, 1]), minlength=8)
    expected = runs * np.exp(walk_log_likelihood(tree, steps, 0, _transcripts(3), query))[:, 0]
    assert (np.square(counts - expected) / expected).sum() < chi2.isf(ALARM, df=7)


@pytest.mark.parametrize("points", [16, 37, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_a_response_leaks_exactly_its_epsilon(points: int, epsilon: float, rng: Generator) -> None:
    """The exact distribution of the named bucket differs by e**epsilon between any two queries."""
    tree = _tree(points, rng)
    queries = _queries(tree, rng)
    for splits in range(tree.depth):
        distribution = bucket_distribution(tree.depth, splits, epsilon)
        own = buckets_of(tree.splits, queries, tree.depth - splits) - distribution.domain
        chances = np.where(
            own[:, None] == np.arange(distribution.domain), distribution.own, distribution.other
        )
        assert (chances.sum(axis=1) == distribution.total).all()
        # In logs of whole numbers the ratios are exact to the last bits of a float.
        assert log(int(chances.max())) - log(int(chances.min())) <= distribution.epsilon + 1e-12
        assert distribution.epsilon <= epsilon * (1 + ROUNDING)
        assert distribution.epsilon == pytest.approx(epsilon, rel=1e-6)


def _bayes(splits: int, steps: Comparison, times: int) -> float:
    """Return the fraction of queries that are the likeliest candidate, over all transcripts."""
    bits = _transcripts(TREE.depth - splits)
    likelihood = np.exp(walk_log_likelihood(TREE, steps, splits, bits, CANDIDATES))
    joint = likelihood * PRIOR
    for _ in range(times - 1):
        joint = (joint[:, None, :] * likelihood[None]).reshape(-1, len(CANDIDATES))
    return float(joint.max(axis=1).sum())


@pytest.mark.parametrize(
    ("splits", "epsilon", "times"), [*product([0, 2], [0.5, 2.0, 6.0], [1]), (0, 2.0, 2)]
)
def test_a_server_guesses_at_the_bayes_rate(splits: int, epsilon: float, times: int) -> None:
    """Of 20,000 queries the server finds the exact Bayes fraction (false alarm 1e-6).

    It finds more queries that are repeated with new coins.
    """
    steps, rng = Comparison(epsilon), Streams(3).generator("attack", splits, str(epsilon), times)
    overheard, find = overheard_walk(TREE, steps, splits), partial(attack_queries, prior=PRIOR)
    found = find(overheard, CANDIDATES, EXACTLY, runs=RUNS, rng=rng, times=times)
    rate = _bayes(splits, steps, times)
    assert binomtest(round(found.within * RUNS), RUNS, rate).pvalue > ALARM
    assert found.blind_within == pytest.approx(PRIOR.max())
    assert times == 1 or rate > _bayes(splits, steps, 1) + 0.05


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("mechanism", ["walk", "response"])
def test_no_guess_is_better_than_epsilon_allows(mechanism: str, epsilon: float) -> None:
    """With n candidates, no posterior probability exceeds e**epsilon / (e**epsilon + n - 1).

    A response of buckets of one point reaches it (false alarm 1e-6).
    """
    most, rng = exp(epsilon) / (exp(epsilon) + 15), Streams(5).generator(mechanism, str(epsilon))
    distribution = bucket_distribution(TREE.depth, 0, epsilon)
    assert float(distribution.p) == pytest.approx(most, rel=1e-9)
    if mechanism == "walk":
        overheard = overheard_walk(TREE, Comparison(2 * epsilon / TREE.depth), 0)
    else:
        overheard = overheard_response(TREE, distribution)
    found = attack_queries(overheard, TREE.points, EXACTLY, runs=RUNS, rng=rng)
    side: Side = "greater" if mechanism == "walk" else "two-sided"
    assert binomtest(round(found.within * RUNS), RUNS, most, side).pvalue > ALARM


def test_without_noise_nothing_is_hidden_and_with_much_everything_is() -> None:
    """At a large epsilon the guess is the query, at a tiny one a blind guess."""
    rng = Streams(8).generator("extremes")
    open_, closed = (
        attack_queries(
            overheard_walk(TREE, Comparison(epsilon), 0), TREE.points, 0.2, runs=2000, rng=rng
        )
        for epsilon in (70.0, 1e-12)
    )
    assert (open_.error, open_.within) == (0.0, 1.0)
    assert open_.blind_error == closed.blind_error
    assert binomtest(round(closed.within * 2000), 2000, closed.blind_within).pvalue > ALARM


def test_options_find_the_own_bucket_at_the_stated_rate() -> None:
    """Of 20,000 queries each option finds the stated share (joint false-alarm rate 1e-6)."""
    rng = Streams(2).generator("options")
    tree, queries = build_tree(rng.random((64, 2))), rng.random((RUNS, 2))
    options = recommend_lookup(64, 2, 6.0)
    for option in options:
        levels = tree.depth - option.splits
        if option.mechanism == "response":
            distribution = bucket_distribution(tree.depth, option.splits, 6.0)
            named = respond(tree.splits, queries, distribution, rng)
            found = bucket_points(tree, option.splits, named)
        else:
            steps = Comparison(2 * 6.0 / max(1, levels))
            found = walk(tree, queries, steps, option.splits, rng).found
        assert found.shape == (RUNS, option.found)
        own = tree.starts[buckets_of(tree.splits, queries, levels) << option.splits]
        hits = int((found.min(axis=1) == own).sum())
        test = binomtest(hits, RUNS, min(1.0, option.probability))
        assert test.pvalue > ALARM / len(options)


def test_a_response_is_recommended_over_a_walk_of_the_same_bucket() -> None:
    """For each bucket size except two, responses find the own bucket more often.

    Of 100,000 points in buckets of 256, a response of 9.2 finds as much as a walk of 46.5.
    """
    options = recommend_lookup(100_000, 2, 9.2)
    for one, other in product(options, options):
        same = one.splits == other.splits
        if one.mechanism == "response" and other.mechanism == "walk" and same:
            assert one.probability >= other.probability * (1 - 1e-9)
            assert options.index(one) < options.index(other) or one.found == 1 << 16
    assert float(bucket_distribution(17, 8, 9.2).p) == pytest.approx(0.95, abs=0.005)
    assert own_probability(9, 46.5) == pytest.approx(0.95, abs=0.005)


def test_limits_are_respected_and_the_best_is_first() -> None:
    """Options stay within the limits, by decreasing probability; lower limits leave fewer.

    Without a limit on bytes, sending all points is best, and the report shows it.
    """
    limited = recommend_lookup(100_000, 2, 9.2, rounds=2, bytes=20_000)
    assert limited
    assert all(each.rounds <= 2 and each.bytes <= 20_000 for each in limited)
    assert all(one.probability >= other.probability for one, other in pairwise(limited))
    assert limited[0].mechanism == "response"
    assert set(limited) <= set(recommend_lookup(100_000, 2, 9.2))
    assert not recommend_lookup(100_000, 2, 9.2, rounds=1, bytes=20_000)
    best, *others = recommend_lookup(1000, 2, 1.0)
    assert (best.probability, best.rounds, best.found) == (1.0, 1, 1024)
    assert (best.mechanism, best.splits) == ("walk", 10)
    assert all(each.probability < 1.0 for each in others)  # there is one such way, and not two


OVERHEARD = overheard_walk(TREE, Comparison(1.0), 0)
guessed = partial(attack_queries, OVERHEARD, CANDIDATES, 0.1, runs=1, rng=np.random.default_rng(9))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (partial(build_tree, np.zeros((0, 2))), "there are 0 points"),
        (partial(build_tree, np.zeros((3, 0))), "points has the shape"),
        (partial(build_tree, np.zeros((3, 17))), "points has the shape"),
        (partial(build_tree, np.zeros(3)), "points has the shape"),
        (partial(build_tree, np.full((2, 1), np.nan)), "points must be finite"),
        (partial(Comparison, 0.0), "epsilon is 0"),
        (partial(bucket_distribution, 5, 5, 1.0), "splits"),
        (partial(guessed, times=0), "times is 0"),
        (partial(guessed, prior=np.full(12, 1.0)), "prior has"),
        (partial(recommend_lookup, 1, 2, 1.0), "points is"),
        (partial(recommend_lookup, 10, 0, 1.0), "dimensions is"),
        (partial(recommend_lookup, 10, 2, 0.0), "epsilon is"),
        (partial(recommend_lookup, 10, 2, 41.0), "epsilon is"),
    ],
)
def test_invalid_arguments_are_named(call: Callable[[], Any], said: str) -> None:
    """Points, noise, plans and priors out of range are refused by name."""
    with pytest.raises(InputError, match=said):
        call()


CLIENT, SERVER = "party-0", "party-1"
ASKED = 6
DRAWS = np.random.default_rng(8)
PLACES = Places.of(DRAWS.random((100, 2)))
QUERIES = DRAWS.random((ASKED, 2))
PLAN = LookupPlan(3, neighbours=1, queries=ASKED)
RESPONSE: dict[str, Any] = {"by": "response", "epsilon": 1.0}
WALK: dict[str, Any] = {"by": "walk", "steps": Comparison(1.0)}
each_way = pytest.mark.parametrize("way", [RESPONSE, WALK], ids=lambda way: way["by"])


def looked_up(queries: Floats, places: Places = PLACES, **options: Any) -> Run[Any]:
    """Run a client with these queries and a server once in memory."""
    names = CLIENT, SERVER
    return asyncio.run(play(lookup, [queries, places], names=names, **{"seed": 1, **options}))


def test_a_response_in_a_network_is_that_of_the_algorithm(run_protocol: ProtocolRunner) -> None:
    """Buckets, points and costs are those of the vectorised response and of the closed form."""
    public = {**RESPONSE, "epsilon": 4.0, "plan": PLAN}
    run = run_protocol(lookup, 2, own=[QUERIES, PLACES], **public)
    session = Streams(0).token("session", 0).hex()
    rng = Streams(0).generator("party", CLIENT, "session", session)
    named = respond(PLACES.tree.splits[:16], QUERIES, bucket_distribution(7, 3, 4.0), rng)
    np.testing.assert_array_equal(run.results[SERVER], named)
    answer = run.results[CLIENT]
    found = PLACES.with_neighbours(bucket_points(PLACES.tree, 3, named), 1)
    np.testing.assert_array_equal(answer.found, PLACES.tree.order[found])
    np.testing.assert_array_equal(answer.points, PLACES.tree.points[found])
    forecast = response_cost(PLAN, 100, 2)
    assert_cost(run, messages=2, bytes=forecast.traffic.bytes, rounds=forecast.rounds)
    assert run.cost.setup == forecast.setup
    assert forecast.rounds == 2


@each_way
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("query", [-5.0, 0.0, 0.3, 1.0])
def test_message_sizes_do_not_depend_on_the_query(
    query: float, seed: int, way: dict[str, Any]
) -> None:
    """For any query and draw, each round has equal messages of equal bytes."""
    first, other = (
        looked_up(np.full((1, 2), value), plan=LookupPlan(2), seed=draws, **way).cost.by_round
        for value, draws in ((0.5, 0), (query, seed))
    )
    assert first == other


@pytest.mark.parametrize("points", [1, 2, 100])
def test_a_walk_takes_two_rounds_per_level(points: int) -> None:
    """Its rounds have their closed form, even in a tree of one point."""
    places = Places.of(np.linspace(0, 1, points)[:, None])
    run = looked_up(np.full((1, 1), 0.3), places, plan=LookupPlan(), **WALK)
    levels = (points - 1).bit_length()
    assert run.cost.rounds == walk_cost(LookupPlan(), points, 1).rounds == 2 * levels + 1


def test_neighbours_are_the_nearest_points() -> None:
    """The B neighbours of a found point are the other points nearest to it."""
    places = Places.of(np.array([[0.0], [1.0], [3.0], [3.0], [7.0]]))
    found = places.with_neighbours(np.array([[2], [4]], dtype=np.int32), 2)
    assert places.tree.points[found, 0].tolist() == [[3.0, 3.0, 1.0], [7.0, 3.0, 3.0]]
    assert all(len(set(row)) == 3 for row in found.tolist())


@each_way
@pytest.mark.parametrize(
    ("plan", "queries", "field"),
    [
        (LookupPlan(2, queries=2), QUERIES, "queries"),
        (LookupPlan(2, queries=ASKED), QUERIES[:, :1], "queries"),
        (LookupPlan(8, queries=ASKED), QUERIES, "splits"),
        (LookupPlan(2, neighbours=100, queries=ASKED), QUERIES, "neighbours"),
        (LookupPlan(6, neighbours=99, queries=12), np.tile(QUERIES, (2, 1)), "queries"),
    ],
    ids=["count", "dimensions", "splits", "too-many-neighbours", "too-large"],
)
def test_invalid_input_is_refused(
    way: dict[str, Any], plan: LookupPlan, queries: Floats, field: str
) -> None:
    """A plan or a query that does not fit ends the session with its name."""
    with pytest.raises(RunFailed) as failed:
        looked_up(queries, plan=plan, **way)
    assert isinstance(failed.value.root, InputError)
    assert failed.value.root.field == field


def renumbered(place: int, number: int | None, message: FoundPlaces) -> Message:
    """Lie about the number of a place found: send that of another place, or of the first one."""
    places = message.places.copy()
    places[0, place] = places[0, 0] if number is None else number
    return FoundPlaces(places=places, points=message.points)


UNKNOWN = partial(renumbered, 0, 100), "sent place number 100; the numbers must be below 100"
TWICE = partial(renumbered, -1, None), "sent two points for one place"


@pytest.mark.parametrize(
    ("way", "culprit", "kind", "change", "said"),
    [
        (RESPONSE, CLIENT, Buckets, lambda _: Buckets(named=np.array([16], np.uint32)), "named"),
        (RESPONSE, SERVER, Top, lambda _: Top(splits=np.zeros(0)), "sent numbers of shape"),
        (RESPONSE, SERVER, Top, lambda _: Top(splits=np.full(16, np.nan)), "is not finite"),
        *((way, SERVER, FoundPlaces, *lie) for way in (RESPONSE, WALK) for lie in (UNKNOWN, TWICE)),
    ],
)
def test_a_malicious_party_is_named(
    way: dict[str, Any],
    culprit: str,
    kind: type[Message],
    change: Callable[[Any], Message],
    said: str,
) -> None:
    """A bucket, splits or places that no honest party sends name the culprit."""
    liars = {culprit: Alter(change, only=(kind,))}
    with pytest.raises(RunFailed) as failed:
        looked_up(QUERIES[:1], plan=LookupPlan(3), adversaries=liars, **way)
    errors = [each for each in failed.value.errors.values() if isinstance(each, ProtocolViolation)]
    assert [error.culprit for error in errors] == [culprit]
    assert said in str(errors[0])


@pytest.mark.parametrize("way", [name for name, each in WAYS.items() if each.name == "tree-walk"])
def test_a_query_spends_at_most_epsilon(way: str) -> None:
    """The drawn distribution is slightly noisier than requested, for any number of batches.

    The guarantee covers any two queries.
    """
    setup = handed(WAYS[way].replaced(epsilon=6.0))
    spent, promise = setup.spent(3), TreeWalk().promise()
    assert spent == setup.spent(1)
    assert spent.epsilon is not None
    assert 0.999999 * 6.0 < spent.epsilon <= 6.0
    assert (spent.delta, spent.times, spent.unit) == (0.0, 1, "query")
    assert setup.promise.epsilon == spent.epsilon
    assert (promise.epsilon, promise.delta, promise.unit) == (8.0, 0.0, "query")
    assert (promise.measure, promise.adjacency) == ("ε-LDP", "any two queries")


async def test_equal_queries_of_a_batch_are_asked_once() -> None:
    """Equal queries of a batch have one answer, are paid for once and keep their positions."""
    setup = handed(TreeWalk(epsilon=1e-3, k=1))
    queries = np.random.default_rng(2).random((10, 2))
    twice = np.vstack([queries[::-1], queries, queries])
    run = await played(setup, twice)
    cost = setup.play(twice).forecast(run)
    assert cost == setup.lookup.cost(10)
    assert (run.cost.rounds, run.cost.bytes) == (cost.rounds, cost.traffic.bytes)
    labels = run.results["ann"]
    np.testing.assert_array_equal(labels[10:20], labels[:10][::-1])
    np.testing.assert_array_equal(labels[20:], labels[10:20])


def test_the_reference_is_the_classifier_without_privacy() -> None:
    """The reference equals scikit-learn over all rows, and a look-up of all rows."""
    setup = handed(TreeWalk(k=3, by="walk", splits=6))
    queries = np.random.default_rng(2).random((30, 2))
    rows = np.vstack([part.features for part in setup.parts.values()])
    labels = np.concatenate([part.labels for part in setup.parts.values()])
    expected = KNeighborsClassifier(3).fit(rows, labels).predict(queries)
    np.testing.assert_array_equal(setup.reference(queries), expected)
    np.testing.assert_array_equal(setup.label(queries, np.random.default_rng(0)), expected)
