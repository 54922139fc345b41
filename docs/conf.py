"""How Sphinx builds these pages: `python -m sphinx -W -n -b html docs docs/_build/html`."""

import gc
import re
import sys
from importlib import metadata
from pathlib import Path

from numpy.typing import ArrayLike
from pydantic import BaseModel
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parent.parent))
from docs._ext.tables import absent

from veilring.transport.frames import WireValue

# The pages are millions of objects that all stay: to scan them as often as Python does by default
# takes a third of a build.
gc.set_threshold(100_000, 50, 100)

project = "veilring"
author = project_copyright = "The veilring authors"
version = release = metadata.version("veilring")

extensions = [
    "docs._ext.navigation",
    "docs._ext.pictures",
    "docs._ext.tables",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
nitpicky = True
default_role = "code"  # what a docstring writes in single backticks

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_search_scorer = str(Path(__file__).parent / "_ext" / "scorer.js")
pygments_style = "friendly"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks show the outputs that tests compare with a run

# `python -m sphinx -b linkcheck docs docs/_build/links` follows the links to other sites.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)[:/]"]

autodoc_mock_imports = absent()
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_attr_annotations = False  # the signature has the types
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an attribute is described once, in the docstring of its class

nitpick_ignore_regex = [
    # Types in signatures: those of other projects, whose inventories a build cannot fetch, and ours
    # that the reference does not list.
    (r"py:(class|exc|obj)", ".*")
]


# About one line of a page, in characters.
VALUE_MAX = 80
_WIRE_VALUE = "~veilring.transport.frames.WireValue"
# An array as autodoc writes it, and what it is of.
_ARRAY = r"~numpy\.ndarray\[~?tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[([^\[\]]+)\]\]"


def skip_machinery(_app: Sphinx, *about: object) -> bool | None:
    """Leave out what named tuples and pydantic add to a class: its docstring describes it."""
    _kind, name, member, *_ = about
    is_machinery = name == "model_config" or type(member).__name__ == "_tuplegetter"
    return True if is_machinery else None


def hide_model_signature(_app: Sphinx, *about: object) -> tuple[str, None] | None:
    """Leave out a model's signature, in which pydantic repeats the constraints of each field."""
    _kind, _name, member, *_ = about
    return ("", None) if isinstance(member, type) and issubclass(member, BaseModel) else None


def shorten_types(_app: Sphinx, *about: object) -> tuple[str, str] | None:
    """Write NumPy's types as the source does: their aliases are spelled out over several lines."""
    *_, signature, returns = about
    if not isinstance(signature, str):
        return None
    return _with_aliases(signature), _with_aliases(str(returns or ""))


def _with_aliases(text: str) -> str:
    text = text.replace(stringify_annotation(ArrayLike, "smart"), "~numpy.typing.ArrayLike")
    text = text.replace(stringify_annotation(WireValue, "smart"), _WIRE_VALUE)
    return re.sub(_ARRAY, r"~numpy.typing.NDArray[\1]", text)


def keep_colons(_app: Sphinx, kind: str, *about: object) -> None:
    """Hide the first line from napoleon, which takes the text before a colon for a type."""
    *_, lines = about
    if kind in {"attribute", "data", "property"} and isinstance(lines, list):
        lines[:0] = ["..", ""]  # an empty comment


def hide_long_values(_app: Sphinx, _domain: str, kind: str, content: addnodes.desc_content) -> None:
    """Leave out the value of a constant if it is long, because its docstring describes it."""
    if kind in {"attribute", "data"} and content.parent is not None:
        for value in list(content.parent.findall(addnodes.desc_annotation)):
            text = value.astext()
            if text.startswith(" = ") and len(text) > VALUE_MAX:
                value.parent.remove(value)


def setup(app: Sphinx) -> None:
    """Connect the hooks."""
    app.connect("autodoc-skip-member", skip_machinery)
    app.connect("autodoc-process-signature", hide_model_signature)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # napoleon has 500
    app.connect("object-description-transform", hide_long_values)
