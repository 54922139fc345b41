"""CSV files for commands that take a reader's own: any rows will do, as long as there are some.

Patients and places are made up here, from the name of the file; anything else is a data set.
"""

import csv
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from veilring.data.sources import load
from veilring.deployment.examples.folder import write_table

_AROUND: Final = (37.7749, -122.4194)  # where the pages stand: San Francisco


def write_sample(path: Path, source: str) -> None:
    """Write a CSV file whose last column is the label.

    Args:
        path: The file.
        source: `40 patients`, `500 places` (which have no label), or what a scenario takes.
    """
    count, _, kind = source.partition(" ")
    if not kind:
        write_table(path, load(source))
        return
    rng = np.random.default_rng(zlib.crc32(path.name.encode()))
    made = {"patients": _patients, "places": _places}[kind](rng, int(count))
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(made)


def _patients(rng: np.random.Generator, count: int) -> Iterator[tuple[object, ...]]:
    yield "patient", "age", "sex", "label"
    for number in range(count):
        age = int(rng.integers(20, 90))
        ill = rng.random() < (age - 20) / 70
        sex = rng.choice(["female", "male"])
        yield f"patient-{number}", age, sex, "malignant" if ill else "benign"


def _places(rng: np.random.Generator, count: int) -> Iterator[tuple[object, ...]]:
    yield "name", "lat", "lon"
    for number, place in enumerate(rng.normal(_AROUND, 0.02, (count, 2)).tolist()):
        yield f"place {number}", *place
