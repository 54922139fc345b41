"""The chart of the oracles, and the command that prints their table and draws it."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.oracles import ORACLES, oracle_options, recommend_oracle
from veilring.scenarios.charts import draw_oracles


@pytest.mark.slow
def test_the_chart_names_every_oracle_reproducibly(tmp_path: Path) -> None:
    """Equal arguments give equal files, and text stays text."""
    for name in ("one.svg", "other.svg"):
        draw_oracles(tmp_path / name, domain=32, epsilon=1.0)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
    words = set(ET.parse(tmp_path / "one.svg").getroot().itertext())
    assert {*ORACLES, "bytes per report", "values, at ε = 1", "ε, for 32 values"} <= words


@pytest.mark.parametrize(
    ("name", "domain", "epsilon", "field"),
    [("o.pdf", 32, 1.0, "plot"), ("o.svg", 1, 1.0, "domain"), ("o.svg", 2, 0.0, "epsilon")],
)
def test_an_impossible_chart_is_refused(
    name: str, domain: int, epsilon: float, field: str, tmp_path: Path
) -> None:
    """An unknown format, a domain of one and no epsilon are refused without a file."""
    with pytest.raises(InputError, match=field):
        draw_oracles(tmp_path / name, domain=domain, epsilon=epsilon)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_table_of_all_oracles(tmp_path: Path) -> None:
    """It lists each oracle for each domain with its numbers, and stars the recommended one."""
    plot = tmp_path / "oracles.png"
    command = ["oracles", "--domain", "4", "--domain", "300", "--epsilon", "0.5", "--json"]
    done = CliRunner().invoke(app, [*command, "--max-bytes", "8", "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    assert plot.read_bytes().startswith(b"\x89PNG")
    rows = json.loads(done.stdout)
    for domain in (4, 300):
        found = [row for row in rows if row["domain"] == domain]
        assert [(row["oracle"], row["variance"], row["report_bytes"]) for row in found] == [
            (each.name, each.mean_variance, each.report_bytes)
            for each in oracle_options(domain, 0.5)
        ]
        (best,) = (row["oracle"] for row in found if row["recommended"])
        assert best == recommend_oracle(domain, 0.5, max_bytes=8).name
    shown = CliRunner().invoke(app, ["oracles", "--domain", "4"])
    assert "de *" in shown.stdout
    refused = CliRunner().invoke(app, ["oracles", "--epsilon", "21"])
    assert refused.exit_code == 2
    assert "epsilon" in refused.output
