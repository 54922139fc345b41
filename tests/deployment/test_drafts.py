"""The draft terms and files of a trial have the columns of its table."""

import csv
import tomllib
from pathlib import Path

import numpy as np

from veilring.data.sources import load
from veilring.data.table import scale_to_unit
from veilring.deployment.examples import write_peers
from veilring.deployment.peers import PeerTerms
from veilring.protocols.ring.system import PrivateKNN

LEVELS, SEXES = ("high", "low", "middle"), ("female", "male")


def write_patients(path: Path) -> None:
    """Write a CSV file of numbers and words with the line ends of a spreadsheet."""
    rng = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(["sex", "age", "level", "ill"])
        for number in range(60):
            age = int(rng.integers(20, 80))
            writer.writerow(
                [SEXES[number % 2], age, LEVELS[number % 3], "yes" if age > 50 else "no"]
            )


def test_a_trials_terms_are_a_draft_for_deployment(tmp_path: Path) -> None:
    """Text columns have categories, numeric columns have ranges, and the files fit them."""
    source = tmp_path / "patients.csv"
    write_patients(source)
    table = load(str(source))
    folder = tmp_path / "ring"
    names = write_peers(table, PrivateKNN(), folder, parties="abc", seed=0, port=7311)
    sex, age, level = tomllib.loads((folder / "terms.toml").read_text())["features"]
    assert sex == {"name": "sex", "categories": list(SEXES)}
    assert (age["name"], age.keys()) == ("age", {"name", "low", "high"})
    assert level == {"name": "level", "categories": list(LEVELS)}

    terms = PeerTerms.load(folder / "terms.toml")
    read = [terms.read_rows(folder / f"{name}.csv").features for name in names]
    read.append(terms.read_queries(folder / "queries.csv"))
    whole = scale_to_unit(table).X
    found = sorted(np.concatenate(read).tolist())
    np.testing.assert_array_equal(found, sorted(whole.tolist()))
