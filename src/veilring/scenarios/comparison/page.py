"""A comparison as one page of HTML that needs nothing from anywhere, and its picture as a file."""

from collections.abc import Iterator
from typing import Any

import tomli_w

from veilring.nodes.cost import Traffic
from veilring.scenarios.comparison.choosing import RULE
from veilring.scenarios.comparison.comparison import Comparison, Line
from veilring.scenarios.comparison.words import HEADINGS, NUMBERS, cells, promises, setting
from veilring.scenarios.reporting.charts import AccuracyChart, accuracy_chart, bar_chart
from veilring.scenarios.reporting.page import estimates, make_environment
from veilring.scenarios.reporting.tables import Amount


def render_page(comparison: Comparison) -> str:
    """Return the page; equal comparisons give equal pages."""
    leaking = next((line for line in comparison.lines if line.leakage is not None), None)
    tables = comparison.question.model_dump(mode="json", exclude_none=True)
    return (
        make_environment(__package__)
        .get_template("comparison.html.j2")
        .render(
            title=_title(comparison),
            setting=setting(comparison),
            comparison=comparison,
            picture=_picture(comparison),
            headings=HEADINGS,
            numbers=NUMBERS,
            rows=[
                (line, list(zip(HEADINGS, cells(line), strict=True))) for line in comparison.lines
            ],
            promises=promises(comparison),
            leakage=None if leaking is None else _leakage(leaking),
            bytes=bar_chart(list(_amounts(comparison))),
            rule=RULE,
            asked=tomli_w.dumps(tables),
        )
    )


def render_picture(comparison: Comparison) -> str:
    """Return accuracy over ε as a file of SVG."""
    return (
        make_environment(__package__)
        .get_template("picture.svg.j2")
        .render(
            title=_title(comparison),
            desc=f"{setting(comparison)}. Means over splits with 95% intervals.",
            picture=_picture(comparison),
        )
    )


def _leakage(line: Line) -> dict[str, Any]:
    found = line.leakage
    return {} if found is None else {"trials": found.trials, **estimates(found, line.system)}


def _picture(comparison: Comparison) -> AccuracyChart:
    return accuracy_chart(comparison.lines, comparison.question.epsilon)


def _title(comparison: Comparison) -> str:
    return f"{comparison.facts.name}: {comparison.question.parties} parties compared"


def _amounts(comparison: Comparison) -> Iterator[Amount]:
    """Yield the bytes of each system, at its smallest ε."""
    seen = set[str]()
    for line in comparison.lines:
        if line.cost is not None and line.system not in seen:
            seen.add(line.system)
            protocol = Traffic(line.cost.messages, line.cost.bytes)
            setup = Traffic(line.cost.setup_messages, line.cost.setup_bytes)
            yield Amount(line.name, protocol, setup)
