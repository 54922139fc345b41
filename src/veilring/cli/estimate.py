"""`veilring estimate`: what a collection says so far."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.estimates import show_estimates

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
    value and the class; or the mean (of the column or its square, scaled to [-1, 1]) within the
    class, times the share of the class: `--save` writes what it is without the share. In JSON, the
    ends of an interval that nothing is known of are null.
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
    show_estimates(found, json=json)
