"""Packages that come with an extra: if one is missing, one sentence says what to type."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from veilring.errors import MissingExtra

EXTRA_OF: Final[Mapping[str, str]] = {
    "distributed": "dask",
    "jinja2": "lab",
    "joblib": "lab",
    "matplotlib": "plot",
    "networkx": "lab",
    "polars": "parquet",
    "psycopg": "postgres",
    "pyproj": "geo",
    "ray": "ray",
    "sentence_transformers": "text",
    "simpy": "lab",
    "sklearn": "lab",
    "threadpoolctl": "lab",
}
"""The extra that brings a package, by the name under which the package is imported."""


@contextmanager
def name_missing_extras() -> Iterator[None]:
    """Say which extra brings a package that cannot be imported in this context.

    Raises:
        MissingExtra: Instead of the `ModuleNotFoundError` of a package in `EXTRA_OF`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(package, EXTRA_OF[package]) from error


def require_extra(package: str) -> None:
    """Import a package that comes with an extra, before anything is done that is lost without it.

    Args:
        package: One of `EXTRA_OF`.

    Raises:
        MissingExtra: If it is not installed.
    """
    with name_missing_extras():
        import_module(package)
