"""Surveys: the leakage of an answer with its question, the conversion of rows, and their steps."""

import itertools
import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from papers.oracles import ALL_ORACLES as ORACLES
from scipy import stats
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.protocols.ldp.collecting import make_task
from tests.protocols.ldp.distributions import FINITE, Distribution, agrees, distribution_of, loss
from tests.refusals import require_refused

from veilring.arrays import Floats, Ints
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.codes import OneBit
from veilring.protocols.ldp.algorithm.means import EachFeature, make_means
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, make_oracle
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle, PlainOracle
from veilring.protocols.ldp.algorithm.steps import (
    Bins,
    LinearProjection,
    Scaling,
    apply_steps,
    discriminant_components,
    principal_components,
)
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    MeanSurvey,
    Survey,
    answer,
    census,
    make_survey,
    tally_reports,
)
from veilring.protocols.ldp.messages import Task

CLIENTS = 40_000


def small(name: str, epsilon: float) -> DiscreteBayesSurvey:
    """Return a survey of two features of two and three values, and two classes."""
    return DiscreteBayesSurvey.of((2, 3), 2, lambda domain: ORACLES[name](domain, epsilon))


def answer_shares(survey: DiscreteBayesSurvey, row: tuple[int, ...], label: int) -> Distribution:
    """Return the probability of every question and report of a client."""
    asked = len(survey.questions)
    distribution = {}
    for number, oracle in enumerate(survey.questions):
        assert isinstance(oracle, FrequencyOracle)
        value = survey.encode(*survey.validated(np.array([row]), np.array([label])), number)[0]
        for report, share in distribution_of(oracle, int(value)).items():
            distribution[number, report] = share / asked
    return distribution


@pytest.mark.parametrize("name", FINITE)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_answer_is_likelier_than_its_epsilon_allows(name: str, epsilon: float) -> None:
    """Over all rows with classes, and all questions with reports, the loss is epsilon's."""
    survey = small(name, epsilon)
    clients = list(itertools.product(itertools.product(range(2), range(3)), range(2)))
    distributions = [answer_shares(survey, row, label) for row, label in clients]
    assert {sum(distribution.values()) for distribution in distributions} == {1}
    assert survey.exact_epsilon == pytest.approx(loss(distributions), abs=1e-9)
    assert survey.exact_epsilon <= epsilon


@pytest.mark.parametrize("name", ["de", "oue"])
def test_answers_are_drawn_from_the_distribution(name: str) -> None:
    """Questions and reports jointly pass a G-test."""
    survey = small(name, 1.0)
    distribution = answer_shares(survey, (1, 2), 1)
    rows = np.tile([1, 2], (CLIENTS, 1))
    answers = answer(survey, rows, np.ones(CLIENTS, dtype=np.int64), seeded("answers", name))
    drawn = ((number, each.tobytes()) for number, reports in answers for each in reports)
    assert agrees(drawn, distribution, 2)


def test_the_drawn_question_does_not_depend_on_the_row() -> None:
    """With equal randomness clients with any rows and classes draw equal questions."""
    survey = small("de", 1.0)
    rng = np.random.default_rng(1)
    rows, labels = rng.integers(0, 2, (2, 500, 2)), rng.integers(0, 2, (2, 500))
    one, other = (
        answer(survey, *each, np.random.default_rng(7)).clients
        for each in zip(rows, labels, strict=True)
    )
    assert all(map(np.array_equal, one, other))


@given(
    domains=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    classes=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_value_and_class_are_one_number(domains: list[int], classes: int, seed: int) -> None:
    """Counted from 1 it is `(a - 1) k + v`, and different pairs have different numbers."""
    survey = DiscreteBayesSurvey.of(domains, classes, PlainOracle)
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, domains, (20, len(domains)))
    labels = rng.integers(0, classes, 20)
    assert (survey.encode(*survey.validated(rows, labels), 0) == labels).all()
    for feature in range(len(domains)):
        told = survey.encode(*survey.validated(rows, labels), feature + 1)
        a, v = rows[:, feature] + 1, labels + 1
        assert (told + 1 == (a - 1) * classes + v).all()
        assert (told < survey.questions[feature + 1].cells).all()


def test_a_moment_is_reported_within_the_class() -> None:
    """The clipped features, or their squares, have the class as the last column."""
    survey = GaussianBayesSurvey(DirectEncoding(3, 1.0), make_means(1.0, 2, 3))
    rows, labels = np.array([[0.5, -3.0], [-0.25, 1.0]]), np.array([2, 0])
    given = survey.validated(rows, labels)
    assert survey.encode(*given, 0).tolist() == [2, 0]
    assert survey.encode(*given, 1).tolist() == [[0.5, -1.0, 2.0], [-0.25, 1.0, 0.0]]
    assert survey.encode(*given, 2).tolist() == [[0.25, 1.0, 2.0], [0.0625, 1.0, 0.0]]


def test_frequency_and_mean_surveys_have_one_question() -> None:
    """All clients answer the question; without noise, a mean is exact to 1e-10."""
    rng = seeded("simple")
    values = rng.integers(0, 4, (2000, 1))
    shares = FrequencySurvey((PlainOracle(4),))
    none = np.zeros(2000, dtype=np.int64)
    found = census(shares, values, none, rng)
    assert found.counts == (2000,)
    assert found.sums[0].tolist() == np.bincount(values[:, 0]).tolist()
    means = MeanSurvey(make_means(math.inf, 1), (Scaling(Ranges((0.0,), (4.0,))),))
    sums = census(means, values / 3, none, rng)
    told = means.questions[0].estimate(sums.sums[0], 2000).values
    assert told == pytest.approx([values.mean() / 6 - 1], abs=1e-10)


def test_each_client_answers_one_column_of_a_survey_of_frequencies() -> None:
    """Each report is to one column, drawn alike for all, and has the client's value there."""
    rng = seeded("columns")
    rows = rng.integers(0, 3, (30_000, 2)) + np.array([0, 1])
    survey = FrequencySurvey((PlainOracle(3), PlainOracle(4)))
    none = np.zeros(len(rows), dtype=np.int64)
    given = answer(survey, rows, none, rng)
    assert sum(map(len, given.reports)) == len(rows)
    assert stats.binomtest(len(given.reports[0]), len(rows), 0.5).pvalue > FALSE_ALARM
    tally = tally_reports(survey, given.reports)
    for column, (clients, sums) in enumerate(zip(given.clients, tally.sums, strict=True)):
        truth = np.bincount(rows[clients, column], minlength=len(sums))
        assert sums.tolist() == truth.tolist()


def test_public_definitions_are_plain_data() -> None:
    """They survive JSON unchanged, and differ if any probability does."""
    ranges = Ranges((0.0, 1.0), (1.0, 3.0))
    axes = ((0.6, 0.8), (0.8, -0.6))
    projected = LinearProjection((0.0, 1.0), axes, "drawn for this test"), Scaling(ranges)
    surveys: list[Survey] = [small("oue", 1.0), MeanSurvey(make_means(1.0, 2), projected)]
    for classes, epsilon in itertools.product((2, None), (1.0, 1.1)):
        surveys.append(make_survey(Bins(ranges, (2, 3)), classes, epsilon, "oue"))
        surveys.append(make_survey(Scaling(ranges), classes, epsilon, "oue"))
    written = [json.dumps(survey.public, sort_keys=True, allow_nan=False) for survey in surveys]
    assert len(set(written)) == len(surveys)
    assert [json.loads(text) for text in written] == [survey.public for survey in surveys]


INVALID: list[tuple[Any, Any, str]] = [
    *(([[0, bad]], [0], "column 1") for bad in (3, -1, 0.5, np.nan, np.inf)),
    ([[0, 0]], [2], "column label"),
    ([[0, 0, 0]], [0], "rows"),
    ([[0.0, 0.0]], np.array(["secret"], object), "column label"),
]


@pytest.mark.parametrize(("rows", "labels", "field"), INVALID)
def test_invalid_rows_are_refused_without_being_shown(rows: Any, labels: Any, field: str) -> None:
    """The error names the column, and shows no value."""
    with pytest.raises(InputError) as caught:
        small("de", 1.0).validated(np.array(rows), np.array(labels))
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("classes", [2, None])
@pytest.mark.parametrize("step", [Bins(Ranges.unit(3), (3,) * 3), Scaling(Ranges.unit(3))])
def test_a_bad_cell_is_refused_before_any_draw(step: Bins | Scaling, classes: int | None) -> None:
    """An invalid cell in any column is refused before any random draw."""
    survey = make_survey(step, classes, 1.0, "de")
    row, labels = np.zeros(3), np.array([1])
    assert survey.exact_epsilon <= 1.0
    assert sum(len(reports) for _, reports in answer(survey, row[None], labels, seeded("one"))) == 1
    for column in range(len(row)):
        bad = row.copy()
        bad[column] = np.nan
        rng, untouched = seeded("bad", column), seeded("bad", column)
        with pytest.raises(InputError):
            answer(survey, bad[None], labels, rng)
        assert rng.bytes(8) == untouched.bytes(8)


def test_inconsistent_surveys_are_refused() -> None:
    """Too few oracles or values are refused, and a census of answers whose losses add up."""
    rows, none = np.zeros((4, 2), dtype=np.int64), np.zeros(4, dtype=np.int64)
    noise = "needs a survey without noise"
    require_refused(noise, census, small("de", 1.0), rows, none, seeded("none"))
    one, two = DirectEncoding(2, 1.0), DirectEncoding(3, 1.0)
    within = EachFeature(OneBit(1.0), 1, 3)
    require_refused("oracles", DiscreteBayesSurvey, (2,), 2, (one, two))
    require_refused("oracles", DiscreteBayesSurvey, (2,), 2, (one,))
    require_refused("taken within 3", MeanSurvey, within)
    require_refused("oracle", GaussianBayesSurvey, one, within)


SECRETS = [
    np.array([["3", "secret"]], object),
    np.array([["3", "secret"]]),
    np.array([[3, None]], object),
    np.array([[3, 10**400]], object),
    np.array([[3.0, np.nan]]),
    np.array([[3, 2 + 1j]]),
    np.array([["2020", "2021"]], "datetime64[Y]"),
    np.array([[b"3", b"secret"]]),
]


@pytest.mark.parametrize("row", SECRETS, ids=lambda row: str(row.dtype))
@pytest.mark.parametrize("within", [False, True])
def test_no_error_quotes_a_cell(row: NDArray[Any], *, within: bool) -> None:
    """For any private cell, the error is from the package, and names a column or the rows."""
    steps = (Scaling(Ranges((0.0, 0.0), (5.0, 5.0))),) if within else ()
    oracle = make_oracle("de", 1.0)
    surveys: list[Survey] = [
        GaussianBayesSurvey(oracle(2), make_means(1.0, 2, 2), steps),
        MeanSurvey(make_means(1.0, 2), steps),
        *([] if within else [DiscreteBayesSurvey.of((5, 5), 2, oracle)]),
    ]
    for survey in surveys:
        with pytest.raises(InputError) as refused:
            survey.validated(row, np.zeros(1, np.int64))
        error = refused.value
        assert error.field in {"rows", "column 1", "column 0", "values"}
        assert not any(word in str(error) for word in ("secret", "000", "2021", "None"))
        assert error.__cause__ is None
        assert error.__context__ is None


def test_equal_tasks_have_one_hash_and_others_differ() -> None:
    """It covers terms, closing time and the integers behind all probabilities, in any order."""
    task = make_task()
    again = Task(dict(reversed(list(task.terms.items()))), task.survey)
    assert make_task().digest == task.digest == again.digest
    renamed = Task({"columns": ["a", "c"]}, task.survey)
    others = [task, make_task(epsilon=1.0 + 1e-9), make_task(closes=1.0), renamed]
    assert len({other.digest for other in others}) == 4
    numbers = json.loads(task.encoded)["numbers"]["questions"]
    assert [question["domain"] for question in numbers] == [3, 15, 15]
    assert all(isinstance(each, int | str) for q in numbers for each in q.values())
    assert numbers[1]["p"] == 1 << 31  # one half in 32 bits


Blobs = tuple[Floats, Ints]


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Return rows of five features in three classes, and their labels."""
    rng = seeded("blobs")
    labels = rng.integers(0, 3, 400)
    mixed = rng.normal(size=(5, 5))
    return (rng.normal(size=(400, 5)) + 2 * rng.normal(size=(3, 5))[labels]) @ mixed, labels


def test_ranges_reach_from_minus_one_to_one() -> None:
    """Ends and middle become -1, 1 and 0; outside values are clipped; a constant becomes 0."""
    scaling = Scaling(Ranges((0.0, 5.0), (4.0, 5.0)))
    rows = np.array([[0.0, 5.0], [2.0, 1.0], [4.0, 9.0], [-7.0, 5.0], [70.0, 5.0]])
    assert scaling(rows)[:, 0].tolist() == [-1.0, 0.0, 1.0, -1.0, 1.0]
    assert scaling(rows)[:, 1].tolist() == [0.0] * 5


@given(
    value=st.floats(-10, 10), count=st.integers(1, 20), low=st.floats(-5, 0), high=st.floats(1, 5)
)
def test_a_bin_contains_its_values(value: float, count: int, low: float, high: float) -> None:
    """Inside the range a value is between its bin's edges; outside it is in the last bin."""
    number = int(Bins(Ranges((low,), (high,)), (count,))(np.array([[value]]))[0, 0])
    width = (high - low) / count
    inside = min(max(value, low), high)
    assert 0 <= number < count
    assert low + number * width <= inside + 1e-9
    assert inside <= low + (number + 1) * width + 1e-9


def test_principal_components_are_scikit_learns(blobs: Blobs) -> None:
    """The projected rows are those of PCA."""
    rows, _ = blobs
    ours = principal_components(rows, 2, origin="blobs made for this test")
    assert ours(rows) == pytest.approx(PCA(2, svd_solver="full").fit_transform(rows), abs=1e-9)


def test_discriminant_components_solve_their_eigenproblem(blobs: Blobs) -> None:
    """Each direction is a generalised eigenvector of length 1, with decreasing eigenvalues."""
    rows, labels = blobs
    axes = np.array(discriminant_components(rows, labels, 5, origin="blobs", ridge=0.1).axes)
    around = (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
    within = sum(np.cov(rows[labels == c].T, bias=True) * (labels == c).sum() for c in range(3))
    ridged = within + 0.1 * np.trace(within) / 5 * np.eye(5)
    expected = eigh(around, ridged, eigvals_only=True)[::-1]
    quotients = [(w @ around @ w) / (w @ ridged @ w) for w in axes]
    assert quotients == pytest.approx(expected.tolist(), rel=1e-9)
    for value, w in zip(expected, axes, strict=True):
        assert around @ w == pytest.approx(value * ridged @ w, rel=1e-6, abs=1e-6)
    assert np.linalg.norm(axes, axis=1) == pytest.approx(np.ones(5))


def test_steps_are_chained(blobs: Blobs) -> None:
    """A projection then bins: bins number the projected values, and a projection has an origin."""
    rows, labels = blobs
    first = discriminant_components(rows, labels, 2, origin="blobs made for this test")
    numbers = apply_steps((first, Bins(Ranges.of(first(rows)), (4, 3))), rows)
    assert (numbers.max(axis=0) == [3, 2]).all()
    assert first.public["origin"] == "blobs made for this test"


def test_an_invalid_step_is_refused(blobs: Blobs) -> None:
    """Ranges, bins, components, classes, ridges, axes and origins are checked."""
    (rows, labels), unit = blobs, Ranges((0.0,), (1.0,))
    discriminant = partial(discriminant_components, rows, origin="blobs")
    require_refused("ranges", Ranges, (1.0,), (0.0,))
    require_refused("highs", Ranges, (1.0,), (2.0, 3.0))
    require_refused("counts", Bins, unit, (2, 2))
    require_refused("counts", Bins, unit, (0,))
    require_refused("rows", Scaling(unit), rows)
    require_refused("must hold only numbers", Scaling(unit), np.array([[np.nan]]))
    require_refused("components", principal_components, rows, 6, origin="blobs")
    require_refused("components", discriminant, labels, 0)
    require_refused("labels", discriminant, labels * 0, 1)
    require_refused("ridge", discriminant, labels, 1, ridge=0.0)
    require_refused("each axis", LinearProjection, (0.0,), ((1.0, 2.0),), "nowhere")
    origin = "the public rows or the private release"
    require_refused(origin, LinearProjection, (0.0,), ((1.0,),), "")
