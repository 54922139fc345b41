"""Reproduction of figures by name: numbers, a plot and verdicts."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from papers.claims import Judgement, Measured, judge_claim
from papers.figure import Figure, measure_figure
from papers.ldp import LDP_FIGURES
from papers.plots import draw_figure
from papers.prediction import PREDICTION_FIGURES
from papers.radius import RADIUS_FIGURES
from papers.ring import RING_FIGURES
from papers.treewalk_figures import TREEWALK_FIGURES
from veilring.errors import InputError
from veilring.extras import require_extra
from veilring.randomness import Streams
from veilring.scenarios.runner import Progress

# A paper adds its own here.
_ALL: Final = (*RING_FIGURES, *LDP_FIGURES, *RADIUS_FIGURES, *PREDICTION_FIGURES, *TREEWALK_FIGURES)
FIGURES: Final[Mapping[str, Figure]] = MappingProxyType({figure.name: figure for figure in _ALL})
"""All figures by name."""
_QUICK_SPLITS: Final = 10


def find_figure(name: str) -> Figure:
    """Return a figure.

    Raises:
        InputError: If no figure has that name.
    """
    if name not in FIGURES:
        raise InputError("figure", name, ", ".join(FIGURES))
    return FIGURES[name]


@dataclass(frozen=True, slots=True, eq=False)
class Reproduction:
    """The reproduction of a figure.

    Attributes:
        figure: The figure.
        measured: The measured curves of each data set.
        verdicts: The judgement of each claim on each data set.
        files: The files written.
    """

    figure: Figure
    measured: tuple[Measured, ...]
    verdicts: tuple[Judgement, ...]
    files: tuple[Path, ...]


def reproduce_figure(
    name: str,
    sources: Sequence[str],
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Reproduction:
    """Measure a figure on data sets and write its numbers, its plot and its verdicts.

    The files are `family-figure-n` with `.csv` (one row for each curve, point and split), `.png`,
    `.svg` and `.json` (the verdicts, and how to repeat them).

    Args:
        name: The name of the figure, `family/figure-n`.
        sources: The data sets, in the format of the figure's subject; by default its usual one.
        folder: The output folder, which is created if it is missing.
        quick: Whether to measure 10 splits at few points instead of the figure's full measurement.
        seed: The seed of all randomness.
        progress: A callback that receives the progress.

    Raises:
        InputError: If the figure or a data set does not exist, a data set is too small, or an
            output file exists. Nothing is overwritten.
    """
    require_extra("matplotlib")
    figure, streams = find_figure(name), Streams(seed)
    tables = [figure.subject.load(source) for source in sources or (figure.subject.usual,)]
    files = _files(figure, folder)
    splits = min(_QUICK_SPLITS, figure.splits) if quick else figure.splits
    measured = []
    for place, table in enumerate(tables):

        def tell(done: int, doing: str = f"{name}: {table.name}", before: int = place) -> None:
            if progress is not None:
                progress(doing, before * splits + done, splits * len(tables))

        each = measure_figure(figure, table, splits=splits, quick=quick, streams=streams, tell=tell)
        measured.append(each)
    verdicts = tuple(judge_claim(claim, each) for claim in figure.claims for each in measured)
    _write_csv(measured, files[0])
    _write_verdicts(figure, verdicts, files[1], {"seed": seed, "quick": quick})
    draw_figure(figure, measured, files[2:])
    return Reproduction(figure, tuple(measured), verdicts, files)


def _files(figure: Figure, folder: Path) -> tuple[Path, ...]:
    stem = figure.name.replace("/", "-")
    files = tuple(folder / f"{stem}.{suffix}" for suffix in ("csv", "json", "png", "svg"))
    for file in files:
        if file.exists():
            raise InputError("out", folder, f"a folder without {file.name}; nothing is overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("out", folder, f"a folder that can be made ({error.strerror})") from error
    return files


def _write_csv(measured: Iterable[Measured], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("data", "measure", "series", "x", "split", "value"))
        for each in measured:
            for key, curve in each.curves.items():
                for split, values in enumerate(curve.tolist()):
                    for x, value in zip(each.x, values, strict=True):
                        writer.writerow((each.data, *key, f"{x:g}", split, repr(value)))


def _write_verdicts(
    figure: Figure, verdicts: Iterable[Judgement], path: Path, how: dict[str, Any]
) -> None:
    versions = {package: metadata.version(package) for package in ("veilring", "numpy", "scipy")}
    about = {"figure": figure.name, "source": figure.source, "setting": figure.setting}
    claims = [
        {
            "data": verdict.data,
            "says": verdict.claim.says,
            "quantity": verdict.claim.quantity,
            "side": verdict.claim.side,
            "bound": verdict.claim.bound,
            "outcome": verdict.outcome,
            "splits": verdict.splits,
            "intervals": [
                {"label": label, **interval._asdict()}
                for label, interval in verdict.intervals.items()
            ],
        }
        for verdict in verdicts
    ]
    text = json.dumps({**about, **how, "versions": versions, "claims": claims}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
