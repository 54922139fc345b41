"""Classifiers as files: plain JSON with a version, that any program can read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes, GaussianBayes, Posterior
from veilring.protocols.ldp.algorithm.randomiser import Estimate

__all__ = ("FORMAT", "MODEL_BYTES_MAX", "VERSION", "load", "save")

FORMAT: Final = "veilring naive Bayes"
VERSION: Final = 1
# A model of a thousand features of a hundred values has a tenth of this.
MODEL_BYTES_MAX: Final = 1 << 28

_ESTIMATE: Final = ("values", "variance", "low", "high")


def save(model: Posterior, path: Path) -> None:
    """Write a classifier with its evidence; every number is read back bit for bit.

    Args:
        model: One of naive Bayes.
        path: A file that is not there yet.

    Raises:
        InputError: If the file is there already, or the model is of no known kind.
    """
    if path.exists():
        raise InputError("path", path, "a file that is not there yet: nothing is overwritten")
    content = {"format": FORMAT, "version": VERSION, **_written(model)}
    path.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def load(path: Path) -> DiscreteBayes | GaussianBayes:
    """Read what `save` wrote.

    Raises:
        InputError: If the file is not there, too large, or not such a file of this version.
    """
    if not path.is_file() or path.stat().st_size > MODEL_BYTES_MAX:
        raise InputError("path", path, f"a file of at most {MODEL_BYTES_MAX} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content["format"], content["version"], content["kind"]
        return _READERS[kind](content)
    except (ValueError, KeyError, TypeError) as error:
        allowed = f"a file of format {FORMAT!r}, version {VERSION} ({type(error).__name__})"
        raise InputError("path", path, allowed) from None


def _written(model: Posterior) -> dict[str, Any]:
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
        case _:
            raise InputError("model", type(model).__name__, "DiscreteBayes or GaussianBayes")
    return {**about, "evidence": [_estimate_out(each) for each in model.evidence]}


def _estimate_out(estimate: Estimate) -> dict[str, Any]:
    # JSON has no infinity; `float` reads the words back.
    arrays = {name: _finite_or_word(getattr(estimate, name)) for name in _ESTIMATE}
    return {**arrays, "clients": estimate.clients}


def _finite_or_word(values: NDArray[np.float64]) -> list[float | str]:
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def _estimates(content: Mapping[str, Any]) -> tuple[Estimate, ...]:
    return tuple(
        Estimate(
            **{name: _array(each[name], 1) for name in _ESTIMATE}, clients=int(each["clients"])
        )
        for each in content["evidence"]
    )


def _array(values: list[Any], axes: int) -> NDArray[np.float64]:
    array = np.array(values).astype(np.float64)
    if array.ndim != axes or np.isnan(array).any():
        raise ValueError(array.shape)
    return array


def _discrete(content: Mapping[str, Any]) -> DiscreteBayes:
    class_counts = _array(content["class_counts"], 1)
    features = tuple(_array(counts, 2) for counts in content["feature_counts"])
    if any(counts.shape[1:] != class_counts.shape for counts in features):
        raise ValueError(class_counts.shape)
    return DiscreteBayes(class_counts, features, float(content["smoothing"]), _estimates(content))


def _gaussian(content: Mapping[str, Any]) -> GaussianBayes:
    class_counts = _array(content["class_counts"], 1)
    means, variances = (_array(content[name], 2) for name in ("means", "variances"))
    if means.shape != variances.shape or means.shape[1:] != class_counts.shape:
        raise ValueError(means.shape)
    if not (variances > 0).all():
        raise ValueError(variances.shape)
    return GaussianBayes(class_counts, means, variances, _estimates(content))


_Read = Callable[[Mapping[str, Any]], DiscreteBayes | GaussianBayes]
_READERS: Final[Mapping[tuple[str, int, str], _Read]] = {
    (FORMAT, VERSION, "discrete"): _discrete,
    (FORMAT, VERSION, "gaussian"): _gaussian,
}
