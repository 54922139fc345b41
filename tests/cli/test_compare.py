"""The command line of comparisons: `veilring compare`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.invoking import invoke
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.cli.console import PROGRESS_LINES

QUICK = (
    "--parties",
    "3",
    "--epsilon",
    "1",
    "--seeds",
    "2",
    "--queries",
    "4",
    "--seed",
    "1",
    "--workers",
    "1",
)


def _compare(*options: str | Path) -> dict[str, Any]:
    code, out, err = invoke("compare", "iris", *QUICK, "--json", *options)
    assert (code, err) == (0, "")
    plain: dict[str, Any] = json.loads(out)
    return plain


class TestCompare:
    """`veilring compare`."""

    @pytest.mark.slow
    def test_shows_its_progress_in_a_log(self) -> None:
        """Without a terminal, the first line is the number of jobs, and the last one their end."""
        err = CliRunner().invoke(app, ["compare", "iris", *QUICK]).stderr.splitlines()
        jobs = err[0].removeprefix("Comparing: 0 of ")
        assert err[-1] == f"Comparing: {jobs} of {jobs}"
        assert 2 < len(err) <= PROGRESS_LINES + 1

    @pytest.mark.slow
    def test_prints_a_line_per_system_and_a_recommendation(self) -> None:
        """It prints the table, the sentences, omitted lines, and the effect of the seed on ε."""
        code, out, err = invoke("compare", "iris", *QUICK)
        assert (code, err) == (0, "")
        for name in ("pooled 5-NN", "majority class", "PP-kNN", "noisy votes", "LDP naive Bayes"):
            assert name in out
        assert "Do not compare across guarantees" in out
        assert "Left out: tree walk" in out
        assert out.count("All noise here was drawn from the seed") == 1
        assert "--seed 1" in out

    @pytest.mark.slow
    def test_writes_a_folder_with_page_picture_and_json(self, tmp_path: Path) -> None:
        """The folder has the page, the printed numbers, and the picture in two formats."""
        out, plot = tmp_path / "runs" / "iris", tmp_path / "accuracy.svg"
        printed = _compare("--out", out, "--plot", plot)
        assert {path.name for path in out.iterdir()} == {
            "report.html",
            "comparison.json",
            "accuracy.svg",
        }
        assert json.loads((out / "comparison.json").read_text()) == printed
        assert (out / "accuracy.svg").read_text() == plot.read_text()
        assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")

    @pytest.mark.slow
    def test_takes_a_network_from_a_file(self, tmp_path: Path) -> None:
        """Batch times follow the latency of the network's links."""
        path = tmp_path / "wan.toml"
        path.write_text('latency = { distribution = "constant", seconds = 0.5 }\n')
        plain = _compare("--network", path)
        owner = next(line for line in plain["lines"] if line["system"] == "data-owner")
        assert owner["cost"]["simulated_seconds"] == pytest.approx(1.0)
        assert plain["question"]["network"]["latency"]["seconds"] == 0.5

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--parties", "2"), "parties is 2; allowed: a whole number from 3"),
            (("--epsilon", "0"), "epsilon is 0"),
            (("--epsilon", "99"), "to 10"),
            (("--epsilon", "one"), "numbers, such as 0.5,1,2"),
            (("--out", "taken.html"), "nothing is overwritten"),
            (("--plot", "picture.png"), "ends in .svg"),
            (("--network", "nowhere.toml"), "--network"),
        ],
    )
    def test_reports_a_mistake_before_any_run(
        self, options: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error has the field, the value, the allowed values, and the exit code 2."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "taken.html").write_text("mine")
        code, out, err = invoke("compare", "iris", *options)
        assert (code, out) == (2, "")
        assert told in err

    def test_lists_the_data_sets_if_one_is_unknown(self) -> None:
        """The error lists the known data sets."""
        code, _, err = invoke("compare", "wines")
        assert code == 2
        assert "data is 'wines'; allowed: wine, breast-cancer" in err
