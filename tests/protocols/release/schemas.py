"""Small schemas, tables of them, and all statistics of a schema."""

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from veilring.arrays import Floats
from veilring.data.table import Categories, Features, Ranges
from veilring.protocols.promise import Facts
from veilring.protocols.release.algorithm.classifiers import Classifier, Frame, Predictor, Trees
from veilring.protocols.release.algorithm.directions import (
    Centre,
    ClassMeans,
    Discriminant,
    Moments,
)
from veilring.protocols.release.algorithm.noise import Norm
from veilring.protocols.release.algorithm.statistic import Statistic
from veilring.protocols.release.algorithm.tallies import ClassCounts, LabelledGrid, RandomTrees


def schema(numbers: int, sizes: tuple[int, ...] = (), classes: int = 3) -> Features:
    """Return a schema: a number of numeric columns, then categories of the given sizes."""
    categories, first = [], numbers
    for column, size in enumerate(sizes):
        values = tuple(f"value{value}" for value in range(size))
        categories.append(Categories(f"category{column}", first, values))
        first += size
    return Features(
        tuple(f"feature{number}" for number in range(first)),
        Ranges.unit(first),
        tuple(f"class{number}" for number in range(classes)),
        tuple(categories),
    )


NUMERIC = schema(4)
MIXED = schema(2, (3, 2))


def facts_of(features: Features, parties: int, rows: int | None) -> Facts:
    """Return the public facts about rows of a schema."""
    return Facts.of(parties, features, len(features.classes), rows)


def draw_rows(features: Features, rows: int, rng: Generator) -> Floats:
    """Return random valid rows: numbers in [0, 1], and one value of each category."""
    drawn = rng.random((rows, len(features)))
    for each in features.categories:
        count = len(each.values)
        drawn[:, each.features] = np.eye(count)[rng.integers(count, size=rows)]
    return drawn


def some_frame(features: Features) -> Frame:
    """Return a frame away from the middle, with a different unit for each feature."""
    rng = np.random.default_rng(3)
    width = len(features)
    centre = rng.uniform(-0.3, 0.3, width)
    return Frame.middle(features).about(centre, rng.uniform(0.05, 2.0, width))


def all_statistics(features: Features) -> Iterator[tuple[str, Statistic[object]]]:
    """Yield each statistic of a schema in each norm, with its name."""
    trees = Trees.draw(features, np.random.default_rng(5), trees=3, depth=4)
    frame = some_frame(features)
    yield "discriminant", Discriminant(features, frame, scale=500)
    norms: tuple[Norm, ...] = ("l1", "l2")
    for norm in norms:
        yield f"centre {norm}", Centre(features, 100, norm=norm, scale=500)
        yield f"moments {norm}", Moments(features, 100, norm=norm, scale=500)
        yield f"means {norm}", ClassMeans(features, frame, norm=norm, scale=500)
        yield f"counts {norm}", ClassCounts(features, norm=norm, scale=3)
        yield f"trees {norm}", RandomTrees(features, trees, norm=norm, scale=3)
        if not features.categories:
            yield f"grid {norm}", LabelledGrid(features, 3, norm=norm, scale=3)


def scores_of(model: Predictor, rows: Floats) -> Floats:
    """Return the scores of a released classifier."""
    assert isinstance(model, Classifier)
    return model.scores(rows)
