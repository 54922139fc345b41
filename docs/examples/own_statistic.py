"""A statistic of your own, released with the same guarantee and at the same cost."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

import veilring as vr
from veilring.protocols.release.algorithm.classifiers import Classifier, CountsClassifier
from veilring.protocols.release.algorithm.statistic import Bound, Entries, Statistic

HALF = 0.5  # numbers are scaled by their public ranges into [0, 1]


@dataclass(frozen=True)
class Halves(Statistic[Classifier]):
    """For each class, the number of rows, and of rows in the upper half of each column.

    Attributes:
        columns: The number of columns, which are all numeric.
        classes: The names of the classes.
    """

    columns: int
    classes: tuple[str, ...]

    @property
    @override
    def length(self) -> int:
        return len(self.classes) * (1 + self.columns)

    @property
    @override
    def bound(self) -> Bound:
        return Bound(
            "l1", 1 + self.columns
        )  # one count for its class, and at most one for each column

    @override
    def entries(self, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Entries:
        values = np.zeros((len(rows), len(self.classes), 1 + self.columns), np.int64)
        each = np.arange(len(rows))
        values[each, labels, 0] = 1
        values[each, labels, 1:] = rows >= HALF
        return Entries.dense(values.reshape(len(rows), self.length))

    @override
    def decode(self, noisy: NDArray[np.int64], deviation: float) -> Classifier:
        counts = noisy.reshape(len(self.classes), 1 + self.columns).astype(np.float64)
        rows = np.maximum(counts[:, :1], 1.0)
        upper = np.clip(counts[:, 1:] / rows, 0.05, 0.95)
        shares = np.stack([1 - upper, upper], axis=2).reshape(len(self.classes), -1)
        none = np.zeros(0, np.int64)
        return CountsClassifier(
            classes=self.classes,
            features=self.columns,
            numbers=np.arange(self.columns),
            cuts=2,
            firsts=none,
            values=none,
            log_priors=np.log(rows[:, 0] / rows.sum()),
            log_shares=np.log(shares),
        )


class ReleaseHalves(vr.Release):
    """The system `release` with this statistic."""

    name: Literal["release"] = "release"

    @override
    def own_statistic(self, features: vr.Features, rows: int) -> Statistic[Classifier]:
        return Halves(len(features), features.classes)


def main() -> None:
    """Release it among eight parties, and with the scikit-learn classifier."""
    train, test = vr.load("breast-cancer").split(test_share=0.25, seed=1)
    system = ReleaseHalves(epsilon=2.0)
    run = vr.run(system, train.partition(8, seed=1), test, runtime="simulated", seed=1)
    print(run)
    ranges = (train.features.ranges.lows, train.features.ranges.highs)
    model = vr.as_classifier(system, ranges=ranges).fit(train.X, train.y)
    print("one release:", model.deployment_privacy_.guarantee)


if __name__ == "__main__":
    main()
