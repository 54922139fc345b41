"""The report as one page of HTML that needs nothing from anywhere."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined

from veilring.scenarios.report import Estimate, Report
from veilring.scenarios.reporting import spacetime, tables
from veilring.scenarios.reporting.charts import (
    bar_chart,
    column_chart,
    interval,
    share_chart,
    whisker_chart,
)
from veilring.scenarios.reporting.folder import RunFolder
from veilring.scenarios.reporting.words import in_bytes, in_seconds, percent

__all__ = ("LEAKAGE", "render")

LEAKAGE: Final = {
    "exposure": "of messages carry a distance that their sender has just added",
    "claim": "of what is new to a receiver is its sender's own: right, if it claims so",
    "lop": "of such claims are right that a guess from the result would not have been",
    "lop_peak": "the same for the place in the ring where that is most",
}
"""What is estimated of a hop, by the name that it has in the report, and what it is."""

_NAMES: Final = {"lop": "loss of privacy", "lop_peak": "loss of privacy at its peak"}
_FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "count": "{:,}".format,
    "in_bytes": in_bytes,
    "in_seconds": in_seconds,
    "percent": percent,
    "place": "{:.3f}".format,  # of a mark: a thousandth of a percent or of a pixel
}


def render(run: RunFolder) -> str:
    """Return the page; equal folders give equal pages."""
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    parties = run.scenario.parties.all
    messages = run.messages
    return environment.get_template("report.html.j2").render(
        run=run,
        report=run.report,
        parties=parties,
        settings=tomli_w.dumps(run.scenario.model_dump(mode="json", exclude_none=True)),
        accuracy=run.report and _accuracy(run.report),
        leakage=run.report and run.report.leakage and _leakage(run.report),
        total=tables.total(messages),
        sessions=len({message.session for message in messages}),
        by_party=_with_chart(tables.by_party(messages, parties), bar_chart),
        by_kind=_with_chart(tables.by_kind(messages), bar_chart),
        by_round=_with_chart(tables.by_round(messages), column_chart),
        diagram=spacetime.draw(messages, run.marks, parties),
    )


def _with_chart(amounts: list[tables.Amount], chart: Callable[..., Any]) -> dict[str, Any]:
    return {"amounts": amounts, "chart": chart(amounts)}


def _accuracy(report: Report) -> dict[str, Any]:
    rows = (
        ("private", report.accuracy, f"of {report.queries:,} held-out rows"),
        (
            "pooled kNN",
            report.reference_accuracy,
            f"k = {report.scenario.protocol.k}, not private: all {report.rows:,} rows in one place",
        ),
        ("majority class", report.majority_accuracy, "the same answer to every query"),
        ("agreement", report.agreement, "of labels are those of the pooled kNN"),
    )
    return {"rows": rows, "chart": share_chart((label, share) for label, share, _ in rows)}


def _leakage(report: Report) -> dict[str, Any]:
    estimates: dict[str, Estimate] = {name: getattr(report.leakage, name) for name in LEAKAGE}
    named = [(_NAMES.get(name, name), estimate) for name, estimate in estimates.items()]
    rows = [
        (label, estimate, interval(estimate), meaning)
        for (label, estimate), meaning in zip(named, LEAKAGE.values(), strict=True)
    ]
    return {"rows": rows, "chart": whisker_chart(named)}
