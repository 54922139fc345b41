"""The command line's help, and the time to show it."""

from importlib.metadata import version

import pytest
from tests.cli.invoking import invoke, python


class TestHelp:
    """The commands' help pages."""

    def test_of_the_program_shows_examples_and_exit_codes(self) -> None:
        """It has the first command to try, and the meaning of exit codes."""
        code, out, _ = invoke("--help")
        assert code == 0
        assert "veilring run wine" in out
        assert "2 the input was wrong" in out

    def test_of_run_shows_how_to_set_a_key(self) -> None:
        """The help of `run` shows how to set a key and how to run your own data."""
        code, out, _ = invoke("run", "--help")
        assert code == 0
        assert "veilring run my.csv" in out

    @pytest.mark.parametrize(
        "command", [(), ("run",), ("keys",), ("keys", "new"), ("deploy", "owner")], ids=str
    )
    def test_has_a_short_name_and_bare_flags(self, command: tuple[str, ...]) -> None:
        """`-h` equals `--help` everywhere, and a flag shows no type."""
        code, out, _ = invoke(*command, "-h")
        assert code == 0
        assert out == invoke(*command, "--help")[1]
        assert "bool" not in out

    def test_is_wrapped_once(self) -> None:
        """A paragraph fills its lines, and commands are listed one per line."""
        _, out, _ = invoke("run", "--help")
        lines = [line.strip() for line in out.splitlines()]
        long = next(line for line in lines if line.startswith("The report compares"))
        following = lines[lines.index(long) + 1].split()[0]
        assert len(f"{long} {following}") > 98
        example = lines.index("veilring run wine")
        assert lines[example + 1].startswith("veilring run wine --runtime simulated")

    def test_the_version_is_printed(self) -> None:
        """The printed version is that of the package."""
        code, out, _ = invoke("--version")
        assert (code, out) == (0, f"veilring {version('veilring')}\n")

    def test_does_not_import_slow_packages(self) -> None:
        """Help, and a party's process, load without SciPy, scikit-learn, polars and NumPy."""
        slow = "{'scipy', 'sklearn', 'polars', 'numpy'}"
        python("-c", f"import sys, veilring.cli.app; assert not {slow} & set(sys.modules)")
        light = "import sys, veilring.cli; assert not {'typer', 'rich'} & set(sys.modules)"
        python("-c", light)
