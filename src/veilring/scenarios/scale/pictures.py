"""Pictures of studies: measured points on the lines of their models, a panel for each kind."""

from itertools import cycle, zip_longest
from math import ceil
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from veilring.scenarios.charts import DOTS_AN_INCH, SETTINGS, STYLES, metadata
from veilring.scenarios.scale.curves import Curve, Panel, Study

_WIDTH: Final = 4.3  # of a panel, in inches
_HEIGHT: Final = 3.4
_COLUMNS_MAX: Final = 2  # of panels: more are too small on a page
_TITLE_WIDTH: Final = 5.8
_BEYOND: Final = 10.0  # how far a model's line goes past what was measured
_FEW_DECADES: Final = 100.0  # below, an axis needs more ticks than one a decade
_POINTS: Final = 60  # of a line


def draw_study(study: Study, path: Path) -> None:
    """Draw a study, both axes logarithmic.

    Args:
        study: What was measured.
        path: Where to; an `.svg` or `.png`.
    """
    panels = tuple(dict.fromkeys(curve.panel for curve in study.curves))
    columns = min(len(panels), _COLUMNS_MAX)
    rows = ceil(len(panels) / columns)
    size = (max(_WIDTH * columns, _TITLE_WIDTH), _HEIGHT * rows)
    with mpl.rc_context(SETTINGS):
        canvas = Canvas(figsize=size, layout="constrained")
        FigureCanvasAgg(canvas)
        grid = canvas.subplots(rows, columns, squeeze=False).flat
        for axes, panel in zip_longest(grid, panels):
            if panel is None:
                axes.set_visible(False)
            else:
                own = [curve for curve in study.curves if curve.panel == panel]
                _draw_panel(axes, panel, own)
        canvas.suptitle(f"{study.title}\n(points: measured; lines: the models)", fontsize=10)
        canvas.savefig(path, dpi=DOTS_AN_INCH, metadata=metadata(path))


def _draw_panel(axes: Axes, panel: Panel, curves: list[Curve]) -> None:
    for curve, style in zip(curves, cycle(STYLES), strict=False):
        last = curve.x[-1] * (1.0 if panel.is_closed else _BEYOND)
        line = np.geomspace(curve.x[0], last, _POINTS)
        axes.plot(
            line,
            [curve.fit(x) for x in line.tolist()],
            color=style.color,
            linestyle=style.line,
            linewidth=1.2,
        )
        axes.plot(
            curve.x,
            curve.y,
            color=style.color,
            marker=style.marker,
            linestyle="none",
            markersize=4.5,
            label=curve.name,
        )
    axes.set(xscale="log", yscale="log", xlabel=panel.x, ylabel=panel.y)
    for each in (axes.xaxis, axes.yaxis):
        each.set_major_formatter(FuncFormatter(_tick))
        each.set_minor_locator(NullLocator())
        low, high = each.get_view_interval()
        if high < _FEW_DECADES * low:
            each.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.legend(frameon=False, fontsize=8)


def _tick(at: float, _place: object) -> str:
    return f"{at:,.0f}" if at >= 1 else f"{at:g}"
