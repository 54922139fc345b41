"""Classifiers from sums: compared with direct formulas without noise, and under noise."""

from fractions import Fraction
from itertools import product
from typing import TypeVar

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from tests.protocols.release.schemas import (
    MIXED,
    NUMERIC,
    all_statistics,
    draw_rows,
    schema,
    some_frame,
)

from veilring.arrays import Floats, Ints
from veilring.data.table import Features
from veilring.protocols.release.algorithm.classifiers import (
    Bins,
    Classifier,
    DirectionClassifier,
    Frame,
    Trees,
)
from veilring.protocols.release.algorithm.directions import (
    RIDGE,
    Centre,
    ClassDirections,
    ClassMeans,
    Discriminant,
    Moments,
    keep_share,
    shrink_counts,
    shrink_means,
)
from veilring.protocols.release.algorithm.noise import Trust
from veilring.protocols.release.algorithm.rule import Rule, main_statistic
from veilring.protocols.release.algorithm.statistic import L1_SCALE, L2_SCALE, SCALE_MAX, Statistic
from veilring.protocols.release.algorithm.tallies import (
    SMOOTHING_MIN,
    ClassCounts,
    LabelledGrid,
    RandomTrees,
)

Decoded = TypeVar("Decoded")
of_schemas = pytest.mark.parametrize("features", [NUMERIC, MIXED])


def classes_apart(features: Features, rows: int, seed: int) -> tuple[Floats, Ints]:
    """Return rows whose numbers depend on their class and on each other."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(features.classes), size=rows)
    drawn = draw_rows(features, rows, rng)
    numbers = len(features) - sum(len(each.values) for each in features.categories)
    mixed = rng.normal(size=(rows, numbers)) @ rng.normal(0, 0.06, (numbers, numbers))
    drawn[:, :numbers] = np.clip(0.5 + mixed + 0.12 * (labels[:, None] - 1), 0, 1)
    return drawn, labels


def without_noise(statistic: Statistic[Decoded], rows: Floats, labels: Ints) -> Decoded:
    """Return the decoded statistic of the exact sum of rows."""
    return statistic.decode(statistic.sum(rows, labels), 0.0)


@of_schemas
def test_the_centre_is_the_mean_and_moments_have_the_spread(features: Features) -> None:
    """Without noise, the frame's origin is the rows' mean and its units are 1 / their spread."""
    rows, labels = classes_apart(features, 400, 1)
    frame = without_noise(Centre(features, 400), rows, labels)
    assert frame.origin == pytest.approx(rows.mean(axis=0), abs=2e-5)
    assert frame.units == pytest.approx(Frame.middle(features).units)
    frame = without_noise(Moments(features, 400), rows, labels)
    assert frame.origin == pytest.approx(rows.mean(axis=0), abs=2e-5)
    assert frame.place(rows).std(axis=0) == pytest.approx(1.0, abs=1e-2)


def test_one_class_is_always_the_answer() -> None:
    """All statistics name the only class with a probability of 1, also if noise hides its rows."""
    one = schema(4, classes=1)
    for _, statistic in all_statistics(one):
        decoded = statistic.decode(np.full(statistic.length, -(10**9)), 1e6)
        if isinstance(decoded, Classifier):
            np.testing.assert_allclose(decoded.predict_proba(np.full((2, 4), 0.3)), 1.0)


def test_a_centre_that_is_all_noise_stays_in_the_middle() -> None:
    """A released sum no longer than its noise is treated as noise."""
    centre = Centre(NUMERIC, 100)
    frame = centre.decode(np.full(4, 5 * L2_SCALE), 6.0 * L2_SCALE)
    assert np.array_equal(frame.origin, np.full(4, 0.5))


def test_a_constant_feature_has_a_finite_unit() -> None:
    """A feature without spread gets a small fraction of the widest, also with noise."""
    rows, labels = classes_apart(NUMERIC, 50, 2)
    rows[:, 0] = 0.25
    moments = Moments(NUMERIC, 50)
    for deviation in (0.0, float(L2_SCALE)):
        units = moments.decode(moments.sum(rows, labels), deviation).units
        assert 0 < units[0] <= 50 * units.min() * (1 + 1e-9)


def test_a_spread_hidden_by_noise_becomes_that_of_the_noise() -> None:
    """A variance below the deviation of its noise, from both moments, becomes that deviation."""
    released = np.array([20, 30, 0, 0, 0, 0])
    frame = Moments(schema(3), 100, scale=1).decode(released, 4.0)
    mean = np.sqrt(1 - 3 * 16 / 1300) * released[:3] / 100
    blur = np.sqrt((4 / 200) ** 2 + (2 * mean * 4 / 100) ** 2)
    assert frame.origin == pytest.approx(0.5 + mean)
    assert frame.units == pytest.approx(blur**-0.5)


@of_schemas
def test_means_equal_scikit_learns_spherical_discriminant(features: Features) -> None:
    """Without noise, probabilities equal those of LDA on directions, shrunk all the way."""
    rows, labels = classes_apart(features, 500, 3)
    frame = some_frame(features)
    model = without_noise(ClassMeans(features, frame, scale=SCALE_MAX), rows, labels)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=1.0)
    directions = frame.directions(rows)
    expected = theirs.fit(directions, labels).predict_proba(directions)
    assert model.predict_proba(rows) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("epsilon", [0.0005, 0.001, 0.01, 1.0])
@pytest.mark.parametrize("rows", [300, 10**8])
def test_counts_are_exact_at_the_coarse_scales_of_a_small_epsilon(
    epsilon: float, rows: int
) -> None:
    """The weight that is read is the one that was added: without noise, all counts are right."""
    plan = Rule(NUMERIC, rows, epsilon, 0.0, Trust(8, 3)).plan("means")
    chosen = main_statistic(plan, NUMERIC, np.random.default_rng(0))
    seen = list[Floats]()

    class Seen(ClassMeans):
        def classifier(self, classes: ClassDirections, others: Floats) -> DirectionClassifier:
            seen.append(classes.sizes)
            return ClassMeans.classifier(self, classes, others)

    assert isinstance(chosen, ClassMeans)
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    statistic = Seen(
        NUMERIC, chosen.frame, norm="l1", scale=chosen.scale, count_weight=chosen.count_weight
    )
    without_noise(statistic, draw_rows(NUMERIC, 100, np.random.default_rng(1)), labels)
    assert seen[0] == pytest.approx([60, 30, 10])


@of_schemas
def test_noisy_pure_means_follow_their_formula(features: Features) -> None:
    """Directions of L1 norm 1 become as long as Gaussian ones, and noise widens the variance."""
    rows, labels = classes_apart(features, 300, 3)
    frame, classes, width, noise = some_frame(features), 3, len(features), 1.5
    weight = Fraction(1, 4)
    statistic = ClassMeans(features, frame, norm="l1", scale=L1_SCALE, count_weight=weight)
    drawn = np.random.default_rng(4).normal(0, noise * L1_SCALE, statistic.length)
    released = statistic.sum(rows, labels) + np.rint(drawn).astype(np.int64)
    model = statistic.decode(released, noise * L1_SCALE)

    longer = np.sqrt(2 * width / np.pi)
    sums = longer * released[: classes * width].reshape(classes, width) / L1_SCALE
    counts = shrink_counts(released[classes * width :] / L1_SCALE / 0.25, noise / 0.25)
    means, shares = shrink_means(sums, counts, longer * noise), counts / counts.sum()
    squares = np.sum(means**2, axis=1)
    variance = (1 - shares @ squares) / width + shares @ (longer * noise / counts) ** 2
    expected = (frame.directions(rows) @ means.T - squares / 2) / variance + np.log(shares)
    assert model.scores(rows) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@of_schemas
def test_a_discriminant_equals_scikit_learns(features: Features) -> None:
    """Without noise, probabilities equal those of LDA on directions with the same shrinkage.

    Eigenvalues with `RIDGE` of their mean added, at the old trace, are a shrinkage of
    RIDGE / (1 + RIDGE) towards the mean eigenvalue.
    """
    rows, labels = classes_apart(features, 500, 4)
    frame = some_frame(features)
    model = without_noise(Discriminant(features, frame, 1.0, scale=SCALE_MAX), rows, labels)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=RIDGE / (1 + RIDGE))
    directions = frame.directions(rows)
    expected = theirs.fit(directions, labels).predict_proba(directions)
    assert model.predict_proba(rows) == pytest.approx(expected, abs=2e-3)


def test_a_noisy_discriminant_follows_its_formula() -> None:
    """Scores equal those of W = M/n - sum pi m m^T with lifted eigenvalues, computed directly.

    Negative eigenvalues become 0, all get the floor and the ridge, and their sum stays.
    """
    rng = np.random.default_rng(10)
    frame, classes, width, noise = Frame.middle(NUMERIC), 3, 4, 2.0
    rows, labels = classes_apart(NUMERIC, 400, 10)
    statistic = Discriminant(NUMERIC, frame, kappa=0.3)
    drawn = np.rint(rng.normal(0, noise * L2_SCALE, statistic.length)).astype(np.int64)
    released = statistic.sum(rows, labels) + drawn
    model = statistic.decode(released, noise * L2_SCALE)

    values = released / L2_SCALE
    sums = values[: classes * width].reshape(classes, width)
    weight = int(0.3 * L2_SCALE) / L2_SCALE
    counts = values[classes * width : classes * (width + 1)] / weight
    counts = shrink_counts(counts, noise / weight)
    upper, moment = np.triu_indices(width), np.zeros((width, width))
    moment[upper] = values[classes * (width + 1) :] / 0.7
    moment[upper] /= np.where(upper[0] == upper[1], 1, np.sqrt(2))
    moment += np.triu(moment, 1).T
    n = counts.sum()
    means = shrink_means(sums, counts, noise)
    within = moment / n - (means.T * counts / n) @ means
    raw, vectors = np.linalg.eigh(within)
    assert raw[0] < 0
    edge = noise / 0.7 * np.sqrt(2 * width) / n
    lifted = np.maximum(raw, 0) + 0.3 * edge + 0.01 * raw.sum() / width
    inverse = vectors @ np.diag(lifted.sum() / raw.sum() / lifted) @ vectors.T
    halves = np.diag(means @ inverse @ means.T) / 2
    expected = frame.directions(rows) @ inverse @ means.T - halves + np.log(counts / n)
    assert model.scores(rows) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_shrinking_is_zero_without_noise_and_complete_in_noise() -> None:
    """Counts move to their mean and vectors to 0, by the fraction of noise in the variance."""
    counts, sums = np.array([10.0, 50.0, 90.0]), np.array([[3.0, 4.0], [0.0, 1.0]])
    assert shrink_counts(counts, 0.0) == pytest.approx(counts)
    assert shrink_counts(counts, 1e6) == pytest.approx(50.0)
    weight = 100 / np.mean([1600, 0, 1600])
    assert shrink_counts(counts, 10.0) == pytest.approx(50 + (1 - weight) * (counts - 50))
    assert keep_share(sums, 1.0) == pytest.approx(np.array([[1 - 2 / 25], [0.0]]))


def test_class_means_move_to_the_mean_of_all_rows() -> None:
    """Each keeps the part of its distance that all distances together show not to be noise."""
    sums, sizes = np.array([[4.0, 2.0], [1.0, -1.0], [0.0, 1.0]]), np.array([10.0, 4.0, 2.0])
    assert shrink_means(sums, sizes, 0.0) == pytest.approx(sums / sizes[:, None])
    total = sums.sum(axis=0)
    for noise in (0.5, 3.0):
        pooled = total * max(0.0, 1 - 2 * 3 * noise**2 / (total @ total))
        hidden, squares, reach = [], [], []
        for own, size in zip(sums, sizes, strict=True):
            share = size / 16
            hidden.append(noise**2 * ((1 - share) ** 2 + 2 * share**2))
            squares.append(float(np.sum((own - share * total) ** 2)))
            reach.append((size * (1 - share)) ** 2)
        excess = max(sum(squares) - 2 * sum(hidden), np.sqrt(4 * np.sum(np.square(hidden))))
        found = shrink_means(sums, sizes, noise)
        for label, size in enumerate(sizes):
            variance = excess / (2 * sum(reach)) * reach[label]
            kept = variance / (variance + hidden[label])
            expected = pooled / 16 + kept * (sums[label] / size - total / 16)
            assert found[label] == pytest.approx(expected)


@pytest.mark.parametrize("features", [NUMERIC, MIXED, schema(0, (3, 4))])
def test_counts_are_naive_bayes(features: Features) -> None:
    """Without noise, scores equal log-priors plus log-frequencies, by a loop over columns."""
    rows, labels = classes_apart(features, 300, 5)
    model = without_noise(ClassCounts(features), rows, labels)
    placed = Bins.of(features).place(rows)
    expected = np.log(np.bincount(labels, minlength=3) / len(labels)) + np.zeros((len(rows), 3))
    for row, label, column in product(range(len(rows)), range(3), range(placed.shape[1])):
        same = placed[labels == label, column] == placed[row, column]
        expected[row, label] += np.log(same.mean()) if same.any() else -np.inf
    possible = np.isfinite(expected)
    assert model.scores(rows)[possible] == pytest.approx(expected[possible], abs=0.01)
    assert (model.scores(rows)[~possible] < expected.max()).all()
    assert model.predict(rows).tolist() == expected.argmax(axis=1).tolist()


def test_a_value_that_is_not_public_is_ignored() -> None:
    """A row without any value in a column is labelled by its other columns, and adds nothing."""
    features = schema(0, (3, 2))
    rows = np.array([[1.0, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 1]])
    statistic = ClassCounts(features)
    model = without_noise(statistic, rows, np.arange(3))
    unknown = np.zeros((1, 5))
    assert statistic.sum(unknown, np.array([0])).tolist() == [0] * statistic.length
    assert model.scores(unknown)[0] == pytest.approx(model.log_priors)


@pytest.mark.parametrize("features", [schema(1), schema(2), schema(3)])
def test_a_grid_without_noise_has_the_frequencies_of_each_cell(features: Features) -> None:
    """Without noise, a cell with a leader has its own frequencies, counted by brute force."""
    rows, labels = classes_apart(features, 200, 6)
    model = without_noise(LabelledGrid(features, 4), rows, labels)
    cells = np.minimum((rows * 4).astype(int), 3)
    for row, cell in zip(rows, cells, strict=True):
        held = labels[(cells == cell).all(axis=1)]
        counts = np.sort(np.bincount(held, minlength=3))
        if counts[-1] > counts[-2]:
            shares = np.bincount(held, minlength=3) / len(held)
            assert model.predict_proba(row[None])[0] == pytest.approx(shares, abs=0.05)
            assert model.predict(row[None])[0] == shares.argmax()


def test_a_noisy_grid_follows_its_formula() -> None:
    """Each cell has the first decay whose lead exceeds the noise, or the best, by brute force."""
    rng = np.random.default_rng(12)
    side, noise = 4, 3.0
    counts = rng.normal(2, noise, (3, side, side)) + 20 * np.eye(side) * np.eye(3)[0][:, None, None]
    counts = np.rint(64 * counts) / 64
    grid = LabelledGrid(schema(2), side, scale=64)
    model = grid.decode((64 * counts).astype(np.int64).ravel(), 64 * noise)
    cells = list(product(range(side), repeat=2))
    for index, cell in enumerate(cells):
        best, expected = -1.0, np.zeros(3)
        for decay in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1):
            apart = [abs(cell[0] - other[0]) + abs(cell[1] - other[1]) for other in cells]
            weights = np.array([1.0 if not away else decay**away for away in apart])
            sums = counts.reshape(3, -1) @ weights
            deviation = noise * np.sqrt(2 * np.sum(weights**2))
            lead = np.diff(np.sort(sums))[-1] / deviation
            if best <= 1.5 and lead > best:
                best, kept = lead, np.maximum(sums, 0) + deviation / 2
                expected = np.log(kept / kept.sum())
        assert model.log_shares[index] == pytest.approx(expected)


def test_trees_average_the_frequencies_of_their_leaves() -> None:
    """Without noise, a score is the mean of the log-frequencies in a row's leaves."""
    rows, labels = classes_apart(MIXED, 300, 7)
    rows[::3, 0] = 0.5  # on a cut, which is the second child's
    trees = Trees.draw(MIXED, np.random.default_rng(1), trees=4, depth=3)
    model = without_noise(RandomTrees(MIXED, trees), rows, labels)

    def leaf_of(row: Floats, tree: int) -> int:
        node = 0
        while node < trees.leaves - 1:
            feature, cut = trees.tested[tree, node], trees.cuts[tree, node]
            node = 2 * node + (2 if row[feature] >= cut else 1)
        return node - (trees.leaves - 1)

    leaves = np.array([[leaf_of(row, tree) for tree in range(4)] for row in rows])
    assert np.array_equal(trees.place(rows), leaves)
    for row in range(0, len(rows), 29):
        scores = np.zeros(3)
        for tree in range(4):
            held = labels[leaves[:, tree] == leaves[row, tree]]
            kept = np.bincount(held, minlength=3) + SMOOTHING_MIN
            scores += np.log(kept / kept.sum()) / 4
        assert model.scores(rows[row][None])[0] == pytest.approx(scores)


def test_trees_cut_the_remaining_range_and_test_every_column() -> None:
    """Numeric cuts lie strictly within the range left above them; equal seeds draw equal trees."""
    trees = Trees.draw(NUMERIC, np.random.default_rng(8))
    again = Trees.draw(NUMERIC, np.random.default_rng(8))
    assert np.array_equal(trees.tested, again.tested)
    assert np.array_equal(trees.cuts, again.cuts)
    assert set(trees.tested.ravel().tolist()) == {0, 1, 2, 3}
    for tree, node in product(range(len(trees.tested)), range(1, trees.tested.shape[1])):
        child, cut = node, trees.cuts[tree, node]
        while child:
            parent = (child - 1) // 2
            if trees.tested[tree, parent] == trees.tested[tree, node]:
                assert (cut >= trees.cuts[tree, parent]) == (child == 2 * parent + 2)
            child = parent


@of_schemas
def test_any_released_sum_gives_a_classifier(features: Features) -> None:
    """Sums of pure noise, zeros or absurd numbers give finite scores for every row."""
    rng = np.random.default_rng(9)
    rows = draw_rows(features, 20, rng)
    for _, statistic in all_statistics(features):
        if isinstance(statistic, Centre | Moments):
            continue
        for size in (0, 10, 10**9):
            noisy = np.rint(rng.normal(0, size, statistic.length)).astype(np.int64)
            for deviation in (0.0, float(size)):
                model = statistic.decode(noisy, deviation)
                assert isinstance(model, Classifier)
                assert np.isfinite(model.scores(rows)).all()
