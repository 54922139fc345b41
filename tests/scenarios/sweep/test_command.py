"""`veilring sweep`."""

from pathlib import Path

import pytest
from tests.scenarios.sweep.plans import SMALL, names_in, read_frame
from typer.testing import CliRunner

from veilring.cli.app import app
from veilring.nodes.node import Node


class TestCommand:
    """`veilring sweep`."""

    @staticmethod
    def _sweep(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(
            app, ["sweep", *arguments], env={"COLUMNS": "200", "VEILRING_DEBUG": ""}
        )
        return result.exit_code, result.stdout, result.stderr

    def test_prints_the_files_written(self, tmp_path: Path) -> None:
        """The command prints the files written, and no progress unless it runs in a terminal."""
        out = tmp_path / "new" / "out.parquet"
        settings = [part for each in SMALL for part in ("--set", each)]
        grid = ("--grid", "parties.count=3,4", "--trials", "2", "--workers", "1")
        code, text, err = self._sweep("wine", *grid, *settings, "--out", str(out))
        said = err.splitlines()
        assert (code, said[0], said[-1]) == (
            0,
            "Checking the cells: 0 of 2",
            "Running the cells: 4 of 4",
        )
        assert text.splitlines()[0] == f"4 runs; results written to {out}"
        assert len(read_frame(out)) == 4

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("--grid", "protocol.rounds=6..1"), "protocol.rounds is '6..1'; allowed: a range"),
            (("--grid", "protocol.round=1"), "did you mean rounds?"),
            (("--grid", "protocol.k=1", "--engine", "cloud"), "local, dask, ray"),
            (("--grid", "protocol.k=1", "--runtime", "tls"), "memory or simulated"),
            ((), "--grid"),
        ],
    )
    def test_wrong_input_exits_with_two(
        self, arguments: tuple[str, ...], named: str, tmp_path: Path
    ) -> None:
        """Standard error has the allowed values and no traceback, and no file is created."""
        code, out, err = self._sweep("wine", *arguments, "--out", str(tmp_path / "out.parquet"))
        assert (code, out) == (2, "")
        assert named in err
        assert "Traceback" not in err
        assert names_in(tmp_path) == set()

    def test_a_failed_cell_exits_with_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One paragraph names the cell and the location of the finished ones."""
        monkeypatch.setattr(Node, "_dispatch", lambda *_: None)
        grid = ("--grid", "parties.count=3", "--runtime", "simulated", "--workers", "1")
        code, out, err = self._sweep("wine", *grid, "--out", str(tmp_path / "out.parquet"))
        assert (code, out) == (1, "")
        assert "\nveilring: parties.count=3 trial=0: " in err
        assert "0 of 1 cells are kept" in err
