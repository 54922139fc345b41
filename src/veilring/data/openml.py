"""Data sets from openml.org."""

import warnings

import numpy as np
from numpy.typing import NDArray

from veilring.data.columns import encode
from veilring.data.table import Table
from veilring.errors import InputError


def fetch_openml(name: str) -> Table:
    """Fetch the active version of a data set of openml.org, or take it from scikit-learn's cache.

    Columns that OpenML calls nominal are categories, where a missing value is the category `?`.

    Raises:
        InputError: If it cannot be fetched, is sparse, has not exactly one label, or lacks numbers.
    """
    from sklearn import datasets  # noqa: PLC0415  (1.5 s, and the other sources do not need it)

    source = f"openml:{name}"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A network error occurred", UserWarning)
            # This parser is slower than the other, which needs pandas.
            found = datasets.fetch_openml(name, as_frame=False, parser="liac-arff", n_retries=1)
    except (OSError, ValueError) as error:  # no network, or no such set
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        allowed = f"a data set that openml.org has, where it can be reached ({reason})"
        raise InputError("source", source, allowed) from error
    if not isinstance(found.data, np.ndarray) or np.ndim(found.target) != 1:
        raise InputError("source", source, "a data set that is dense and has one label a row")
    columns = {
        column: _column(found.data[:, position], found.categories.get(column))
        for position, column in enumerate(found.feature_names)
    }
    return encode(source, columns, np.asarray(found.target).astype(np.str_))


def _column(
    values: NDArray[np.float64], categories: list[str] | None
) -> NDArray[np.float64] | NDArray[np.str_]:
    if categories is None:
        return values.astype(np.float64)
    missing = np.isnan(values.astype(np.float64))
    names = np.array([*categories, "?"], dtype=np.str_)
    return np.asarray(names[np.where(missing, len(categories), values).astype(np.int64)])
