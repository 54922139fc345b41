"""Classifiers of peers: kNN over all rows, noisy votes within a radius, and one release."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.estimators.tables import RANGES, scaled, three_classes

import veilring as vr
import veilring.estimators as ve
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.protocols.noisyvotes.algorithm.noise import choose_noise
from veilring.protocols.noisyvotes.algorithm.parameters import NearestRows, guarantee, worst_plans
from veilring.protocols.radius.algorithm.allocation import allocate_budget
from veilring.protocols.radius.algorithm.balls import count_votes, overlap_graph
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.ring.algorithm.classify import pooled_knn

pytestmark = pytest.mark.filterwarnings("ignore::veilring.estimators.PrivacyLeakWarning")
ROWS, LABELS = three_classes(150)
QUERIES, _ = three_classes(60, seed=2)
NUMBERS = np.unique(LABELS, return_inverse=True)[1]


@pytest.mark.parametrize("kind", [ve.PrivateKNNClassifier, ve.RankSearchClassifier])
@pytest.mark.parametrize("k", [1, 5, 150])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet", "by-label"])
def test_labels_equal_a_pooled_knn(kind: Any, k: int, weights: Any, partition: str) -> None:
    """For any partition, labels equal those of the pooled kNN and of scikit-learn's."""
    model = kind(5, k, weights=weights, partition=partition, ranges=RANGES, random_state=4)
    labels = model.fit(ROWS, LABELS).predict(QUERIES)
    pooled = pooled_knn(scaled(QUERIES), scaled(ROWS), NUMBERS, 3, k, weights)
    np.testing.assert_array_equal(labels, model.classes_[pooled])
    theirs = KNeighborsClassifier(k, weights=weights).fit(scaled(ROWS), LABELS)
    np.testing.assert_array_equal(labels, theirs.predict(scaled(QUERIES)))
    assert sorted(np.concatenate(model.parts_)) == list(range(150))
    assert len(model.parts_) == 5


def test_queries_beyond_a_message_or_a_batch_are_asked_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Labels stay the same, and each part costs a ring, or has a set-up of its own."""
    whole = ve.RankSearchClassifier(3, ranges=RANGES, random_state=4).fit(ROWS, LABELS)
    parts = ve.RankSearchClassifier(3, ranges=RANGES, random_state=4, batch=20).fit(ROWS, LABELS)
    np.testing.assert_array_equal(whole.predict(QUERIES), parts.predict(QUERIES))
    assert parts.cost_.setup.messages == 3 * whole.cost_.setup.messages
    model = ve.PrivateKNNClassifier(3, ranges=RANGES, random_state=4).fit(ROWS, LABELS)
    labels, cost = model.predict(QUERIES), model.cost_
    monkeypatch.setattr("veilring.protocols.ring.roles.CONTENT_BYTES_MAX", 8 * 5 * 20)
    model.fit(ROWS, LABELS)
    np.testing.assert_array_equal(model.predict(QUERIES), labels)
    assert model.cost_.rounds == 3 * cost.rounds
    assert model.cost_.traffic.messages == 3 * cost.traffic.messages


def test_a_system_becomes_the_same_classifier() -> None:
    """Every parameter of a deployment is a parameter of the classifier."""
    model = ve.as_classifier(RankSearch(k=3, arity=4, weights="distance"), parties=4)
    assert isinstance(model, ve.RankSearchClassifier)
    assert model.get_params().items() >= {"k": 3, "arity": 4, "parties": 4}.items()


MUCH = 1e4  # so little noise that all labels are equal


def wider(rows: Any) -> Any:
    """Return rows with more features than a grid supports."""
    return np.hstack([rows, np.zeros((len(rows), 5))])


def test_with_little_noise_the_rows_within_the_radius_decide() -> None:
    """For any partition, the label is the majority of the rows within the radius."""
    settings: Any = {"partition": "by-label", "ranges": RANGES, "random_state": 2}
    model = ve.NoisyVotesClassifier(5, MUCH, radius=0.2, **settings).fit(ROWS, LABELS)
    labels, radii = model.predict(QUERIES), np.full(len(QUERIES), 0.2)
    votes = count_votes(scaled(QUERIES), radii, Rows(scaled(ROWS), NUMBERS), 3)
    np.testing.assert_array_equal(labels, model.classes_[votes.argmax(axis=1)])
    assert sorted(np.concatenate(model.parts_)) == list(range(150))


@pytest.mark.parametrize("tolerated", [0, 1, 3])
@pytest.mark.parametrize("name", ["shares", "ring"])
def test_the_remaining_epsilon_is_the_familys_account(
    tolerated: int, name: Literal["shares", "ring"]
) -> None:
    """Each batch counts once, against the largest tolerated coalition or a single party."""
    settings: Any = {"tolerated": tolerated, "sum": name, "ranges": RANGES, "random_state": 1}
    model = ve.NoisyVotesClassifier(6, 1.5, radius=0.2, **settings).fit(ROWS, LABELS)
    assert model.deployment_privacy_.epsilon == 0.0
    losses = []
    for queries in (QUERIES, QUERIES[:9], QUERIES):
        model.predict(queries)
        graph = overlap_graph(scaled(queries), np.full(len(queries), 0.2))
        pure, public = allocate_budget(graph, 1.5), model.setup_.parameters.sum
        plan = choose_noise(pure, 1.5, 1e-5, 6 - tolerated)
        losses.append(guarantee([plan], 6, max(1, tolerated), public, tolerated=tolerated))
    spent = model.deployment_privacy_.epsilon
    assert spent is not None
    assert model.deployment_privacy_.delta == 2e-5
    assert spent == pytest.approx(sum(losses[:2]), rel=1e-12)
    # A party's own share is no secret to itself, and two neighbours in a ring leave it alone.
    enough = tolerated > 0 and (name == "shares" or tolerated == 1)
    assert enough == (spent <= 2 * 1.5)
    assert ("at most 3" in model.privacy_.threat_model) == (tolerated == 3)


@pytest.mark.parametrize(("name", "tolerated"), [("shares", 2), ("shares", 0), ("ring", 2)])
@pytest.mark.parametrize("width", [2, 7])
def test_the_epsilon_about_k_does_not_depend_on_rows(
    name: Literal["shares", "ring"], tolerated: int, width: int
) -> None:
    """The ε claimed for counting, finding radii and voting is the worst case, for any rows."""
    queries = QUERIES if width == 2 else wider(QUERIES)
    spent, found = [], []
    for rows in (ROWS, np.zeros_like(ROWS)):
        settings: Any = {"tolerated": tolerated, "sum": name, "ranges": RANGES, "random_state": 1}
        model = ve.NoisyVotesClassifier(6, 1.5, k=10, **settings)
        model.fit(rows if width == 2 else wider(rows), LABELS).predict(queries)
        public = model.setup_.parameters
        assert isinstance(public.neighbours, NearestRows)
        assert public.neighbours.epsilon_count == pytest.approx(0.15)
        spent.append(model.deployment_privacy_.epsilon)
        plans = worst_plans(public, len(queries))
        found.append(guarantee(plans, 6, max(1, tolerated), public.sum, tolerated=tolerated))
    assert spent == pytest.approx(found, rel=1e-12)
    assert spent[0] == spent[1]
    assert spent[0] is not None
    if (name, tolerated) == ("shares", 2):
        assert 1.5 * (1 - 1e-9) <= spent[0] <= 1.5
    else:
        assert spent[0] > 1.5


def test_a_batch_about_k_is_refused_before_any_release() -> None:
    """If its vote might have too little noise, no rows are counted and nothing is spent."""
    model = ve.NoisyVotesClassifier(4, 0.01, k=20, ranges=RANGES).fit(np.zeros_like(ROWS), LABELS)
    many = np.random.default_rng(1).uniform(*RANGES, (400, 2))
    with pytest.raises(InputError, match="there are 400 queries"):
        model.predict(many)
    assert model.deployment_privacy_.epsilon == 0.0
    model.predict(QUERIES)
    assert model.deployment_privacy_.epsilon == pytest.approx(0.01)


@pytest.mark.parametrize(("statistic", "measure"), [("grid", "pure ε-DP"), ("means", "(ε, δ)-DP")])
def test_predicting_from_a_release_is_free(statistic: Any, measure: str) -> None:
    """One release is spent by `fit`, and nothing by any batch; counts never need a δ."""
    model = ve.ReleasedClassifier(epsilon=1.5, statistic=statistic, ranges=RANGES).fit(ROWS, LABELS)
    before, cost = model.privacy_, model.cost_
    for queries in (QUERIES, QUERIES[:3], QUERIES[::-1]):
        model.predict(queries)
    assert (model.privacy_, model.cost_) == (before, cost)
    assert (before.epsilon, before.unit) == (1.5, "release")
    assert before.guarantee.startswith("ε = 1.5")
    assert before.measure == model.model_.promise.measure == measure
    assert (before.delta == 0.0) == (measure == "pure ε-DP")


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("statistic", ["means", "lda", "counts", "grid", "trees"])
def test_its_model_is_a_file_with_equal_labels(
    statistic: Any, trusted: bool, tmp_path: Path
) -> None:
    """This holds for ranges of zero width; the file has names of all, and the guarantee."""
    wide = np.c_[ROWS, np.ones(len(ROWS))] if statistic != "grid" else ROWS
    ranges = ([-4.0, -4.0, 1.0][: wide.shape[1]], [4.0, 4.0, 1.0][: wide.shape[1]])
    model = ve.ReleasedClassifier(
        epsilon=30.0, statistic=statistic, trusted=trusted, ranges=ranges, random_state=1
    ).fit(wide, LABELS)
    labels = model.predict(wide)
    # With next to no noise all statistics find three clusters that lie apart.
    assert (labels == LABELS).mean() > 0.8
    model.model_.save(tmp_path / "model.json")
    kept = vr.load_model(tmp_path / "model.json")
    assert (kept.predict(wide) == labels).all()
    assert kept.promise == model.privacy_
    assert kept.schema.classes == ("ash", "elm", "oak")
    assert [each.name for each in kept.schema.features] == ["x0", "x1", "x2"][: wide.shape[1]]


@pytest.mark.parametrize(
    ("given", "why"), [({}, "ranges"), ({"ranges": RANGES, "random_state": 1}, "seed")]
)
def test_a_model_that_reveals_more_states_it_in_its_file(given: Any, why: str) -> None:
    """With ranges of the rows and a seed, the file claims no ε."""
    promise = ve.ReleasedClassifier(**given).fit(ROWS, LABELS).model_.promise
    assert promise.epsilon is None
    assert why in promise.measure


@pytest.mark.parametrize("statistic", ["means", "lda"])
def test_the_greatest_probability_decides_a_label(statistic: str) -> None:
    """Probabilities sum to 1, and the label has the greatest."""
    model = ve.ReleasedClassifier(statistic=statistic, ranges=RANGES).fit(ROWS, LABELS)
    found = model.predict_proba(QUERIES)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(QUERIES))


def test_a_search_that_hides_votes_has_no_probabilities() -> None:
    """With `reveal = "label"` no votes are known."""
    hidden, shown = (
        ve.RankSearchClassifier(reveal=each, ranges=RANGES) for each in ("label", "votes")
    )
    assert not hasattr(hidden, "predict_proba")
    assert hasattr(shown, "predict_proba")
    assert hidden.fit(ROWS, LABELS).measures(QUERIES, LABELS[: len(QUERIES)]).auc is None
