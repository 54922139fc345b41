"""The command line of tuning: `veilring tune`."""

import json
import tomllib
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

QUICK = ("--parties", "3", "--seeds", "2", "--queries", "10", "--workers", "1")


class TestTune:
    """`veilring tune`."""

    def test_prints_the_best_and_a_table_to_paste(self) -> None:
        """It prints the choices, the accuracy with its interval, and a TOML table `protocol`."""
        command = ("tune", "iris", "--protocol", "data-owner", "--epsilon", "4", *QUICK)
        code, out, err = invoke(*command)
        assert (code, err) == (0, "")
        assert "on splits not used for the choice" in out
        table = tomllib.loads(out[out.index("[protocol]") :])["protocol"]
        assert table["name"] == "data-owner"
        assert table["epsilon"] == 4.0

    def test_writes_what_it_prints_as_json_and_overwrites_nothing(self, tmp_path: Path) -> None:
        """The file has the printed content, and a second run is refused."""
        out = tmp_path / "tuned.json"
        command = ("tune", "iris", "--protocol", "rank-search", *QUICK, "--json", "--out", out)
        code, printed, err = invoke(*command)
        assert (code, err) == (0, "")
        plain = json.loads(printed)
        assert plain == json.loads(out.read_text(encoding="utf-8"))
        assert plain["tried"][0]["accuracy"] == max(each["accuracy"] for each in plain["tried"])
        assert plain["low"] <= plain["accuracy"] <= plain["high"]
        assert invoke(*command)[0] == 2

    def test_begins_with_the_parameters_of_terms(self, tmp_path: Path) -> None:
        """Rows are read as the server reads them, and parameters not searched keep their values."""
        made = invoke("deploy", "prediction", "iris", "--epsilon", "9", "--out", tmp_path / "new")
        assert made[0] == 0
        data, terms = tmp_path / "new" / "records.csv", tmp_path / "new" / "terms.toml"
        command = ("tune", data, "--protocol", "ind-knn", "--terms", terms, *QUICK, "--json")
        code, out, err = invoke(*command)
        assert (code, err) == (0, "")
        assert json.loads(out)["protocol"]["epsilon"] == 9.0

    def test_does_not_search_set_parameters(self) -> None:
        """A parameter of --set keeps its value in all choices."""
        code, out, _ = invoke(
            "tune", "iris", "--protocol", "data-owner", "--set", "protocol.k=0", *QUICK, "--json"
        )
        assert code == 0
        assert all("k" not in each["parameters"] for each in json.loads(out)["tried"])

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--protocol", "data-owners"), "did you mean data-owner"),
            (("--protocol", "data-owner", "--set", "parties.count=3"), "protocol.KEY=VALUE"),
            (("--protocol", "data-owner", "--set", "protocol.radios=3"), "radios"),
            (("--protocol", "data-owner", "--epsilon", "0"), "epsilon is 0"),
        ],
    )
    def test_reports_a_mistake(self, options: tuple[str, ...], told: str) -> None:
        """The error has the field, the value, the allowed values, and the exit code 2."""
        code, out, err = invoke("tune", "iris", *options, *QUICK)
        assert (code, out) == (2, "")
        assert told in err
