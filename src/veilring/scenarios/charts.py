"""Charts as PNG or SVG files: the only module that calls Matplotlib.

Matplotlib is imported on first use: it takes half a second, and most runs draw nothing. Equal
charts give equal files.

Two charts are drawn here: the variance and bytes of frequency oracles, and estimates.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.privacy.checks import require_that
from veilring.protocols.ldp.algorithm.oracles import ORACLES, oracle_options
from veilring.protocols.ldp.algorithm.randomiser import FrequencyOracle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine
    from matplotlib.typing import RcKeyType

_DOMAINS: Final = tuple(1 << bits for bits in range(1, 13))
_EPSILONS: Final = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
_SIZE: Final = (8.6, 6.4)  # inches
_BAR_INCHES: Final = 0.32
_PANEL_INCHES: Final = 0.55  # its title and axis
_RATIOS: Final = (
    1.0,
    1.25,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
)  # an oracle with more variance is not worth showing


class _Axis(NamedTuple):
    label: str
    points: Sequence[float]
    found: Sequence[tuple[FrequencyOracle, ...]]


def draw_oracles(path: Path, *, domain: int, epsilon: float) -> None:
    """Chart variance and bytes of all oracles, by domain and by epsilon.

    The variance is shown relative to the lowest of all oracles.

    Args:
        path: The file to write; the suffix is `.svg` or `.png`.
    """
    by_domain = [oracle_options(each, epsilon) for each in _DOMAINS]
    by_epsilon = [oracle_options(domain, each) for each in _EPSILONS]
    axes = (
        _Axis(f"values, at ε = {epsilon:g}", _DOMAINS, by_domain),
        _Axis(f"ε, for {domain} values", _EPSILONS, by_epsilon),
    )
    with chart_files([path], _SIZE) as canvas:
        panels = canvas.subplots(2, 2, sharey="row", sharex="col")
        for column, axis in zip(panels.T, axes, strict=True):
            _draw(column[0], axis, lambda oracle, least: oracle.mean_variance / least)
            _draw(column[1], axis, lambda oracle, _least: oracle.report_bytes)
            column[1].set_xlabel(axis.label)
        panels[0][0].set_ylim(0.95, _RATIOS[-1])
        label_log_axis(panels[0][0].yaxis, _RATIOS)
        panels[0][0].set_ylabel("variance / lowest of all oracles")
        panels[1][0].set_ylabel("bytes per report")
        legend_below(canvas, panels[0][0])


def _draw(panel: "Axes", axis: _Axis, of: Callable[[FrequencyOracle, float], float]) -> None:
    for name, style in zip(ORACLES, cycle(STYLES), strict=False):
        values = [
            next(of(each, found[0].mean_variance) for each in found if each.name == name)
            for found in axis.found
        ]
        draw_curve(panel, axis.points, values, style, name)
    panel.set(xscale="log", yscale="log")
    label_log_axis(panel.xaxis)
    label_log_axis(panel.yaxis)


class Bar(NamedTuple):
    """An estimate with its interval, such as the share of people with an answer.

    Attributes:
        panel: The title of its panel, such as the question.
    """

    panel: str
    label: str
    value: float
    low: float
    high: float


def draw_estimates(
    path: Path, bars: Sequence[Bar], title: str, interval: str, *, one_scale: bool = False
) -> None:
    """Chart estimates as bars with their intervals.

    Args:
        path: The file to write; the suffix is `.svg` or `.png`.
        bars: The estimates; those of one panel follow one another.
        interval: The name of the intervals, such as `95% interval`.
        one_scale: Whether all panels have the same scale.
    """
    require_that(bool(bars), "plot", "there are no estimates yet; wait for the first reports")
    groups = [(name, list(group)) for name, group in groupby(bars, key=lambda bar: bar.panel)]
    sizes = [len(group) for _, group in groups]
    height = _BAR_INCHES * sum(sizes) + _PANEL_INCHES * (len(sizes) + 1)
    with chart_files([path], (_SIZE[0], height)) as canvas:
        panels = canvas.subplots(len(groups), squeeze=False, sharex=one_scale, height_ratios=sizes)[
            :, 0
        ]
        for panel, (name, group) in zip(panels, groups, strict=True):
            _draw_bars(panel, group)
            panel.set_title(name, loc="left")
        panels[-1].set_xlabel(f"estimate, with its {interval}")
        canvas.suptitle(title)


def _draw_bars(panel: "Axes", bars: Sequence[Bar]) -> None:
    places, values = range(len(bars)), [bar.value for bar in bars]
    reach = [(bar.value - bar.low, bar.high - bar.value) for bar in bars]
    known = [ends if all(map(isfinite, ends)) else (0.0, 0.0) for ends in reach]
    panel.barh(places, values, color=STYLES[0].color, height=0.6)
    ends = [*zip(*known, strict=True)]
    panel.errorbar(values, places, xerr=ends, fmt="none", ecolor="black", capsize=3)
    panel.set_yticks(places, [bar.label for bar in bars])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")


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
    band: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """Draw a curve with marks at its points."""
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=_BAND_ALPHA, linewidth=0)
    axes.plot(
        x,
        y,
        color=style.color,
        marker=style.marker,
        linestyle=style.line,
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
