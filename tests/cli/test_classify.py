"""`veilring classify`: labels from a model file, without any party."""

import csv
import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoking import done, invoke, python, refused
from tests.deployment.test_imports import LABORATORY

import veilring as vr

QUICK = ("--runtime", "memory", "--set", "parties.count=3", "--set", "run.leakage_trials=0")
SET = ("--set", "protocol.epsilon=8", "--set", "protocol.statistic=means")
RELEASE = ("run", "wine", *QUICK, "--protocol", "release", *SET)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run's model, and rows of the same table with labels last."""
    folder = tmp_path_factory.mktemp("released")
    wine = vr.load("wine")
    lines = [",".join([*wine.features.names, "kind"])]
    lines += [
        ",".join(map(str, [*map(float, row), y])) for row, y in zip(wine.X, wine.y, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join([*lines, ""]))
    done(*RELEASE, "--out", folder / "run")
    (folder / "run" / "model.json").rename(folder / "model.json")
    return folder


def test_the_rows_of_a_file_are_labelled(folder: Path) -> None:
    """There is one label per row, as in Python; columns that the model lacks are ignored.

    The file `-` is standard input, of which each command reads one file.
    """
    model, rows = folder / "model.json", folder / "rows.csv"
    code, out, err = invoke("classify", model, rows)
    assert (code, err) == (0, "")
    header, *labels = out.splitlines()
    assert header == "label"
    assert labels == vr.load_model(model).predict(rows).tolist()
    wine = vr.load("wine")
    right = np.array(wine.features.classes)[wine.y] == labels
    assert np.mean(right) > 0.7  # 0.93 on average, with a standard deviation of 0.01
    command = [sys.executable, "-m", "veilring", "classify", str(model), "-"]
    given = rows.read_text()
    ended = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    assert ended.stdout == out


def test_probabilities_are_printed_beside_labels(folder: Path) -> None:
    """Each class has a named column, and the label's column is the greatest."""
    out = done("classify", folder / "model.json", folder / "rows.csv", "--probabilities")
    for row in csv.DictReader(io.StringIO(out)):
        shares = {name: float(share) for name, share in row.items() if name != "label"}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert max(shares, key=shares.__getitem__) == f"probability of {row['label']}"


def test_scores_that_are_no_probabilities_are_not_printed(folder: Path, tmp_path: Path) -> None:
    """A model whose scores are no logarithms labels rows, and refuses probabilities."""
    model, document = tmp_path / "cosines.json", json.loads((folder / "model.json").read_text())
    document["classifier"]["calibrated"] = False
    model.write_text(json.dumps(document))
    assert done("classify", model, folder / "rows.csv").startswith("label\n")
    words = ("classify", model, folder / "rows.csv", "--probabilities")
    assert "no probabilities" in refused(*words)


def test_out_is_a_new_private_file(folder: Path, tmp_path: Path) -> None:
    """Only its owner can read it; an existing file is refused before any input is read."""
    out = tmp_path / "labels.csv"
    arguments = ("classify", folder / "model.json", folder / "rows.csv", "--out", out)
    assert invoke(*arguments) == (0, "", "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert len(out.read_text().splitlines()) == 1 + len(vr.load("wine"))
    assert "a file that does not exist yet" in refused(*arguments)


def test_without_rows_it_prints_the_promise(folder: Path) -> None:
    """Without rows, the command prints the guarantee and the origin of the model."""
    out = done("classify", folder / "model.json")
    model = vr.load_model(folder / "model.json")
    assert out == f"{model}\n\n{model.promise.paragraph('release')}\n"
    assert "ε = 8, δ = 1e-05 for each release" in out


def test_only_a_run_of_a_release_leaves_a_model(tmp_path: Path) -> None:
    """Other systems have no public result to reuse, and the model of another run is kept."""
    done("run", "wine", *QUICK, "--set", "data.queries=2", "--out", tmp_path / "ring")
    assert not (tmp_path / "ring" / "model.json").exists()
    (tmp_path / "model.json").write_text("mine")
    assert "already contains model.json" in refused(*RELEASE, "--out", tmp_path)


def test_a_client_needs_no_simulation(folder: Path) -> None:
    """The core installation suffices for a client, and no network connection is opened."""
    python(
        "-c",
        "import sys, veilring as vr; "
        f"vr.load_model({str(folder / 'model.json')!r}).predict({str(folder / 'rows.csv')!r}); "
        f"assert not {LABORATORY!r} & set(sys.modules)",
    )
