"""`python -m benchmarks scale`: its output and its files."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import app
from benchmarks.collecting import Collected, Driven
from typer.testing import CliRunner


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command; return its exit code, standard output and standard error."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "100"})
    return result.exit_code, result.stdout, result.stderr


RING = ("scale", "ring", "--size", "9", "--size", "20", "--queries", "3", "--k", "1")

PROGRESS = re.compile(r".+: \d+ of \d+")


def _models(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    document = json.loads((folder / f"scale-{name}.json").read_text())
    return {f"{each['curve']}, {each['y']}": each for each in document["models"]}


@pytest.mark.slow
def test_ring_prints_what_it_stores(tmp_path: Path) -> None:
    """The text is the output, the table has all points, and the picture is one file."""
    folder = tmp_path / "growth"
    code, out, err = invoke(*RING, "--out", folder)
    assert code == 0, err
    assert all(PROGRESS.fullmatch(line) for line in err.splitlines()), err
    assert (folder / "scale-ring.txt").read_text(encoding="utf-8") == out
    assert "within 60 s: up to" in out
    assert "simulated: the same seed gives the same numbers" in out
    with (folder / "scale-ring.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    seconds = [row for row in rows if row["y is"] == "simulated seconds per batch"]
    assert [row["x"] for row in seconds if row["curve"] == "one ring"] == ["9", "20"]
    assert all(abs(float(row["y"]) - float(row["model"])) < 1e-9 for row in seconds)
    assert (folder / "scale-ring.svg").read_text(encoding="utf-8").startswith("<?xml")
    (factor,) = _models(folder, "ring")["one ring, simulated seconds per batch"]["factors"]
    assert abs(factor - 1) < 1e-9
    assert invoke(*RING)[1] == out
    code, out, err = invoke(*RING, "--out", folder)
    assert (code, out) == (2, "")
    assert "nothing is overwritten" in err


@pytest.mark.slow
def test_ring_takes_links_from_a_file(tmp_path: Path) -> None:
    """A scenario's table sets the latency; twice the latency takes twice the time."""
    found = []
    for seconds in (0.1, 0.2):
        path, folder = tmp_path / f"{seconds}.toml", tmp_path / str(seconds)
        path.write_text(
            f"[network]\nlatency = {{ distribution = 'constant', seconds = {seconds} }}\n"
        )
        assert invoke(*RING, "--network", path, "--out", folder)[0] == 0
        with (folder / "scale-ring.csv").open(newline="") as file:
            found.append(float(next(csv.DictReader(file))["y"]))
    assert abs(found[1] - 2 * found[0]) < 1e-9
    code, _, err = invoke(*RING, "--network", path, "--latency", "1")
    assert code == 2
    assert "--latency is 1.0; allowed: nothing, where there is a --network" in err


@pytest.mark.slow
def test_records_are_measured_in_a_separate_server(tmp_path: Path) -> None:
    """Each size runs in a fresh process, whose memory excludes other work."""
    sizes = ("--size", "16", "--size", "32", "--size", "64")
    code, out, err = invoke("scale", "records", "--features", "8", *sizes, "--out", tmp_path)
    assert code == 0, err
    assert all(PROGRESS.fullmatch(line) for line in err.splitlines()), err
    assert "measured on this machine: " in out
    with (tmp_path / "scale-records.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["y is"].startswith("MiB")]
    assert [row["x"] for row in rows] == ["16", "32", "64"]
    assert all(10 < float(row["y"]) < 1_000 for row in rows)


@pytest.mark.slow
def test_serve_measures_every_deployment() -> None:
    """Each deployment has a table and a finding."""
    sizes = ("--size", "1", "--size", "2", "--size", "4")
    code, out, err = invoke("scale", "serve", "--parties", "3", *sizes)
    assert code == 0, err
    assert all(PROGRESS.fullmatch(line) for line in err.splitlines()), err
    for name in ("ring, in memory", "ring, over TLS", "ring, as processes", "owner"):
        assert f"{name}: seconds" in out
        assert f"{name}: " in out.partition("prediction server: seconds")[2]


@pytest.mark.slow
def test_collect_measures_a_collector_and_sums_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each size is collected, written to files, and counted with and without Dask."""
    taken = list[int]()

    def collect(driven: Driven, reports: int) -> Collected:
        # A real collection has its own test; four would take long.
        taken.append(driven.drive.survey_clients)
        return Collected(reports, 1.0, 1e6, 1e6, 100.0)

    monkeypatch.setattr(Driven, "collect", collect)
    sizes = [option for size in (40, 80, 120, 160) for option in ("--size", str(size))]
    options = (*sizes, "--survey-clients", "3", "--workers", "1", "--out", str(tmp_path))
    code, out, err = invoke("scale", "collect", *options)
    assert code == 0, err
    assert all(PROGRESS.fullmatch(line) for line in err.splitlines()), err
    assert taken == [3, 3, 3, 3]
    assert "Dask, 1 worker: seconds of a tally" in out
    models = _models(tmp_path, "collect")
    assert set(models) >= {"one collector, seconds", "one process, seconds of a tally"}


def test_collect_refuses_indivisible_numbers() -> None:
    """Each survey client sends the same number of reports."""
    sizes = [option for size in (40, 80, 120, 160) for option in ("--size", str(size))]
    code, _, err = invoke("scale", "collect", "--survey-clients", "7", *sizes)
    assert code == 2
    assert "a multiple of 7 survey clients" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("scale", "ring", "--size", "2", "--size", "8"), "--size is [2, 8]; allowed: "),
        (("scale", "records", "--size", "0"), "--size is [0]; allowed: "),
        (("--only", "nothing"), "--only is 'nothing'; allowed: hop, topk"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_by_its_option(words: tuple[str, ...], says: str) -> None:
    """A wrong value is named by its option."""
    code, _, err = invoke(*words)
    assert code == 2
    assert err.startswith(f"benchmarks: {says}")
