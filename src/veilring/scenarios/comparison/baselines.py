"""Baselines from other libraries, each fitted by an owner of all rows.

Their guarantees are their authors' claims and are not checked here.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from veilring.arrays import Ints
from veilring.data.table import Features
from veilring.errors import InputError
from veilring.protocols.promise import Promise, measure_of
from veilring.protocols.system import Scored
from veilring.randomness import Streams
from veilring.scenarios.comparison.lines import Key
from veilring.scenarios.comparison.question import DealtSplit, Question

_DELTA: Final = 1e-5
_SEED_BITS: Final = 31  # the largest seed that scikit-learn accepts
_BINARY: Final = 2


@dataclass(frozen=True, slots=True)
class Baseline:
    """A classifier of another library at an ε.

    Attributes:
        model: Its class, as `module:name`; it takes `epsilon` and `random_state`.
        options: A function that returns its other arguments, given a split.
    """

    name: str
    title: str
    model: str
    options: Callable[[DealtSplit], Mapping[str, Any]]
    epsilon: float = 1.0
    delta: float = 0.0
    binary: bool = False

    @property
    def key(self) -> Key:
        """The name, the form and the ε."""
        return self.name, "", self.epsilon

    @property
    def package(self) -> str:
        """The package that contains the class."""
        return self.model.partition(".")[0]

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
            measure=measure_of(self.delta),
            note=f"This is the claim of {self.package}; it is not checked here.",
        )

    def label(self, split: DealtSplit, question: Question) -> Ints:
        """Fit the training rows and return the labels of all held-out rows.

        Raises:
            InputError: If the library fails.
        """
        rng = Streams(question.seed).generator("comparison", *map(str, self.key), split.number)
        module, _, name = self.model.partition(":")
        try:
            with warnings.catch_warnings():
                # They warn of a fixed seed, which a comparison needs, and of their dependencies.
                warnings.simplefilter("ignore")
                made = getattr(import_module(module), name)(
                    epsilon=self.epsilon,
                    random_state=int(rng.integers(2**_SEED_BITS)),
                    **self.options(split),
                )
                model = made.fit(split.train.X, split.train.y)
                return np.asarray(model.predict(split.held_out.X), np.int64)
        except Exception as error:  # another library raises what it likes
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise InputError.because(
                f"{self.package} cannot be used here: {reason}", field=self.package
            ) from error

    def score(self, split: DealtSplit, question: Question) -> Scored:
        """Return the labels of `label`, without scores."""
        return Scored(self.label(split, question))


_BASELINES: Final = (
    Baseline(
        "diffprivlib-forest",
        "diffprivlib forest",
        "diffprivlib.models:RandomForestClassifier",
        lambda split: {"bounds": (0, 1), "classes": list(range(len(split.train.features.classes)))},
    ),
    Baseline(
        "diffprivlib-bayes",
        "diffprivlib Bayes",
        "diffprivlib.models:GaussianNB",
        lambda _split: {"bounds": (0, 1)},
    ),
    Baseline(
        "diffprivlib-logistic",
        "diffprivlib logistic",
        "diffprivlib.models:LogisticRegression",
        lambda split: {"data_norm": float(np.sqrt(split.train.X.shape[1]))},
    ),
    Baseline(
        "dp-ebm",
        "DP-EBM",
        "interpret.privacy:DPExplainableBoostingClassifier",
        lambda split: {
            "delta": _DELTA,
            "privacy_bounds": dict.fromkeys(range(split.train.X.shape[1]), (0.0, 1.0)),
            "n_jobs": 1,
        },
        delta=_DELTA,
        binary=True,
    ),
)


def installed(features: Features) -> Iterator[Baseline]:
    """Yield the installed baselines that support the classes; none for numbers."""
    for baseline in _BASELINES if features.target is None else ():
        fits = len(features.classes) == _BINARY or not baseline.binary
        if fits and find_spec(baseline.package):
            yield baseline
