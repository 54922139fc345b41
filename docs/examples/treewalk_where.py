"""A map of a server's belief about a query after one answer: `treewalk_where.py MAP.png`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from papers.overheard import Overheard, overheard_response, overheard_walk, posterior

from veilring.arrays import Floats
from veilring.errors import InputError
from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, bucket_distribution
from veilring.protocols.treewalk.algorithm.tree import build_tree
from veilring.randomness import Streams
from veilring.scenarios.charts import chart_files

SPLITS = 5  # buckets of 32 places
SHARE = 0.01  # of the map
CELLS = 160
"""The number of cells along each side of a map."""
_PLANE = 2
_PANEL = 3.8  # the longer side of a map, in inches
_PANEL_MIN = 2.0  # wide enough for its title
_BAR = 1.0
_HEAD = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """A server's beliefs about the location of a query, after one question.

    Attributes:
        cells: The centres of the cells of a map, row by row from the south, shape (cells, 2).
        shares: The probability of each cell, by kind of question, shape (cells,); the
            prior is uniform.
    """

    cells: Floats
    shares: Mapping[str, Floats]
    query: Floats


def beliefs_after(
    questions: Mapping[str, Overheard], points: Floats, query: Floats, rng: Generator
) -> Beliefs:
    """Ask once with each kind of question, and return the server's beliefs afterwards.

    Args:
        points: The server's points, shape (points, 2); the map covers them.
    """
    if points.ndim != _PLANE or points.shape[1] != _PLANE:
        raise InputError.because(
            f"points has the shape {points.shape}; it must have two coordinates", field="points"
        )
    low, high = points.min(axis=0), points.max(axis=0)
    along = (np.arange(CELLS) + 0.5) / CELLS
    north, east = np.meshgrid(along, along, indexing="ij")
    cells = low + np.stack([east.ravel(), north.ravel()], axis=1) * (high - low)
    shares = {name: posterior(ask(query[None], cells, rng))[0] for name, ask in questions.items()}
    return Beliefs(cells, shares, query)


def draw_beliefs(
    beliefs: Beliefs, points: Floats, paths: Sequence[Path], *, title: str = ""
) -> None:
    """Draw a map for each kind of question, darker where the query is more likely.

    Args:
        beliefs: The beliefs. A colour means the same in all maps: the ratio of a place's
            probability to its prior.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    columns, (wide, tall) = len(beliefs.shares), high - low
    width, height = max(_PANEL_MIN, _PANEL * min(1.0, wide / tall)), _PANEL * min(1.0, tall / wide)
    times = {name: shares * CELLS**2 for name, shares in beliefs.shares.items()}
    most = max(10.0, *(float(each.max()) for each in times.values()))
    size = columns * width + _BAR, height + _HEAD
    with chart_files(paths, size, is_map=True) as canvas:
        panels = canvas.subplots(1, columns, squeeze=False)[0]
        for panel, (name, each) in zip(panels, times.items(), strict=True):
            shown = panel.imshow(
                each.reshape(CELLS, CELLS),
                origin="lower",
                extent=(low[0], high[0], low[1], high[1]),
                norm="log",
                vmin=1 / most,
                vmax=most,
                cmap="PuOr_r",
                interpolation="nearest",
            )
            panel.plot(*points.T, ".", color="black", markersize=0.6)
            panel.plot(*beliefs.query, "o", markersize=9, mfc="none", mec="#009E73", mew=1.8)
            panel.set_title(name, fontsize=9.5)
            panel.set_xticks([])
            panel.set_yticks([])
        bar = canvas.colorbar(shown, ax=panels, shrink=0.85)
        bar.set_label("times as likely as before", fontsize=8.5)
        if title:
            canvas.suptitle(title, fontweight="bold", fontsize=11)


def show(paths: list[Path]) -> None:
    """Print how certain the server is, and draw maps to the given paths."""
    rng = Streams(3).generator("where")
    towns = rng.random((12, 2)) * 10
    places = towns[rng.integers(len(towns), size=1000)] + rng.normal(0, 0.6, (1000, 2))
    query, tree = towns[0], build_tree(places)
    queries = {
        f"response, epsilon {epsilon:g}": overheard_response(
            tree, bucket_distribution(tree.depth, SPLITS, epsilon)
        )
        for epsilon in (2.0, 6.0, 12.0)
    }
    steps = Comparison(2 * 6.0 / (tree.depth - SPLITS))
    queries["walk, epsilon 6"] = overheard_walk(tree, steps, SPLITS)
    beliefs = beliefs_after(queries, places, query, rng)
    here = np.square(beliefs.cells - query).sum(axis=1).argmin()
    print("after one query         probability in likeliest 1% of map   posterior / prior at query")
    for name, shares in beliefs.shares.items():
        top = np.sort(shares)[-round(SHARE * len(shares)) :].sum()
        print(f"{name:22}  {top:34.1%}   {shares[here] * CELLS**2:26.2f}")
    if paths:
        draw_beliefs(beliefs, places, paths, title="The server's posterior after one query")


if __name__ == "__main__":
    show([Path(path) for path in sys.argv[1:]])
