"""Reproduction of a figure: the files contain the measurements."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.random import Generator
from papers.__main__ import reproduce, run_program
from papers.claims import Claim, CurveKey
from papers.evidence import LAST, heights
from papers.figure import ACCURACY, Axis, Figure, draw_hold_out, held_out_rows
from papers.reproduce import FIGURES, find_figure, reproduce_figure
from papers.ring import ESTIMATORS, ORDINARY, PRIVATE, deal_rows
from tests.papers.measuring import measure

from veilring.data.sources import load
from veilring.data.table import Table, scale_to_unit
from veilring.errors import InputError
from veilring.protocols.ring import pooled_knn
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


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """The error lists the figures."""
    with pytest.raises(InputError, match="figure is 'ring/figure-1'; allowed: ring/figure-2"):
        find_figure("ring/figure-1")


def test_figure_2_compares_both_classifiers() -> None:
    """Its ordinary classifier is the pooled one on the same split as the parties."""
    curves = measure("ring/figure-2").curves
    table = scale_to_unit(load("iris"))
    for number in range(2):
        rng = Streams(1).generator("figure", "ring/figure-2", "iris", number)
        train, held_out = deal_rows(table, rng).split
        labels = pooled_knn(held_out.X, train.X, train.y, 3, 5, weights="distance")
        ordinary = curves[CurveKey(ACCURACY, ORDINARY)][number, 1]
        assert ordinary == (labels == held_out.y).mean()
    assert curves[CurveKey(ACCURACY, PRIVATE)].mean() > 0.8  # of iris, where 1/3 is a guess


@pytest.mark.parametrize("name", ["ring/figure-3", "ring/figure-4"])
def test_gaps_are_fractions(name: str) -> None:
    """Figures 3 and 4 have one curve of absolute differences for each k."""
    curves = measure(name).curves
    assert [key.series for key in curves] == ["k = 5", "k = 10", "k = 20"]
    for curve in curves.values():
        assert ((curve >= 0) & (curve <= 1)).all()


def test_figure_5_ends_with_all_rows_voting() -> None:
    """If k is the number of rows, both classifiers give the same answer."""
    curves = measure("ring/figure-5", "wine").curves
    private, ordinary = (curves[CurveKey(ACCURACY, s)] for s in (PRIVATE, ORDINARY))
    assert private[:, -1].tolist() == ordinary[:, -1].tolist()


@pytest.mark.slow
def test_figure_6_has_three_estimators_for_each_ring() -> None:
    """Two rounds with P0 = 1 and d = 1/2 expose a message with probability at most 1/4."""
    curves = measure("ring/figure-6").curves
    assert {key.measure for key in curves} == set(ESTIMATORS)
    exposures = [curve for key, curve in curves.items() if key.measure == "exposure"]
    # A run exposes at most half of its messages, as a party inserts once in two rounds: a mean
    # over 100 runs is 0.2 too high in 1e-14 of all cases (Hoeffding).
    assert all((curve < 0.25 + 0.2).all() for curve in exposures)


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
    """There are numbers per split, verdicts, and a plot in two formats, for all data sets."""
    told: list[tuple[int, int]] = []
    done = reproduce_figure(
        known,
        ["iris", "wine"],
        tmp_path / "new",
        quick=True,
        seed=5,
        progress=lambda _, done, total: told.append((done, total)),
    )
    assert told == [(number, 20) for number in range(1, 21)]
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


def test_equal_seeds_give_equal_files(tmp_path: Path, known: str) -> None:
    """Equal seeds give byte-identical files, except for the version of the plotting library."""
    first, again = (
        reproduce_figure(known, ["iris"], tmp_path / folder, quick=True).files
        for folder in ("a", "b")
    )
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_nothing_is_overwritten(tmp_path: Path, known: str) -> None:
    """An existing file is refused before the measurement."""
    (tmp_path / "known-figure-1.svg").write_text("mine")
    with pytest.raises(InputError, match=r"without known-figure-1\.svg"):
        reproduce_figure(known, ["iris"], tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["known-figure-1.svg"]


def test_a_folder_that_cannot_be_created_is_wrong_input(tmp_path: Path, known: str) -> None:
    """The error names a file in its place."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"out is .*file; allowed: a folder that can be made"):
        reproduce_figure(known, ["iris"], tmp_path / "file", quick=True)


Papers = Callable[..., tuple[object, str, str]]


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Papers:
    """Return `python -m papers`, which returns its exit code and its two outputs."""

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["papers", *words])
        with pytest.raises(SystemExit) as ended:
            run_program(reproduce, "papers")
        return ended.value.code, *capsys.readouterr()

    return run


def test_all_figures_are_listed(papers: Papers) -> None:
    """They have titles; without a figure or with the list, nothing is measured."""
    code, out, _ = papers("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*FIGURES]
    code, _, err = papers()
    assert (code, err) == (2, "papers: no figure is given; name at least one, or use --list\n")


def test_the_command_reports_whether_claims_hold(
    tmp_path: Path, known: str, papers: Papers
) -> None:
    """There is a line per claim and data set with the numbers; a failed claim is not an error."""
    code, out, _ = papers(known, "--quick", "--data", "iris", "--out", str(tmp_path))
    assert code == 0
    assert "iris: holds: it is below two. Tested: the last value below 2" in out
    assert "iris: does not hold: it is above two." in out


def test_an_unknown_figure_is_wrong_input(papers: Papers) -> None:
    """The error lists the known figures, and nothing is measured."""
    code, _, err = papers("ring/figure-2", "ring/figure-9")
    assert code == 2
    assert "ring/figure-6" in err
