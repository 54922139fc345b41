"""`veilring estimate`: what a collection says so far."""

from typing import Annotated

import typer

from veilring.cli.estimates import (
    AsJson,
    Confidence,
    ConfigPath,
    Consistent,
    SaveTo,
    Without,
    load_collector,
    say_saved,
    show_estimates,
)


def estimate(
    config: ConfigPath,
    *,
    confidence: Confidence = 0.95,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="Read all reports, and compare them with the running sums."),
    ] = False,
    without: Without = None,
    save: SaveTo = None,
    consistency: Consistent = "paper",
    json: AsJson = False,
) -> None:
    """Estimate from the reports that a collector has stored, also while it collects.

    It reads the collector's store, so it runs where that can be reached, and the collector need not
    run. There is no estimate from fewer reports than the terms' `minimum`.

    Shares are unbiased and may come out a little below 0; each interval holds by itself with the
    given confidence. For naive Bayes a line is the share of the clients asked that have both the
    value and the class; or the mean of the column, scaled to [-1, 1], or of its square, within the
    class and times the class's share. The model of `--save` has the means themselves. In JSON, the
    ends of an interval that nothing is known of are null.
    """
    from veilring.deployment.estimating import estimate_stored as estimate_store
    from veilring.deployment.estimating import save_model

    loaded = load_collector(config, "estimate")
    found = estimate_store(loaded, confidence=confidence, recount=recount, without=without or ())
    if save is not None:
        save_model(found, save, consistency=consistency)
    show_estimates(found, json=json)
    if recount and not json:
        typer.echo(f"recounted {sum(found.members.values()):,} reports: the running sums are right")
    say_saved(save, json=json)
