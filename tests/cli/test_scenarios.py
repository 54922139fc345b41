"""The commands that list what there is: `veilring scenarios`, `systems` and `oracles`."""

import json
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.cli.invoking import done

from veilring.config import describe_keys
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ldp.algorithm.oracles import ORACLES, oracle_options, recommend_oracle
from veilring.protocols.registry import BUILT_IN, find_system, system_names
from veilring.scenarios import make_scenario, scenario_names, scenario_text
from veilring.scenarios.charts import draw_oracles

TERMS = """
classes = ["benign", "malignant"]

[[features]]
name = "age"
low = 0
high = 120

[protocol]
name = "rank-search"
k = 7
"""


def test_scenarios_are_listed_and_printed() -> None:
    """A line has the name and the description; one by name is its file, ready for editing."""
    listed = done("scenarios").splitlines()
    assert tuple(line.split()[0] for line in listed) == scenario_names()
    assert done("scenarios", "wine") == scenario_text("wine")


@pytest.mark.parametrize("name", scenario_names())
def test_a_file_repeats_no_default(name: str) -> None:
    """Each key in a built-in scenario's tables changes the default or is required."""
    tables = tomllib.loads(scenario_text(name))
    whole = make_scenario(tables)
    sections = {key: table for key, table in tables.items() if isinstance(table, dict)}
    for section, table in sections.items():
        for key in table:
            fewer = {other: value for other, value in table.items() if other != key}
            with suppress(ScenarioError):
                assert make_scenario({**tables, section: fewer}) != whole, f"{section}.{key}"


def test_systems_are_listed_with_their_guarantees() -> None:
    """Each row begins with a system's name; systems of other packages are listed too."""
    lines = done("systems").splitlines()
    words = [line.replace("│", " ").split() for line in lines if "│" in line]
    assert set(system_names()) <= {row[0] for row in words}
    assert "measured leakage, no ε" in " ".join(" ".join(row) for row in words)


@pytest.mark.parametrize("name", BUILT_IN)
def test_shows_promise_parameters_and_a_working_command(name: str) -> None:
    """The parameters are those of the model, and the program accepts the command."""
    out, system = done("systems", name), find_system(name)
    assert str(system().promise()) in out
    first = [line.split("│")[1].strip() for line in out.splitlines() if "│" in line]
    keys = [key.name for key in describe_keys(system) if key.name != "name"]
    assert [each for each in first if each] == keys
    _, *command = shlex.split(out.splitlines()[-1])
    setting = command[-1].removeprefix("protocol.")
    key, _, value = setting.partition("=")
    assert str(getattr(system(), key)) == value
    assert command[:4] == ["run", "wine", "--protocol", name]


def test_shows_the_promise_and_the_cost_of_terms(tmp_path: Path) -> None:
    """Both are those of the system with the parameters of the terms, for that many parties."""
    path = tmp_path / "terms.toml"
    path.write_text(TERMS, encoding="utf-8")
    out = done("systems", "--terms", path, "--parties", "4", "--queries", "30")
    system = find_system("rank-search").model_validate({"k": 7})
    cost = system.forecast(parties=4, queries=30, features=1)
    assert f"{system.promise(parties=4)}\n" in out
    assert f"{cost}; for 30 queries among 4 parties\n" in out
    assert out.endswith(f"{system.promise(parties=4).paragraph('rank-search')}\n")


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
    domains = ("--domain", "4", "--domain", "300")
    words = ("--epsilon", "0.5", "--json", "--max-bytes", "8", "--plot", plot)
    rows = json.loads(done("oracles", *domains, *words))
    assert plot.read_bytes().startswith(b"\x89PNG")
    for domain in (4, 300):
        found = [row for row in rows if row["domain"] == domain]
        assert [(row["oracle"], row["variance"], row["report_bytes"]) for row in found] == [
            (each.name, each.mean_variance, each.report_bytes)
            for each in oracle_options(domain, 0.5)
        ]
        (best,) = (row["oracle"] for row in found if row["recommended"])
        assert best == recommend_oracle(domain, 0.5, max_bytes=8).name
    assert "de *" in done("oracles", "--domain", "4")
