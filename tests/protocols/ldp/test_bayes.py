"""Naive Bayes from tallies, with and without noise, and as exact files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.privacy.generators import seeded
from tests.refusals import require_refused

from papers import means as published
from veilring.arrays import Floats, Ints
from veilring.data.table import Ranges
from veilring.estimators import LDPGaussianNaiveBayes, LDPNaiveBayes
from veilring.protocols.ldp.algorithm.bayes import (
    Classifier,
    DiscreteBayes,
    GaussianBayes,
    learn,
    learn_discrete,
    learn_gaussian,
)
from veilring.protocols.ldp.algorithm.means import make_means
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.randomiser import (
    CONSISTENCIES,
    Consistency,
    PlainOracle,
    make_consistent,
)
from veilring.protocols.ldp.algorithm.steps import Bins, Scaling, principal_components
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
    tally_reports,
)
from veilring.protocols.ldp.saved import load_classifier, save_classifier

DOMAINS = (3, 5, 2, 4)
CLASSES = 3
Codes = tuple[Ints, Ints]


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
    # Table 1 of the paper: young, medium or old; low, medium or high; male or female
    ages, incomes, genders = (
        [0, 0, 1, 2, 2, 2, 1, 1, 0, 2],
        [0, 2, 2, 1, 2, 0, 0, 1, 0, 2],
        [0, 1, 0, 0, 0, 1, 1, 0, 0, 1],
    )
    missed = np.array([0, 0, 1, 1, 1, 0, 1, 0, 1, 1])  # C_1 is 0
    survey = DiscreteBayesSurvey.of((3, 3, 2), 2, PlainOracle)
    rows = np.column_stack((ages, incomes, genders))
    model = learn_discrete(survey, counted(survey, rows, missed))
    assert np.exp(model.log_priors) == pytest.approx([4 / 10, 6 / 10])
    table_2 = [[2 / 4, 1 / 6], [1 / 4, 2 / 6], [1 / 4, 3 / 6]]
    assert np.exp(model.log_conditionals[0]) == pytest.approx(np.array(table_2))
    asked = np.array([[0, 1, 1]])
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
    _, *cells = model.evidence
    noise = [float(np.mean(cell.variance)) * cell.clients**2 for cell in cells]
    paper = how == "paper"
    assert model.smoothing == pytest.approx(1e-10 if paper else np.sqrt(np.mean(noise)))


def test_all_questions_count_for_the_class(categories: Codes) -> None:
    """Except with the paper's consistency, shares of classes have the weights of all questions.

    They are those of the clients without noise, and closer to them than the first question's.
    """
    rows, labels = categories
    truth = np.bincount(labels, minlength=CLASSES) / len(labels)
    asked = learn_discrete(PLAIN, counted(PLAIN, rows, labels), consistency="clip")
    assert asked.class_counts / asked.class_counts.sum() == pytest.approx(truth)
    survey = DiscreteBayesSurvey.of(DOMAINS, CLASSES, lambda d: DirectEncoding(d, 1.0))
    errors = np.zeros((2, 60))
    for run in range(errors.shape[1]):
        _, tally = told(survey, rows, labels, f"all {run}")
        model = learn_discrete(survey, tally, consistency="norm-sub")
        alone = make_consistent(model.evidence[0], "norm-sub")[:CLASSES]
        every = model.class_counts / model.class_counts.sum()
        errors[:, run] = np.square(every - truth).sum(), np.square(alone - truth).sum()
    assert errors[0].mean() < 0.9 * errors[1].mean()


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
    gaussian = GaussianBayesSurvey(PlainOracle(2), make_means(math.inf, 1, 2))
    shares = FrequencySurvey((PlainOracle(3),))
    allowed = "consistency is 'raw'; allowed: paper, clip, norm-sub"
    require_refused(allowed, learn_discrete, PLAIN, found, consistency="raw")
    require_refused("smoothing", learn_discrete, PLAIN, found, smoothing=0.0)
    require_refused("tally", learn_discrete, PLAIN, Tally((), ()))
    none = Tally.empty(gaussian)
    require_refused("variance_floor", learn_gaussian, gaussian, none, variance_floor=0.0)
    require_refused("survey is 'FrequencySurvey'", learn, shares, Tally.empty(shares))


def test_probabilities_far_apart_do_not_underflow() -> None:
    """A thousand features that favour one class give log-probabilities, not zeros."""
    counts = (np.array([1.0, 1.0]), (np.array([[1.0, 999.0], [999.0, 1.0]]),) * 1000)
    model = DiscreteBayes(*counts, smoothing=1e-10, evidence=())
    found = model.log_probabilities(np.zeros((1, 1000), dtype=np.int64))
    assert found[0] == pytest.approx([-1000 * math.log(999), 0.0])


def test_rows_of_another_shape_are_refused(categories: Codes) -> None:
    """Another number of features, or an unknown value, is refused; a number outside is clipped."""
    model = learn_discrete(PLAIN, counted(PLAIN, *categories))
    for wrong in (np.zeros((1, 3), dtype=np.int64), np.array([[3, 0, 0, 0]])):
        require_refused("rows", model.joint, wrong)
    survey = GaussianBayesSurvey(PlainOracle(2), make_means(math.inf, 3, 2))
    gaussian = learn_gaussian(survey, Tally.empty(survey))
    require_refused("rows", gaussian.joint, np.zeros((1, 2)))
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


def cases() -> list[tuple[Classifier, Floats]]:
    """Return classifiers of each kind with rows, one of them with infinities in its evidence."""
    rng = seeded("models")
    rows, labels = rng.normal(0.0, 3.0, (50, 3)), rng.integers(0, 2, 50)
    ranges = Ranges((-2.0, -3.0, 0.1), (2.0, 3.5, 0.7))
    bins = (Bins(ranges, (3, 2, 4)),)
    discrete = DiscreteBayesSurvey.of((3, 2, 4), 2, lambda d: OptimisedUnary(d, 1.0), bins)
    projection = principal_components(rng.normal(size=(20, 3)), 2, origin="drawn for this test")
    steps = (projection, Scaling(Ranges((-4.0, -4.0), (4.0, 4.0))))
    gaussian = GaussianBayesSurvey(DirectEncoding(2, 1.0), make_means(1.0, 2, 2), steps)
    told, moments = (
        tally_reports(each, answer(each, rows, labels, rng).reports)
        for each in (discrete, gaussian)
    )
    pairs = ((discrete, told), (discrete, Tally.empty(discrete)), (gaussian, moments))
    return [(learn(survey, tally), rows) for survey, tally in pairs]


@pytest.mark.parametrize("number", range(3))
def test_a_saved_classifier_is_read_back_exactly(number: int, tmp_path: Path) -> None:
    """Steps, counts, moments, evidence and infinities are exact; files are never overwritten."""
    (classifier, rows), path = cases()[number], tmp_path / "model.json"
    save_classifier(classifier, path)
    again = load_classifier(path)
    assert again.steps == classifier.steps
    assert repr(again) == repr(classifier)
    assert again.joint(rows).tobytes() == classifier.joint(rows).tobytes()
    for one, other in zip(again.model.evidence, classifier.model.evidence, strict=True):
        for name in ("values", "variance", "low", "high"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    require_refused("nothing is overwritten", save_classifier, classifier, path)


@pytest.mark.parametrize(
    "estimator", [LDPNaiveBayes(ranges=(-12.0, 12.0)), LDPGaussianNaiveBayes(math.inf)], ids=repr
)
def test_a_saved_estimator_is_not_needed_to_classify(
    estimator: LDPNaiveBayes | LDPGaussianNaiveBayes, tmp_path: Path
) -> None:
    """The file alone classifies original rows, and without its bins it refuses numbers."""
    rng, path = seeded("saved estimator"), tmp_path / "model.json"
    rows, labels = rng.normal(0.0, 3.0, (200, 3)), rng.integers(0, 2, 200)
    estimator.fit(rows, labels)
    save_classifier(estimator.model_, path)
    found = load_classifier(path).log_probabilities(rows)
    assert (found == estimator.predict_log_proba(rows)).all()
    if isinstance(estimator, LDPNaiveBayes):
        path.write_text(json.dumps({**json.loads(path.read_text()), "steps": []}))
        require_refused("number the values first", load_classifier(path).classify, rows)


def step(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a step of a file: one that does not fit the model, or no step at all."""
    return {"step": kind, "lows": [0.0], "highs": [1.0], **fields}


WRONG: dict[str, list[Any]] = {
    "version": [1],
    "format": ["another"],
    "kind": ["forest"],
    "class_counts": [[[1.0]], [], *([x, 1.0] for x in ("nan", math.nan, math.inf, -1.0, 10**400))],
    "feature_counts": [[[[1.0]]]],
    "evidence": [[{}], []],
    "smoothing": [None, math.nan, -1.0, math.inf, 10**400],
    "steps": [
        None,
        [step("magic")],
        [step("ranges")],
        [step("ranges", highs=[math.inf])],
        [step("ranges", lows=[1.0], highs=[0.0])],
        *([step("bins", counts=[each])] for each in (math.inf, 2.5, 0, 10**400, 7)),
        [{"step": "projection", "centre": [0.0], "axes": [[1.0]], "origin": ""}],
        [step("ranges", lows=[0.0] * 5, highs=[1.0] * 5), step("bins", counts=[2])],
    ],
    "evidence.values": [["inf"], [math.nan]],
    "evidence.variance": [[-1.0]],
    "evidence.low": [["nan"]],
    "evidence.high": [[0.0, 0.0, 0.0]],
    "evidence.clients": [-1, 1.5, math.inf],
    "means": [[[each, 0.0], [0.0, 0.0]] for each in (1.5, math.nan)],
    "variances": [[[0.5, 0.5]], *([[each, 0.5], [0.5, 0.5]] for each in (0.0, math.inf))],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, each) for field, values in WRONG.items() for each in values]
)
def test_an_invalid_file_is_refused(field: str, value: object, tmp_path: Path) -> None:
    """A wrong version, kind, shape, number, moment, estimate or step is refused by the name."""
    path = tmp_path / "model.json"
    save_classifier(cases()[2 if field in {"means", "variances"} else 0][0], path)
    content = json.loads(path.read_text())
    *within, name = field.split(".")
    (content["evidence"][0] if within else content)[name] = value
    path.write_text(json.dumps(content))
    require_refused(r"model\.json", load_classifier, path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """A file is refused if it is missing or is not valid JSON of its kind."""
    path = tmp_path / "model.json"
    require_refused(r"model\.json", load_classifier, path)
    for text in ("", "[]", "{}", "nonsense", "[" * 100_000, "1" * 5000):
        path.write_text(text)
        require_refused(r"model\.json", load_classifier, path)
