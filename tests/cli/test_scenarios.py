"""`veilring scenarios`."""

from tests.cli.invoking import invoke

from veilring.scenarios import scenario_names, scenario_text


class TestScenarios:
    """`veilring scenarios`."""

    def test_lists_each_on_one_line(self) -> None:
        """Its name and what it is."""
        code, out, _ = invoke("scenarios")
        assert code == 0
        assert tuple(line.split()[0] for line in out.splitlines()) == scenario_names()

    def test_prints_one_as_it_is(self) -> None:
        """The output is the file, ready to be edited."""
        code, out, _ = invoke("scenarios", "wine")
        assert (code, out) == (0, scenario_text("wine"))

    def test_an_unknown_name_is_wrong_input(self) -> None:
        """It names those that are."""
        code, out, err = invoke("scenarios", "wines")
        assert (code, out) == (2, "")
        assert "breast-cancer" in err
