"""A prediction server for texts: embedded, deployed, served and asked by commands."""

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.data.standin import install_stand_in
from tests.deployment.commands import call
from tests.deployment.prediction_crashes import Served

from veilring.data.npz import read_vectors
from veilring.testing.ports import reserve_ports

TEXTS = 80
# About 28 rows vote for the right class and none for the other, and the difference of their noise
# deviates by 0.8: that any of the answers below is wrong has a chance below 1e-200.
RICH = ("--epsilon", 500, "--queries", 100, "--tau", 0.9, "--sigma2", 0.1)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model that separates texts with many a from texts with many b."""
    return install_stand_in(tmp_path, monkeypatch)


def write_texts(path: Path, count: int, *, labelled: bool = True) -> list[str]:
    """Write alternating texts of two kinds, each with an id, and return their labels."""
    kinds = ["as" if number % 2 else "bs" for number in range(count)]
    rows = [[f"n{at}", kind[0] * (5 + at % 7), kind] for at, kind in enumerate(kinds)]
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = ["who", "text", "kind"] if labelled else ["who", "text"]
        csv.writer(file).writerows(row[: len(columns)] for row in [columns, *rows])
    return kinds


@pytest.mark.slow
def test_texts_are_embedded_deployed_served_and_asked(model: Path, tmp_path: Path) -> None:
    """Each command reads the output of the previous one, from texts to labels of new texts."""
    write_texts(tmp_path / "texts.csv", TEXTS)
    folder = tmp_path / "predict"
    call("embed", tmp_path / "texts.csv", "--model", model, "--out", tmp_path / "texts.npz")
    assert (
        "public rows"
        in call("tune", tmp_path / "texts.npz", "--protocol", "ind-knn", "--queries", 20).stdout
    )
    options = (*RICH, "--port", reserve_ports(), "--out", folder)
    said = call("deploy", "prediction", tmp_path / "texts.npz", *options).stdout
    for line in (f"add {folder}/registrar.toml {folder}/records.npz", f"{folder}/client-0.npz"):
        assert line in said
    assert (
        "public rows"
        in call(
            "tune",
            folder / "records.npz",
            "--protocol",
            "ind-knn",
            "--terms",
            folder / "terms.toml",
        ).stdout
    )
    truth = read_vectors(folder / "client-0.npz", "file")
    assert truth.labels is not None
    assert truth.class_names == ("as", "bs")

    served = Served(folder)
    served.serve()
    try:
        administrator, client = folder / "registrar.toml", folder / "client-0.toml"
        assert (
            "60 records were added"
            in call("records", "add", administrator, folder / "records.npz").stdout
        )
        answered = call("ask", client, folder / "client-0.npz").stdout.split()[1:]
        assert answered == np.array(truth.class_names)[truth.labels].tolist()

        write_texts(tmp_path / "more.csv", 4)
        more = ("embed", tmp_path / "more.csv", "--model", model, "--key", "who")
        call(*more, "--out", tmp_path / "more.npz")
        assert (
            "4 records were added"
            in call("records", "add", administrator, tmp_path / "more.npz").stdout
        )
        assert "1 records were forgotten" in call("records", "forget", administrator, "n3").stdout

        labels = write_texts(tmp_path / "new.csv", 6, labelled=False)
        new = ("embed", tmp_path / "new.csv", "--model", model, "--unlabelled")
        call(*new, "--out", tmp_path / "new.npz")
        assert call("ask", client, tmp_path / "new.npz").stdout.split()[1:] == labels
    finally:
        served.kill()
