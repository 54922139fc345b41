"""Classifier files: plain, versioned JSON that any program can read.

The public steps are included, so a loaded classifier labels the clients' original rows.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from operator import index
from pathlib import Path
from typing import Any, Final

import numpy as np

from veilring.arrays import Floats
from veilring.data.table import Ranges
from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.protocols.ldp.algorithm.bayes import (
    SMOOTHING_MIN,
    BayesModel,
    Classifier,
    DiscreteBayes,
    GaussianBayes,
)
from veilring.protocols.ldp.algorithm.randomiser import SurveyEstimate, given_ends
from veilring.protocols.ldp.algorithm.steps import Bins, LinearProjection, Scaling, Step

FORMAT: Final = "veilring naive Bayes"
VERSION: Final = 2
# A model of a thousand features with a hundred values takes a tenth of this.
MODEL_BYTES_MAX: Final = 1 << 28

_ESTIMATE: Final = ("values", "variance", "low", "high")
_MOMENTS: Final = 3  # the questions of Gaussian naive Bayes: classes, means and mean squares
_GREATEST: Final = float(np.finfo(np.float64).max)


def save_classifier(classifier: Classifier, path: Path) -> None:
    """Write a classifier with its steps and evidence to a new file of its owner's.

    Numbers are stored exactly.
    """
    steps = [dict(step.public) for step in classifier.steps]
    about = {"format": FORMAT, "version": VERSION, "steps": steps, **_written(classifier.model)}
    text = json.dumps(about, allow_nan=False) + "\n"
    try:
        with open_private(path, "x") as file:
            file.write(text)
    except FileExistsError:
        allowed = "the path of a file that does not exist; nothing is overwritten"
        raise InputError("path", path, allowed) from None


def load_classifier(path: Path) -> Classifier:
    """Read a file written by `save_classifier`."""
    if not path.is_file() or path.stat().st_size > MODEL_BYTES_MAX:
        raise InputError("path", path, f"a file of at most {MODEL_BYTES_MAX} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content["format"], content["version"], content["kind"]
        steps = tuple(map(_step, content["steps"]))
        return _fitting(Classifier(steps, _READERS[kind](content)))
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, OSError) as error:
        allowed = f"a file of format {FORMAT!r}, version {VERSION} ({type(error).__name__})"
        raise InputError("path", path, allowed) from None


def _written(model: BayesModel) -> dict[str, Any]:
    match model:
        case DiscreteBayes():
            about: dict[str, Any] = {
                "kind": "discrete",
                "class_counts": model.class_counts.tolist(),
                "feature_counts": [counts.tolist() for counts in model.feature_counts],
                "smoothing": model.smoothing,
            }
        case GaussianBayes():
            about = {
                "kind": "gaussian",
                "class_counts": model.class_counts.tolist(),
                "means": model.means.tolist(),
                "variances": model.variances.tolist(),
            }
    return {**about, "evidence": [_estimate_out(each) for each in model.evidence]}


def _estimate_out(estimate: SurveyEstimate) -> dict[str, Any]:
    # JSON has no infinity; `float` reads the words back.
    arrays = {name: _finite_or_word(getattr(estimate, name)) for name in _ESTIMATE}
    return {**arrays, "clients": estimate.clients}


def _finite_or_word(values: Floats) -> list[float | str]:
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def _evidence(content: Mapping[str, Any], questions: int) -> tuple[SurveyEstimate, ...]:
    found = tuple(map(_estimate, content["evidence"]))
    _require(len(found) == questions)
    return found


def _estimate(content: Mapping[str, Any]) -> SurveyEstimate:
    values = _array(content["values"], 1)
    variance = _array(content["variance"], 1, 0.0, inf)
    low, high = (_array(content[name], 1, -inf, inf) for name in ("low", "high"))
    clients = index(content["clients"])
    _require(values.shape == variance.shape == low.shape == high.shape and clients >= 0)
    return SurveyEstimate(values, variance, clients, partial(given_ends, low, high))


def _array(
    values: list[Any], axes: int, least: float = -_GREATEST, most: float = _GREATEST
) -> Floats:
    """Return numbers in a range, at least one; other contents fail a comparison."""
    array = np.array(values).astype(np.float64)
    _require(array.ndim == axes and array.size > 0)
    _require(bool(((array >= least) & (array <= most)).all()))
    return array


def _fitting(classifier: Classifier) -> Classifier:
    """Return a classifier after checking that its steps and model fit together."""
    steps, model = classifier.steps, classifier.model
    if not steps:
        return classifier
    last, binned = steps[-1], isinstance(model, DiscreteBayes)
    _require(isinstance(last, Bins) == binned)
    if isinstance(last, Bins) and isinstance(model, DiscreteBayes):
        _require(last.counts == tuple(map(len, model.feature_counts)))
    match steps[0]:
        case Scaling(ranges=ranges) | Bins(ranges=ranges):
            features = len(ranges)
        case LinearProjection(centre=centre):
            features = len(centre)
        case _:
            raise ValueError
    # Each step takes the number of features that the previous one returns.
    classifier.joint(np.zeros((1, features)))
    return classifier


def _require(right: bool) -> None:  # noqa: FBT001  (reads as an assertion)
    if not right:
        raise ValueError


def _discrete(content: Mapping[str, Any]) -> DiscreteBayes:
    class_counts = _array(content["class_counts"], 1, 0.0)
    features = tuple(_array(counts, 2, 0.0) for counts in content["feature_counts"])
    _require(all(counts.shape[1:] == class_counts.shape for counts in features))
    smoothing = float(content["smoothing"])
    _require(SMOOTHING_MIN <= smoothing <= _GREATEST)
    return DiscreteBayes(class_counts, features, smoothing, _evidence(content, 1 + len(features)))


def _gaussian(content: Mapping[str, Any]) -> GaussianBayes:
    class_counts = _array(content["class_counts"], 1, 0.0)
    means = _array(content["means"], 2, -1.0, 1.0)
    variances = _array(content["variances"], 2, 0.0, 1.0)
    _require(means.shape == variances.shape and means.shape[1:] == class_counts.shape)
    _require(bool((variances > 0).all()))
    return GaussianBayes(class_counts, means, variances, _evidence(content, _MOMENTS))


def _ranges(content: Mapping[str, Any]) -> Ranges:
    return Ranges(_numbers(content["lows"]), _numbers(content["highs"]))


def _numbers(values: list[Any]) -> tuple[float, ...]:
    return tuple(_array(values, 1).tolist())


def _step(content: Mapping[str, Any]) -> Step:
    match content["step"]:
        case "ranges":
            return Scaling(_ranges(content))
        case "bins":
            return Bins(_ranges(content), tuple(map(index, content["counts"])))
        case "projection":
            axes = tuple(map(_numbers, content["axes"]))
            return LinearProjection(_numbers(content["centre"]), axes, str(content["origin"]))
        case _:
            raise LookupError


_Read = Callable[[Mapping[str, Any]], BayesModel]
_READERS: Final[Mapping[tuple[str, int, str], _Read]] = {
    (FORMAT, VERSION, "discrete"): _discrete,
    (FORMAT, VERSION, "gaussian"): _gaussian,
}
