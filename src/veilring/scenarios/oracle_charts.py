"""What each frequency oracle gives and costs, drawn from the exact laws; nothing is measured."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.planner import ORACLES, OracleOption, oracle_options
from veilring.scenarios.charts import DOTS_AN_INCH, FORMATS, SETTINGS, STYLES, metadata

DOMAINS: Final = tuple(1 << bits for bits in range(1, 13))
"""Those of the plots on the left."""
EPSILONS: Final = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
"""Those of the plots on the right."""

_SIZE: Final = (8.6, 6.4)  # inches
_RATIOS: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)  # an oracle beyond is not worth a look


class _Axis(NamedTuple):
    label: str
    points: Sequence[float]
    found: Sequence[tuple[OracleOption, ...]]


def draw_oracles(path: Path, *, domain: int, epsilon: float) -> None:
    """Draw variance and bytes of all oracles, by domain at one epsilon and the other way round.

    The variance is drawn beside the least that any of them has there.

    Args:
        path: Where to; the suffix is one of `FORMATS`.
        domain: Of the plots by epsilon.
        epsilon: Of the plots by domain.

    Raises:
        InputError: If an argument is outside the oracles' range, or there is no such format.
    """
    if path.suffix not in {f".{each}" for each in FORMATS}:
        raise InputError("plot", path, f"a path that ends in .{' or .'.join(FORMATS)}")
    axes = (
        _Axis(
            f"values, at ε = {epsilon:g}", DOMAINS, [oracle_options(d, epsilon) for d in DOMAINS]
        ),
        _Axis(f"ε, for {domain} values", EPSILONS, [oracle_options(domain, e) for e in EPSILONS]),
    )
    with mpl.rc_context(SETTINGS):
        canvas = Canvas(figsize=_SIZE, layout="constrained")
        FigureCanvasAgg(canvas)
        panels = canvas.subplots(2, 2, sharey="row", sharex="col")
        for column, axis in zip(panels.T, axes, strict=True):
            _draw(column[0], axis, lambda option, least: option.variance / least)
            _draw(column[1], axis, lambda option, _least: option.report_bytes)
            column[1].set_xlabel(axis.label)
        panels[0][0].set_ylim(0.95, _RATIOS[-1])
        panels[0][0].yaxis.set_major_locator(FixedLocator(_RATIOS))
        panels[0][0].set_ylabel("variance / the least of all oracles")
        panels[1][0].set_ylabel("bytes a report")
        handles, labels = panels[0][0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        canvas.savefig(path, dpi=DOTS_AN_INCH, metadata=metadata(path))


def _draw(panel: Any, axis: _Axis, of: Callable[[OracleOption, float], float]) -> None:  # noqa: ANN401  (an Axes)
    for name, style in zip(ORACLES, STYLES, strict=True):
        values = [
            next(of(each, found[0].variance) for each in found if each.name == name)
            for found in axis.found
        ]
        panel.plot(
            axis.points,
            values,
            color=style.color,
            marker=style.marker,
            linestyle=style.line,
            markersize=4.0,
            linewidth=1.4,
            label=name,
        )
    panel.set(xscale="log", yscale="log")
    for each in (panel.xaxis, panel.yaxis):
        each.set_major_formatter(FuncFormatter(lambda at, _place: f"{at:g}"))
        each.set_minor_locator(NullLocator())
