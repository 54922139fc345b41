"""Baselines from other libraries, if installed: each is fitted by an owner of all rows.

They are lines of a comparison, on the same splits. Their guarantees are their authors' claims and
are not checked here.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.promise import Promise
from veilring.randomness import Streams
from veilring.scenarios.comparison.question import Question
from veilring.scenarios.comparison.splits import DealtSplit

_DELTA: Final = 1e-5
_SEED_BITS: Final = 31  # the largest seed that scikit-learn accepts
_BINARY: Final = 2

_Fit = Callable[["Baseline", DealtSplit, int], Any]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A classifier of another library at an ε.

    Attributes:
        name: The key, like a system's.
        title: The title.
        package: The package that has to be installed.
        fit: A function that returns the fitted model for a split and a seed.
        epsilon: The ε of the model.
        delta: The δ of the model.
        binary: Whether it supports only two classes.
    """

    name: str
    title: str
    package: str
    fit: _Fit
    epsilon: float = 1.0
    delta: float = 0.0
    binary: bool = False

    @property
    def key(self) -> tuple[str, str, float | None]:
        """The name, the form and the ε."""
        return self.name, "", self.epsilon

    @property
    def promise(self) -> Promise:
        """The guarantee claimed by its authors."""
        return Promise(
            protects="the owner's rows",
            against="anyone who sees the model or its answers",
            threat_model="an owner that is trusted with all rows",
            adjacency="as defined by its authors",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="model",
            measure="(ε, δ)-DP" if self.delta else "pure ε-DP",
            note=f"This is the claim of {self.package}; it is not checked here.",
        )

    def trouble(self, split: DealtSplit, question: Question) -> str | None:
        """Try the library on a split, and return why it cannot be used here, or None if it can."""
        try:
            self.label(split, question)
        except Exception as error:  # noqa: BLE001  (another library raises what it likes)
            reason = str(error).partition("\n")[0]
            return f"{self.package} cannot be used here: {type(error).__name__}: {reason}"
        return None

    def label(self, split: DealtSplit, question: Question) -> NDArray[np.int64]:
        """Fit the training rows and return the labels of all held-out rows."""
        rng = Streams(question.seed).generator("comparison", *map(str, self.key), split.number)
        with warnings.catch_warnings():
            # They warn of a fixed seed, which a comparison needs, and of their dependencies.
            warnings.simplefilter("ignore")
            model = self.fit(self, split, int(rng.integers(2**_SEED_BITS)))
            return np.asarray(model.predict(split.held_out.X), np.int64)


def _forest(baseline: Baseline, split: DealtSplit, seed: int) -> Any:  # noqa: ANN401  (the libraries ship no types)
    from diffprivlib.models import RandomForestClassifier

    classes = list(range(len(split.train.features.classes)))
    model = RandomForestClassifier(
        epsilon=baseline.epsilon, bounds=(0, 1), classes=classes, random_state=seed
    )
    return model.fit(split.train.X, split.train.y)


def _bayes(baseline: Baseline, split: DealtSplit, seed: int) -> Any:  # noqa: ANN401  (likewise)
    from diffprivlib.models import GaussianNB

    model = GaussianNB(epsilon=baseline.epsilon, bounds=(0, 1), random_state=seed)
    return model.fit(split.train.X, split.train.y)


def _logistic(baseline: Baseline, split: DealtSplit, seed: int) -> Any:  # noqa: ANN401  (likewise)
    from diffprivlib.models import LogisticRegression

    norm = float(np.sqrt(split.train.X.shape[1]))
    model = LogisticRegression(epsilon=baseline.epsilon, data_norm=norm, random_state=seed)
    return model.fit(split.train.X, split.train.y)


def _boosting(baseline: Baseline, split: DealtSplit, seed: int) -> Any:  # noqa: ANN401  (likewise)
    from interpret.privacy import DPExplainableBoostingClassifier

    bounds = dict.fromkeys(range(split.train.X.shape[1]), (0.0, 1.0))
    model = DPExplainableBoostingClassifier(
        epsilon=baseline.epsilon,
        delta=baseline.delta,
        privacy_bounds=bounds,
        random_state=seed,
        n_jobs=1,
    )
    return model.fit(split.train.X, split.train.y)


_BASELINES: Final = (
    Baseline("diffprivlib-forest", "diffprivlib forest", "diffprivlib", _forest),
    Baseline("diffprivlib-bayes", "diffprivlib Bayes", "diffprivlib", _bayes),
    Baseline("diffprivlib-logistic", "diffprivlib logistic", "diffprivlib", _logistic),
    Baseline("dp-ebm", "DP-EBM", "interpret", _boosting, delta=_DELTA, binary=True),
)


def installed(classes: int) -> Iterator[Baseline]:
    """Yield the installed baselines that support the given number of classes."""
    for baseline in _BASELINES:
        if find_spec(baseline.package) and (classes == _BINARY or not baseline.binary):
            yield baseline
