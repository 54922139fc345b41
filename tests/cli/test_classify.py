"""`veilring classify`: labels from a model file, without any party."""

import csv
import io
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoking import invoke, python
from tests.deployment.test_imports import LABORATORY

import veilring as vr

QUICK = ("--runtime", "memory", "--set", "parties.count=3", "--set", "run.leakage_trials=0")
RELEASE = (
    "--protocol",
    "release",
    "--set",
    "protocol.epsilon=8",
    *("--set", "protocol.statistic=means"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run's model, and rows of the same table with labels last."""
    folder = tmp_path_factory.mktemp("released")
    wine = vr.load("wine")
    lines = [",".join([*wine.features.names, "kind"])]
    lines += [
        ",".join(map(str, [*map(float, row), y])) for row, y in zip(wine.X, wine.y, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    code, _, err = invoke("run", "wine", *QUICK, *RELEASE, "--out", folder / "run")
    assert (code, err) == (0, "")
    return folder


def test_the_rows_of_a_file_are_labelled(folder: Path) -> None:
    """There is one label per row, as in Python; columns that the model lacks are ignored."""
    model = folder / "run" / "model.json"
    code, out, err = invoke("classify", model, folder / "rows.csv")
    assert (code, err) == (0, "")
    header, *labels = out.splitlines()
    assert header == "label"
    assert labels == vr.load_model(model).predict(folder / "rows.csv").tolist()
    wine = vr.load("wine")
    assert (
        np.mean(np.array(wine.features.classes)[wine.y] == labels) > 0.7
    )  # 0.93 on average, with a standard deviation of 0.01


def test_rows_are_read_from_standard_input(folder: Path) -> None:
    """The file `-` is standard input, of which each command reads one file."""
    words = ("classify", folder / "run" / "model.json")
    command = [sys.executable, "-m", "veilring", *map(str, words), "-"]
    given = (folder / "rows.csv").read_text()
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    assert done.stdout == invoke(*words, folder / "rows.csv")[1]


def test_probabilities_are_printed_beside_labels(folder: Path, tmp_path: Path) -> None:
    """Each class has a named column, and the label's column is the greatest."""
    model = tmp_path / "lda.json"
    train, test = vr.load("wine").split(test_share=0.5, seed=1)
    found = vr.run(vr.Release(statistic="lda"), train.partition(3, seed=1), test).model
    assert found is not None
    found.save(model)
    _, out, _ = invoke("classify", model, folder / "rows.csv", "--probabilities")
    for row in csv.DictReader(io.StringIO(out)):
        shares = {name: float(share) for name, share in row.items() if name != "label"}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert max(shares, key=shares.__getitem__) == f"probability of {row['label']}"
    code, _, err = invoke(
        "classify", folder / "run" / "model.json", folder / "rows.csv", "--probabilities"
    )
    assert code == 2
    assert "no probabilities" in err


def test_out_is_a_new_private_file(folder: Path, tmp_path: Path) -> None:
    """Only its owner can read it; an existing file is refused before any input is read."""
    out = tmp_path / "labels.csv"
    arguments = ("classify", folder / "run" / "model.json", folder / "rows.csv", "--out", out)
    assert invoke(*arguments) == (0, "", "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert len(out.read_text().splitlines()) == 1 + len(vr.load("wine"))
    code, _, err = invoke(*arguments)
    assert code == 2
    assert "a file that does not exist yet" in err


def test_without_rows_it_prints_the_promise(folder: Path) -> None:
    """Without rows, the command prints the guarantee and the origin of the model."""
    model = folder / "run" / "model.json"
    code, out, _ = invoke("classify", model)
    assert (code, out) == (0, f"{vr.load_model(model)}\n")
    assert "ε = 8, δ = 1e-05 for each release" in out


def test_an_invalid_model_is_refused(folder: Path) -> None:
    """The command exits with 2 and names the file."""
    code, out, err = invoke("classify", folder / "rows.csv", folder / "rows.csv")
    assert (code, out) == (2, "")
    assert err.startswith("veilring: rows.csv is not a released model: ")


def test_a_folder_with_a_model_is_not_written_to(tmp_path: Path) -> None:
    """The model of another run is kept."""
    (tmp_path / "model.json").write_text("mine")
    code, _, err = invoke("run", "wine", *QUICK, *RELEASE, "--out", tmp_path)
    assert code == 2
    assert "already contains model.json" in err


def test_a_run_of_another_system_leaves_no_model(tmp_path: Path) -> None:
    """Other systems have no public result to reuse."""
    code, _, _ = invoke("run", "wine", *QUICK, "--set", "data.queries=2", "--out", tmp_path)
    assert code == 0
    assert not (tmp_path / "model.json").exists()


def test_a_client_needs_no_simulation(folder: Path) -> None:
    """The core installation suffices for a client, and no network connection is opened."""
    model, rows = folder / "run" / "model.json", folder / "rows.csv"
    python(
        "-c",
        "import sys, veilring as vr; "
        f"vr.load_model({str(model)!r}).predict({str(rows)!r}); "
        f"assert not {LABORATORY!r} & set(sys.modules)",
    )
