"""Custom statistics: released, charged and refused like built-in ones."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from docs.examples.own_statistic import Halves, ReleaseHalves
from tests.protocols.release.schemas import facts_of
from typing_extensions import override

import veilring as vr
from veilring.arrays import Floats, Ints
from veilring.data.table import Features, Ranges, Rows
from veilring.errors import InputError, RunFailed
from veilring.estimators import ReleasedClassifier
from veilring.nodes.cluster import RUNTIMES
from veilring.protocols.digests import written
from veilring.protocols.release.algorithm.classifiers import Classifier, DirectionClassifier
from veilring.protocols.release.algorithm.noise import Account, Norm
from veilring.protocols.release.algorithm.statistic import Bound, Entries, Statistic
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.roles import release_rows
from veilring.testing import ProtocolRunner

SCALE = 1000
SQUARE = Features(("x", "y"), Ranges((0.0, 0.0), (1.0, 1.0)), ("left", "right"))
FACTS = facts_of(SQUARE, 3, 100)


@dataclass(frozen=True)
class Moved(Statistic[Classifier]):
    """The rows of each class, moved to the middle and shortened to length 1/2 or beyond it."""

    norm: Norm
    beyond: int = 1
    length = 4

    @property
    @override
    def bound(self) -> Bound:
        return Bound.scaled(self.norm, SCALE, Fraction(1, 2 if self.norm == "l1" else 4))

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        placed = np.trunc((rows - 0.5) * SCALE * self.beyond / 2).astype(np.int64)
        return Entries(2 * labels[:, None] + np.arange(2), placed)

    @override
    def decode(self, noisy: Ints, deviation: float) -> Classifier:
        sums = noisy.reshape(2, 2)
        means = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1)
        half, none = np.full(2, 0.5), np.zeros(2)
        return DirectionClassifier(SQUARE.classes, half, np.ones(2), means, none, calibrated=False)


class ReleaseMoved(vr.Release):
    """A release of `Moved` in place of the built-in statistics."""

    name: Literal["release"] = "release"
    norm: Literal["l1", "l2"] = "l2"
    beyond: int = 1

    @override
    def own_statistic(self, features: Features, rows: int) -> Statistic[Classifier]:
        return Moved(self.norm, self.beyond)


def rows_of(count: int, seed: int = 1) -> vr.Table:
    """Draw rows of two classes, on the left and on the right."""
    rng = np.random.default_rng(seed)
    drawn = rng.random((count, 2))
    return vr.Table("square", drawn, (drawn[:, 0] > 0.5).astype(np.int64), SQUARE)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.slow
def test_an_own_statistic_is_released_on_every_runtime_at_the_forecast_cost(
    norm: Any, trusted: bool
) -> None:
    """Labels, model, transcript and cost equal those of the simulation."""
    system, table, test = ReleaseMoved(norm=norm, trusted=trusted), rows_of(400), rows_of(200, 2)
    runs = [
        vr.run(system, table.partition(4, seed=1), test, runtime=name, seed=1) for name in RUNTIMES
    ]
    for run in runs:
        assert (run.labels, run.transcript) == (runs[0].labels, runs[0].transcript)
        assert run.cost == run.forecast
    # The noise is some 5 rows long beside 200 rows of each class, on average 1/8 long each.
    assert runs[0].accuracy is not None
    assert runs[0].accuracy > 0.8


@pytest.mark.parametrize(("norm", "delta"), [("l1", 0.0), ("l2", 1e-5)])
def test_its_promise_follows_from_its_bound(norm: Any, delta: float) -> None:
    """An L1 bound needs no δ; the account without the colluders' shares is below ε."""
    system = ReleaseMoved(norm=norm, epsilon=0.7)
    run = vr.run(system, rows_of(100).partition(5, seed=1), rows_of(3, 2))
    assert (run.spent.epsilon, run.spent.delta, run.spent.unit) == (0.7, delta, "release")
    assert run.cost == run.forecast
    assert isinstance(run.model, ReleasedModel)
    assert (run.model.promise.epsilon, run.model.promise.delta) == (0.7, delta)
    assert run.model.provenance.statistic == "own"
    parameters = system.bind(facts_of(SQUARE, 5, 100))
    assert parameters.account.epsilon(delta) <= 0.7 * (1 + 1e-9)
    with pytest.raises(InputError, match="L2 bound, which needs a delta"):
        ReleaseMoved(norm="l2", delta=0.0).bind(FACTS)


def test_a_row_beyond_the_bound_is_refused_before_sending_or_charging() -> None:
    """The set-up, the estimator, and a party with connected peers refuse it."""
    system, table, charged = ReleaseMoved(beyond=3), rows_of(100), list[Account]()
    parts = table.partition(3, seed=1)
    with pytest.raises(InputError, match="a row exceeds the stated L2 bound"):
        vr.run(system, parts, rows_of(3, 2))
    with pytest.raises(InputError, match="a row exceeds the stated L2 bound"):
        vr.as_classifier(system).fit(table.X, table.y)
    with pytest.raises(RunFailed, match="exceeds the stated L2 bound"):
        ProtocolRunner("memory")(
            release_rows,
            ("ann", "bob", "cy"),
            own=[Rows(part.X, part.y) for part in parts],
            client="ann",
            parameters=system.bind(FACTS),
            charge=charged.append,
        )
    assert charged == []


def test_incomparable_statistics_are_refused() -> None:
    """A statistic is a dataclass: any other object has a different text at each party."""

    class Loose(Statistic[Classifier]):
        length = 4
        bound = Bound("l1", 1)

        def entries(self, rows: Any, labels: Any) -> Entries:
            raise NotImplementedError

        def decode(self, noisy: Any, deviation: float) -> Classifier:
            raise NotImplementedError

    class ReleaseLoose(vr.Release):
        def own_statistic(self, *_public: Any) -> Statistic[Classifier]:
            return Loose()

    with pytest.raises(InputError, match="Loose must be a dataclass"):
        ReleaseLoose().bind(FACTS)


def test_parties_with_other_statistics_notice() -> None:
    """Public settings differ with a statistic's parameters and with any bit of its arrays.

    NumPy would print only the ends of an array, and the first digits of a number.
    """
    one, other = (ReleaseMoved(beyond=n).bind(FACTS).digest for n in (1, 2))
    assert one != other

    @dataclass
    class Weighted:
        weights: tuple[Floats, ...]

    first, same = np.linspace(0.1, 0.9, 5000), np.linspace(0.1, 0.9, 5000)
    assert written(Weighted((first,))) == written(Weighted((same,)))
    for place in (0, 2500):
        changed = first.copy()
        changed[place] = np.nextafter(changed[place], 1.0)
        assert written(Weighted((first,))) != written(Weighted((changed,)))


def test_the_estimator_of_a_custom_system_has_its_parameters() -> None:
    """It is a `ReleasedClassifier`, whose guarantee follows from the statistic's bound."""
    table, test, names = rows_of(400), rows_of(200, 2), np.array(SQUARE.classes)
    system = ReleaseMoved(norm="l1", epsilon=2.0)
    model: Any = vr.as_classifier(system, parties=4, ranges=(0.0, 1.0))
    assert isinstance(model, ReleasedClassifier)
    assert model.get_params()["norm"] == "l1"
    assert model.fit(table.X, names[table.y]).score(test.X, names[test.y]) > 0.8
    assert model.privacy_.guarantee == "ε = 2 for each release (pure ε-DP)"


def test_the_example_of_the_page_states_its_true_bound() -> None:
    """A row in the upper half of all ranges attains the bound, and no row exceeds it."""
    statistic = Halves(3, ("a", "b"))
    corners = np.array(np.meshgrid(*[[0.0, 0.49, 0.5, 1.0]] * 3)).reshape(3, -1).T
    for label in (0, 1):
        found = statistic.entries(corners, np.full(len(corners), label)).values
        assert statistic.bound.holds(found)
        assert statistic.bound.measure(found).max() == statistic.bound.most
    assert ReleaseHalves().bind(FACTS).plan.distribution == "laplace"
