"""Searches with shared counts: labels, votes, costs and refusals."""

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import bound

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.nodes.run import Run
from veilring.protocols.ranksearch import (
    SearchAnswer,
    SearchedRows,
    SearchParameters,
    found_cost,
    rank_search,
    search_cost,
)
from veilring.protocols.ranksearch.algorithm.search import End
from veilring.protocols.ranksearch.algorithm.votes import Ranked, search_rows
from veilring.protocols.ranksearch.parameters import Reveal
from veilring.protocols.ranksearch.shared import CHECK_ROUNDS
from veilring.protocols.ring.algorithm.classify import Weights, pooled_knn
from veilring.testing import ProtocolRunner

pytestmark = pytest.mark.slow

CLASSES = 3
REVEALS: tuple[Reveal, ...] = ("votes", "label")


def parameters_of(
    k: int, reveal: Reveal, weights: Weights = "uniform", classes: int = CLASSES
) -> SearchParameters:
    """Return the parameters of a search among points of a square."""
    return bound(2, classes, k=k, reveal=reveal, weights=weights)


def dealt(parties: int, *, grid: int | None, seed: int) -> tuple[list[Rows], np.ndarray]:
    """Return queries, and rows on a grid with many ties; the last party has none."""
    rng = np.random.default_rng(seed)

    def points(count: int) -> np.ndarray:
        drawn = rng.random((count, 2))
        return drawn if grid is None else np.rint(drawn * grid) / grid

    sizes = [*rng.integers(1, 12, parties - 1), 0]
    parts = [Rows(points(size), rng.integers(0, CLASSES, size)) for size in sizes]
    return parts, points(9)


def asked(
    run_protocol: ProtocolRunner,
    parts: list[Rows],
    queries: np.ndarray,
    parameters: SearchParameters,
) -> Run[SearchAnswer]:
    """Run a batch, and check that all parties have equal answers."""
    own = [SearchedRows(rows) for rows in parts]
    run = run_protocol(
        rank_search,
        len(parts),
        own=own,
        only={"party-0": {"queries": queries}},
        client="party-0",
        parameters=parameters,
    )
    first, *others = run.results.values()
    for other in others:
        assert (other.labels == first.labels).all()
        assert other.found.shared == first.found.shared
    return run


def in_one_place(parts: list[Rows], queries: np.ndarray, parameters: SearchParameters) -> Ranked:
    """Return the answer by the same steps in this process."""
    return search_rows(
        queries,
        parts,
        classes=CLASSES,
        k=parameters.system.k,
        upper=parameters.upper,
        arity=parameters.system.arity,
        weights=parameters.system.weights,
    )


@pytest.mark.parametrize(("parties", "k"), [(3, 1), (4, 20), (5, 2), (8, 5)])
@pytest.mark.parametrize("grid", [None, 3], ids=["scattered", "ties"])
@pytest.mark.parametrize("reveal", REVEALS)
def test_answers_equal_those_of_the_pooled_rows(
    run_protocol: ProtocolRunner, parties: int, k: int, grid: int | None, reveal: Reveal
) -> None:
    """Labels, votes and intervals equal those of the pooled rows, with ties and an empty party."""
    parts, queries = dealt(parties, grid=grid, seed=100 * parties + k)
    parameters = parameters_of(k, reveal)
    answer = asked(run_protocol, parts, queries, parameters).results["party-0"]
    expected = in_one_place(parts, queries, parameters)
    pooled = Rows(
        np.vstack([rows.features for rows in parts]),
        np.concatenate([rows.labels for rows in parts]),
    )
    by_all = pooled_knn(queries, pooled.features, pooled.labels, CLASSES, k)
    assert answer.labels.tolist() == by_all.tolist()
    if reveal == "label":
        assert answer.votes is None
        assert answer.tied_rows is not None
        assert answer.tied_rows.tolist() == expected.tied_rows.tolist()
    else:
        assert answer.votes is not None
        assert answer.votes.tolist() == expected.votes.values.tolist()
    assert answer.found.radii.tolist() == expected.found.radii.tolist()
    assert answer.found.ends.tolist() == expected.found.ends.tolist()
    assert answer.found.shared == expected.found.shared


@pytest.mark.parametrize("k", [1, 3, 30])
def test_weighted_votes_equal_those_of_the_pooled_rows(
    run_protocol: ProtocolRunner, k: int
) -> None:
    """Votes weighted by distance equal those of the pooled rows, even with fewer than k rows."""
    parts, queries = dealt(4, grid=4, seed=k)
    parameters = parameters_of(k, "votes", "distance")
    answer = asked(run_protocol, parts, queries, parameters).results["party-0"]
    assert answer.votes is not None
    assert answer.votes.tolist() == in_one_place(parts, queries, parameters).votes.values.tolist()
    assert (k != 30) or (answer.found.ends == End.FEW).all()


@pytest.mark.parametrize(("parties", "k"), [(3, 1), (4, 100), (8, 5)])
@pytest.mark.parametrize("grid", [None, 2], ids=["scattered", "ties"])
@pytest.mark.parametrize("reveal", REVEALS)
def test_a_search_costs_its_closed_form(
    run_protocol: ProtocolRunner, parties: int, k: int, grid: int | None, reveal: Reveal
) -> None:
    """Messages, bytes and rounds equal the closed form, and lie within the predicted range."""
    parts, queries = dealt(parties, grid=grid, seed=k)
    parameters = parameters_of(k, reveal)
    run = asked(run_protocol, parts, queries, parameters)
    answer = run.results["party-0"]
    expected = found_cost(parties, answer.found, parameters, answer.tied_rows)
    assert (expected.rounds, *expected.traffic) == (
        run.cost.rounds,
        run.cost.messages,
        run.cost.bytes,
    )
    assert expected.setup == run.cost.setup
    least = search_cost(parties, len(queries), parameters)
    assert least.most is not None
    assert least.rounds <= expected.rounds <= least.most.rounds
    assert least.traffic.bytes <= expected.traffic.bytes <= least.most.traffic.bytes


def test_a_thousand_queries_take_at_most_72_rounds() -> None:
    """With eight parties and k = 5, a thousand queries take at most 72 rounds."""
    most = search_cost(8, 1000, parameters_of(5, "votes")).most
    assert most is not None
    assert most.rounds <= 17 * 4 + 2 + CHECK_ROUNDS


@pytest.mark.parametrize(("k", "parties"), [(5, 10_921), (21_840, 3)])
def test_totals_beyond_the_field_are_refused(k: int, parties: int) -> None:
    """Parameters for which the total of the counts could reach the prime are refused."""
    with pytest.raises(InputError):
        parameters_of(k, "votes").check_parties(parties)


def test_weighted_votes_without_revealed_votes_are_refused() -> None:
    """Weighted votes cannot be compared without revealing them, and `weights` is refused."""
    with pytest.raises(InputError) as caught:
        parameters_of(5, "label", "distance")
    assert caught.value.field == "weights"
