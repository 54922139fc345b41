"""What a study prints, and the files that are kept of it."""

import csv
import json
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from veilring.errors import InputError
from veilring.scenarios.scale.curves import Curve, Study


def format_study(study: Study, machine: str) -> str:
    """Return what is printed: a table a curve, its model beside it, and what follows.

    Args:
        study: What was measured.
        machine: In one line, where numbers are a machine's.
    """
    return "\n".join((*_head(study, machine), *_tables(study), *_foot(study))) + "\n"


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
        yield from _columns(head, rows)
        where = f", where x is {curve.panel.x}" if "x" in curve.fit.formula.split() else ""
        yield f"  model: {curve.fit.formula}{where}"
        yield f"  {_quality(curve)}"


def _quality(curve: Curve) -> str:
    quality = f"R2 {curve.fit.r_squared:.4f}, off by at most {curve.fit.worst:.1%}"
    if curve.fit.left_out is None:
        return f"{quality}; too few points to leave one out"
    return (
        f"{quality}; fitted without the largest point, off by {_percent(curve.fit.left_out)} there"
    )


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells)


def _foot(study: Study) -> Iterator[str]:
    if study.findings:
        yield ""
        yield from study.findings


def _percent(share: float) -> str:
    return f"{round(share, 3) + 0.0:+.1%}"  # nothing is not below nothing


def _number(value: float) -> str:
    if float(value).is_integer() or abs(value) >= 1000:  # noqa: PLR2004  (beyond, a fraction says nothing)
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
    from veilring.scenarios.scale.pictures import draw_study  # noqa: PLC0415  (Matplotlib: 0.5 s)

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
