"""What the command line teaches: help, and what it costs."""

from tests.cli.invoking import invoke, python


class TestHelp:
    """What teaches."""

    def test_of_the_program_shows_examples_and_exit_codes(self) -> None:
        """The first thing to try is in it, and so is what exit codes mean."""
        code, out, _ = invoke("--help")
        assert code == 0
        assert "veilring run wine" in out
        assert "2 the input was wrong" in out

    def test_of_run_shows_how_to_set_a_key(self) -> None:
        """So is a run of one's own data."""
        code, out, _ = invoke("run", "--help")
        assert code == 0
        assert "--set data.source=my.csv" in out

    def test_does_not_import_what_is_slow(self) -> None:
        """Help, and a party's process, get by without SciPy, scikit-learn, polars and NumPy."""
        slow = "{'scipy', 'sklearn', 'polars', 'numpy'}"
        python("-c", f"import sys, veilring.cli.app; assert not {slow} & set(sys.modules)")
        light = "import sys, veilring.cli; assert not {'typer', 'rich'} & set(sys.modules)"
        python("-c", light)
