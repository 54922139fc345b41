"""The navigation beside each page, from the titles of all pages.

For each page, Sphinx copies the contents of all pages, with every name of the reference, and then
drops what is no title. Here it is dropped once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def keep_titles(contents: Any) -> Any:  # noqa: ANN401  (of docutils, which ships no types)
    """Return a page's contents without its sections: its title, and the pages that it lists."""
    titles = contents.deepcopy()
    for item in titles.children:
        if len(item) > 1:
            sections = item[1]
            sections[:] = list(sections.findall(addnodes.toctree))
            if not sections.children:
                item.remove(sections)
    return titles


def _shorten(app: Sphinx, env: BuildEnvironment) -> None:
    titles = {page: keep_titles(contents) for page, contents in env.tocs.items()}
    # The theme, which makes the tree, has the priority 500.
    app.connect("html-page-context", partial(_use_titles, titles), priority=400)


def _use_titles(titles: dict[str, Any], app: Sphinx, *about: Any) -> None:
    _page, _template, context, _document = about
    if "toctree" in context:
        context["toctree"] = partial(_from_titles, app.env, titles, context["toctree"])


def _from_titles(
    env: BuildEnvironment, titles: dict[str, Any], toctree: Callable[..., str], **options: object
) -> str:
    """Make the tree of the navigation, which shows no sections."""
    contents, env.tocs = env.tocs, titles
    try:
        return toctree(**options)
    finally:
        env.tocs = contents


def setup(app: Sphinx) -> dict[str, bool]:
    """Shorten the contents as soon as all pages are read."""
    app.connect("env-check-consistency", _shorten)
    return {"parallel_read_safe": True}
