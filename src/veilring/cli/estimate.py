"""`veilring estimate`: what a collection says so far."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.deployment import Estimates

__all__ = ("estimate",)


def estimate(
    config: Annotated[
        Path, typer.Argument(help="The collector's configuration.", metavar="CONFIG")
    ],
    *,
    confidence: Annotated[
        float, typer.Option(help="Of each interval by itself, between 0 and 1.")
    ] = 0.95,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="Read all reports, and hold the running sums to them."),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the naive Bayes model here, as JSON."),
    ] = None,
    consistency: Annotated[
        str, typer.Option(help="Of the model: paper, clip or norm-sub, for counts below 0.")
    ] = "paper",
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Estimate from the reports that a collector has stored, also while it collects.

    It reads the collector's store, so it runs where that can be reached, and the collector need not
    run. There is no estimate from fewer reports than the terms' `minimum`.

    Shares are unbiased and may come out a little below 0; each interval holds by itself with the
    given confidence. For naive Bayes a line is the share of the clients asked that have both the
    value and the class.
    """
    from veilring.deployment import CollectorConfig, load_config
    from veilring.deployment import estimate as estimate_store
    from veilring.deployment.estimating import save_model
    from veilring.errors import ScenarioError

    loaded = load_config(config)
    if not isinstance(loaded, CollectorConfig):
        raise ScenarioError("role", loaded.role, "collector, for `veilring estimate`")
    found = estimate_store(loaded, confidence=confidence, recount=recount)
    if save is not None:
        save_model(found, save, consistency=consistency)
    if json:
        _print_json(found)
    else:
        _show(found)


def _print_json(found: "Estimates") -> None:
    import dataclasses
    from json import dumps

    document = {
        "task": found.terms.task.digest.hex(),
        "epsilon": found.terms.task.survey.exact_epsilon,
        "reports": found.tally.clients,
        "confidence": found.confidence,
        "estimates": [dataclasses.asdict(line) for line in found.lines],
    }
    typer.echo(dumps(document, indent=2))


def _show(found: "Estimates") -> None:
    from rich.console import Console
    from rich.table import Table

    epsilon = found.terms.task.survey.exact_epsilon
    title = f"{found.terms.survey.kind}: {found.tally.clients:,} reports, epsilon {epsilon:g}"
    table = Table(title=title, title_justify="left")
    for name in ("of", "value", "class"):
        table.add_column(name, overflow="fold")
    for name in ("estimate", f"{found.confidence:.0%} interval", "reports"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in found.lines:
        interval = f"{line.low:.4f} to {line.high:.4f}"
        numbers = (f"{line.estimate:.4f}", interval, f"{line.clients:,}")
        table.add_row(line.of, line.value, line.within, *numbers)
    Console().print(table, markup=False)
