"""Measures equal scikit-learn's, and their intervals cover the truth about as often as stated."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats
from sklearn import metrics

from veilring import measures
from veilring.arrays import Bools, Floats, Ints
from veilring.errors import InputError
from veilring.measures import Measured, measure, measure_numbers

CLASSES = ("home", "ward", "transfer")
# Each population below has a true coverage between 94.4 and 95.6 %, so that this many repetitions
# leave the range from 93 to 97 % with a probability below 1e-6 for another seed.
REPETITIONS = 6_000


def drawn(seed: int, queries: int = 200, classes: int = 3) -> tuple[Ints, Ints, Floats]:
    """Return true classes, labels and probabilities, the label being the most likely class."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, queries, p=rng.dirichlet(np.full(classes, 5.0)))
    raw = rng.normal(size=(queries, classes)).round(1)  # rounded, so that some scores tie
    raw[np.arange(queries), truth] += 1.0
    chances = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    return truth, chances.argmax(axis=1), chances


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_values_equal_those_of_scikit_learn(seed: int, classes: int) -> None:
    """Each number and the matrix are those of scikit-learn on the same labels and scores."""
    truth, labels, chances = drawn(seed, classes=classes)
    found = measure(truth, labels, tuple(map(str, range(classes))), chances)
    assert found.confusion == tuple(
        map(tuple, metrics.confusion_matrix(truth, labels, labels=range(classes)).tolist())
    )
    assert found.accuracy.value == pytest.approx(metrics.accuracy_score(truth, labels))
    balanced = metrics.balanced_accuracy_score(truth, labels)
    assert found.balanced_accuracy.value == pytest.approx(balanced)
    assert found.macro_f1.value == pytest.approx(metrics.f1_score(truth, labels, average="macro"))
    scores = chances[:, 1] if classes == 2 else chances
    area = metrics.roc_auc_score(truth, scores, multi_class="ovr", average="macro")
    assert found.auc is not None
    assert found.auc.value == pytest.approx(area)
    recalls = metrics.recall_score(truth, labels, average=None)
    assert [each.value for each in found.recalls if each] == pytest.approx(recalls)
    share, mean = zip(
        *((each.right.value, each.probability) for each in found.reliability), strict=True
    )
    chosen = chances.max(axis=1)
    edges = np.linspace(0, 1, measures.BINS + 1)
    expected = stats.binned_statistic(chosen, [truth == labels, chosen], "mean", edges).statistic
    assert share == pytest.approx(expected[0][~np.isnan(expected[0])])
    assert mean == pytest.approx(expected[1][~np.isnan(expected[1])])


@pytest.mark.parametrize(("hits", "trials"), [(0, 1), (1, 1), (3, 17), (40, 40), (999, 1000)])
def test_a_proportion_has_the_interval_of_wilson(hits: int, trials: int) -> None:
    """The ends are SciPy's."""
    found, theirs = measures.proportion(hits, trials), stats.binomtest(hits, trials)
    ends = theirs.proportion_ci(measures.CONFIDENCE, "wilson")
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_an_auc_has_the_variance_of_delong() -> None:
    """Among many queries, half an interval is 1.96 times DeLong's standard error."""
    truth, _, chances = drawn(1, 3_000, classes=2)
    found = measures.auc(truth, chances)
    assert found is not None
    ones, others = chances[truth == 1, 1], chances[truth == 0, 1]
    order = (ones[:, None] > others) + 0.5 * (ones[:, None] == others)
    variance = order.mean(axis=1).var(ddof=1) / len(ones)
    variance += order.mean(axis=0).var(ddof=1) / len(others)
    reach = measures.Z * variance**0.5
    assert (found.high - found.low) / 2 == pytest.approx(reach, rel=2e-3)
    assert (found.high + found.low) / 2 == pytest.approx(found.value, abs=reach / 20)


def labels_of(shares: Floats, queries: int) -> Callable[[Generator], tuple[Ints, Ints]]:
    """Return a function that draws true classes and labels from a matrix of joint shares."""

    def draw(rng: Generator) -> tuple[Ints, Ints]:
        cells = rng.choice(shares.size, queries, p=shares.ravel())
        return cells // len(shares), cells % len(shares)

    return draw


def rare(sizes: list[float], recalls: list[float]) -> Floats:
    """Return joint shares: each class has a size and a recall, and its errors are spread evenly."""
    own, count = np.array(sizes), len(sizes)
    found = np.tile((own * (1 - np.array(recalls)) / (count - 1))[:, None], count)
    np.fill_diagonal(found, own * recalls)
    return found


def covered(found: Measured, truth: float) -> bool:
    """Return whether an interval contains the truth."""
    return found.low <= truth <= found.high


POPULATIONS = {
    "even": (rare([0.5, 0.5], [0.8, 0.8]), 400),
    "rare": (rare([0.71, 0.18, 0.11], [0.9, 0.6, 0.5]), 1_000),
    "many": (rare([0.1] * 10, [0.8] * 10), 600),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATIONS)
def test_intervals_of_labels_cover_the_population(name: str) -> None:
    """Accuracy, balanced accuracy and macro F1 are covered by 93 to 97 % of their intervals."""
    shares, queries = POPULATIONS[name]
    hits, truths, given = np.diag(shares), shares.sum(axis=1), shares.sum(axis=0)
    true = np.array([hits.sum(), (hits / truths).mean(), (2 * hits / (truths + given)).mean()])
    rng, within = np.random.default_rng(7), np.zeros(3)
    draws = rng.multinomial(queries, shares.ravel(), REPETITIONS)
    for cells in draws.reshape(-1, *shares.shape):
        right = measures.proportion(int(np.diag(cells).sum()), queries)
        found = (right, measures.balanced_accuracy(cells), measures.macro_f1(cells))
        within += [covered(*each) for each in zip(found, true, strict=True)]
    assert ((within / REPETITIONS > 0.93) & (within / REPETITIONS < 0.97)).all(), within


def scored(rng: Generator, classes: int, queries: int) -> tuple[Ints, Floats]:
    """Return true classes, and votes of nine rows of which the true class gets the most."""
    truth = rng.integers(classes, size=queries)
    chances = np.full((queries, classes), 0.8 / classes)
    chances[np.arange(queries), truth] += 0.2
    return truth, rng.multinomial(9, chances).astype(np.float64) / 9


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_intervals_of_scores_cover_the_population(classes: int) -> None:
    """The AUC and the calibration are covered by 93 to 97 % of their intervals."""
    truth, scores = scored(np.random.default_rng(0), classes, 400_000)
    area = measures.auc(truth, scores)
    assert area is not None
    # Of a label that is right with the probability that is stated for it less a tenth.
    rng, within, gap = np.random.default_rng(7), np.zeros(2), 0.1
    for _ in range(REPETITIONS):
        truth, scores = scored(rng, classes, 200)
        found = measures.auc(truth, scores)
        assert found is not None
        chances = rng.uniform(0.3, 0.95, 200)
        right: Bools = rng.random(200) < chances - gap
        within += [
            covered(found, area.value),
            covered(measures.overconfidence(right, chances), gap),
        ]
    assert ((within / REPETITIONS > 0.93) & (within / REPETITIONS < 0.97)).all(), within


def test_perfect_and_useless_results_have_intervals_of_some_width() -> None:
    """No interval is a point, and each contains its value."""
    truth = np.arange(30) % 3
    for labels in (truth, (truth + 1) % 3):
        scores = np.eye(3)[labels]
        found = measure(truth, labels, CLASSES, scores)
        for name in measures.NUMBERS:
            number = found.number(name)
            assert number is not None
            assert number.low <= number.value <= number.high
            assert number.high - number.low > 0.05


def test_a_class_without_a_query_is_left_out_and_named() -> None:
    """It has no recall, and the means are those of the other classes."""
    truth, labels = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    found = measure(truth, labels, CLASSES, np.eye(3)[labels])
    assert found.recalls[2] is None
    assert found.absent == ("transfer",)
    assert found.balanced_accuracy.value == pytest.approx(0.75)
    assert found.macro_f1.value == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found.auc is not None
    assert found.auc.value == pytest.approx((0.75 + 1.0) / 2)
    assert "without transfer, which no query belongs to" in str(found)


def test_queries_of_one_class_have_no_auc() -> None:
    """The reason is given, and so it is for labels alone and for scores that are not chances."""
    truth = labels = np.zeros(5, np.int64)
    found = measure(truth, labels, CLASSES, np.full((5, 3), 1 / 3))
    assert found.auc is None
    assert found.missing == {"auc": "all queries have the same class"}
    assert found.calibration is not None
    alone = measure(truth, labels, CLASSES)
    assert set(alone.missing) == {"auc", "calibration"}
    assert "only labels are revealed" in str(alone)
    raw = measure(truth, labels, CLASSES, np.full((5, 3), -1.0))
    assert raw.missing["calibration"] == "the scores are not probabilities"
    assert raw.reliability == ()


def test_equal_scores_have_an_auc_of_one_half() -> None:
    """Ties count as one half."""
    found = measure(np.arange(40) % 2, np.zeros(40, np.int64), ("a", "b"), np.full((40, 2), 0.5))
    assert found.auc is not None
    assert found.auc.value == 0.5
    assert found.auc.low < 0.5 < found.auc.high


def test_a_single_class_is_always_right() -> None:
    """With one class there is nothing to be wrong about, and no error."""
    found = measure(np.zeros(3, np.int64), np.zeros(3, np.int64), ("only",), np.ones((3, 1)))
    assert found.macro_f1 == Measured(1.0, 1.0, 1.0)
    assert found.balanced_accuracy.value == 1.0
    assert found.auc is None


def test_votes_become_shares_that_keep_the_label() -> None:
    """Noisy votes below 0 count as 0, and the class with the most votes keeps the largest share."""
    votes = np.array([[3.0, 1.0, 0.0], [4.0, -2.0, 0.0], [-3.0, -1.0, -2.0], [-2.0, -2.0, -2.0]])
    shares = measures.vote_shares(votes)
    assert shares.tolist()[:2] == [[0.75, 0.25, 0.0], [1.0, 0.0, 0.0]]
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert (shares.argmax(axis=1) == votes.argmax(axis=1)).all()
    many = np.random.default_rng(0).normal(0, 3, (1000, 4))
    assert (measures.vote_shares(many).argmax(axis=1) == many.argmax(axis=1)).all()


def test_the_text_has_a_line_for_each_measure_and_true_class() -> None:
    """The matrix shows true classes from top to bottom with their recall."""
    truth, labels = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 2])
    lines = str(measure(truth, labels, CLASSES)).splitlines()
    assert [line.split()[0] for line in lines] == [
        *("accuracy", "balanced", "macro", "AUC", "calibration", "true"),
        *CLASSES,
    ]
    assert lines[6].split()[1:5] == ["1", "1", "0", "50.0%"]


def test_a_matrix_of_many_classes_is_not_printed() -> None:
    """The terminal has no room; the line says where the matrix is."""
    truth = np.arange(50)
    assert "the matrix of 50 classes is in the JSON" in str(
        measure(truth, truth, tuple(map(str, range(50))))
    )


@pytest.mark.parametrize(
    ("truth", "labels", "scores", "said"),
    [
        ([], [], None, "there is no query to measure"),
        ([0, 1], [0], None, r"labels has the shape \(1,\); with 2 true classes"),
        ([0, 1], [0, 1], np.ones((2, 2)), r"scores \(2, 2\)"),
        ([0, 3], [0, 1], None, "truth must be whole numbers from 0 to 2"),
        ([0, 1], [0, -1], None, "labels must be whole numbers from 0 to 2"),
    ],
)
def test_refuses_what_does_not_fit(
    truth: list[int], labels: list[int], scores: Floats | None, said: str
) -> None:
    """The error names the shapes or values that are wrong."""
    with pytest.raises(InputError, match=said):
        measure(np.array(truth, np.int64), np.array(labels, np.int64), CLASSES, scores)


def test_refuses_the_name_of_no_measure() -> None:
    """The error lists the names."""
    measures.require_names(["auc", "confusion"])
    with pytest.raises(InputError, match="measure is 'gini'; allowed: accuracy, balanced-accuracy"):
        measures.require_names(["gini"])


@pytest.mark.parametrize("seed", range(10))
def test_measures_of_numbers_equal_those_of_scikit_learn(seed: int) -> None:
    """Each is scikit-learn's, within its interval."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(3.0, 2.0, 60)
    predicted = truth + rng.normal(0.2, 1.0, 60)
    found = measure_numbers(truth, predicted)
    theirs = (
        metrics.root_mean_squared_error(truth, predicted),
        metrics.mean_absolute_error(truth, predicted),
        metrics.r2_score(truth, predicted),
    )
    assert found.r2 is not None
    for own, value in zip((found.rmse, found.mae, found.r2), theirs, strict=True):
        assert own.value == pytest.approx(value)
        assert own.low < own.value < own.high
    assert found.r2.high < 1
    assert [line[0] for line in found.lines()] == ["RMSE", "MAE", "R²"]
    assert f"{found.rmse.value:.4g} (" in str(found)


def test_measures_of_numbers_at_their_ends() -> None:
    """Exact predictions have no error; equal true numbers have no R², and say so."""
    exact = measure_numbers(np.arange(5.0), np.arange(5.0))
    assert exact.rmse == exact.mae == Measured(0.0, 0.0, 0.0)
    assert exact.r2 == Measured(1.0, 1.0, 1.0)
    constant = measure_numbers(np.ones(5), np.arange(5.0))
    assert constant.r2 is None
    assert "all true numbers are equal" in str(constant)
    with pytest.raises(InputError, match="no query"):
        measure_numbers(np.zeros(0), np.zeros(0))
    with pytest.raises(InputError, match="predicted has the shape"):
        measure_numbers(np.zeros(3), np.zeros(2))


def test_intervals_of_few_numbers_are_wider() -> None:
    """RMSE, MAE and R² of ten queries are covered by 86 % of their intervals or more.

    Their true coverage is 89.5 to 92.6 %; with normal quantiles, it is 83.7 to 87.7 %.
    """
    rng, within, true = np.random.default_rng(8), np.zeros(3), (1.0, (2 / np.pi) ** 0.5, 0.8)
    for _ in range(3000):
        truth = rng.normal(0.0, 5**0.5, 10)
        found = measure_numbers(truth, truth + rng.normal(0.0, 1.0, 10))
        assert found.r2 is not None
        own = (found.rmse, found.mae, found.r2)
        within += [covered(each, value) for each, value in zip(own, true, strict=True)]
    assert (within / 3000 > 0.86).all(), within


@pytest.mark.slow
def test_intervals_of_numbers_cover_the_population() -> None:
    """RMSE, MAE and R² of 300 queries are covered by 92.5 to 97 % of their intervals.

    Their true coverage is 94.4 to 95.1 %; the range is left with a probability below 1e-6.
    """
    rng, within, true = np.random.default_rng(7), np.zeros(3), (1.0, (2 / np.pi) ** 0.5, 0.8)
    for _ in range(REPETITIONS):
        truth = rng.normal(0.0, 5**0.5, 300)
        found = measure_numbers(truth, truth + rng.normal(0.0, 1.0, 300))
        assert found.r2 is not None
        own = (found.rmse, found.mae, found.r2)
        within += [covered(each, value) for each, value in zip(own, true, strict=True)]
    assert ((within / REPETITIONS > 0.925) & (within / REPETITIONS < 0.97)).all(), within
