"""All estimators: scikit-learn's checks, searches, ranges, copies, accounts, and networks."""

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.estimators.tables import RANGES, named, scaled, three_classes

import veilring.estimators as ve
from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.estimators.base import Answered, Asked
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Traffic
from veilring.protocols.promise import Forecast
from veilring.randomness import Streams, keyed

pytestmark = pytest.mark.filterwarnings("ignore::veilring.estimators.PrivacyLeakWarning")
KINDS = (getattr(ve, name) for name in ve.__all__ if name != "SystemClassifier")
ESTIMATORS: list[Any] = [
    kind() for kind in KINDS if isinstance(kind, type) and issubclass(kind, ve.SystemClassifier)
]
OTHERS = [each for each in ESTIMATORS if not isinstance(each, ve.PrivateKNNClassifier)]
ROWS, LABELS = three_classes(120)
QUERIES, _ = three_classes(20, seed=2)
MORE, _ = three_classes(20, seed=3)
ALL = np.vstack([QUERIES, MORE])
SEED_SAID = "The noise was drawn from a seed"
ONCE = (ve.LDPGaussianNaiveBayes, ve.LDPNaiveBayes, ve.ReleasedClassifier)  # predict for free
EXACT = {  # which have no ε
    "PrivateKNNClassifier": "measured leakage, no ε",
    "RankSearchClassifier": "sums only, no ε",
}
WAYS = [
    ve.PrivateKNNClassifier(rounds=2, weights="distance", sum="shares", partition="by-label"),
    ve.RankSearchClassifier(arity=2, sum="star", weights="distance", partition="by-label"),
    ve.NoisyVotesClassifier(k=5, sum="ring"),
    ve.ReleasedClassifier(statistic="means", trusted=True),
    ve.ReleasedClassifier(statistic="counts", delta=0.0),
    ve.OwnerRadiusClassifier(),
    ve.OwnerKNNClassifier(conversion="candidates", public_rows=True),
    ve.IndKNNClassifier(kernel="rbf", accountant="rdp"),
    ve.TreeWalkClassifier(by="walk"),
    ve.LDPNaiveBayes(np.inf),
    ve.LDPGaussianNaiveBayes(np.inf),
]
# Little noise, so that accuracy says something; and a parameter by which it is good, or useless.
ACCURATE: list[tuple[Any, str, list[Any]]] = [
    (ve.PrivateKNNClassifier(), "k", [5, 60]),
    (ve.RankSearchClassifier(), "k", [5, 60]),
    (ve.NoisyVotesClassifier(epsilon=100.0), "radius", [0.2, 0.0]),
    (ve.OwnerRadiusClassifier(10.0), "radius", [0.2, 0.0]),
    (ve.OwnerKNNClassifier(10.0), "k", [10, 80]),
    (ve.IndKNNClassifier(50.0, tau=0.9), "sigma2", [2.0, 1e9]),
    (ve.TreeWalkClassifier(20.0, splits=0), "epsilon", [20.0, 1e-3]),
    (ve.ReleasedClassifier(epsilon=20.0), "epsilon", [20.0, 1e-3]),
    (ve.LDPNaiveBayes(np.inf), "epsilon", [np.inf, 1e-3]),
    (ve.LDPGaussianNaiveBayes(np.inf), "epsilon", [np.inf, 1e-3]),
]
# Numbers of their own: with `auto` the number of rows counts as public.
CENTRAL = [
    ve.NoisyVotesClassifier(radius=0.2),
    ve.OwnerRadiusClassifier(radius=0.2),
    ve.OwnerKNNClassifier(k=10),
    ve.IndKNNClassifier(tau=0.8),
]
each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=named)
Copying = Callable[[Any], Any]


def public(estimator: Any, **changed: Any) -> Any:
    """Return a copy that has been fitted with public ranges."""
    return clone(estimator).set_params(ranges=RANGES, **changed).fit(ROWS, LABELS)


def pickled(model: Any) -> Any:
    """Return a copy as it would be in another process."""
    return pickle.loads(pickle.dumps(model))


# No check is expected to fail. Some are skipped: they ask for pandas or for the array API, which
# veilring does not need, or for equal answers twice, which an estimator that draws noise denies.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([ve.PrivateKNNClassifier()])  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_scikit_learns_checks_pass_for_the_first_estimator(estimator: Any, check: Any) -> None:
    """Each check that scikit-learn has for a classifier passes for one of them."""
    check(estimator)


@pytest.mark.sklearn
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([*OTHERS, *WAYS])  # type: ignore[untyped-decorator]  # likewise
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    """Each of scikit-learn's checks for classifiers passes for all others."""
    check(estimator)


@pytest.mark.parametrize(("estimator", "name", "values"), ACCURATE, ids=str)
def test_they_are_scored_searched_and_piped(estimator: Any, name: str, values: list[Any]) -> None:
    """Estimators beat chance in cross-validation, in a grid search and in a pipeline.

    Always naming one class is right at that class's frequency; a guess exceeds this rate by the
    given margin only once in a million times, by Hoeffding's bound.
    """
    model = clone(estimator).set_params(ranges=RANGES, random_state=1)
    chance = np.unique(LABELS, return_counts=True)[1].max() / len(LABELS)
    guessed = chance + np.sqrt(np.log(1e6) / (2 * len(LABELS)))
    assert cross_val_score(model, ROWS, LABELS, cv=2).mean() > guessed
    found = GridSearchCV(model, {name: values}, cv=2).fit(ROWS, LABELS)
    good, useless = found.cv_results_["mean_test_score"]
    assert found.best_params_ == {name: values[0]}
    assert good > guessed > useless
    piped = make_pipeline(FunctionTransformer(), model).fit(ROWS, LABELS)
    alone = clone(model).fit(ROWS, LABELS)
    np.testing.assert_array_equal(piped.predict(QUERIES), alone.predict(QUERIES))


@each
def test_measures_are_of_the_batch_that_was_predicted(estimator: Any) -> None:
    """After `predict`, probabilities and measures of the same rows are of its answer, for free.

    A class with only labels has no probabilities, and its measures say why there is no AUC.
    """
    _, truth = three_classes(20, seed=2)
    model = public(estimator, random_state=1)
    labels, spent = model.predict(QUERIES), model.privacy_
    found = model.measures(QUERIES, truth)
    assert found.accuracy.value == (labels == truth).mean() == model.score(QUERIES, truth)
    assert found.classes == tuple(map(str, model.classes_))
    if named(model) in {"OwnerRadiusClassifier", "OwnerKNNClassifier", "IndKNNClassifier"}:
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError) as refused:
            model.predict_proba(QUERIES)
        assert "only labels are revealed" in str(refused.value.__cause__)
        assert set(found.missing) == {"auc", "calibration"}
    else:
        assert found.auc is not None
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(QUERIES)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], labels)
    assert model.privacy_ == spent
    with pytest.raises(InputError, match="y has the class"):
        model.measures(QUERIES, np.full(len(QUERIES), "nobody"))


@each
def test_a_seed_determines_all_draws(estimator: Any) -> None:
    """Equal seeds give equal labels, and a repeated batch its labels, even after a pickle."""
    fitted = [clone(estimator).set_params(random_state=7).fit(ROWS, LABELS) for _ in range(2)]
    first, second = (one.predict(QUERIES) for one in fitted)
    np.testing.assert_array_equal(first, second)
    before = fitted[0].privacy_
    np.testing.assert_array_equal(fitted[0].predict(QUERIES), first)
    assert fitted[0].privacy_ == before
    again = pickled(fitted[0])
    np.testing.assert_array_equal(again.predict(QUERIES), first)
    assert (again.cost_, again.privacy_) == (fitted[0].cost_, before)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, ve.TreeWalkClassifier(by="walk")], ids=str)
def test_cost_and_privacy_need_a_prediction(estimator: Any) -> None:
    """They need a fit, and a batch where one costs; NumPy's numbers behave like Python's."""
    kinds = {int: np.int64, float: np.float32}
    usual = estimator.get_params() | ({"k": 3} if "k" in estimator.get_params() else {})
    given = {n: kinds[type(each)](each) for n, each in usual.items() if type(each) in kinds}
    model = clone(estimator).set_params(**given, ranges=RANGES)
    for name in ("cost_", "privacy_"):
        with pytest.raises(NotFittedError):
            getattr(model, name)
    model.fit(ROWS, LABELS)
    if not isinstance(model, ONCE):
        with pytest.raises(AttributeError, match="only after a batch"):
            _ = model.cost_
    model.predict(QUERIES)
    assert isinstance(model.cost_, Forecast)
    assert isinstance(model.privacy_, ve.Promise)
    assert model.cost_.rounds > 0
    assert model.cost_.traffic.bytes > 0


@each
def test_values_outside_the_ranges_are_clipped(estimator: Any) -> None:
    """Rows and queries far outside count as values at the end, and one bound suits all features."""
    wide = clone(estimator).set_params(ranges=(-1.0, 1.0), random_state=3)
    narrow = clone(estimator).set_params(ranges=((-1.0, -1.0), (1.0, 1.0)), random_state=3)
    wide.fit(ROWS, LABELS)
    narrow.fit(np.clip(ROWS, -1.0, 1.0), LABELS)
    inside = narrow.predict(np.clip(QUERIES, -1.0, 1.0))
    np.testing.assert_array_equal(wide.predict(QUERIES), inside)


@pytest.mark.parametrize("estimator", CENTRAL, ids=named)
def test_only_labels_depend_on_a_row(estimator: Any) -> None:
    """With public ranges, rules, parameters, costs and guarantees are equal without a row."""
    told = []
    for rows in (ROWS, ROWS[:-1]):
        model = clone(estimator).set_params(ranges=RANGES, random_state=1)
        model.fit(rows, LABELS[: len(rows)]).predict(QUERIES)
        rules = getattr(model.setup_, "rules", None) or model.setup_.parameters
        told.append(
            [rules(len(QUERIES)) if callable(rules) else rules, model.cost_, model.privacy_]
        )
    assert told[0] == told[1]


LOWS = "two entries, the lows and the highs"


@each
@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([(-4, 4)] * 10, f"ranges must be.*{LOWS}"),
        (4, f"ranges must be.*{LOWS}"),
        (((-4, -4, -4), (4, 4, 4)), f"ranges have bounds of the shape.*{LOWS}"),
        (((-4, 4), (-4, 4)), f"ranges have no width in column 0, where rows differ.*{LOWS}"),
        ((1.0, -1.0), "high"),
        ((0.0, np.inf), "finite"),
    ],
)
def test_ranges_are_lows_and_highs(estimator: Any, ranges: Any, found: str) -> None:
    """A pair for each column, the reverse order, and bounds for other features end the fit."""
    with pytest.raises(InputError, match=found):
        clone(estimator).set_params(ranges=ranges).fit(ROWS, LABELS)


def test_at_most_all_rows_vote() -> None:
    """If their number is public, k is at most all rows; a rank search for more uses all."""
    rows = len(ROWS)
    model = ve.PrivateKNNClassifier(k=rows).fit(ROWS, LABELS)
    assert model.setup_.parameters.topk.k == rows
    with pytest.raises(InputError, match=f"k is {rows + 1}; allowed: at most {rows},"):
        ve.PrivateKNNClassifier(k=rows + 1).fit(ROWS, LABELS)
    few, many = (ve.RankSearchClassifier(k=rows + more).fit(ROWS, LABELS) for more in (0, 9))
    np.testing.assert_array_equal(few.predict(QUERIES), many.predict(QUERIES))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ve.PrivateKNNClassifier, {"parties": 2}),
        (ve.PrivateKNNClassifier, {"partition": "alphabet"}),
        (ve.NoisyVotesClassifier, {"tolerated": 8}),
        (ve.ReleasedClassifier, {"statistic": "lda", "delta": 0.0}),
        (ve.OwnerRadiusClassifier, {"radius": -1.0}),
        (ve.OwnerKNNClassifier, {"k": 0}),
        (ve.OwnerKNNClassifier, {"k": 2.5}),
        (ve.IndKNNClassifier, {"queries": 3}),
        (ve.TreeWalkClassifier, {"neighbours": len(ROWS)}),
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(
    kind: type[ve.SystemClassifier], wrong: dict[str, object]
) -> None:
    """Parameters that a system does not support end the fit, and the error names one of them."""
    with pytest.raises(InputError) as caught:
        kind(**wrong).fit(ROWS, LABELS)
    assert any(name in f"{caught.value.field}: {caught.value}" for name in wrong)


@pytest.mark.parametrize(
    "kind", [ve.NoisyVotesClassifier, ve.OwnerRadiusClassifier, ve.OwnerKNNClassifier]
)
def test_a_batch_that_is_too_large_spends_nothing(kind: type[ve.SystemClassifier]) -> None:
    """It is refused before any draw."""
    model = kind(ranges=RANGES).fit(ROWS, LABELS)
    with pytest.raises(InputError, match="4097 queries"):
        model.predict(np.zeros((4097, 2)))
    assert model.deployment_privacy_.epsilon == 0.0


def coins(session: Asked, *batches: Floats) -> bytes:
    """Return the answers to the last of several batches, in a copy of a session."""
    drawn: list[bytes] = []

    def answer(queries: Floats, rng: np.random.Generator) -> Answered:
        drawn.append(rng.bytes(16))
        return Answered(np.zeros(len(queries), np.int64), Forecast(0, Traffic()))

    mine = copy.deepcopy(session)
    for batch in batches:
        mine.ask(batch, answer)
    return drawn[-1]


def test_coins_depend_on_the_whole_history() -> None:
    """Equal histories give equal coins; another batch, an earlier batch or another key does not."""
    session = Asked(b"k" * 32)
    histories = [(QUERIES,), (MORE,), (MORE, QUERIES), (QUERIES, MORE), (QUERIES[:1],)]
    drawn = [coins(session, *history) for history in histories]
    assert len(set(drawn)) == len(histories)
    assert drawn == [coins(session, *history) for history in histories]
    assert coins(Asked(b"l" * 32), QUERIES) not in drawn


@pytest.mark.parametrize(
    "estimator", [each for each in ESTIMATORS if not isinstance(each, ONCE)], ids=named
)
@pytest.mark.parametrize("copying", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_never_answer_other_questions_with_equal_coins(
    estimator: Any, copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a model without a seed agree on one batch and draw fresh noise for all others."""
    keys: list[bytes] = []

    def noted(key: bytes) -> np.random.Generator:
        keys.append(key)
        return keyed(key)

    monkeypatch.setattr("veilring.estimators.base.keyed", noted)
    one = public(estimator)
    other, third = copying(one), copying(one)
    np.testing.assert_array_equal(one.predict(QUERIES), third.predict(QUERIES))
    other.predict(MORE)
    other.predict(QUERIES)
    first, again, *rest = keys
    assert first == again
    assert len({first, *rest}) == 3


@each
@pytest.mark.parametrize("wrong", ["rows", "parameter"])
def test_a_fit_that_fails_changes_nothing(estimator: Any, wrong: str) -> None:
    """After a failed fit, an earlier model keeps answering under its own account."""
    model = public(estimator, random_state=1)
    labels, before = model.predict(QUERIES), model.privacy_
    bad = {"k": 0} if named(model) in EXACT else {"epsilon": -1.0}
    rows = np.full_like(ROWS, np.nan) if wrong == "rows" else ROWS
    if wrong == "parameter":
        model.set_params(**bad)
    fresh = clone(model)
    for one in (model, fresh):
        with pytest.raises(ValueError, match=r"NaN|epsilon|k is 0"):
            one.fit(rows, LABELS)
    assert model.privacy_ == before
    np.testing.assert_array_equal(model.predict(QUERIES), labels)
    assert model.privacy_ == before
    with pytest.raises(NotFittedError):
        fresh.predict(QUERIES)
    assert vars(fresh).keys() == fresh.get_params().keys()


@pytest.mark.parametrize(
    "estimator", [*ESTIMATORS, ve.TreeWalkClassifier(neighbours=99, k=1)], ids=str
)
def test_parameters_apply_when_a_model_is_fitted(estimator: Any) -> None:
    """Parameters set later change no label, no cost and no spending."""
    model = public(estimator, random_state=1)
    model.predict(QUERIES)
    reference = pickled(model)
    model.set_params(**dict.fromkeys(model.get_params(), "changed"))
    assert model.privacy_ == reference.privacy_
    for queries in (QUERIES, MORE, MORE[:5]):
        np.testing.assert_array_equal(model.predict(queries), reference.predict(queries))
        assert (model.cost_, model.privacy_) == (reference.cost_, reference.privacy_)


@each
@pytest.mark.parametrize(
    "seed",
    [1, np.random.RandomState(1), np.random.default_rng(1)],
    ids=lambda seed: type(seed).__name__,
)
@pytest.mark.filterwarnings("error::veilring.estimators.PrivacyLeakWarning")
def test_no_epsilon_holds_under_a_seed(estimator: Any, seed: Any) -> None:
    """An ε of reproducible noise does not hold, with a warning and a note; leakage stays as is."""
    free = public(estimator)
    free.predict(QUERIES)
    assert SEED_SAID not in free.privacy_.note
    assert free.privacy_ == free.deployment_privacy_
    bound = clone(free).set_params(random_state=seed)
    if named(estimator) in EXACT:
        claimed = bound.fit(ROWS, LABELS).privacy_
        assert (claimed.epsilon, claimed.measure) == (None, EXACT[named(estimator)])
        assert claimed == free.privacy_
        return
    with pytest.warns(ve.PrivacyLeakWarning, match=SEED_SAID):
        bound.fit(ROWS, LABELS)
    bound.predict(QUERIES)
    assert SEED_SAID in bound.privacy_.note
    assert bound.privacy_.epsilon is None
    assert bound.privacy_.guarantee == "no ε: seeded noise"
    assert bound.deployment_privacy_ == free.deployment_privacy_


@pytest.mark.parametrize(
    "estimator", [*ESTIMATORS, ve.LDPNaiveBayes(np.inf), ve.LDPGaussianNaiveBayes(np.inf)], ids=str
)
@pytest.mark.filterwarnings("error::veilring.estimators.PrivacyLeakWarning")
def test_no_epsilon_holds_if_ranges_are_taken_from_private_rows(estimator: Any) -> None:
    """One row can change all ranges; `fit` warns and suggests public ones, unless ε is infinite."""
    model = clone(estimator)
    if getattr(model, "epsilon", None) == np.inf:
        assert model.set_params(random_state=1).fit(ROWS, LABELS).privacy_.epsilon == np.inf
        return
    if named(estimator) == "TreeWalkClassifier":
        assert model.fit(ROWS, LABELS).privacy_.epsilon is not None
        assert model.ranges_origin_ == "computed from the rows, which are public"
        return
    with pytest.warns(ve.PrivacyLeakWarning, match=r"ranges were computed .*give public ranges"):
        model.fit(ROWS, LABELS)
    model.predict(QUERIES)
    assert model.ranges_origin_ == "computed from the rows, which is not private"
    assert "computed from the rows" in model.privacy_.note
    assert model.privacy_.epsilon is None
    if named(estimator) not in EXACT:
        assert model.privacy_.guarantee == "no ε: ranges of private rows"
    given = public(estimator)
    given.predict(QUERIES)
    assert given.ranges_origin_ == "given as public"
    assert "computed from the rows" not in given.privacy_.note
    promised = given.privacy_.epsilon
    assert (promised is None) == (named(estimator) in EXACT)
    assert model.deployment_privacy_.epsilon == (promised and pytest.approx(promised))


@each
def test_an_invalid_text_is_refused(estimator: Any) -> None:
    """A quoted number, or an unknown word, ends the fit as a mistake of the caller."""
    for name, value in estimator.get_params().items():
        if isinstance(value, str | int | float) or name == "random_state":
            wrong = "drunk" if isinstance(value, str) else "1"
            with pytest.raises(InputError, match=r"is '?(1|9|drunk)'?; allowed"):
                clone(estimator).set_params(**{name: wrong}).fit(ROWS, LABELS)


MUCH = 1e4  # so little noise that all labels are equal
# The labels of these do not depend on draws.
PLAYED = [
    *(ve.PrivateKNNClassifier(5, 3, sum=name) for name in ("ring", "shares", "masks")),
    ve.PrivateKNNClassifier(5, 3, sum="cycles", cycles=2),
    ve.RankSearchClassifier(5, 3, sum="all-to-all"),
    ve.RankSearchClassifier(5, 3, sum="star", weights="distance"),
    ve.RankSearchClassifier(5, 3, reveal="votes", sum="star"),
    ve.RankSearchClassifier(5, 3, reveal="label"),
    ve.NoisyVotesClassifier(4, MUCH),
    ve.NoisyVotesClassifier(4, MUCH, sum="ring"),
    ve.NoisyVotesClassifier(4, MUCH, k=10, conversion="grid"),
    ve.NoisyVotesClassifier(4, MUCH, k=10, conversion="annuli"),
]
# In these, one party draws all noise: the server, or the client of a tree walk.
DRAWN = [
    ve.OwnerRadiusClassifier(0.7, 0.1),
    ve.OwnerKNNClassifier(0.7, 10),
    ve.OwnerKNNClassifier(0.7, 10, conversion="candidates", public_rows=True),
    ve.IndKNNClassifier(4.0, tau=0.8),
    ve.IndKNNClassifier(4.0, tau=0.8, centre=(0.5, 0.5)),
    ve.TreeWalkClassifier(6.0, "response", splits=0, neighbours=1),
    ve.TreeWalkClassifier(6.0, "response", splits=3, neighbours=1),
    ve.TreeWalkClassifier(6.0, "walk"),
    ve.TreeWalkClassifier(6.0, "walk", neighbours=3),
    ve.TreeWalkClassifier(6.0, "walk", splits=2),
]
# In these, each party draws noise of its own.
RELEASED = [
    ve.ReleasedClassifier(4, statistic=statistic, sum=adding)
    for statistic in ("means", "lda", "grid")
    for adding in ("all-to-all", "star")
]


@pytest.mark.parametrize("model", [*PLAYED, *DRAWN, *RELEASED], ids=str)
@pytest.mark.parametrize("digits", [0, 9], ids=["tied", "apart"])
def test_labels_and_costs_are_those_of_parties_on_a_network(
    model: Any, digits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same rows they are equal for equal draws; of a release, only the costs are."""
    rows, queries = (np.round(each, digits) for each in (ROWS, ALL))
    if any(model is each for each in DRAWN):
        party = "party-0" if named(model) == "TreeWalkClassifier" else "server"
        session = Streams(3).token("session", 0).hex()
        rng = Streams(3).generator("party", party, "session", session)
        monkeypatch.setattr(Asked, "coins", lambda *_: rng)
    fitted = clone(model).set_params(ranges=RANGES, random_state=1).fit(rows, LABELS)
    labels, setup = fitted.predict(queries), fitted.setup_
    play = setup.play(scaled(queries))

    async def main() -> None:
        async with Cluster(setup.parties, own=setup.resident, seed=3) as cluster:
            run = await cluster.run(setup.role, only=play.only, **play.public)
        assert fitted.cost_ == Forecast.measured(run.cost)
        if not isinstance(model, ve.ReleasedClassifier):
            found = play.labels(run.results[play.learners[0]])
            np.testing.assert_array_equal(labels, fitted.classes_[found])

    asyncio.run(main())
