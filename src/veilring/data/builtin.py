"""The data sets that scikit-learn brings with it."""

import importlib.util
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Table


class _Set(NamedTuple):
    """What is public about a set; the rows are in scikit-learn's package."""

    file: str
    header_lines: int
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]


_CELL: Final = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
_WINE: Final = (
    "alcohol",
    "malic_acid",
    "ash",
    "alcalinity_of_ash",
    "magnesium",
    "total_phenols",
    "flavanoids",
    "nonflavanoid_phenols",
    "proanthocyanins",
    "color_intensity",
    "hue",
    "od280/od315_of_diluted_wines",
    "proline",
)
_IRIS: Final = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")

BUILTIN: Final = {
    "wine": _Set("wine_data.csv", 1, _WINE, ("class_0", "class_1", "class_2")),
    "breast-cancer": _Set(
        "breast_cancer.csv",
        1,
        (
            *(f"mean {part}" for part in _CELL),
            *(f"{part} error" for part in _CELL),
            *(f"worst {part}" for part in _CELL),
        ),
        ("malignant", "benign"),
    ),
    "digits": _Set(
        "digits.csv.gz",
        0,
        tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        tuple(map(str, range(10))),
    ),
    "iris": _Set("iris.csv", 1, _IRIS, ("setosa", "versicolor", "virginica")),
}
"""By name."""


def read_builtin(name: str) -> Table:
    """Return one of the `BUILTIN` sets.

    Its rows are read from the file in scikit-learn's package, which takes milliseconds; importing
    scikit-learn to do the same takes 1.5 s. Where that file is not, scikit-learn is asked.
    """
    public = BUILTIN[name]
    rows = _from_package(public)
    if rows is None:
        rows = _from_library(name)
    features, labels = rows[:, :-1], rows[:, -1].astype(np.int64)
    return Table.of(name, features, labels, public.feature_names, public.class_names)


def _from_package(public: _Set) -> NDArray[np.float64] | None:
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", public.file)
        if file.is_file():
            return np.loadtxt(file, delimiter=",", skiprows=public.header_lines)
    return None


def _from_library(name: str) -> NDArray[np.float64]:
    from sklearn import datasets  # noqa: PLC0415  (1.5 s, and hardly ever needed)

    load = getattr(datasets, f"load_{name.replace('-', '_')}")
    return np.column_stack(load(return_X_y=True))
