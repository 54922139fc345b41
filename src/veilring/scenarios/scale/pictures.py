"""Pictures of studies: measured points on the lines of their models, a panel for each kind."""

from itertools import cycle
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from veilring.scenarios.figures.look import DOTS_AN_INCH, SETTINGS, STYLES, metadata
from veilring.scenarios.scale.curves import Curve, Panel, Study

__all__ = ("draw_study",)

_WIDTH: Final = 4.3  # of a panel, in inches
_HEIGHT: Final = 3.4
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
    with mpl.rc_context(SETTINGS):
        canvas = Canvas(figsize=(_WIDTH * len(panels), _HEIGHT), layout="constrained")
        FigureCanvasAgg(canvas)
        for axes, panel in zip(
            canvas.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw_panel(axes, panel, [curve for curve in study.curves if curve.panel == panel])
        canvas.suptitle(f"{study.title} (points: measured; lines: the models)", fontsize=10)
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
        each.set_major_formatter(FuncFormatter(lambda at, _place: f"{at:,g}"))
        each.set_minor_locator(NullLocator())
        low, high = each.get_view_interval()
        if high < _FEW_DECADES * low:
            each.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.legend(frameon=False, fontsize=8)
