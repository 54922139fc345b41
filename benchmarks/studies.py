"""Studies of growth: measured curves, their models, and the output as text, files and charts.

A model is a sum of known terms with factors that are not negative, by least squares. Curves go over
decades, so the sum of squares of *relative* residuals is minimised. Factors below zero would
predict a lower cost for a larger input, and are excluded.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import cycle, zip_longest
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.scenarios.charts import STYLES, chart_files, draw_curve, label_log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Term(NamedTuple):
    """A term of a model.

    Attributes:
        name: As the model writes it behind its factor; nothing for a constant.
        of: Its value at x.
    """

    name: str
    of: Callable[[float], float]


Basis = tuple[Term, ...]
"""The terms that a model is a sum of."""

LINE: Final[Basis] = (Term("", lambda _x: 1.0), Term("x", lambda x: x))
"""`a + b * x`."""


PAIRS: Final[Basis] = (*LINE, Term("x^2", lambda x: x * x))
"""`a + b * x + c * x^2`: where each is looked at beside each other."""


def closed_form(name: str, form: Callable[[float], float]) -> Basis:
    """Return the model `c * form`, in which c = 1 says that nothing was left out."""
    return (Term(name, form),)


@dataclass(frozen=True, slots=True)
class Fit:
    """A model with its factors, and how far it is off.

    Attributes:
        basis: Its terms.
        factors: One for each, at least 0.
        r_squared: The share of the variance that the model explains; not of relative residuals.
        worst: The largest relative error at any measured point.
        left_out: The relative error at the largest point of the same model fitted without it,
            signed: above 0 if it says too much. None where too few points are left for a fit.
    """

    basis: Basis
    factors: tuple[float, ...]
    r_squared: float
    worst: float
    left_out: float | None

    def __call__(self, x: float) -> float:
        """Return the value of the model at x."""
        return sum(b * term.of(x) for b, term in zip(self.factors, self.basis, strict=True))

    @property
    def formula(self) -> str:
        """The model in one line."""
        terms = (
            f"{b:.4g} {term.name}".strip()
            for b, term in zip(self.factors, self.basis, strict=True)
            if b or len(self.basis) == 1
        )
        return " + ".join(terms) or "0"


def fit(basis: Basis, x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a model to measured points.

    Args:
        basis: Its terms.
        x: Where was measured, ascending; at least as many points as terms.
        y: What was measured, each above 0.

    Raises:
        InputError: If there are too few points or one is not above 0.
    """
    if len(x) != len(y) or len(x) < len(basis):
        raise InputError("points", len(x), f"at least {len(basis)}, each with what was measured")
    if not all(value > 0 for value in y):
        raise InputError("points", "with what is not above 0", "positive measurements")
    factors = _factors(basis, x, y)
    said, seen = _matrix(basis, x) @ factors, np.array(y)
    spread = float(((seen - seen.mean()) ** 2).sum())
    residual = float(((seen - said) ** 2).sum())
    return Fit(
        basis,
        tuple(factors.tolist()),
        1 - residual / spread if spread else 1.0,
        float(np.abs(said / seen - 1).max()),
        _left_out(basis, x, y),
    )


def _factors(basis: Basis, x: Sequence[float], y: Sequence[float]) -> Floats:
    from scipy.optimize import nnls  # noqa: PLC0415  (it takes 0.2 s, and `--help` needs none)

    terms = _matrix(basis, x) / np.array(y)[:, None]
    # Terms differ by many powers of ten: each column is brought to one size first.
    size = np.linalg.norm(terms, axis=0)
    found, _ = nnls(terms / size, np.ones(len(x)))
    return np.asarray(found / size)


def _left_out(basis: Basis, x: Sequence[float], y: Sequence[float]) -> float | None:
    if len(x) <= len(basis):
        return None
    said = _matrix(basis, x[-1:]) @ _factors(basis, x[:-1], y[:-1])
    return float(said[0] / y[-1] - 1)


def _matrix(basis: Basis, x: Sequence[float]) -> Floats:
    return np.array([[term.of(at) for term in basis] for at in x], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Panel:
    """The axes of a curve.

    Attributes:
        x: The horizontal axis, such as `parties`.
        y: The vertical axis, such as `seconds a batch`.
        is_closed: Whether the model makes no prediction beyond the measured points.
    """

    x: str
    y: str
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve.

    Attributes:
        name: The subject of the curve, such as `one ring`.
        panel: Its axes; curves of one panel are drawn together.
        x: The measured positions, ascending.
        y: The measured values.
        fit: The model.
        beside: Further numbers of each point, by name.
    """

    name: str
    panel: Panel
    x: tuple[float, ...]
    y: tuple[float, ...]
    fit: Fit
    beside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def fitted(
        cls,
        name: str,
        panel: Panel,
        points: Mapping[float, float],
        basis: Basis,
        beside: Mapping[str, tuple[float, ...]] | None = None,
    ) -> "Curve":
        """Return the curve of measured points with its model.

        Raises:
            InputError: As `fit`.
        """
        x, y = tuple(points), tuple(points.values())
        return cls(name, panel, x, y, fit(basis, x, y), beside or {})


@dataclass(frozen=True, slots=True)
class Study:
    """All curves of one system.

    Attributes:
        name: The name of the command, such as `ring`.
        title: The title of the study.
        setting: The fixed settings, one a line.
        simulated: Whether equal seeds give equal numbers, to the last digit. Otherwise
            they are those of this machine.
        curves: The measured curves.
        findings: The conclusions of the models, one sentence a line.
    """

    name: str
    title: str
    setting: tuple[str, ...]
    simulated: bool
    curves: tuple[Curve, ...]
    findings: tuple[str, ...] = ()


def require_sizes(
    sizes: Sequence[int], count: int, least: int, allowed: str, *, most: float = inf
) -> None:
    """Refuse sizes that are too few for a model, out of range or not ascending.

    Raises:
        InputError: If so; it says what is allowed.
    """
    ascending = sorted(set(sizes)) == list(sizes)
    if len(sizes) < count or not ascending or not least <= sizes[0] <= sizes[-1] <= most:
        raise InputError("sizes", list(sizes), allowed)


def format_study(study: Study, machine: str) -> str:
    """Return the printed text: a table for each curve with its model, and the conclusions.

    Args:
        study: What was measured.
        machine: In one line, where numbers are a machine's.
    """
    findings = ("", *study.findings) if study.findings else ()
    return "\n".join((*_head(study, machine), *_tables(study), *findings)) + "\n"


def _head(study: Study, machine: str) -> Iterator[str]:
    yield study.title
    yield from (f"  {line}" for line in study.setting)
    if study.simulated:
        yield "  simulated: the same seed gives the same numbers, on any machine"
    else:
        yield f"  measured on this machine: {machine}"


def _tables(study: Study) -> Iterator[str]:
    for curve in study.curves:
        yield ""
        yield f"{curve.name}: {curve.panel.y}"
        head = (curve.panel.x, *curve.beside, "measured", "model", "off")
        rows = [
            (*map(_number, (x, *beside, y, curve.fit(x))), _percent(curve.fit(x) / y - 1))
            for x, y, *beside in zip(curve.x, curve.y, *curve.beside.values(), strict=True)
        ]
        yield from _aligned(head, rows)
        where = f", where x is {curve.panel.x}" if "x" in curve.fit.formula.split() else ""
        yield f"  model: {curve.fit.formula}{where}"
        yield f"  {_quality(curve)}"


def _quality(curve: Curve) -> str:
    quality = f"R2 {curve.fit.r_squared:.4f}, maximum error {curve.fit.worst:.1%}"
    if curve.fit.left_out is None:
        return f"{quality}; too few points to leave one out"
    return (
        f"{quality}; error at the largest point if fitted without it:"
        f" {_percent(curve.fit.left_out)}"
    )


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells)


def _percent(share: float) -> str:
    return f"{round(share, 3) + 0.0:+.1%}"  # nothing is not below nothing


def _number(value: float) -> str:
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def study_files(name: str, folder: Path) -> tuple[Path, ...]:
    """Return where a study is written: `scale-NAME` with .txt, .csv, .json and .svg.

    Raises:
        InputError: If one of these files is there, or the folder cannot be made.
    """
    files = tuple(folder / f"scale-{name}.{suffix}" for suffix in ("txt", "csv", "json", "svg"))
    for file in files:
        if file.exists():
            raise InputError("out", folder, f"a folder without {file.name}: nothing is overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", folder, f"a folder that can be made ({error.strerror})") from error
    return files


def write_study(study: Study, machine: str, files: Sequence[Path]) -> None:
    """Write what is printed, all points, the models, and a picture.

    Args:
        study: What was measured.
        machine: As for `format_study`.
        files: From `study_files`.
    """
    text, points, models, picture = files
    text.write_text(format_study(study, machine), encoding="utf-8")
    with points.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(_points(study))
    content = json.dumps(_models(study, machine), indent=2, allow_nan=False)
    models.write_text(content + "\n", encoding="utf-8")
    draw_study(study, picture)


def _points(study: Study) -> Iterator[tuple[str, ...]]:
    yield "curve", "x", "x is", "y", "y is", "model"
    for curve in study.curves:
        for x, y in zip(curve.x, curve.y, strict=True):
            numbers = repr(float(y)), curve.panel.y, repr(curve.fit(x))
            yield curve.name, f"{x:g}", curve.panel.x, *numbers
        for what, values in curve.beside.items():
            for x, value in zip(curve.x, values, strict=True):
                yield curve.name, f"{x:g}", curve.panel.x, repr(float(value)), what, ""


def _models(study: Study, machine: str) -> dict[str, object]:
    return {
        "study": study.name,
        "title": study.title,
        "setting": study.setting,
        "simulated": study.simulated,
        "machine": None if study.simulated else machine,
        "versions": {package: metadata.version(package) for package in ("veilring", "numpy")},
        "models": [
            {
                "curve": curve.name,
                "x": curve.panel.x,
                "y": curve.panel.y,
                "terms": [term.name or "1" for term in curve.fit.basis],
                "factors": curve.fit.factors,
                "r_squared": curve.fit.r_squared,
                "worst": curve.fit.worst,
                "left_out": curve.fit.left_out,
            }
            for curve in study.curves
        ],
        "findings": study.findings,
    }


_WIDTH: Final = 4.3  # of a panel, in inches
_HEIGHT: Final = 3.4
_COLUMNS_MAX: Final = 2  # of panels: more are too small on a page
_TITLE_WIDTH: Final = 5.8
_BEYOND: Final = 10.0  # how far a model's line goes past what was measured
_FEW_DECADES: Final = 100.0  # below, an axis needs more ticks than one a decade
_POINTS: Final = 60  # of a line


def draw_study(study: Study, path: Path) -> None:
    """Draw a study, both axes logarithmic: points that were measured, and lines of the models.

    Args:
        study: What was measured.
        path: Where to; an `.svg` or `.png`.
    """
    panels = tuple(dict.fromkeys(curve.panel for curve in study.curves))
    columns = min(len(panels), _COLUMNS_MAX)
    rows = ceil(len(panels) / columns)
    size = (max(_WIDTH * columns, _TITLE_WIDTH), _HEIGHT * rows)
    with chart_files([path], size) as canvas:
        grid = canvas.subplots(rows, columns, squeeze=False).flat
        for axes, panel in zip_longest(grid, panels):
            if panel is None:
                axes.set_visible(False)
            else:
                own = [curve for curve in study.curves if curve.panel == panel]
                _draw_panel(axes, panel, own)
        canvas.suptitle(f"{study.title}\n(points: measured; lines: the models)", fontsize=10)


def _draw_panel(axes: "Axes", panel: Panel, curves: list[Curve]) -> None:
    from matplotlib.ticker import LogLocator  # noqa: PLC0415  (it takes 0.5 s, and `--help` needs none)

    for curve, style in zip(curves, cycle(STYLES), strict=False):
        last = curve.x[-1] * (1.0 if panel.is_closed else _BEYOND)
        line = np.geomspace(curve.x[0], last, _POINTS).tolist()
        draw_curve(axes, line, [curve.fit(x) for x in line], style, marks=False)
        draw_curve(axes, curve.x, curve.y, style, curve.name, line=False)
    axes.set(xscale="log", yscale="log", xlabel=panel.x, ylabel=panel.y)
    for each in (axes.xaxis, axes.yaxis):
        label_log_axis(each)
        low, high = each.get_view_interval()
        if high < _FEW_DECADES * low:
            each.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.legend(frameon=False, fontsize=8)
