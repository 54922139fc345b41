"""Tables that are generated from the code, so that the pages cannot contradict it.

Cells of all tables are labelled, so that they can be read on a phone.

`{limits}` lists every named limit with the reason given in the source;
`{scenario-keys} TABLE` lists the keys of one table of a scenario, and `{system-keys} NAME` the
parameters of a system; `{model-keys} MODULE:MODEL` lists the keys of any other table.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import dropwhile, takewhile, zip_longest
from typing import Any, Final, NamedTuple, get_args

from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock  # type: ignore[attr-defined]  # documented, not in __all__
from sphinx.util.docutils import SphinxDirective
from typing_extensions import override

import veilring
from veilring.config import DescribedKey, describe_keys
from veilring.protocols.registry import BUILT_IN, find_system
from veilring.scenarios import Scenario

# What bounds memory, time or numbers; the other constants are formats and conventions.
_SUFFIXES: Final = (
    "ATTEMPTS",
    "BACKLOG",
    "BATCH",
    "_BUFFER_BYTES",
    "_DAYS",
    "_KEPT",
    "_MAX",
    "_MIN",
    "_PER_SECOND",
    "_PROBES",
    "_SECONDS",
    "_SIZE",
)
# What some module of the package imports and `pip install '.[docs]'` does not bring.
EXTRAS: Final = ("distributed", "psycopg", "pyproj", "pytest", "sentence_transformers")
_COMMENT: Final = re.compile("# ")
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_CONSTANT: Final = re.compile("[A-Z][A-Z_]+(: Final)? = ")


class Limit(NamedTuple):
    """A named constant, and why it is what it is."""

    module: str
    name: str
    value: str
    reason: str


def absent() -> list[str]:
    """Return the modules of extras that are not installed: pages are made without them."""
    return [name for name in EXTRAS if find_spec(name) is None]


def limits() -> Iterator[Limit]:
    """Yield all named limits of the package, module by module."""
    with mock(absent()):
        for info in pkgutil.walk_packages(veilring.__path__, "veilring."):
            if not info.name.endswith("__main__"):
                yield from _limits_of(info.name)


def _limits_of(name: str) -> Iterator[Limit]:
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    lines, body = source.splitlines(), ast.parse(source).body
    for statement, following in zip_longest(body, body[1:]):
        constant = _constant(statement)
        value = getattr(module, constant, None)
        if isinstance(value, int | float):
            text = f"{value:,g}" if isinstance(value, float) else f"{value:,}"
            reason = _reason(lines, statement, following)
            yield Limit(name.removeprefix("veilring."), constant, text, reason)


def _constant(statement: ast.stmt) -> str:
    """Return the name that a statement assigns, if it is that of a public limit."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name if name.endswith(_SUFFIXES) and not name.startswith("_") else ""
    return ""


def _reason(lines: list[str], statement: ast.stmt, following: ast.stmt | None) -> str:
    """Return the comment beside or above a statement, or the docstring below it."""
    _, beside, comment = lines[(statement.end_lineno or 0) - 1].partition("  # ")
    if beside:
        return comment
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    above = [*takewhile(_is_constant_or_comment, reversed(lines[: statement.lineno - 1]))]
    comments = [*takewhile(_COMMENT.match, dropwhile(_CONSTANT.match, above))]
    return " ".join(line.removeprefix("# ") for line in reversed(comments))


def _is_constant_or_comment(line: str) -> bool:
    return bool(_CONSTANT.match(line) or _COMMENT.match(line))


class _Table(SphinxDirective):
    """A directive whose content is Markdown that `rows` makes."""

    head: tuple[str, ...]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each row."""
        raise NotImplementedError

    @override
    def run(self) -> list[Any]:  # of docutils, which ships no types
        rule = ("---",) * len(self.head)
        cells = ([cell.replace("|", r"\|") for cell in row] for row in self.rows())
        lines = (f"| {' | '.join(row)} |" for row in (self.head, rule, *cells))
        return self.parse_text_to_nodes("\n".join(lines))


class LimitsTable(_Table):
    """All limits; the class is for `pages.css`."""

    head = ("limit", "value", "why")

    @override
    def run(self) -> list[Any]:
        made = super().run()
        for table in made:
            table["classes"].append("limits")
        return made

    @override
    def rows(self) -> Iterator[tuple[str, ...]]:
        for limit in limits():
            yield f"`{limit.module}.{limit.name}`", limit.value, limit.reason


class SystemKeys(_Table):
    """The parameters of a system, from its model."""

    required_arguments = 1
    head = ("parameter", "default", "allowed", "meaning")

    @override
    def rows(self) -> Iterator[tuple[str, ...]]:
        yield from system_rows(self.arguments[0])


class ModelKeys(_Table):
    """The keys of a table of another file than a scenario, from its model."""

    required_arguments = 1
    head = ("key", "default", "allowed", "meaning")

    @override
    def rows(self) -> Iterator[tuple[str, ...]]:
        yield from model_rows(self.arguments[0])


class ScenarioKeys(_Table):
    """The keys of one table of a scenario."""

    required_arguments = 1
    head = ("key", "default", "allowed", "meaning")

    @override
    def rows(self) -> Iterator[tuple[str, ...]]:
        yield from key_rows(self.arguments[0])


def key_rows(table: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, default, what is allowed and what it means, for one table of a scenario.

    The keys of `protocol` are those of all systems, one system after the other.
    """
    if table == "protocol":
        for name in BUILT_IN:
            yield f'`protocol.name = "{name}"`', "", name, find_system(name).summary
            yield from system_rows(name, "protocol.")
        return
    annotation: Any = Scenario.model_fields[table].annotation
    section: Any = next(iter(get_args(annotation)), annotation)  # of one that may be missing
    for key in describe_keys(section):
        yield f"`{table}.{key.name}`", _default(key), key.allowed, key.meaning


def system_rows(name: str, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield each parameter of a system, with its default, allowed values and meaning.

    Args:
        name: The name of the system.
        prefix: The prefix of each parameter.
    """
    for key in describe_keys(find_system(name)):
        if key.name != "name":
            yield f"`{prefix}{key.name}`", _default(key), key.allowed, key.meaning


def model_rows(where: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, default, what is allowed and what it means, for a table of a file.

    Args:
        where: The module and the name of its model, such as `package.module:Model`.
    """
    module, _, name = where.partition(":")
    for key in describe_keys(getattr(importlib.import_module(module), name)):
        if key.default != key.allowed:  # a system's own name
            yield f"`{key.name}`", _default(key), key.allowed, key.meaning


def _default(key: DescribedKey) -> str:
    text = key.default_text
    return text if text in {"none", "required"} else f"`{text}`"


def label_cells(body: str) -> str:
    """Return a page in which each cell of a table has its column's name, for `pages.css`."""
    return _TABLE.sub(_labelled, body)


def _labelled(found: re.Match[str]) -> str:
    page = BeautifulSoup(found[0], "html.parser")
    for table in page.select("table.docutils"):
        names = [head.get_text(" ", strip=True) for head in table.select("thead th")]
        for row in table.select("tbody tr"):
            for cell, name in zip(row.find_all("td", recursive=False), names, strict=False):
                cell["data-column"] = name
    return str(page)


def _label_page(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _: Any) -> None:  # noqa: ANN401  (a document, or none)
    if "body" in context:
        context["body"] = label_cells(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Declare the directives, and label the cells of all tables."""
    app.connect("html-page-context", _label_page)
    app.add_directive("limits", LimitsTable)
    app.add_directive("scenario-keys", ScenarioKeys)
    app.add_directive("system-keys", SystemKeys)
    app.add_directive("model-keys", ModelKeys)
    return {"parallel_read_safe": True}
