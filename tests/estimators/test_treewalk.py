"""The client's estimator: the results, costs and privacy losses of walks and responses."""

from typing import Any, Literal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, scaled, three_classes

from veilring.errors import InputError
from veilring.estimators import TreeWalkClassifier
from veilring.nodes.journal import Traffic
from veilring.protocols.promise import Forecast
from veilring.protocols.treewalk import Comparison, LookupPlan, response_cost, walk_cost, walk_loss

ROWS, LABELS = three_classes(100)
QUERIES, _ = three_classes(12, seed=2)
WALKS = [
    TreeWalkClassifier(6.0, "walk"),
    TreeWalkClassifier(6.0, "walk", neighbours=3),
    TreeWalkClassifier(6.0, "walk", splits=2),
]
IDS = ["basic", "neighbours", "buckets"]


def fitted(model: TreeWalkClassifier, **changed: object) -> Any:
    """Return a fitted copy with public ranges."""
    return clone(model).set_params(ranges=RANGES, **changed).fit(ROWS, LABELS)


@pytest.mark.parametrize("model", WALKS, ids=IDS)
def test_a_query_spends_what_its_walk_spends(model: TreeWalkClassifier) -> None:
    """A walk has the model's parameters, and spends at most its epsilon, always."""
    client = fitted(model, random_state=1)
    splits = 0 if model.splits == "auto" else model.splits
    steps = Comparison(2 * 6.0 * (1 - 2.0**-40) / (7 - splits))
    lookup = client.setup_.lookup
    assert (lookup.steps, lookup.splits) == (steps, splits)
    before = client.deployment_privacy_
    client.predict(QUERIES)
    assert client.deployment_privacy_ == before
    assert before.epsilon == walk_loss(steps, 7 - splits)
    assert 0.999999 * 6.0 < before.epsilon <= 6.0
    assert (before.measure, before.unit, before.delta) == ("ε-LDP", "query", 0.0)


@pytest.mark.parametrize(("rows", "splits"), [(100, 5), (16, 3), (3, 1), (2, 0)])
def test_by_default_a_client_names_a_bucket(rows: int, splits: int) -> None:
    """By default, a client names a bucket of 32 places, or fewer if there were only one bucket."""
    client = clone(TreeWalkClassifier(6.0)).set_params(ranges=RANGES)
    client.fit(ROWS[:rows], LABELS[:rows]).predict(QUERIES)
    assert client.cost_ == response_cost(LookupPlan(splits, 0, len(QUERIES)), rows, 2)


def test_more_than_sixteen_features_are_refused() -> None:
    """The error names the limit of features."""
    with pytest.raises(InputError, match="allowed: 1 to 16"):
        TreeWalkClassifier().fit(np.random.default_rng(0).random((10, 17)), np.arange(10) % 2)


def test_a_response_spends_its_epsilon_and_no_more() -> None:
    """The drawn distribution is slightly noisier than requested."""
    spent = fitted(TreeWalkClassifier(6.0, "response")).deployment_privacy_.epsilon
    assert 0.999999 * 6.0 < spent <= 6.0


@pytest.mark.parametrize("model", [TreeWalkClassifier(1e-3, "walk"), TreeWalkClassifier(1e-3)])
def test_a_repeated_query_gets_its_first_answer(model: TreeWalkClassifier) -> None:
    """Within a batch and across batches, a repeated query gets its first answer."""
    client = fitted(model, k=1, random_state=1)
    many = client.predict(np.repeat(QUERIES, 20, axis=0)).reshape(12, 20)
    assert (many == many[:, :1]).all()
    assert len(np.unique(many[:, 0])) > 1
    np.testing.assert_array_equal(client.predict(QUERIES[::-1]), many[::-1, 0])


@pytest.mark.parametrize("by", ["walk", "response"])
def test_only_new_queries_are_sent_and_cost(by: Literal["walk", "response"]) -> None:
    """A session asks each new query once; the first one also transfers the splits above buckets."""
    client = fitted(TreeWalkClassifier(6.0, by, splits=0))

    def session(queries: int, *, is_known: bool) -> Forecast:
        plan = LookupPlan(queries=queries)
        if by == "response":
            return response_cost(plan, len(ROWS), 2, is_known=is_known)
        return walk_cost(plan, len(ROWS), 2)

    client.predict(np.vstack([QUERIES[:5], QUERIES[:5]]))
    assert client.cost_ == session(5, is_known=False)
    client.predict(QUERIES)
    assert client.cost_ == session(7, is_known=True)
    client.predict(QUERIES[::-1])
    assert client.cost_ == Forecast(0, Traffic())
    client.fit(ROWS, LABELS).predict(QUERIES)
    assert client.cost_ == session(12, is_known=False)


def test_without_much_noise_the_nearest_places_vote() -> None:
    """A walk that returns all leaves finds the true k nearest neighbours."""
    model = fitted(TreeWalkClassifier(1.0, "walk", splits=7), random_state=1)
    theirs = KNeighborsClassifier(5).fit(scaled(ROWS), LABELS)
    np.testing.assert_array_equal(model.predict(QUERIES), theirs.predict(scaled(QUERIES)))
    assert model.deployment_privacy_.epsilon == 0.0


def test_queries_beyond_a_session_are_asked_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session has its own rounds; the splits above buckets are sent once."""
    walking = fitted(TreeWalkClassifier(6.0, "walk"))
    responding, once = (fitted(TreeWalkClassifier(6.0, splits=0)) for _ in range(2))
    once.predict(QUERIES[:5])
    monkeypatch.setattr("veilring.protocols.treewalk.plan.CONTENT_BYTES_MAX", 20 * 5)
    walking.predict(QUERIES)
    assert walking.cost_.rounds == 3 * 15
    responding.predict(QUERIES)
    assert responding.cost_.rounds == 3 * 2
    assert once.cost_.setup.bytes < responding.cost_.setup.bytes < 2 * once.cost_.setup.bytes
