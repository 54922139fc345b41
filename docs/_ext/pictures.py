"""Pictures that are drawn when the pages are built, so that they cannot show anything else.

The charts are those that the command beside them draws. No picture is kept in the repository.
"""

from pathlib import Path
from typing import Final

from docs._ext.threats import draw_threats
from sphinx.application import Sphinx

from veilring.scenarios.charts import draw_oracles

_FOLDER: Final = "_made"  # in the pages' own folder, where pages find pictures


def draw_pictures(app: Sphinx) -> None:
    """Draw the threat models, and `veilring oracles --domain 32 --epsilon 1 --plot oracles.svg`."""
    folder = Path(app.srcdir) / _FOLDER
    folder.mkdir(exist_ok=True)
    draw_oracles(folder / "oracles.svg", domain=32, epsilon=1.0)
    draw_threats(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """Draw before any page is read."""
    app.connect("builder-inited", draw_pictures)
    return {"parallel_read_safe": True}
