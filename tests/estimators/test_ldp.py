"""Both naive Bayes estimators: simulated clients, and their cost."""

import asyncio
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from tests.privacy.generators import seeded

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.estimators import LDPGaussianNaiveBayes, LDPNaiveBayes
from veilring.nodes.cluster import Cluster
from veilring.protocols.ldp.algorithm.bayes import GaussianBayes
from veilring.protocols.ldp.algorithm.oracles import ORACLES, recommend_oracle
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle
from veilring.protocols.ldp.algorithm.survey import answer, tally_reports
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.roles import ClientPool, gather
from veilring.protocols.promise import Forecast
from veilring.randomness import Streams

pytestmark = pytest.mark.filterwarnings("ignore::veilring.estimators.PrivacyLeakWarning")
ESTIMATORS = [
    LDPNaiveBayes(),
    LDPNaiveBayes(math.inf),
    LDPGaussianNaiveBayes(),
    LDPGaussianNaiveBayes(math.inf),
]
Blobs = tuple[Floats, NDArray[np.str_]]


def words(estimator: LDPNaiveBayes | LDPGaussianNaiveBayes) -> str:
    """Name a test after its estimator."""
    return f"{type(estimator).__name__}-{estimator.epsilon:g}"


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Return rows of three features in two named classes."""
    rng = seeded("blobs")
    labels = rng.integers(0, 2, 12_000)
    rows = rng.normal(np.array([[-1.0, 0.5, 0.0], [1.0, -0.5, 0.3]])[labels], 1.0)
    return rows, np.array(["left", "right"])[labels]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=words)
def test_a_seed_determines_every_report(estimator: LDPNaiveBayes, blobs: Blobs) -> None:
    """Without one, clients use the system's randomness; the promise is a report's exact ε."""
    first, again = (clone(estimator).set_params(random_state=3).fit(*blobs) for _ in range(2))
    model = clone(estimator).fit(*blobs)
    for other, same in (
        (again, True),
        (model, estimator.epsilon == math.inf and isinstance(estimator, LDPNaiveBayes)),
    ):
        sums = zip(first.tally_.sums, other.tally_.sums, strict=True)
        assert all((one == another).all() for one, another in sums) == same
    before = model.deployment_privacy_
    model.predict(blobs[0][:10])
    assert model.deployment_privacy_ == before
    assert (before.measure, before.unit, before.delta) == ("ε-LDP", "report", 0.0)
    assert before.epsilon == model.survey_.exact_epsilon
    assert ("Nothing is protected" in before.note) == (estimator.epsilon == math.inf)


def test_fit_plays_the_clients_of_the_survey(blobs: Blobs) -> None:
    """The tally equals that of clients with the same randomness."""
    rows, labels = blobs
    model = LDPNaiveBayes(1.0, oracle="olh", random_state=5).fit(rows, labels)
    numbers = np.searchsorted(model.classes_, labels)
    answers = answer(model.survey_, rows, numbers, Streams(5).generator("estimator"))
    expected = tally_reports(model.survey_, answers.reports)
    assert model.tally_.counts == expected.counts
    for one, other in zip(model.tally_.sums, expected.sums, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name", ORACLES)
def test_epsilon_is_the_exact_one(name: str, blobs: Blobs) -> None:
    """With any oracle it is at most the requested ε, and above 0."""
    rows, labels = blobs[0][:500], blobs[1][:500]
    for model in (
        LDPNaiveBayes(0.9, oracle=name, random_state=1),
        LDPGaussianNaiveBayes(0.9, oracle=name, random_state=1),
    ):
        model.fit(rows, labels)
        assert 0 < model.epsilon_ <= 0.9
        assert model.epsilon_ == model.survey_.exact_epsilon
        assert model.tally_.clients == 500


def test_auto_uses_the_best_oracle_for_each_domain(blobs: Blobs) -> None:
    """As in a survey by default, the model is that of the recommended oracle."""
    rows, labels = blobs[0][:500], blobs[1][:500]
    for bins in (2, 100):
        auto = LDPNaiveBayes(1.0, oracle="auto", bins=bins, random_state=1).fit(rows, labels)
        for question in auto.survey_.questions:
            assert isinstance(question, FrequencyOracle)
            assert question.name == recommend_oracle(question.domain, 1.0).name
    LDPGaussianNaiveBayes(1.0, oracle="auto", random_state=1).fit(rows, labels)


def test_without_noise_they_equal_scikit_learns(blobs: Blobs) -> None:
    """They equal CategoricalNB on binned rows, and GaussianNB on scaled rows to 36 bits."""
    rows, labels = blobs
    ranges = (rows.min(axis=0), rows.max(axis=0))
    for alpha in (1e-10, 0.5, 1.0):
        discrete = LDPNaiveBayes(math.inf, bins=6, ranges=ranges, smoothing=alpha).fit(rows, labels)
        binned = discrete.survey_.steps[0](rows)
        reference = CategoricalNB(alpha=alpha, min_categories=6).fit(binned, labels)
        assert (discrete.predict(rows) == reference.predict(binned)).all()
        assert discrete.score(rows, labels) == reference.score(binned, labels)
        logs = reference.predict_log_proba(binned)
        assert discrete.predict_log_proba(rows) == pytest.approx(logs, abs=1e-9)
    gaussian = LDPGaussianNaiveBayes(math.inf, ranges=ranges, variance_floor=1e-9).fit(rows, labels)
    scaled = gaussian.survey_.steps[0](rows)
    plain = GaussianNB(var_smoothing=0).fit(scaled, labels)
    assert (gaussian.predict(rows) == plain.predict(scaled)).all()
    learned = gaussian.model_.model
    assert isinstance(learned, GaussianBayes)
    assert pytest.approx(plain.theta_, abs=1e-9) == learned.means.T
    assert pytest.approx(plain.var_, abs=1e-9) == learned.variances.T
    assert gaussian.predict_proba(rows).sum(axis=1) == pytest.approx(np.ones(len(rows)))


def test_numbered_values_need_no_bins() -> None:
    """With given domains, rows are values from 0, and other values are refused."""
    rng = seeded("numbered")
    rows, labels = rng.integers(0, 3, (300, 2)), rng.integers(0, 2, 300)
    model = LDPNaiveBayes(1.0, domains=(3, 3), random_state=1).fit(rows, labels)
    assert model.predict(rows).shape == (300,)
    assert model.ranges_origin_ == "no ranges: values are numbered"
    np.testing.assert_array_equal(model.predict(rows.astype(float)), model.predict(rows))
    with pytest.raises(InputError, match="column 0"):
        LDPNaiveBayes(1.0, domains=(2, 3), random_state=1).fit(rows, labels)
    for wrong in (-1, 3, 0.5):
        with pytest.raises(InputError, match="column 1"):
            model.predict([[0, wrong]])


@pytest.mark.parametrize("estimator", ESTIMATORS[::2], ids=words)
def test_a_collection_costs_as_much_as_on_a_network(estimator: LDPNaiveBayes, blobs: Blobs) -> None:
    """The costs are equal to the byte if each client is a party, for the drawn questions."""
    rows, labels = blobs[0][:30], blobs[1][:30]
    model = clone(estimator).fit(rows, labels)
    numbers = np.searchsorted(model.classes_, labels)
    clients = [ClientPool(rows[n : n + 1], numbers[n : n + 1]) for n in range(30)]

    async def main() -> None:
        async with Cluster(31, own=[None, *clients], seed=4) as cluster:
            task = Task({}, model.survey_)
            run = await cluster.run(gather, aggregator="party-0", task=task)
        found = run.results["party-0"]
        assert found is not None
        model.tally_ = found  # as if these clients had been played
        assert model.cost_ == Forecast.measured(run.cost)

    asyncio.run(main())
