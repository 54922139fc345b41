"""Ind-KNN as a system: its guarantee and cost, and equal runs on every runtime."""

from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from papers.baselines import kernel_vote

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.privacy.accounting import ZCDP, GaussianDP, individual_budget
from veilring.protocols.prediction.algorithm.directions import TAU, Kernel, KernelName, tau_share
from veilring.protocols.prediction.algorithm.filter import SIGMA_MAX, public_sigma2
from veilring.protocols.prediction.messages import STREAM_QUERIES
from veilring.protocols.prediction.system import IndKNN, IndKNNSetup
from veilring.protocols.promise import Facts

CLASSES = 3
QUERIES = np.random.default_rng(1).random((60, 2))


def made(rows: int = 60, **parameters: Any) -> IndKNNSetup:
    """Return a setup of three parties, with rows in three directions from the middle."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, rows)
    centres = np.array([[0.9, 0.5], [0.3, 0.9], [0.3, 0.1]])
    features = np.clip(centres[labels] + 0.05 * rng.standard_normal((rows, 2)), 0, 1)
    parts = np.array_split(np.arange(rows), 3)
    dealt = {f"party-{n}": Rows(features[part], labels[part]) for n, part in enumerate(parts)}
    return IndKNN(**parameters).setup(dealt, Facts(3, 2, CLASSES, rows))


def test_a_batch_is_a_stream_of_its_length_or_the_declared_one() -> None:
    """With `auto` a batch has any number of queries, and no stream is shorter than 4."""
    assert [made().rules(count).queries for count in (1, 4, 50)] == [4, 4, 50]
    assert made(queries=30).rules(50).queries == made(queries=30).batch_max == 30
    assert IndKNN().bind(Facts(1, 2, CLASSES)).queries == STREAM_QUERIES


def test_a_server_knows_numbers_that_are_not_given() -> None:
    """τ, σ2 and T are those given, or follow from ε and the public facts.

    σ2 falls with ε and grows with the stream, within the range of a filter.
    """
    facts = Facts(1, 7, 4, queries=20)
    auto = IndKNN(epsilon=0.25).bind(facts)
    assert (auto.queries, auto.kernel.tau, auto.sigma2) == (20, TAU, 2.0)
    given = IndKNN(epsilon=0.25, tau=0.5, sigma2=0.5).bind(facts)
    assert (given.kernel.tau, given.sigma2) == (0.5, 0.5)
    assert public_sigma2(4.0, 20) == pytest.approx(0.5)
    assert public_sigma2(1.0, 20 * 2**20) == pytest.approx(2**3)
    assert public_sigma2(1e-300, 20) == SIGMA_MAX


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_tau_is_reached_by_a_fraction_of_all_pairs_of_queries(kernel: KernelName) -> None:
    """It agrees with the cosines of all pairs, one by one; few queries are not a sample."""
    setup = made(kernel=kernel)
    asked = setup.directions(QUERIES)
    chosen = setup.rules(60, asked).kernel
    units = asked / np.linalg.norm(asked, axis=1)[:, None]
    cosines = [float(one @ other) for one, other in combinations(units, 2)]
    share = np.mean([cosine >= chosen.least_cosine - 1e-6 for cosine in cosines])
    assert share == pytest.approx(tau_share(2, 60, 1.0), abs=2 / len(cosines))
    assert setup.rules(9, asked[:9]).kernel.tau == TAU
    assert made(kernel=kernel, tau=0.3).rules(60, asked).kernel.tau == 0.3


def test_tau_does_not_depend_on_records() -> None:
    """Other records of the same public number leave it unchanged; a hidden number is refused."""
    asked = made().directions(QUERIES)
    parts = {"ann": Rows(np.full((60, 2), 0.25), np.zeros(60, np.int64))}
    other = IndKNN().setup(parts, Facts(1, 2, CLASSES, 60))
    assert isinstance(other, IndKNNSetup)
    assert other.rules(60, asked).kernel == made().rules(60, asked).kernel
    with pytest.raises(InputError, match=r"number of rows .* not public here; give a number"):
        IndKNN().setup(parts, Facts(1, 2, CLASSES))
    assert IndKNN(tau=0.5).setup(parts, Facts(1, 2, CLASSES))
    assert "number of records is public" in IndKNN().promise().note
    assert "counts as public" not in IndKNN(tau=0.8).promise().note


@pytest.mark.parametrize("clients", ["together", "apart"])
def test_the_promise_is_for_a_stream(clients: Literal["together", "apart"]) -> None:
    """ε and δ are as given, and the guarantee names the protected parties."""
    promise = IndKNN(epsilon=0.7, delta=1e-6, clients=clients).promise()
    assert (promise.epsilon, promise.delta, promise.unit) == (0.7, 1e-6, "stream")
    assert promise.adjacency == "one record added or removed"
    assert ("individually" in promise.against) == (clients == "apart")
    assert "double-precision" in promise.note


def test_streams_compose_in_the_budgets_of_records() -> None:
    """Each record may spend its budget in each stream."""
    budget = {by: individual_budget(1.0, 1e-5, by) for by in ("gdp", "rdp")}
    for by, expected in (
        ("gdp", GaussianDP(np.sqrt(6 * budget["gdp"])).epsilon(1e-5)),
        ("rdp", ZCDP(3 * budget["rdp"]).epsilon(1e-5)),
    ):
        setup = made(accountant=by)
        assert [setup.spent(streams).epsilon for streams in (0, 1)] == [0.0, 1.0]
        assert setup.spent(3).epsilon == pytest.approx(expected)
        assert (setup.spent(3).delta, setup.spent(3).what) == (1e-5, "for 3 streams")


def test_without_noise_labels_are_the_vote_of_the_kernel() -> None:
    """Labels are those of all neighbours if the noise is far below a vote."""
    setup, queries = made(epsilon=1e4, sigma2=0.05, tau=0.9), QUERIES[:12]
    records, asked = setup.records, setup.directions(queries)
    classes = records.labels.astype(np.int64)
    expected = kernel_vote(records.directions, classes, asked, Kernel(tau=0.9), CLASSES)
    near = (asked @ records.directions.T).max(axis=1) > 0.95 * 4090**2
    assert near.sum() > 5
    here = setup.label(queries, np.random.default_rng(2))
    np.testing.assert_array_equal(here[near], expected[near])


def test_an_audit_examines_the_noisy_votes_that_labels_are_chosen_from() -> None:
    """Each stream has full budgets, and the class with the most noisy votes is its label."""
    setup, queries, rng = made(), QUERIES[:5], np.random.default_rng(2)
    drawn = setup.observe(queries, 2, np.random.default_rng(2)).reshape(2, 5, 1 + CLASSES)
    labels = [setup.label(queries, rng) for _ in range(2)]
    np.testing.assert_array_equal(drawn[:, :, 1:].argmax(axis=2), labels)


def test_a_row_in_the_middle_has_the_direction_of_the_diagonal() -> None:
    """Otherwise directions are measured from the middle, for any other rows."""
    setup = made()
    rows = np.array([[0.5, 0.5], [1.0, 1.0], [0.5, 0.9]])
    directions = setup.directions(rows)
    np.testing.assert_array_equal(directions[0], directions[1])
    np.testing.assert_array_equal(directions[2], [0, 4090])
    assert rows[0, 0] == 0.5
