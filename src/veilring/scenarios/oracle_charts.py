"""What each frequency oracle gives and costs, drawn from the exact laws; nothing is measured."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from veilring.protocols.ldp.algorithm.planner import ORACLES, OracleOption, oracle_options
from veilring.scenarios.charts import (
    STYLES,
    chart_files,
    draw_curve,
    label_log_axis,
    legend_below,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOMAINS: Final = tuple(1 << bits for bits in range(1, 13))
_EPSILONS: Final = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
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
        path: Where to; the suffix is `.svg` or `.png`.
        domain: Of the plots by epsilon.
        epsilon: Of the plots by domain.

    Raises:
        InputError: If an argument is outside the oracles' range, or there is no such format.
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
            _draw(column[0], axis, lambda option, least: option.variance / least)
            _draw(column[1], axis, lambda option, _least: option.report_bytes)
            column[1].set_xlabel(axis.label)
        panels[0][0].set_ylim(0.95, _RATIOS[-1])
        label_log_axis(panels[0][0].yaxis, _RATIOS)
        panels[0][0].set_ylabel("variance / the least of all oracles")
        panels[1][0].set_ylabel("bytes a report")
        legend_below(canvas, panels[0][0])


def _draw(panel: "Axes", axis: _Axis, of: Callable[[OracleOption, float], float]) -> None:
    for name, style in zip(ORACLES, STYLES, strict=True):
        values = [
            next(of(each, found[0].variance) for each in found if each.name == name)
            for found in axis.found
        ]
        draw_curve(panel, axis.points, values, style, name)
    panel.set(xscale="log", yscale="log")
    label_log_axis(panel.xaxis)
    label_log_axis(panel.yaxis)
