"""Naive Bayes from tallies: the paper's example, noisy counts, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.privacy.generators import seeded

from papers import means as published
from veilring.arrays import Ints
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes import (
    DiscreteBayes,
    GaussianBayes,
    learn,
    learn_discrete,
    learn_gaussian,
)
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.randomiser import CONSISTENCIES, Consistency, PlainOracle
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling
from veilring.protocols.ldp.algorithm.survey import (
    Answers,
    DiscreteBayesSurvey,
    FrequencySurvey,
    GaussianBayesSurvey,
    Survey,
    Tally,
    answer,
    census,
    make_survey,
)

# The paper's Table 1: age, income, gender; whether a payment was missed (C_1) or not (C_2).
AGES, INCOMES, GENDERS = ("Young", "Medium", "Old"), ("Low", "Medium", "High"), ("Male", "Female")
TABLE_1 = """
Young Low Male Yes
Young High Female Yes
Medium High Male No
Old Medium Male No
Old High Male No
Old Low Female Yes
Medium Low Female No
Medium Medium Male Yes
Young Low Male No
Old High Female No
"""
DOMAINS = (3, 5, 2, 4)
CLASSES = 3
Codes = tuple[Ints, Ints]


def the_papers_table() -> Codes:
    """Return the paper's rows as numbered values, and its classes, with C_1 as 0."""
    cells = [line.split() for line in TABLE_1.split("\n") if line]
    rows = [[AGES.index(a), INCOMES.index(i), GENDERS.index(g)] for a, i, g, _ in cells]
    return np.array(rows), np.array([("Yes", "No").index(missed) for *_, missed in cells])


@pytest.fixture(scope="module")
def categories() -> Codes:
    """Return rows of four features that depend on one of three classes."""
    rng = seeded("categories")
    labels = rng.choice(CLASSES, 3000, p=[0.5, 0.3, 0.2])
    columns = []
    for size in DOMAINS:
        cumulative = rng.dirichlet(np.full(size, 0.7), CLASSES).cumsum(axis=1)
        drawn = (rng.random(3000)[:, None] > cumulative[labels]).sum(axis=1)
        columns.append(np.minimum(drawn, size - 1))
    return np.column_stack(columns), labels


PLAIN = DiscreteBayesSurvey.of(DOMAINS, CLASSES, PlainOracle)


def counted(survey: Survey, rows: NDArray[Any], labels: Ints) -> Tally:
    """Return the tally of all answers without noise."""
    return census(survey, rows, labels, np.random.default_rng(0))


def told(survey: Survey, rows: NDArray[Any], labels: Ints, *name: str) -> tuple[Answers, Tally]:
    """Return noisy answers and their tally."""
    answers = answer(survey, rows, labels, seeded(*name))
    return answers, Tally.of(survey, answers)


def test_the_papers_example_has_these_numbers() -> None:
    """For a young woman of medium income, C_1 has 0.025 and C_2 has 0.0056, so C_1 wins.

    The paper prints 0.055 for C_2, but 6/10 * 1/6 * 1/6 * 2/6 = 1/180.
    """
    rows, labels = the_papers_table()
    survey = DiscreteBayesSurvey.of((3, 3, 2), 2, PlainOracle)
    model = learn_discrete(survey, counted(survey, rows, labels))
    assert np.exp(model.log_priors) == pytest.approx([4 / 10, 6 / 10])
    ages = [[2 / 4, 1 / 6], [1 / 4, 2 / 6], [1 / 4, 3 / 6]]  # the paper's Table 2
    assert np.exp(model.log_conditionals[0]) == pytest.approx(np.array(ages))
    asked = np.array([[AGES.index("Young"), INCOMES.index("Medium"), GENDERS.index("Female")]])
    assert np.exp(model.joint(asked))[0] == pytest.approx([1 / 40, 1 / 180], rel=1e-8)
    assert model.classify(asked).tolist() == [0]


def test_with_noise_counts_are_near_the_true_ones(categories: Codes) -> None:
    """All raw estimates lie within intervals of Bonferroni's confidence."""
    rows, labels = (np.repeat(each, 20, axis=0) for each in categories)
    survey = DiscreteBayesSurvey.of(DOMAINS, CLASSES, lambda d: OptimisedUnary(d, 2.0))
    answers, tally = told(survey, rows, labels, "noisy counts")
    model = learn_discrete(survey, tally, confidence=1 - 1e-8)
    for number, (found, who) in enumerate(zip(model.evidence, answers.clients, strict=True)):
        own = survey.encode(*survey.validated(rows[who], labels[who]), number)
        true = np.bincount(own, minlength=len(found.values)) / len(who)
        assert ((found.low < true) & (true < found.high)).all()


@pytest.mark.parametrize("approach", published.APPROACHES)
def test_with_noise_moments_are_near_the_true_ones(approach: published.Approach) -> None:
    """All 24 raw moments of three approaches are within intervals that each miss once in 1e8."""
    rng = seeded("noisy moments", approach)
    labels = rng.integers(0, 2, 60_000)
    rows = np.clip(rng.normal([[-0.4, 0.1], [0.4, -0.1]], 0.25)[labels], -1, 1)
    survey = GaussianBayesSurvey(DirectEncoding(2, 2.0), published.make_means(approach, 2.0, 2, 2))
    _, tally = told(survey, rows, labels, "told moments", approach)
    model = learn_gaussian(survey, tally, confidence=1 - 1e-8)
    inside = labels[:, None] == np.arange(2)
    for power, found in ((1, model.evidence[1]), (2, model.evidence[2])):
        true = (rows[:, :, None] ** power * inside[:, None]).mean(axis=0).ravel()
        assert ((found.low < true) & (true < found.high)).all()
    assert ((model.means >= -1) & (model.means <= 1)).all()
    assert ((model.variances >= 0.01) & (model.variances <= 1)).all()


@pytest.mark.parametrize("how", CONSISTENCIES)
def test_raw_estimates_are_kept_beside_the_model(categories: Codes, how: Consistency) -> None:
    """The evidence keeps negative values for every method, whereas counts are never negative."""
    rows, labels = categories
    survey = DiscreteBayesSurvey.of(DOMAINS, CLASSES, lambda d: DirectEncoding(d, 0.1))
    _, tally = told(survey, rows, labels, "kept")
    model = learn_discrete(survey, tally, consistency=how)
    raw = np.concatenate([each.values for each in model.evidence])
    assert raw.min() < 0
    counts = [model.class_counts, *(counts.ravel() for counts in model.feature_counts)]
    assert min(each.min() for each in counts) >= 0
    assert np.isfinite(model.log_probabilities(rows)).all()
    asked, *cells = model.evidence
    noise = [float(np.mean(cell.variance)) * cell.clients**2 for cell in cells]
    paper = how == "paper"
    assert model.smoothing == pytest.approx(1e-10 if paper else np.sqrt(np.mean(noise)))
    least = 0 if paper else np.sqrt(asked.variance.mean()) * asked.clients
    assert model.class_counts.min() >= least * (1 - 1e-12)


def test_without_answers_nothing_is_learned() -> None:
    """For an empty tally all classes are equally likely, and intervals are unbounded."""
    discrete = DiscreteBayesSurvey.of(DOMAINS, CLASSES, lambda d: DirectEncoding(d, 1.0))
    gaussian = GaussianBayesSurvey(DirectEncoding(3, 1.0), make_means(1.0, 2, 3))
    for how in CONSISTENCIES:
        flat = learn_discrete(discrete, Tally.empty(discrete), consistency=how)
        same = learn_gaussian(gaussian, Tally.empty(gaussian), consistency=how)
        assert flat.evidence[0].low[0] == -math.inf
        for model, row in ((flat, np.zeros((1, 4), dtype=int)), (same, np.zeros((1, 2)))):
            assert np.exp(model.log_probabilities(row)) == pytest.approx(np.full((1, 3), 1 / 3))


def test_invalid_learning_methods_are_refused(categories: Codes) -> None:
    """Raw counts have no logarithms, smoothing and floors are above 0, and shares are no model."""
    found = counted(PLAIN, *categories)
    with pytest.raises(InputError, match="consistency is 'raw'; allowed: paper, clip, norm-sub"):
        learn_discrete(PLAIN, found, consistency="raw")  # type: ignore[arg-type]  # the refused argument
    with pytest.raises(InputError, match="smoothing"):
        learn_discrete(PLAIN, found, smoothing=0.0)
    with pytest.raises(InputError, match="tally"):
        learn_discrete(PLAIN, Tally((), ()))
    gaussian = GaussianBayesSurvey(PlainOracle(2), make_means(math.inf, 1, 2))
    with pytest.raises(InputError, match="variance_floor"):
        learn_gaussian(gaussian, Tally.empty(gaussian), variance_floor=0.0)
    shares = FrequencySurvey(PlainOracle(3))
    with pytest.raises(InputError, match="survey is 'FrequencySurvey'"):
        learn(shares, Tally.empty(shares))


def test_probabilities_far_apart_do_not_underflow() -> None:
    """A thousand features that favour one class give log-probabilities, not zeros."""
    counts = (np.array([1.0, 1.0]), (np.array([[1.0, 999.0], [999.0, 1.0]]),) * 1000)
    model = DiscreteBayes(*counts, smoothing=1e-10, evidence=())
    found = model.log_probabilities(np.zeros((1, 1000), dtype=np.int64))
    assert found[0] == pytest.approx([-1000 * math.log(999), 0.0])


def test_rows_of_another_shape_are_refused(categories: Codes) -> None:
    """Another number of features, or an unknown value, is refused; a number outside is clipped."""
    model = learn_discrete(PLAIN, counted(PLAIN, *categories))
    with pytest.raises(InputError, match="rows"):
        model.joint(np.zeros((1, 3), dtype=np.int64))
    with pytest.raises(InputError, match="rows"):
        model.joint(np.array([[3, 0, 0, 0]]))
    survey = GaussianBayesSurvey(PlainOracle(2), make_means(math.inf, 3, 2))
    gaussian = learn_gaussian(survey, Tally.empty(survey))
    with pytest.raises(InputError, match="rows"):
        gaussian.joint(np.zeros((1, 2)))
    outside, end = np.array([[5.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 0.0]])
    assert (gaussian.joint(outside) == gaussian.joint(end)).all()


def test_a_classifier_labels_original_rows(categories: Codes) -> None:
    """The public steps of the survey come first, for both kinds of naive Bayes."""
    rows, labels = categories
    numbers = rows * 0.5 - 3.0
    ranges = Ranges((-3.25,) * len(DOMAINS), tuple(0.5 * values - 3.25 for values in DOMAINS))
    binned, scaled = (
        make_survey(step, CLASSES, math.inf, "auto")
        for step in (Bins(ranges, DOMAINS), Scaling(ranges))
    )
    found, gaussian = (learn(each, counted(each, numbers, labels)) for each in (binned, scaled))
    expected = learn_discrete(PLAIN, counted(PLAIN, rows, labels)).classify(rows)
    assert (found.classify(numbers) == expected).all()
    assert isinstance(gaussian.model, GaussianBayes)
    assert (gaussian.joint(numbers) == gaussian.model.joint(Scaling(ranges)(numbers))).all()
