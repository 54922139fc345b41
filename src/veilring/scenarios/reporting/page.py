"""The report as one self-contained page of HTML."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import resources
from typing import Any, Final

import tomli_w

from veilring.extras import name_missing_extras
from veilring.measures import NUMBERS
from veilring.protocols.promise import Leakage
from veilring.scenarios.report import (
    Amount,
    Report,
    RoleReport,
    accuracies,
    adversaries,
    assessment,
    by_kind,
    by_party,
    by_round,
    errors,
    found,
    in_bytes,
    in_seconds,
    leaks,
    measured,
    percent,
    promised,
    role_results,
    say,
    titled,
    total,
    troubles,
)
from veilring.scenarios.reporting import RunFolder
from veilring.scenarios.reporting.charts import (
    bar_chart,
    column_chart,
    draw_spacetime,
    interval,
    share_chart,
    whisker_chart,
)
from veilring.scenarios.reporting.stepping import build_story

with name_missing_extras():
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

_FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "count": "{:,}".format,
    "in_bytes": in_bytes,
    "in_seconds": in_seconds,
    "percent": percent,
    "say": say,
    "place": "{:.3f}".format,  # a thousandth of a percent or of a pixel
}


_SCRIPT: Final = (resources.files(__package__) / "templates" / "stepper.js").read_text("utf-8")
# The page's own script may run, and nothing else: no other script, and no request.
_DIGEST: Final = b64encode(sha256(_SCRIPT.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; script-src 'sha256-{_DIGEST}'; style-src 'unsafe-inline'; img-src data:"
)


def render(run: RunFolder) -> str:
    """Return the page; equal folders give equal pages."""
    messages = run.messages
    labelled = run.report if isinstance(run.report, Report) else None
    role = run.report if isinstance(run.report, RoleReport) else None
    named = (name for each in messages for name in (each.sender, each.receiver))
    parties = tuple(dict.fromkeys((*run.scenario.parties.all, *named)))
    return fill(
        "report.html.j2",
        run=run,
        report=run.report,
        parties=parties,
        title=f"{titled(run.scenario)}: {len(parties)} parties, {run.scenario.network.runtime}",
        adversaries=adversaries(run.scenario),
        settings=tomli_w.dumps(run.scenario.model_dump(mode="json", exclude_none=True)),
        labelled=labelled,
        errors=labelled and list(errors(labelled)),
        accuracy=labelled and _accuracy(labelled),
        measured=labelled and measured(labelled, tuple(NUMBERS)),
        leakage=labelled
        and labelled.leakage
        and estimates(labelled.leakage, labelled.scenario.protocol.name),
        promised=labelled and promised(labelled),
        assessment=labelled and assessment(labelled),
        results=role and role_results(role),
        troubles=run.report and troubles(run.report),
        found=run.report and found(run.report),
        total=total(messages),
        sessions=len({message.session for message in messages}),
        by_party=_with_chart(by_party(messages, parties), bar_chart),
        by_kind=_with_chart(by_kind(messages), bar_chart),
        by_round=_with_chart(by_round(messages), column_chart),
        diagram=draw_spacetime(messages, run.marks, parties),
        story=build_story(messages, run.marks, parties, run.failure),
        script=Markup(_SCRIPT),  # noqa: S704  (a file of this package)
        policy=_POLICY,
    )


def fill(template: str, *packages: str, **values: object) -> str:
    """Return the text of a template with its values.

    Args:
        template: Its name, in one of the packages or among the templates of the report.
        packages: The names of packages with templates, such as that of another page of the same
            design.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, __package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(template).render(values)


def _with_chart(amounts: list[Amount], chart: Callable[..., Any]) -> dict[str, Any]:
    return {"amounts": amounts, "chart": chart(amounts)}


def _accuracy(report: Report) -> dict[str, Any]:
    rows = accuracies(report)
    return {"rows": rows, "chart": share_chart((label, share) for label, share, _ in rows)}


def estimates(leakage: Leakage, system: str) -> dict[str, Any]:
    """Return the leakage of a run as rows, and the estimated ones among them as a chart."""
    rows = leaks(leakage, system)
    return {
        "trials": leakage.trials,
        "rows": [(leaked, interval(leaked.estimate)) for leaked in rows],
        "chart": whisker_chart((row.label, row.estimate) for row in rows if row.is_estimated),
    }
