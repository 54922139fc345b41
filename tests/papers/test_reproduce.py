"""Reproduction of a figure: the files contain the measurements."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.random import Generator
from papers.__main__ import reproduce
from papers.claims import Claim, CurveKey
from papers.evidence import LAST, heights
from papers.figure import Axis, Figure, draw_hold_out, held_out_rows
from papers.reproduce import FIGURES, reproduce_figure
from tests.papers.conftest import Program
from tests.refusals import require_refused

from veilring.data.sources import load
from veilring.data.table import Table
from veilring.randomness import Streams


@pytest.mark.parametrize(
    ("family", "splits", "names"),
    [
        ("ring", 100, [f"figure-{n}" for n in range(2, 7)]),
        ("ldp", 100, [f"figure-{n}" for n in range(2, 5)]),
        ("radius", 20, [f"figure-{n}" for n in range(7, 16)]),
        ("prediction", 5, [*(f"figure-{n}" for n in range(1, 6)), "table-1", "table-3", "table-5"]),
        ("treewalk", 8, [f"figure-6.{n}" for n in range(2, 32)]),
    ],
)
def test_a_family_has_the_figures_of_its_paper(family: str, splits: int, names: list[str]) -> None:
    """Each is found by name, and has claims and its number of splits."""
    found = [figure for name, figure in FIGURES.items() if name.startswith(f"{family}/")]
    assert [figure.name for figure in found] == [f"{family}/{name}" for name in names]
    assert all(figure.claims and figure.splits == splits for figure in found)
    assert family != "treewalk" or {figure.measurement for figure in found} == {family}


def test_held_out_rows_are_counted() -> None:
    """The number of queries assumed by grids is that of a split."""
    for rows in (4, 5, 6, 7, 150):
        table = load("iris").take(np.arange(rows))
        for share in (0.2, 0.25):
            split = draw_hold_out(table, share, np.random.default_rng(0))
            assert held_out_rows(table, share) == len(split.held_out)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """Register a figure with known numbers, the split's first uniform and 1; return its name."""

    def observe(_: Table, x: Sequence[float], rng: Generator) -> Mapping[CurveKey, Sequence[float]]:
        return {
            CurveKey("y", "drawn"): [rng.random()] * len(x),
            CurveKey("y", "one"): [1.0] * len(x),
        }

    below = Claim("it is below two", "the last value", "below", 2.0, heights("y", at=LAST))
    above = Claim("it is above two", "the last value", "above", 2.0, heights("y", at=LAST))
    figure = Figure(
        "known/figure-1",
        "A figure of known numbers",
        "nowhere",
        "nothing is fixed",
        Axis("x", is_log=True),
        {"y": Axis("y")},
        lambda _table, quick: (1.0, 10.0) if quick else (1.0, 3.0, 10.0),
        observe,
        (below, above),
    )
    monkeypatch.setattr("papers.reproduce.FIGURES", {**FIGURES, figure.name: figure})
    return figure.name


def test_the_files_contain_the_measurements(tmp_path: Path, known: str) -> None:
    """There are numbers per split, verdicts, and a plot in two formats, for all data sets.

    Equal seeds give byte-identical files, except for the version of the plotting library.
    """
    told: list[tuple[int, int]] = []
    done, again = (
        reproduce_figure(
            known,
            ["iris", "wine"],
            tmp_path / folder,
            quick=True,
            seed=5,
            progress=lambda _, done, total: told.append((done, total)),
        )
        for folder in ("new", "again")
    )
    assert told == 2 * [(number, 20) for number in range(1, 21)]
    assert [each.read_bytes() for each in done.files] == [each.read_bytes() for each in again.files]
    table, verdicts, png, svg = done.files
    assert [verdict.outcome for verdict in done.verdicts] == ["holds"] * 2 + ["does not hold"] * 2
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 10
    drawn = [r for r in rows if (r["data"], r["series"], r["x"]) == ("wine", "drawn", "10")]
    expected = [
        Streams(5).generator("figure", known, "wine", number).random() for number in range(10)
    ]
    assert [float(row["value"]) for row in drawn] == expected
    written = json.loads(verdicts.read_text(encoding="utf-8"))
    assert [claim["outcome"] for claim in written["claims"]] == [v.outcome for v in done.verdicts]
    assert written["seed"] == 5
    assert png.read_bytes().startswith(b"\x89PNG")
    texts = "".join(ET.parse(svg).getroot().itertext())
    for text in ("A figure of known numbers", "iris", "wine", "drawn", "10 random splits"):
        assert text in texts


def test_nothing_is_overwritten(tmp_path: Path, known: str) -> None:
    """An existing file, or a file in place of the folder, is refused before the measurement."""
    (tmp_path / "known-figure-1.svg").write_text("mine")
    draw = partial(reproduce_figure, known, ["iris"], quick=True)
    require_refused(r"without known-figure-1\.svg", draw, tmp_path)
    said = r"out is .*svg; allowed: a folder that can be made"
    require_refused(said, draw, tmp_path / "known-figure-1.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["known-figure-1.svg"]


def test_all_figures_are_listed(program: Program) -> None:
    """Without a figure, with an unknown one or with the list, nothing is measured."""
    code, out, _ = program(reproduce, "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*FIGURES]
    code, _, err = program(reproduce)
    assert (code, err) == (2, "papers: no figure is given; name at least one, or use --list\n")
    code, _, err = program(reproduce, "ring/figure-2", "ring/figure-9")
    assert code == 2
    assert "figure is 'ring/figure-9'; allowed: ring/figure-2" in err


def test_the_command_reports_whether_claims_hold(
    tmp_path: Path, known: str, program: Program
) -> None:
    """There is a line per claim and data set with the numbers; a failed claim is not an error."""
    code, out, _ = program(reproduce, known, "--quick", "--data", "iris", "--out", str(tmp_path))
    assert code == 0
    assert "iris: holds: it is below two. Tested: the last value below 2" in out
    assert "iris: does not hold: it is above two." in out
