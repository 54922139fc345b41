"""Drawing a figure: a row of panels for each measure, a column for each data set."""

from collections.abc import Sequence
from itertools import cycle
from math import ceil, log
from pathlib import Path
from typing import TYPE_CHECKING, Final

from papers.claims import Measured, mean_intervals
from papers.figure import Figure
from veilring.measures import CONFIDENCE
from veilring.scenarios.charts import STYLES, chart_files, draw_curve, label_log_axis, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_WIDTH: Final = 3.9  # of a panel, in inches
_HEIGHT: Final = 2.9
_FOOT: Final = 0.95  # for the legend and the fixed parameters, below all panels
_LINE: Final = 0.22  # of the legend
_MARK: Final = 0.6  # of the legend, with the room around it
_LETTER: Final = 0.068
_HEAD: Final = 0.45
_PAD: Final = 0.08
_TICKS_MAX: Final = 8


def draw_figure(figure: Figure, measured: Sequence[Measured], paths: Sequence[Path]) -> None:
    """Draw the means over splits with their pointwise 95 % intervals.

    Args:
        figure: The figure.
        measured: The results of each data set, from left to right; at least one.
        paths: The output files, as for `chart_files`.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows, columns = len(figure.measures), len(measured)
    width = max(2, columns) * _WIDTH
    lines = _legend_lines([key.series for key in measured[0].curves], width)
    foot = _FOOT + (lines - 1) * _LINE
    height = rows * _HEIGHT + _HEAD + foot
    inside = (0.0, foot / height, 1.0, 1.0 - foot / height)
    layout = ConstrainedLayoutEngine(rect=inside, h_pad=_PAD, w_pad=_PAD)
    with chart_files(paths, (width, height), layout=layout) as canvas:
        panels = canvas.subplots(rows, columns, squeeze=False)
        for row, measure in zip(panels, figure.measures, strict=True):
            for panel, each in zip(row, measured, strict=True):
                _draw_panel(panel, figure, each, measure)
            row[0].set_ylabel(figure.measures[measure].label)
        for panel, each in zip(panels[0], measured, strict=True):
            panel.set_title(each.data)
        for panel in panels[-1]:
            panel.set_xlabel(figure.x.label)
        canvas.suptitle(figure.title, fontweight="bold")
        _write_foot(canvas, figure, panels[0][0], measured[0].splits, lines)


def _draw_panel(panel: "Axes", figure: Figure, measured: Measured, measure: str) -> None:
    for (series, curve), style in zip(measured.of(measure).items(), cycle(STYLES), strict=False):
        each = mean_intervals(curve, simultaneous=False)
        band = [point.low for point in each], [point.high for point in each]
        draw_curve(panel, measured.x, [point.mean for point in each], style, series, band=band)
    if figure.measures[measure].low is not None:
        panel.set_ylim(bottom=figure.measures[measure].low)
    _mark_x(panel, figure, measured.x)


def _mark_x(panel: "Axes", figure: Figure, x: Sequence[float]) -> None:
    """Put the ticks of a log axis at measured points, if there is enough space."""
    from matplotlib.ticker import MaxNLocator

    if figure.x.is_log:
        panel.set_xscale("log")
        label_log_axis(panel.xaxis, _apart(x))
        return
    whole = all(float(at).is_integer() for at in x)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=_TICKS_MAX, steps=[1, 2, 5, 10], integer=whole))


def _apart(x: Sequence[float]) -> list[float]:
    """Return the points that can be labelled on a log axis without overlap, the last one first."""
    step = log(x[-1] / x[0]) / _TICKS_MAX
    kept = [x[-1]]
    for at in reversed(x[:-1]):
        if log(kept[-1] / at) >= step:
            kept.append(at)
    return kept


def _legend_lines(series: Sequence[str], width: float) -> int:
    """Return the number of lines of the legend."""
    names = dict.fromkeys(series)
    needed = sum(_MARK + _LETTER * len(name) for name in names)
    return min(len(names), ceil(needed / width))


def _write_foot(canvas: "Canvas", figure: Figure, panel: "Axes", splits: int, lines: int) -> None:
    height = canvas.get_figheight()
    columns = ceil(len(panel.get_legend_handles_labels()[1]) / lines)
    legend_below(canvas, panel, columns=columns, at=(0.5, 0.58 / height))
    foot = (
        f"{figure.setting}.\nMeans over {splits} random splits with pointwise "
        f"{CONFIDENCE:.0%} intervals.\n{figure.source}."
    )
    canvas.text(
        0.5,
        0.08 / height,
        foot,
        ha="center",
        va="bottom",
        fontsize=7.5,
        color="#444444",
        linespacing=1.35,
    )
