"""`veilring scenarios` and `veilring systems`."""

import shlex
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.config import describe_keys
from veilring.errors import ScenarioError
from veilring.protocols.registry import BUILT_IN, find_system, system_names
from veilring.scenarios import make_scenario, scenario_names, scenario_text

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


class TestScenarios:
    """`veilring scenarios`."""

    def test_lists_each_on_one_line(self) -> None:
        """A line has the name and the description."""
        code, out, _ = invoke("scenarios")
        assert code == 0
        assert tuple(line.split()[0] for line in out.splitlines()) == scenario_names()

    def test_prints_one_unchanged(self) -> None:
        """The output is the file, ready for editing."""
        code, out, _ = invoke("scenarios", "wine")
        assert (code, out) == (0, scenario_text("wine"))

    def test_an_unknown_name_is_wrong_input(self) -> None:
        """The error lists the known names."""
        code, out, err = invoke("scenarios", "wines")
        assert (code, out) == (2, "")
        assert "breast-cancer" in err

    @pytest.mark.parametrize("name", scenario_names())
    def test_a_file_repeats_no_default(self, name: str) -> None:
        """Each key in a built-in scenario's tables changes the default or is required."""
        tables = tomllib.loads(scenario_text(name))
        whole = make_scenario(tables)
        sections = {key: table for key, table in tables.items() if isinstance(table, dict)}
        for section, table in sections.items():
            for key in table:
                fewer = {other: value for other, value in table.items() if other != key}
                with suppress(ScenarioError):
                    assert make_scenario({**tables, section: fewer}) != whole, f"{section}.{key}"


class TestSystems:
    """`veilring systems`."""

    def test_lists_all_with_their_guarantees(self) -> None:
        """Each row begins with a system's name; systems of other packages are listed too."""
        code, out, _ = invoke("systems")
        assert code == 0
        words = [line.replace("│", " ").split() for line in out.splitlines() if "│" in line]
        assert set(system_names()) <= {row[0] for row in words}
        assert "measured leakage, no ε" in " ".join(" ".join(row) for row in words)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_shows_promise_parameters_and_a_working_command(self, name: str) -> None:
        """The parameters are those of the model, and the program accepts the command."""
        code, out, _ = invoke("systems", name)
        assert code == 0
        system = find_system(name)
        assert str(system().promise()) in out
        first = [line.split("│")[1].strip() for line in out.splitlines() if "│" in line]
        assert [each for each in first if each] == [
            key.name for key in describe_keys(system) if key.name != "name"
        ]
        _, *command = shlex.split(out.splitlines()[-1])
        setting = command[-1].removeprefix("protocol.")
        key, _, value = setting.partition("=")
        assert str(getattr(system(), key)) == value
        assert command[:4] == ["run", "wine", "--protocol", name]

    def test_shows_the_promise_and_the_cost_of_terms(self, tmp_path: Path) -> None:
        """Both are those of the system with the parameters of the terms, for that many parties."""
        path = tmp_path / "terms.toml"
        path.write_text(TERMS, encoding="utf-8")
        code, out, _ = invoke("systems", "--terms", path, "--parties", "4", "--queries", "30")
        assert code == 0
        system = find_system("rank-search").model_validate({"k": 7})
        cost = system.forecast(parties=4, queries=30, features=1)
        assert f"{system.promise(parties=4)}\n" in out
        assert out.endswith(f"{cost}; for 30 queries among 4 parties\n")

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("ldp-bays", "did you mean ldp-bayes?"), ("radius", "it is now data-owner")],
    )
    def test_an_unknown_name_is_wrong_input(self, name: str, hint: str) -> None:
        """The error suggests the closest name, or the present one of a system renamed."""
        code, out, err = invoke("systems", name)
        assert (code, out) == (2, "")
        assert hint in err
