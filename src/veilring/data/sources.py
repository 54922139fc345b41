"""Data sets by name: scikit-learn's, openml.org's, files, and embedded texts."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Floats
from veilring.config import did_you_mean
from veilring.data.cells import Reading, Separator, read_particulars
from veilring.data.csv import read_cells, read_columns, read_csv
from veilring.data.frames import PARQUET, Frame, cells_of_frame, read_parquet
from veilring.data.npz import NPZ, Vectors, read_npz
from veilring.data.schema import RowSchema, matched, read_file, read_schema
from veilring.data.table import Table, encode_columns, number_classes
from veilring.errors import InputError
from veilring.extras import require_extra

_OPENML: Final = "openml:"
_CSV: Final = ".csv"
_FRAME: Final = "the data frame"


def load(
    source: str | Path | Frame,
    *,
    label: str | None = None,
    separator: Separator = ",",
    schema: str | Path | RowSchema | None = None,
    reading: str | Path | Reading | None = None,
    needs_label: bool = True,
) -> Table:
    """Load a data set.

    Args:
        source: `wine`, `breast-cancer`, `digits` or `iris` (they come with scikit-learn);
            `openml:NAME`; the path of a CSV file, which ends in `.csv`, of a Parquet file, or of a
            file that `read_npz` takes, which ends in `.npz`; or a data frame of pandas, polars or
            Arrow.
        label: The column of a CSV or Parquet file or frame with the label of each row; by default
            that of the schema, or the last one. If it is chosen and its numbers are no classes, it
            is a number to predict.
        separator: For a CSV file without a schema: the separator between cells.
        schema: The public schema of such a file or frame: a TOML file with the columns and the
            classes, such as terms. Ranges, categories and classes are then those of the schema, and
            columns are found by name. By default they are computed from the rows.
        reading: The particulars of the file, by which the schema can read it: a TOML file with the
            keys of `Reading`.
        needs_label: For a CSV file: as in `read_csv`.

    Raises:
        InputError: If there is no such data set, it is not a table for classification, an argument
            is given for another kind of source, or the schema is invalid or does not fit.
    """
    if schema is not None:
        return _by_schema(source, schema, reading, label)
    if reading is not None:
        raise InputError.because("a reading needs a schema; give both", field="reading")
    if isinstance(source, Frame):
        return read_columns(cells_of_frame(source, _FRAME), label=label)
    return _load(str(source), label, separator, needs_label=needs_label)


def _by_schema(
    source: str | Path | Frame,
    schema: str | Path | RowSchema,
    reading: str | Path | Reading | None,
    label: str | None,
) -> Table:
    """Return a file or frame as a table with a public schema."""
    agreed = schema if isinstance(schema, RowSchema) else read_schema(Path(schema))
    if label is not None:
        agreed = agreed.model_copy(update={"label": label})
    given = reading
    if not isinstance(given, Reading):
        given = read_particulars(None if given is None else Path(given))
    if isinstance(source, Frame):
        cells = cells_of_frame(source, _FRAME, given)
    elif _is_file(str(source)):
        cells = read_file(Path(source), given)
    else:
        allowed = "the path of a .csv or .parquet file, or a data frame, because a schema is given"
        raise InputError("source", source, allowed)
    return agreed.table_of(matched(cells, agreed.features, agreed.label))


def _is_file(source: str) -> bool:
    return source.lower().endswith((_CSV, PARQUET)) and not source.startswith(_OPENML)


def _load(source: str, label: str | None, separator: Separator, *, needs_label: bool) -> Table:
    if _is_file(source) and source.lower().endswith(_CSV):
        return read_csv(Path(source), label=label, separator=separator, needs_label=needs_label)
    if _is_file(source) and separator == ",":
        return read_columns(read_parquet(Path(source)), label=label)
    if label is not None or separator != ",":
        field = "separator" if label is None else "label"
        raise InputError.because(
            f"{field} is for a .csv file only; leave it out for {source}", field=field
        )
    if source in BUILTIN:
        return read_builtin(source)
    if source.startswith(_OPENML):
        return fetch_openml(source.removeprefix(_OPENML))
    if source.lower().endswith(NPZ):
        return read_npz(Path(source))
    allowed = f"{', '.join(BUILTIN)}, openml:NAME, or a path to a .csv, a .parquet or an .npz"
    raise InputError("source", source, allowed + did_you_mean(source, BUILTIN))


class _BuiltinSet(NamedTuple):
    """The public facts about a set, whose rows are in scikit-learn's package."""

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
    "wine": _BuiltinSet("wine_data.csv", 1, _WINE, ("class_0", "class_1", "class_2")),
    "breast-cancer": _BuiltinSet(
        "breast_cancer.csv",
        1,
        (
            *(f"mean {part}" for part in _CELL),
            *(f"{part} error" for part in _CELL),
            *(f"worst {part}" for part in _CELL),
        ),
        ("malignant", "benign"),
    ),
    "digits": _BuiltinSet(
        "digits.csv.gz",
        0,
        tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        tuple(map(str, range(10))),
    ),
    "iris": _BuiltinSet("iris.csv", 1, _IRIS, ("setosa", "versicolor", "virginica")),
}
"""The sets by name."""


def is_public(table: Table) -> bool:
    """Whether a table is a public data set, so that its ranges and categories are public, too."""
    return table.name in BUILTIN or table.name.startswith(_OPENML)


def read_builtin(name: str) -> Table:
    """Return one of the `BUILTIN` sets.

    Its rows are read from the file in scikit-learn's package, which takes milliseconds; importing
    scikit-learn for that takes 1.5 s. If the file is missing, scikit-learn is used.
    """
    public = BUILTIN[name]
    rows = _from_package(public)
    if rows is None:
        rows = _from_library(name)
    features, labels = rows[:, :-1], rows[:, -1].astype(np.int64)
    return Table.of(name, features, labels, public.feature_names, public.class_names)


def _from_package(public: _BuiltinSet) -> Floats | None:
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", public.file)
        if file.is_file():
            return np.loadtxt(file, delimiter=",", skiprows=public.header_lines)
    return None


def _from_library(name: str) -> Floats:
    require_extra("sklearn")
    from sklearn import datasets

    load = getattr(datasets, f"load_{name.replace('-', '_')}")
    return np.column_stack(load(return_X_y=True))


def fetch_openml(name: str) -> Table:
    """Fetch the active version of a data set of openml.org, or use scikit-learn's cache.

    Columns that OpenML calls nominal are categories; a missing value is the category `?`.
    """
    require_extra("sklearn")
    from sklearn import datasets

    source = f"openml:{name}"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A network error occurred", UserWarning)
            # This parser is slower than the other, which needs pandas.
            found = datasets.fetch_openml(name, as_frame=False, parser="liac-arff", n_retries=1)
    except (OSError, ValueError) as error:  # no network, or no such set
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        allowed = f"a data set on openml.org, which must be reachable ({reason})"
        raise InputError("source", source, allowed) from error
    if not isinstance(found.data, np.ndarray) or np.ndim(found.target) != 1:
        raise InputError("source", source, "a dense data set with one label per row")
    columns = {
        column: _openml_column(found.data[:, position], found.categories.get(column))
        for position, column in enumerate(found.feature_names)
    }
    return encode_columns(source, columns, np.asarray(found.target).astype(np.str_))


def _openml_column(values: Floats, categories: list[str] | None) -> Floats | NDArray[np.str_]:
    if categories is None:
        return values.astype(np.float64)
    missing = np.isnan(values.astype(np.float64))
    names = np.array([*categories, "?"], dtype=np.str_)
    return np.asarray(names[np.where(missing, len(categories), values).astype(np.int64)])


def embed(texts: list[str], model: Path) -> NDArray[np.float32]:
    """Return the embedding of each text, of length 1, shape (texts, dimensions)."""
    if not texts:
        raise InputError.because("there are no texts; give at least one", field="texts")
    encoder = _load_model(model)
    found = encoder.encode(
        texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
    )
    return np.asarray(found, np.float32)


def embed_csv(
    path: Path, text: str, model: Path, *, key: str | None = None, labelled: bool = True
) -> Vectors:
    """Embed a column of a CSV file, ignoring all columns except text, label and the owner's id."""
    cells = read_cells(path)
    label = list(cells)[-1] if labelled else None
    columns = [name for name in cells if name != label]
    for option, column in (("column", text), ("key", key)):
        if column is not None and column not in columns:
            where = f"{path.name} before its last" if labelled else path.name
            raise InputError(option, column, f"a column of {where}: {', '.join(columns)}")
    labels, names = (None, None) if label is None else number_classes(path.name, cells[label])
    ids = None if key is None else tuple(cells[key].tolist())
    return Vectors(embed(cells[text].tolist(), model), labels, names, ids)


def _load_model(model: Path) -> Any:  # noqa: ANN401  (the library ships few types, and is optional)
    if not model.is_dir():
        raise InputError("model", model, "the folder of a sentence-transformers model")
    require_extra("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model), local_files_only=True)
