"""Reported spending equals actual spending, for copied, changed, refused and repeated fits."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tests.estimators.tables import ESTIMATORS, RANGES, each, named, three_classes

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.estimators import (
    LDPGaussianNaiveBayes,
    LDPNaiveBayes,
    PrivacyLeakWarning,
    ReleasedClassifier,
    TreeWalkClassifier,
)
from veilring.estimators.base import Answered, Asked
from veilring.nodes.journal import Traffic
from veilring.protocols.promise import Forecast
from veilring.randomness import keyed

ROWS, LABELS = three_classes(120)
QUERIES, _ = three_classes(20, seed=2)
OTHERS, _ = three_classes(20, seed=3)
SEED_SAID = "The noise was drawn from a seed"
ONCE = (LDPGaussianNaiveBayes, LDPNaiveBayes, ReleasedClassifier)  # which predict for free
EXACT = {"PrivateKNNClassifier", "RankSearchClassifier"}  # which have no ε
ASKED = [each for each in ESTIMATORS if not isinstance(each, ONCE)]
asked = pytest.mark.parametrize("estimator", ASKED, ids=named)
Copying = Callable[[Any], Any]


def pickled(model: Any) -> Any:
    """Return a copy as it would be in another process."""
    return pickle.loads(pickle.dumps(model))


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
    histories = [(QUERIES,), (OTHERS,), (OTHERS, QUERIES), (QUERIES, OTHERS), (QUERIES[:1],)]
    drawn = [coins(session, *history) for history in histories]
    assert len(set(drawn)) == len(histories)
    assert drawn == [coins(session, *history) for history in histories]
    assert coins(Asked(b"l" * 32), QUERIES) not in drawn


@asked
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
    one = clone(estimator).set_params(ranges=RANGES).fit(ROWS, LABELS)
    other, third = copying(one), copying(one)
    np.testing.assert_array_equal(one.predict(QUERIES), third.predict(QUERIES))
    other.predict(OTHERS)
    other.predict(QUERIES)
    first, again, *rest = keys
    assert first == again
    assert len({first, *rest}) == 3


@each
@pytest.mark.parametrize("wrong", ["rows", "parameter"])
def test_a_fit_that_fails_changes_nothing(estimator: Any, wrong: str) -> None:
    """After a failed fit, an earlier model keeps answering under its own account."""
    model = clone(estimator).set_params(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
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
    "estimator", [*ESTIMATORS, TreeWalkClassifier(neighbours=99, k=1)], ids=str
)
def test_parameters_apply_when_a_model_is_fitted(estimator: Any) -> None:
    """Parameters set later change no label, no cost and no spending."""
    model = clone(estimator).set_params(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    model.predict(QUERIES)
    reference = pickled(model)
    model.set_params(**dict.fromkeys(model.get_params(), "changed"))
    assert model.privacy_ == reference.privacy_
    for queries in (QUERIES, OTHERS, OTHERS[:5]):
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
    """An ε of reproducible noise does not hold; `fit` warns, and the note gives the reason."""
    free = clone(estimator).set_params(ranges=RANGES).fit(ROWS, LABELS)
    free.predict(QUERIES)
    assert SEED_SAID not in free.privacy_.note
    assert free.privacy_ == free.deployment_privacy_
    bound = clone(free).set_params(random_state=seed)
    if named(estimator) in EXACT:
        assert SEED_SAID not in bound.fit(ROWS, LABELS).privacy_.note
        return
    with pytest.warns(PrivacyLeakWarning, match=SEED_SAID):
        bound.fit(ROWS, LABELS)
    bound.predict(QUERIES)
    assert SEED_SAID in bound.privacy_.note
    assert bound.privacy_.epsilon is None
    assert bound.privacy_.guarantee == "no ε: seeded noise"
    assert bound.deployment_privacy_ == free.deployment_privacy_


@each
@pytest.mark.filterwarnings("error::veilring.estimators.PrivacyLeakWarning")
def test_no_epsilon_holds_if_ranges_are_taken_from_private_rows(estimator: Any) -> None:
    """One row can change all ranges; `fit` warns and suggests public ranges or rows."""
    model = clone(estimator)
    if named(estimator) == "TreeWalkClassifier":
        assert model.fit(ROWS, LABELS).privacy_.epsilon is not None
        assert model.ranges_origin_ == "computed from the rows, which are public"
        return
    with pytest.warns(PrivacyLeakWarning, match=r"ranges were computed .*give public ranges"):
        model.fit(ROWS, LABELS)
    model.predict(QUERIES)
    assert model.ranges_origin_ == "computed from the rows, which is not private"
    assert "computed from the rows" in model.privacy_.note
    assert model.privacy_.epsilon is None
    if named(estimator) not in EXACT:
        assert model.privacy_.guarantee == "no ε: ranges of private rows"
    public = clone(estimator).set_params(ranges=RANGES).fit(ROWS, LABELS)
    public.predict(QUERIES)
    assert public.ranges_origin_ == "given as public"
    assert "computed from the rows" not in public.privacy_.note
    promised = public.privacy_.epsilon
    assert (promised is None) == (named(estimator) in EXACT)
    assert model.deployment_privacy_.epsilon == (promised and pytest.approx(promised))


@pytest.mark.parametrize(
    "estimator", [LDPNaiveBayes(np.inf), LDPGaussianNaiveBayes(np.inf)], ids=named
)
@pytest.mark.filterwarnings("error::veilring.estimators.PrivacyLeakWarning")
def test_without_a_promise_there_is_no_warning(estimator: Any) -> None:
    """Without noise the ε is infinite, for any seed and any ranges."""
    model = clone(estimator).set_params(random_state=1).fit(ROWS, LABELS)
    assert model.privacy_.epsilon == np.inf


def wrongly_set() -> list[tuple[Any, str, object]]:
    """Return each parameter of each estimator with an invalid text."""
    optional = {"random_state": "1"}
    found = list[tuple[Any, str, object]]()
    for estimator in ESTIMATORS:
        for name, value in estimator.get_params().items():
            if isinstance(value, str | int | float):
                found.append((estimator, name, "drunk" if isinstance(value, str) else "1"))
            elif name in optional:
                found.append((estimator, name, optional[name]))
    return found


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    wrongly_set(),
    ids=lambda each: each if isinstance(each, str) else named(each),
)
def test_an_invalid_text_is_refused(estimator: Any, name: str, value: object) -> None:
    """A quoted number, or an unknown word, ends the fit as a mistake of the caller."""
    with pytest.raises(InputError, match=r"is '?(1|9|drunk)'?; allowed"):
        clone(estimator).set_params(**{name: value}).fit(ROWS, LABELS)
