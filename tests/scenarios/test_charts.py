"""Charts as files: the list of charts, their reproducibility, and their requirements."""

import sys
from pathlib import Path

import pytest

from veilring.errors import InputError, MissingExtra
from veilring.scenarios.charts import STYLES, chart_files, draw_curve, label_log_axis, legend_below


def _draw(paths: list[Path]) -> None:
    with chart_files(paths, (3.0, 2.0)) as figure:
        axes = figure.subplots()
        band = [0.5, 5.0], [2.0, 20.0]
        draw_curve(axes, [1.0, 1000.0], [1.0, 10.0], STYLES[0], "a curve", band=band)
        axes.set(xscale="log", yscale="log")
        label_log_axis(axes.xaxis, (1.0, 1000.0))
        legend_below(figure, axes)


def test_equal_charts_are_equal_files(tmp_path: Path) -> None:
    """In both formats numbers on a log axis have no exponent, and text stays text."""
    for name in ("one", "other"):
        _draw([tmp_path / f"{name}.svg", tmp_path / f"{name}.png"])
    for suffix in ("svg", "png"):
        one, other = (tmp_path / f"{name}.{suffix}" for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()
    words = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in words for word in ("a curve", "1,000"))


def test_another_format_is_refused(tmp_path: Path) -> None:
    """An unknown format is refused before any chart is drawn."""
    with pytest.raises(InputError, match=r"a path that ends in \.png or \.svg"):
        _draw([tmp_path / "one.svg", tmp_path / "one.pdf"])
    assert list(tmp_path.iterdir()) == []


def test_a_chart_without_matplotlib_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else needs the package."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"matplotlib.*'\.\[plot\]'"):
        _draw([tmp_path / "one.svg"])
