"""The prediction server's estimator: the deployed server's labels, costs and spending."""

from typing import Literal
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.estimators.tables import RANGES, three_classes

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.estimators import IndKNNClassifier, PrivacyLeakWarning
from veilring.privacy.accounting import individual_budget
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.prediction.algorithm.predictor import Predictor

ROWS, LABELS = three_classes(200)
QUERIES, TRUTH = three_classes(40, seed=2)


def directed(rows: Floats, centre: float = 0.0) -> NDArray[np.float32]:
    """Return rows as directions, from a centre in the middle of the ranges or beside it."""
    return quantise((np.clip(rows, *RANGES) - centre) / 4)


@pytest.mark.parametrize(("delta", "rows"), [(0.9, 50), (0.0011, 50), (0.006, 200)])
def test_a_delta_that_may_reveal_rows_gives_a_warning(delta: float, rows: int) -> None:
    """Above 0.001, or one over the number of rows, a fit warns with the reason."""
    model = IndKNNClassifier(1.0, delta=delta, ranges=RANGES)
    with pytest.warns(PrivacyLeakWarning, match="probability with which a row may be revealed"):
        model.fit(ROWS[:rows], LABELS[:rows])


@pytest.mark.parametrize("accountant", ["gdp", "rdp"])
def test_streams_add_up_in_the_records_budgets(accountant: Literal["gdp", "rdp"]) -> None:
    """A batch within the stream is free; a new stream costs each record another budget."""
    model = IndKNNClassifier(
        1.0, 1e-5, queries=50, accountant=accountant, ranges=RANGES, random_state=1
    ).fit(ROWS, LABELS)
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


def test_a_stream_is_as_long_as_its_batch_by_default() -> None:
    """Each batch then begins a stream, unless the shortest stream has room for it."""
    model = IndKNNClassifier(ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    model.predict(QUERIES[:1])
    once = model.deployment_privacy_.epsilon
    model.predict(QUERIES[1:4])
    assert model.deployment_privacy_.epsilon == once == 1.0
    model.predict(QUERIES[4:5])
    assert model.deployment_privacy_.epsilon is not None
    assert model.deployment_privacy_.epsilon > 1.0


def test_a_batch_longer_than_the_stream_is_refused() -> None:
    """The stream was declared, and a longer batch is refused at no cost."""
    model = IndKNNClassifier(queries=10, ranges=RANGES).fit(ROWS, LABELS)
    with pytest.raises(InputError, match="40 queries at once"):
        model.predict(QUERIES)
    assert model.deployment_privacy_.epsilon == 0.0


def test_a_stream_that_does_not_begin_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If records cannot get a budget, the open stream continues unchanged."""
    model = IndKNNClassifier(ranges=RANGES, queries=30, random_state=1).fit(ROWS, LABELS)
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
    model = IndKNNClassifier(ranges=RANGES, random_state=1)
    model.fit(np.vstack([ROWS, np.zeros((1, 2))]), np.append(LABELS, "ash"))
    whole = model.setup_.records.directions
    np.testing.assert_array_equal(whole[:-1], directed(ROWS))
    np.testing.assert_array_equal(whole[-1:], quantise(np.ones((1, 2))))
    model.fit(ROWS[:50], LABELS[:50])
    again = model.setup_.records.directions
    np.testing.assert_array_equal(again, whole[:50])


def test_small_noise_gives_the_right_labels() -> None:
    """With a large budget, three classes in three directions are distinguished."""
    model = IndKNNClassifier(50.0, tau=0.9, ranges=RANGES, random_state=1).fit(ROWS, LABELS)
    assert model.score(QUERIES, TRUTH) > 0.9
