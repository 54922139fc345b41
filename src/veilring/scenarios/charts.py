"""Charts as PNG or SVG files: the only module that calls Matplotlib.

Matplotlib is imported on first use: it takes half a second, and most runs draw nothing. Equal
charts give equal files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from veilring.errors import InputError
from veilring.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine
    from matplotlib.typing import RcKeyType

FORMATS: Final = ("png", "svg")
"""The supported file suffixes."""
_DOTS_AN_INCH: Final = 160
_BAND_ALPHA: Final = 0.18


class CurveStyle(NamedTuple):
    """The style that distinguishes one curve from the others."""

    color: str
    marker: str
    line: str


# Okabe and Ito's palette, which works for all kinds of colour vision; markers and dashes
# distinguish the curves in print without colour.
STYLES: Final = (
    CurveStyle("#0072B2", "o", "-"),
    CurveStyle("#D55E00", "s", "--"),
    CurveStyle("#009E73", "^", "-."),
    CurveStyle("#CC79A7", "D", ":"),
    CurveStyle("#E69F00", "v", "-"),
    CurveStyle("#56B4E9", "P", "--"),
    CurveStyle("#000000", "X", ":"),
    CurveStyle("#999999", "*", "-."),
)
_SETTINGS: "Final[dict[RcKeyType, Any]]" = {
    "svg.hashsalt": "veilring",  # equal charts give equal files
    "svg.fonttype": "none",  # text stays text, so that it can be searched and read aloud
}
_LINES: "Final[dict[RcKeyType, Any]]" = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
}


@contextmanager
def chart_files(
    paths: Sequence[Path],
    size: tuple[float, float],
    *,
    layout: "LayoutEngine | None" = None,
    is_map: bool = False,
) -> "Iterator[Figure]":
    """Yield an empty figure, and write it to all files at the end.

    Args:
        paths: The files to write; each suffix is one of `FORMATS`.
        size: Width and height in inches.
        layout: The layout of the panels; by default Matplotlib's constrained layout.
        is_map: Whether panels have a frame and no grid.

    Raises:
        InputError: If the format is unknown.
        MissingExtra: If Matplotlib is not installed.
    """
    for path in paths:
        if path.suffix not in {f".{each}" for each in FORMATS}:
            raise InputError("plot", path, f"a path that ends in .{' or .'.join(FORMATS)}")
    require_extra("matplotlib")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS if is_map else _SETTINGS | _LINES):
        figure = Figure(figsize=size, layout=layout or "constrained")
        FigureCanvasAgg(figure)
        yield figure
        for path in paths:
            # no date, so that equal charts give equal files
            dated = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=_DOTS_AN_INCH, metadata=dated)


def draw_curve(
    axes: "Axes",
    x: Sequence[float],
    y: Sequence[float],
    style: CurveStyle,
    label: str | None = None,
    *,
    marks: bool = True,
    line: bool = True,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """Draw a curve with marks at its points.

    Args:
        axes: The panel.
        x: The ascending positions.
        y: The values, one for each position.
        label: The name in the legend; none for no entry.
        marks: Whether to mark the points.
        line: Whether to join the points.
        band: The low and the high ends of an interval at each point.
    """
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=_BAND_ALPHA, linewidth=0)
    axes.plot(
        x,
        y,
        color=style.color,
        marker=style.marker if marks else "none",
        linestyle=style.line if line else "none",
        markersize=4.5,
        linewidth=1.5,
        label=label,
    )


def label_log_axis(axis: "Axis", ticks: Sequence[float] | None = None) -> None:
    """Write numbers without exponents on a log axis, at the given ticks or at Matplotlib's."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if ticks is not None:
        axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_plain))


def _plain(value: float, _place: object) -> str:
    return f"{value:,.0f}" if value >= 1 and float(value).is_integer() else f"{value:g}"


def legend_below(
    figure: "Figure", axes: "Axes", *, columns: int = 0, at: tuple[float, float] | None = None
) -> None:
    """Draw the legend of one panel below all panels.

    Args:
        axes: The panel with the curves.
        columns: The number of columns; by default all entries are on one line.
        at: The middle of its lower edge, in shares of the figure; by default outside of the panels.
    """
    handles, labels = axes.get_legend_handles_labels()
    columns = columns or len(labels)
    if at is None:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    else:
        figure.legend(
            handles, labels, loc="lower center", bbox_to_anchor=at, ncols=columns, frameon=False
        )
