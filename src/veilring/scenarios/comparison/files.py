"""What a comparison leaves behind: a page, the same as JSON, and the picture."""

import json
from pathlib import Path
from typing import Final

from veilring.errors import InputError
from veilring.scenarios.comparison.comparison import Comparison
from veilring.scenarios.comparison.page import render_page, render_picture

PAGE: Final = "report.html"
NUMBERS: Final = "comparison.json"
PICTURE: Final = "accuracy.svg"

_HTML: Final = ".html"
_SVG: Final = ".svg"


def require_fresh(out: Path | None, plot: Path | None) -> None:
    """Refuse, before anything is run, what could not be written or would be lost.

    Args:
        out: A page, if it ends in `.html`, else a folder.
        plot: A picture, which ends in `.svg`.

    Raises:
        InputError: It names the option.
    """
    if plot is not None:
        allowed = f"a path that ends in {_SVG}"
        if plot.suffix != _SVG:
            raise InputError("--plot", plot, allowed)
        _require_absent("--plot", plot)
    for path in _files(out):
        _require_absent("--out", path)


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Write the page, or a folder with the page, all numbers and the picture.

    Raises:
        InputError: If that cannot be written.
    """
    texts = (render_page(comparison), _as_text(comparison), render_picture(comparison))
    for path, text in zip(_files(out), texts, strict=False):
        _write("--out", path, text)


def write_picture(comparison: Comparison, plot: Path) -> None:
    """Write accuracy over ε alone.

    Raises:
        InputError: If that cannot be written.
    """
    _write("--plot", plot, render_picture(comparison))


def _files(out: Path | None) -> tuple[Path, ...]:
    if out is None:
        return ()
    return (out,) if out.suffix == _HTML else (out / PAGE, out / NUMBERS, out / PICTURE)


def _as_text(comparison: Comparison) -> str:
    return json.dumps(comparison.as_json(), indent=2)


def _require_absent(option: str, path: Path) -> None:
    if path.exists():
        raise InputError(option, path, "what is not there yet: nothing is overwritten")


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(option, path, f"a path that can be written ({error})") from error
