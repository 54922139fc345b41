"""Rank search as a system: equal on every runtime, at its steps' cost, and refusals."""

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.ranksearch.worlds import bound, label, ready, votes_within
from tests.protocols.ring.cheats import ask_nonsense
from tests.protocols.ring.worlds import culprits
from tests.protocols.ring.worlds import play as run_once

from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError, RunFailed
from veilring.nodes.adversary import Alter
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.batches import Queries
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.promise import Facts, Forecast
from veilring.protocols.ranksearch import Reveal
from veilring.protocols.ranksearch.algorithm.search import End
from veilring.protocols.ranksearch.algorithm.shares import Nonzero
from veilring.protocols.ranksearch.algorithm.votes import TIED_ROWS, Votes, no_votes
from veilring.protocols.ranksearch.memory import SearchedRows
from veilring.protocols.ranksearch.roles import SearchAnswer, rank_search
from veilring.protocols.ranksearch.shared import CHECK_ROUNDS, found_cost, search_cost
from veilring.protocols.ranksearch.system import RankSearch
from veilring.scenarios import load_scenario, run_scenario
from veilring.simulation import Constant, LinkModel, Topology
from veilring.testing import ProtocolRunner
from veilring.transport.frames import FRAME_BYTES_MAX
from veilring.transport.messages import SESSION_BYTES, encode

Adding = Literal["all-to-all", "star"]
Places = Literal["apart", "tied"]
SUMS: tuple[Adding, ...] = ("all-to-all", "star")
REVEALS: tuple[Reveal, ...] = ("totals", "votes", "label")
K, FEW = 4, 300
"""Numbers of neighbours: some, and more than there are rows."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    f"{reveal} {adding} {weights}": {"reveal": reveal, "sum": adding, "weights": weights}
    for reveal in REVEALS
    for adding in SUMS[: 1 + (reveal == "totals")]
    for weights in (("uniform",) if reveal == "label" else ("uniform", "distance"))
}
each_way = pytest.mark.parametrize(
    "way", [way if "totals" in way else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]
)
each_place = pytest.mark.parametrize("places", ["apart", "tied"])


@cache
def world(places: Places) -> tuple[Rows, list[Rows], Floats]:
    """Return rows of three features, either distinct or at few places, and the rows of parties.

    All parties hold rows except one. Of the queries, some are at rows.
    """
    rng = np.random.default_rng(4)
    features = rng.integers(0, 3, (120, 3)) / 2 if places == "tied" else rng.random((120, 3))
    rows = Rows(features, rng.integers(0, 3, 120))
    parts = [Rows(rows.features[n::4], rows.labels[n::4]) for n in range(4)]
    queries = np.concatenate([features[:6], np.random.default_rng(5).random((6, 3))])
    return rows, [*parts, Rows(np.zeros((0, 3)), np.zeros(0, np.int64))], queries


def play(runner: ProtocolRunner, way: str, places: Places, k: int = K) -> Run[SearchAnswer]:
    """Have a party in the middle ask."""
    _, parts, queries = world(places)
    return runner(
        rank_search,
        5,
        own=[SearchedRows(rows) for rows in parts],
        only={"party-2": {"queries": queries}},
        client="party-2",
        parameters=bound(3, 3, k=k, **WAYS[way]),
        seed=11,
    )


@cache
def in_memory(way: str, places: Places, k: int = K) -> Run[SearchAnswer]:
    """Run in memory, once for all comparisons."""
    return play(ProtocolRunner("memory"), way, places, k)


@each_way
@each_place
def test_a_run_is_equal_everywhere_at_its_steps_cost(
    run_protocol: ProtocolRunner, way: str, places: Places
) -> None:
    """Answers and transcripts equal those in memory; the cost is the closed form of the steps."""
    run, here = play(run_protocol, way, places), in_memory(way, places)
    assert run.transcript == here.transcript
    expected = here.results["party-2"]
    for answer in run.results.values():
        np.testing.assert_array_equal(answer.labels, expected.labels)
        np.testing.assert_array_equal(answer.votes, expected.votes)
        np.testing.assert_array_equal(answer.found.radii, expected.found.radii)
        assert answer.found.shared == expected.found.shared
    parameters = bound(3, 3, k=K, **WAYS[way])
    cost = found_cost(5, expected.found, parameters, expected.tied_rows)
    assert Forecast.measured(run.cost) == cost


@pytest.mark.parametrize("k", [1, K])
@each_place
def test_a_label_costs_the_closed_form_of_its_ties(places: Places, k: int) -> None:
    """With ties at no queries, some or all, the cost is the closed form; no round is empty."""
    _, parts, queries = world(places)
    setup = ready(parts, k=k, reveal="label")
    run = simulation.simulate(label(setup, {}, queries))
    tied = run.results["party-0"].found.tied
    assert tied.any() == (places == "tied")
    assert tied.all() == (places == "tied" and k == 1)
    assert Forecast.measured(run.cost) == setup.play(queries).forecast(run)
    assert run.cost.rounds == run.cost.rounds_taken


def test_a_batch_that_lacks_nonzero_elements_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it takes more rounds, and has the same labels."""
    monkeypatch.setattr(Nonzero, "to_draw", staticmethod(lambda needed, _p: needed))
    _, parts, queries = world("tied")
    setup = ready(parts, k=K, reveal="label")
    run = simulation.simulate(label(setup, {}, queries))
    labels = run.results["party-0"].labels
    np.testing.assert_array_equal(labels, setup.search(queries, parts).votes.labels)
    assert run.cost.rounds > setup.play(queries).forecast(run).rounds


@pytest.mark.parametrize("k", [K, FEW])
@each_way
@each_place
def test_networked_parties_answer_like_one_with_all_rows(way: str, places: Places, k: int) -> None:
    """Labels, votes and intervals equal those of the steps in one process, also with few rows."""
    answer = in_memory(way, places, k).results["party-0"]
    rows, _, queries = world(places)
    alone = bound(3, 3, k=k, **WAYS[way]).answer(queries, [rows])
    np.testing.assert_array_equal(answer.labels, alone.votes.labels)
    for of in ("radii", "lower", "ends"):
        np.testing.assert_array_equal(getattr(answer.found, of), getattr(alone.found, of))
    assert (answer.found.ends == End.FEW).all() == (k == FEW)
    assert answer.found.tied.any() == (places == "tied" and k == K)
    if "label" in way:
        assert answer.votes is None
        np.testing.assert_array_equal(answer.tied_rows, alone.tied_rows)
    else:
        np.testing.assert_array_equal(answer.votes, alone.votes.values)
    if "uniform" in way:
        votes = votes_within(queries, rows, 3, k)
        np.testing.assert_array_equal(alone.votes.values, votes)


@pytest.mark.parametrize("adding", SUMS)
@each_place
def test_the_rounds_are_the_longest_chain_of_messages(adding: Adding, places: Places) -> None:
    """With one second per hop a run takes its rounds, one step for queries and one for keys."""
    links, (_, parts, queries) = Topology(LinkModel(latency=Constant(1.0))), world(places)
    setup = ready(parts, k=K, sum=adding)
    run = simulation.simulate(label(setup, {}, queries, runtime=Simulated(links)))
    steps = len(run.results["party-0"].found.steps)
    assert run.cost.rounds == (steps + 1) * (1 if adding == "all-to-all" else 2) + CHECK_ROUNDS
    assert run.seconds == run.cost.rounds + 2


@pytest.mark.parametrize(
    ("reveal", "trusted", "opened"),
    [("totals", 2, "sums"), ("votes", 5, "comparisons and votes"), ("label", 5, "comparisons")],
)
def test_the_trusted_parties_are_those_outside_a_coalition(
    reveal: Reveal, trusted: int, opened: str
) -> None:
    """Shared counts need a majority of honest parties, and masked totals need two.

    The promise names the largest coalition. Weights reveal more.
    """
    system = RankSearch(reveal=reveal)
    promise = system.promise(parties=8)
    said = system.trust.format(parties=8, honest=7, outside=8 - system.pooling(8))
    assert said == f"{trusted} of 8"
    assert promise.against == f"any coalition of up to {8 - trusted} of the 8 parties"
    assert (promise.epsilon, promise.guarantee) == (None, f"{opened} only, no ε")
    assert "weighted" not in promise.note
    assert "weighted" in RankSearch(weights="distance").promise(parties=8).note


_SETTINGS = {
    "k": st.sampled_from([1, 2, 5, 60, 300]),
    "arity": st.sampled_from([2, 5, 16, 256]),
    "sum": st.sampled_from(SUMS),
}
_SYSTEMS = st.builds(
    RankSearch, weights=st.sampled_from(["uniform", "distance"]), **_SETTINGS
) | st.builds(RankSearch, reveal=st.sampled_from(["votes", "label"]), **_SETTINGS)


@given(
    parties=st.integers(3, 6),
    queries=st.integers(1, 4),
    rows=st.integers(0, 12),
    places=st.integers(1, 4),
    system=_SYSTEMS,
    seed=st.integers(0, 2**16),
)
@pytest.mark.slow
def test_the_cost_is_within_its_forecast(  # noqa: PLR0917  (the world and the system)
    parties: int, queries: int, rows: int, places: int, system: RankSearch, seed: int
) -> None:
    """Rounds, messages and bytes are between the minimum and the maximum, for any rows."""
    rng = np.random.default_rng(seed)
    parts = [
        Rows(rng.integers(0, places, (rows, 2)) / places, rng.integers(0, 3, rows))
        for _ in range(parties)
    ]
    parameters = system.bind(Facts(parties, 2, 3))
    ranked = parameters.answer(rng.integers(0, places, (queries, 2)) / places, parts)
    cost = found_cost(parties, ranked.found, parameters, ranked.tied_rows)
    range_ = search_cost(parties, queries, parameters)
    assert range_.most is not None
    assert range_.setup == range_.most.setup == cost.setup
    least, exact, most = ((of.rounds, *of.traffic) for of in (range_, cost, range_.most))
    assert all(a <= b <= c for a, b, c in zip(least, exact, most, strict=True))


def test_the_forecast_of_queries_is_that_of_their_batches() -> None:
    """Both ends of the range add up."""
    forecast = partial(RankSearch(batch=10).forecast, parties=5, features=2, classes=3)
    one, three = forecast(queries=10), forecast(queries=30)
    assert one.most is not None
    assert three == one + one + one


def test_eight_parties_answer_a_thousand_queries_within_bounds() -> None:
    """Without ties at most 9 rounds and 3.5 MB, or 1 MB in a star; with ties 17 rounds.

    With k = 5 and shared counts they take at most 72 rounds.
    """
    rng = np.random.default_rng(6)
    features, labels = rng.random((800, 13)), rng.integers(0, 3, 800)
    tied = np.round(features * 2) / 2
    for places, queries in (
        (features, rng.random((1000, 13))),
        (tied, tied[rng.integers(0, 800, 1000)]),
    ):
        parts = [Rows(places[n::8], labels[n::8]) for n in range(8)]
        found = bound(13, 3).answer(queries, parts).found
        costs = [found_cost(8, found, bound(13, 3, sum=adding)) for adding in SUMS]
        if places is features:
            assert (found.ends == End.EXACT).all()
            assert costs[0].rounds <= 9
            assert costs[0].traffic.bytes <= 3_500_000
            assert costs[1].traffic.bytes <= 1_000_000
        else:
            assert found.tied.any()
            assert costs[0].rounds <= 17
    most = search_cost(8, 1000, bound(2, 3, k=5, reveal="votes")).most
    assert most is not None
    assert most.rounds <= 17 * 4 + 2 + CHECK_ROUNDS


@pytest.mark.parametrize("adding", SUMS)
def test_a_report_compares_the_cost_with_the_forecast(adding: Adding) -> None:
    """They are equal, and labels agree with the pooled classifier's."""
    overrides = ["protocol.name=rank-search", f"protocol.sum={adding}", "parties.count=5"]
    report = run_scenario(load_scenario("wine", overrides), runtime="simulated", seed=1)
    assert report.cost == report.forecast
    assert report.agreement == 1.0


@pytest.mark.parametrize(
    ("parameters", "features", "classes"),
    [
        ({}, 200, 2),
        ({"k": 40_000, "arity": 256}, 2, 2),
        ({"weights": "distance"}, 2, 40),
        ({"weights": "uniform"}, 2, 300),
    ],
    ids=["queries", "counts", "weighted votes", "votes"],
)
def test_every_message_of_a_full_batch_fits_a_frame(
    parameters: dict[str, Any], features: int, classes: int
) -> None:
    """The widest message nearly fills a frame, with words of maximum width."""
    public = bound(features, classes, **parameters)
    most = public.queries_max
    tied = np.ones(most, np.bool_)
    arrays = no_votes(most, classes, public.system.weights).arrays(tied, public.system.k)
    k, arity = public.system.k, public.system.arity
    counts = np.zeros(most * arity, public.count_word(100_000 // k + 3))
    digest, session = bytes(DIGEST_BYTES), bytes(SESSION_BYTES)
    sizes = [
        len(encode(session, message))
        for message in (
            Queries(features=np.zeros((most, features))),
            MaskedWords(digest=digest, words=(counts,)),
            MaskedTotals(digest=digest, words=tuple(array.ravel() for array in arrays)),
        )
    ]
    assert 0.99 * FRAME_BYTES_MAX < max(sizes) <= FRAME_BYTES_MAX


@pytest.mark.parametrize("parties", [3, 4, 8])
def test_the_maximum_number_of_tied_rows_fits_a_word(parties: int) -> None:
    """All rows of all parties may tie and have one class: their total is below 2^32."""
    each = np.array([[TIED_ROWS // parties]], dtype=np.uint64)
    tied = np.array([True])
    arrays = zip(*(Votes(each).arrays(tied, 1) for _ in range(parties)), strict=True)
    total = Votes.of([np.add.reduce(words, dtype=words[0].dtype) for words in arrays], tied)
    assert total.counts.tolist() == (each * parties).tolist()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"k": 0}, "k is 0; allowed: a whole number from 1 to 65,534"),
        ({"k": 65_535}, "k is 65535; allowed: a whole number from 1 to 65,534"),
        ({"arity": 1}, "arity is 1; allowed: a whole number from 2 to 256"),
        ({"arity": 257}, "arity is 257; allowed: a whole number from 2 to 256"),
        ({"sum": "ring"}, "sum is .*ring.*; allowed: all-to-all or star"),
        ({"reveal": "rows"}, "reveal is .*rows.*; allowed: totals"),
        ({"weights": "heavy"}, "weights is .*heavy.*; allowed: uniform or distance"),
        ({"again": "perhaps"}, "again is .*perhaps.*; allowed: true or false"),
        ({"batch": 0}, "batch is 0; allowed: a whole number of at least 1"),
        ({"kk": 3}, "kk"),
        ({"features": 0}, "features is 0; allowed: at least 1"),
        ({"classes": 0}, "classes is 0; allowed: at least 1"),
        (
            {"k": 21_840, "reveal": "votes"},
            'k is 21840; allowed: 1 to 21,839 with reveal = "votes"',
        ),
        (
            {"reveal": "label", "weights": "distance"},
            'weights = "distance" needs reveal = "totals" or "votes"',
        ),
        ({"k": 65_534, "parties": 65_538}, "parties is 65538; allowed: 3 to 65,537"),
        ({"reveal": "votes", "parties": 10_921}, "parties is 10921; allowed: 3 to 10,920"),
    ],
    ids=str,
)
def test_a_parameter_out_of_range_is_named(changed: dict[str, Any], said: str) -> None:
    """The error names the parameter and the allowed values; totals must fit a word or a field."""
    parties = changed.pop("parties", 3)
    with pytest.raises(InputError, match=said):
        bound(**{"features": 2, "classes": 2, **changed}).check_parties(parties)


NAMES = ["ada", "bob", "cyd"]
PUBLIC = bound(2, 2, k=2)
ROWS = Rows(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([0, 1]))
QUERIES = np.array([[0.25, 0.5]])


def rows_of(features: Floats, label: int = 0) -> Rows:
    """Return rows of one class."""
    return Rows(features, np.full(len(features), label))


async def refuse(party: Party, *, rows: Rows, queries: Floats | None) -> str:
    """Play the client, and return its error about its own input, without its name."""
    own = SearchedRows(rows)
    with pytest.raises(InputError) as caught:
        await rank_search(party, own, client=party.me, parameters=PUBLIC, queries=queries)
    return str(caught.value).replace(party.me, "the asker")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("queries", np.zeros((1, 3)), r"queries has the shape \(1, 3\); it must be \(queries, 2\)"),
        ("queries", np.zeros(2), r"queries has the shape \(2,\)"),
        ("queries", np.zeros((0, 2)), "queries is 0; allowed: 1 to"),
        ("queries", np.zeros((70_000, 2)), "queries is 70000; allowed: 1 to"),
        *(
            ("queries", np.full((1, 2), value), "queries must be numbers from 0 to 1")
            for value in (2.0, -0.1, np.nan, np.inf)
        ),
        ("queries", None, "the asker is the client and needs a batch of queries"),
        ("rows", rows_of(np.zeros((1, 3))), "the rows have 3 features; the parameters have 2"),
        ("rows", rows_of(np.zeros((1, 2)), 2), "labels must be below 2, the number of classes"),
        ("rows", rows_of(np.zeros((4, 2))), "rows is 4; allowed: at most 3 among 3 parties"),
        ("names", NAMES[:2], "parties is 2; allowed: 3 to"),
    ],
)
async def test_invalid_input_is_refused(
    name: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each party that asks is told its mistake, and nothing is sent.

    If too many rows tied, their votes would not fit a word. Two parties know each other's counts
    from the total.
    """
    monkeypatch.setattr("veilring.protocols.ranksearch.parameters.TIED_ROWS", 9)
    given = {"names": NAMES, "rows": ROWS, "queries": QUERIES, name: value}
    run = await run_once(refuse, **given)
    (error,) = set(run.results.values())
    assert re.search(said, error)
    assert run.cost.setup.messages == run.cost.messages == 0


def test_a_setup_refuses_invalid_parties() -> None:
    """Too few parties, and rows of another schema, are refused before any party starts."""
    with pytest.raises(InputError, match="parties is 2"):
        RankSearch().setup({"ada": ROWS, "bob": ROWS}, Facts(2, 2, 2))
    with pytest.raises(InputError, match="the rows have 2 features"):
        RankSearch().setup(dict.fromkeys(NAMES, ROWS), Facts(3, 3, 2))


def test_a_client_with_invalid_queries_is_named(run_protocol: ProtocolRunner) -> None:
    """All others end the run with its name, and none of them has sent a count."""
    with pytest.raises(RunFailed) as caught:
        run_protocol(
            rank_search,
            NAMES,
            own=[SearchedRows(ROWS) for _ in NAMES],
            adversaries={"bob": Alter(ask_nonsense, only=(Queries,))},
            only={"bob": {"queries": QUERIES}},
            client="bob",
            parameters=PUBLIC,
        )
    assert culprits(caught.value) == {"bob"}
