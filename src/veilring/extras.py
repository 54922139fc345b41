"""Optional packages: if one is missing, one sentence names the command that installs it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from veilring.errors import MissingExtra

EXTRA_OF: Final[Mapping[str, str]] = {
    "Crypto": "prio",
    "aiohttp": "prio",
    "distributed": "dask",
    "jinja2": "lab",
    "joblib": "lab",
    "matplotlib": "plot",
    "networkx": "lab",
    "polars": "parquet",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "pyproj": "geo",
    "sentence_transformers": "text",
    "simpy": "lab",
    "sklearn": "lab",
    "threadpoolctl": "lab",
}
"""The extra that installs a package, by the import name of the package."""


@contextmanager
def name_missing_extras() -> Iterator[None]:
    """Convert a failed import of an optional package into an error that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtra(package, EXTRA_OF[package]) from error


def require_extra(package: str) -> None:
    """Import an optional package, before any work that would be lost without it."""
    with name_missing_extras():
        import_module(package)
