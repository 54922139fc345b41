"""Error messages for mistakes in scenarios."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.scenarios.mistakes import MISTAKES

from veilring.errors import ScenarioError
from veilring.scenarios import load_scenario, make_scenario, run_scenario, runner, scenario_text


class TestMistakes:
    """Every mistake is reported by its key, its value and the allowed values."""

    @pytest.mark.parametrize(("overrides", "key", "value", "allowed"), MISTAKES)
    def test_is_named_before_any_party_starts(
        self,
        overrides: Sequence[str],
        key: str,
        value: str,
        allowed: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The error has the key, the value and the allowed values, and no cluster was created."""
        monkeypatch.delattr(runner, "Cluster")
        with pytest.raises(ScenarioError) as caught:
            run_scenario(load_scenario("wine", overrides), seed=1)
        error = caught.value
        assert error.field == key
        assert value in error.value or error.message
        assert allowed in str(error)
        assert all(part in str(error) for part in (key, error.value, allowed))

    def test_all_mistakes_are_reported_at_once(self) -> None:
        """There is one line per mistake, and each key occurs once."""
        with pytest.raises(ScenarioError) as caught:
            load_scenario("wine", ["protocol.k=0", "protocol.rounds=0", "run.seed=x", "a=1"])
        told = caught.value
        assert [told.field, *(other.field for other in told.others)] == [
            "protocol.k",
            "protocol.rounds",
            "run.seed",
            "a",
        ]
        assert len(str(told).splitlines()) == 4
        assert str(pickle.loads(pickle.dumps(told))) == str(told)

    def test_a_missing_table_is_named(self) -> None:
        """Data are the only setting without a default."""
        with pytest.raises(ScenarioError, match=r"data: the key is missing; .*source"):
            make_scenario({})

    @pytest.mark.parametrize("name", ["wines", "../wine", ""])
    def test_an_unknown_scenario_lists_all_names(self, name: str) -> None:
        """Neither loading nor printing finds a name that is not in the library."""
        for look in (load_scenario, scenario_text):
            with pytest.raises(ScenarioError, match=r"coalition, digits, faults, (iris, )?wine"):
                look(name)

    def test_a_built_in_table_is_a_scenario(self) -> None:
        """It has the settings of the scenario for files of tables."""
        iris, wine = load_scenario("iris"), load_scenario("wine")
        assert (iris.name, iris.data.source) == ("iris", "iris")
        assert (iris.protocol, iris.parties) == (wine.protocol, wine.parties)

    def test_a_typing_error_gets_a_suggestion(self) -> None:
        """A scenario, a data set and a key without its table are suggested."""
        with pytest.raises(ScenarioError, match=r"did you mean wine\?"):
            load_scenario("wien")
        with pytest.raises(ScenarioError, match=r"data.source is 'wien'; .*did you mean wine\?"):
            run_scenario(load_scenario("wine", ["data.source=wien"]), seed=1)
        with pytest.raises(
            ScenarioError, match=r"k: there is no such key; .*did you mean protocol\.k\?"
        ):
            load_scenario("wine", ["k=7"])

    def test_a_missing_file_is_named(self) -> None:
        """The error contains the path."""
        with pytest.raises(ScenarioError, match=r"nowhere\.toml"):
            load_scenario("nowhere.toml")

    def test_a_file_that_is_not_toml_names_the_line(self, tmp_path: Path) -> None:
        """The error has the line at which the parser stopped."""
        (tmp_path / "bad.toml").write_text("[data]\nsource = wine\n")
        with pytest.raises(ScenarioError, match="line 2"):
            load_scenario(str(tmp_path / "bad.toml"))

    def test_a_mistake_in_the_data_names_its_location(self, tmp_path: Path) -> None:
        """The key is data.source; the value has the column and the line."""
        path = tmp_path / "rows.csv"
        path.write_text("a,class\n1,x\n,y\n")
        with pytest.raises(ScenarioError, match="column 'a', line 3 is empty") as caught:
            run_scenario(load_scenario("wine", [f"data.source={path}"]), seed=1)
        assert caught.value.field == "data.source"
