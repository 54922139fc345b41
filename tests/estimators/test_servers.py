"""Classifiers of a server: a data owner, predictions from private records, and public places."""

from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, named, scaled, three_classes

import veilring.estimators as ve
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.nodes.journal import Traffic
from veilring.nodes.service import run_inline
from veilring.privacy.accounting import individual_budget
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.promise import Forecast
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.neighbourhood import public_k
from veilring.protocols.radius.owner import Owner, ask_nearest, ask_within
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, walk_loss
from veilring.protocols.treewalk.plan import LookupPlan, response_cost, walk_cost

pytestmark = pytest.mark.filterwarnings("ignore::veilring.estimators.PrivacyLeakWarning")
ROWS, LABELS = three_classes(200)
QUERIES, _ = three_classes(40, seed=2)
Model = ve.OwnerRadiusClassifier | ve.OwnerKNNClassifier
OWNERS = [
    ve.OwnerRadiusClassifier(0.7, 0.1),
    ve.OwnerKNNClassifier(0.7, 10),
    ve.OwnerKNNClassifier(0.7, 10, conversion_share=0.5, public_rows=True),
]


def request_of(model: Model, queries: Floats, epsilon: float = 0.7) -> LabelRequest:
    """Return an analyst's request."""
    if isinstance(model, ve.OwnerKNNClassifier):
        k = public_k(model.k, queries.shape[1], len(ROWS))
        return ask_nearest(scaled(queries), k, epsilon)
    return ask_within(scaled(queries), np.full(len(queries), float(model.radius)), epsilon)


@pytest.mark.parametrize("model", OWNERS, ids=named)
def test_spending_equals_the_owners_ledger(model: Model) -> None:
    """Each batch is charged once, even if repeated, and batches add up."""
    fitted: Any = clone(model).set_params(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    assert fitted.deployment_privacy_.epsilon == 0.0
    rows = Rows(scaled(ROWS), np.unique(LABELS, return_inverse=True)[1])
    rng = np.random.default_rng(1)
    with open_ledger(None, Budgets(total=10.0)) as ledger:
        owner = Owner(rows, fitted.setup_.rules, ledger, run_inline)
        for queries in (QUERIES, QUERIES[:7], QUERIES, QUERIES[7:]):
            fitted.predict(queries)
            owner.answer_once("ann", request_of(model, queries), rng)
            spent = ledger.totals().spent
            assert fitted.deployment_privacy_.epsilon == pytest.approx(spent, rel=1e-12)
    assert fitted.deployment_privacy_.epsilon == pytest.approx(3 * 0.7, rel=1e-12)
    assert (fitted.deployment_privacy_.measure, fitted.privacy_.delta) == ("pure ε-DP", 0.0)


def test_the_number_of_rows_is_counted_unless_public() -> None:
    """A public number of rows is reported, and counting any other costs a share of the budget."""
    nearest = ve.OwnerKNNClassifier(conversion_share=0.5, public_rows=True, ranges=RANGES)
    nearest.fit(ROWS, LABELS)
    rules = nearest.setup_.rules
    assert (rules.facts.rows, rules.nearest(5, 1.0).parts.counting) == (len(ROWS), 0.0)
    assert "public" in nearest.privacy_.note
    assert rules.nearest(5, 1.0).parts.converting == 0.5
    ours = ve.OwnerKNNClassifier(k=10, ranges=RANGES).fit(ROWS, LABELS)
    parts = ours.setup_.rules.nearest(5, 1.0).parts
    assert parts.counting > 0.0
    assert parts.converting == pytest.approx(0.09)
    assert not ours.privacy_.note


def test_rows_beyond_a_servers_limits_are_refused() -> None:
    """The fit ends with the greatest distance in the unit cube, or the limit of features."""
    with pytest.raises(InputError, match=r"radii must be from 0 to 1\.41421"):
        ve.OwnerRadiusClassifier(radius=2.0).fit(ROWS, LABELS)
    with pytest.raises(InputError, match="allowed: 1 to 16"):
        ve.TreeWalkClassifier().fit(np.random.default_rng(0).random((10, 17)), np.arange(10) % 2)


@pytest.mark.parametrize(("delta", "rows"), [(0.9, 50), (0.0011, 50), (0.006, 200)])
def test_a_delta_that_may_reveal_rows_gives_a_warning(delta: float, rows: int) -> None:
    """Above 0.001, or one over the number of rows, a fit warns with the reason."""
    model = ve.IndKNNClassifier(1.0, delta=delta, ranges=RANGES)
    with pytest.warns(ve.PrivacyLeakWarning, match="probability with which a row may be revealed"):
        model.fit(ROWS[:rows], LABELS[:rows])


@pytest.mark.parametrize("accountant", ["gdp", "rdp"])
def test_streams_add_up_in_the_records_budgets(accountant: Literal["gdp", "rdp"]) -> None:
    """A batch within the stream is free; a new stream costs each record another budget."""
    settings: Any = {"accountant": accountant, "ranges": RANGES, "random_state": 1}
    model = ve.IndKNNClassifier(1.0, 1e-5, queries=50, **settings).fit(ROWS, LABELS)
    assert model.deployment_privacy_.epsilon == 0.0
    for queries in (QUERIES[:30], QUERIES[:30], QUERIES[30:], QUERIES[:10]):
        model.predict(queries)
        assert (model.deployment_privacy_.epsilon, model.privacy_.delta) == (1.0, 1e-5)
    for streams, queries in ((2, QUERIES[:20]), (3, QUERIES[:40])):
        model.predict(queries)
        spent = model.deployment_privacy_.epsilon
        assert spent is not None
        assert 1.0 < spent < streams
        budget = streams * individual_budget(1.0, 1e-5, accountant)
        assert individual_budget(spent, 1e-5, accountant) == pytest.approx(budget, rel=1e-6)
        assert model.privacy_.unit == f"{streams} streams"


def test_a_stream_is_as_long_as_declared_or_as_its_batch() -> None:
    """A longer batch is refused at no cost; by default it begins a stream unless one has room."""
    model = ve.IndKNNClassifier(queries=10, ranges=RANGES).fit(ROWS, LABELS)
    with pytest.raises(InputError, match="40 queries at once"):
        model.predict(QUERIES)
    spent = [model.deployment_privacy_.epsilon]
    model = ve.IndKNNClassifier(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    for queries in (QUERIES[:1], QUERIES[1:4], QUERIES[4:5]):
        model.predict(queries)
        spent.append(model.deployment_privacy_.epsilon)
    assert spent[:3] == [0.0, 1.0, 1.0]
    assert spent[3] is not None
    assert spent[3] > 1.0


def test_a_stream_that_does_not_begin_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If records cannot get a budget, the open stream continues unchanged."""
    model = ve.IndKNNClassifier(ranges=RANGES, queries=30, random_state=1).fit(ROWS, LABELS)
    model.predict(QUERIES[:20])
    before = model.privacy_
    with monkeypatch.context() as patched:
        patched.setattr(Predictor, "add", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            model.predict(QUERIES[20:])
    assert model.privacy_ == before
    model.predict(QUERIES[:10])
    assert model.privacy_ == before


def test_directions_depend_on_no_other_row() -> None:
    """With public ranges each row's direction depends on that row only, even at the centre."""
    model = ve.IndKNNClassifier(ranges=RANGES, random_state=1)
    model.fit(np.vstack([ROWS, np.zeros((1, 2))]), np.append(LABELS, "ash"))
    whole = model.setup_.records.directions
    np.testing.assert_array_equal(whole[:-1], quantise(np.clip(ROWS, *RANGES) / 4))
    np.testing.assert_array_equal(whole[-1:], quantise(np.ones((1, 2))))
    model.fit(ROWS[:50], LABELS[:50])
    np.testing.assert_array_equal(model.setup_.records.directions, whole[:50])


PLACES, KINDS = three_classes(100)
FEW, _ = three_classes(12, seed=2)


def walking(model: ve.TreeWalkClassifier, **changed: object) -> Any:
    """Return a walking copy with public ranges."""
    return clone(model).set_params(ranges=RANGES, **changed).fit(PLACES, KINDS)


@pytest.mark.parametrize("given", [{}, {"neighbours": 3}, {"splits": 2}], ids=str)
def test_a_query_spends_what_its_walk_spends(given: Any) -> None:
    """A walk has the model's parameters; it and a response spend at most their epsilon, always."""
    client = walking(ve.TreeWalkClassifier(6.0, "walk", **given), random_state=1)
    splits = given.get("splits", 0)
    steps = Comparison(2 * 6.0 * (1 - 2.0**-40) / (7 - splits))
    lookup = client.setup_.lookup
    assert (lookup.steps, lookup.splits) == (steps, splits)
    before = client.deployment_privacy_
    client.predict(FEW)
    assert client.deployment_privacy_ == before
    assert before.epsilon == walk_loss(steps, 7 - splits)
    assert (before.measure, before.unit, before.delta) == ("ε-LDP", "query", 0.0)
    response = walking(ve.TreeWalkClassifier(6.0, "response", **given)).deployment_privacy_
    for spent in (before.epsilon, response.epsilon):
        assert 0.999999 * 6.0 < spent <= 6.0


@pytest.mark.parametrize(("rows", "splits"), [(100, 5), (16, 3), (3, 1), (2, 0)])
def test_by_default_a_client_names_a_bucket(rows: int, splits: int) -> None:
    """By default, a client names a bucket of 32 places, or fewer if there were only one bucket."""
    client = clone(ve.TreeWalkClassifier(6.0)).set_params(ranges=RANGES)
    client.fit(PLACES[:rows], KINDS[:rows]).predict(FEW)
    assert client.cost_ == response_cost(LookupPlan(splits, 0, len(FEW)), rows, 2)


@pytest.mark.parametrize(
    "model", [ve.TreeWalkClassifier(1e-3, "walk"), ve.TreeWalkClassifier(1e-3)]
)
def test_a_repeated_query_gets_its_first_answer(model: ve.TreeWalkClassifier) -> None:
    """Within a batch and across batches, a repeated query gets its first answer."""
    client = walking(model, k=1, random_state=1)
    many = client.predict(np.repeat(FEW, 20, axis=0)).reshape(12, 20)
    assert (many == many[:, :1]).all()
    assert len(np.unique(many[:, 0])) > 1
    np.testing.assert_array_equal(client.predict(FEW[::-1]), many[::-1, 0])


@pytest.mark.parametrize("by", ["walk", "response"])
def test_only_new_queries_are_sent_and_cost(by: Literal["walk", "response"]) -> None:
    """A session asks each new query once."""
    client = walking(ve.TreeWalkClassifier(6.0, by, splits=0))

    def session(queries: int) -> Forecast:
        plan = LookupPlan(queries=queries)
        if by == "response":
            return response_cost(plan, len(PLACES), 2)
        return walk_cost(plan, len(PLACES), 2)

    client.predict(np.vstack([FEW[:5], FEW[:5]]))
    assert client.cost_ == session(5)
    client.predict(FEW)
    assert client.cost_ == session(7)
    client.predict(FEW[::-1])
    assert client.cost_ == Forecast(0, Traffic())
    client.fit(PLACES, KINDS).predict(FEW)
    assert client.cost_ == session(12)


def test_without_much_noise_the_nearest_places_vote() -> None:
    """A walk that returns all leaves finds the true k nearest neighbours."""
    model = walking(ve.TreeWalkClassifier(1.0, "walk", splits=7), random_state=1)
    theirs = KNeighborsClassifier(5).fit(scaled(PLACES), KINDS)
    np.testing.assert_array_equal(model.predict(FEW), theirs.predict(scaled(FEW)))
    assert model.deployment_privacy_.epsilon == 0.0


def test_queries_beyond_a_session_are_asked_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session has its own rounds and its own set-up."""
    client = walking(ve.TreeWalkClassifier(6.0, "walk"))
    responding, once = (walking(ve.TreeWalkClassifier(6.0, splits=0)) for _ in range(2))
    once.predict(FEW[:5])
    monkeypatch.setattr("veilring.protocols.treewalk.plan.CONTENT_BYTES_MAX", 20 * 5)
    client.predict(FEW)
    assert client.cost_.rounds == 3 * 15
    responding.predict(FEW)
    assert responding.cost_.rounds == 3 * 2
    assert responding.cost_.setup.messages == 3 * once.cost_.setup.messages
