"""`veilring explore`: many worlds with faults, and whether anything went wrong in them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.cli.options import ProtocolName, Settings, protocol_settings

if TYPE_CHECKING:
    from veilring.scenarios import Scenario
    from veilring.testing.exploring import Campaign


def explore_command(
    scenario: Annotated[
        str, typer.Argument(help="A built-in scenario, such as faults, or a path to a .toml file.")
    ] = "faults",
    *,
    protocol: ProtocolName = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="The first of them.", min=0)] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Replay this seed only.", min=0, show_default=False)
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--every-message",
            help="In place of seeds: strike each message of one run among three parties by each"
            " class of fault.",
        ),
    ] = False,
    stores: Annotated[
        bool,
        typer.Option(
            "--stores",
            help="In place of protocols: ledgers, collectors and records on disks that fail.",
        ),
    ] = False,
    failures: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replay the seeds in this file first, and add those that fail.",
            show_default=False,
        ),
    ] = None,
    shrink: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Make the first world that goes wrong smaller, and write it to this scenario.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Make the first world that goes wrong smaller, play it, and write what happened to"
            " this folder, with the page report.html.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="How many processes share the work.", min=1)] = 1,
    overrides: Settings = None,
) -> None:
    """Run protocols under faults, one seed after the other, and look for wrong results and hangs.

    Each seed is a world on the simulated clock: random links, a schedule of stalls, delays,
    partitions, resets, half-open connections, crashes, restarts, pauses and skewed clocks, and an
    order in which tasks take turns. In it the protocol of a scenario runs again and again. Checked:
    no party ever has a wrong result, each failure is a named error, all ends soon after the faults
    have stopped, no task is left, and the same seed makes the same world.

    It fails if anything was wrong, and if a class of fault had no effect or a mark that worlds have
    to reach was reached in no seed.

    For example:

        veilring explore --seeds 20000 --workers 2

        veilring explore --seed 1234

        veilring explore --protocol rank-search --report worlds/first
    """
    from veilring.cli.console import show_progress
    from veilring.scenarios import load_scenario
    from veilring.scenarios.reporting import open_folder
    from veilring.testing.exploring import (
        SystemSubject,
        explore_every_world,
        explore_stores,
        explore_subject,
    )
    from veilring.testing.exploring.campaign import known_failures, remember_failures
    from veilring.testing.exploring.kept import STORES

    if report is not None:
        open_folder(report, "--report")  # refused before anything is explored
    settings = [*protocol_settings(protocol), *(overrides or ())]
    if stores:
        campaign = explore_stores(STORES, range(first, first + seeds))
        _judge(campaign)
        _require_reached("no fault of these classes struck", campaign.missing)
        return
    if every:
        settings = ["parties.count=3", "data.queries=1", *settings]
    subject = SystemSubject(load_scenario(scenario, settings))
    if every:
        _judge(explore_every_world(subject), shrink, report)
        return
    known = known_failures(failures) if failures is not None else []
    chosen = [seed] if seed is not None else [*known, *range(first, first + seeds)]
    distinct = list(dict.fromkeys(chosen))
    with show_progress(quiet=False) as progress:

        def tell(campaign: "Campaign") -> None:
            if progress is not None:
                progress("Exploring", campaign.seeds, len(distinct))

        campaign = explore_subject(subject, distinct, workers=workers, progress=tell)
    if failures is not None:
        remember_failures(failures, campaign.failures)
    given = "".join(f" --set {setting!r}" for setting in settings)
    replay = f"replay it: veilring explore {scenario} --seed {{}}{given}"
    _judge(campaign, shrink, report, advice=replay)
    if seed is None:
        if not campaign.succeeded:
            typer.echo(
                "\nno run has a result: there is a mistake that no fault is needed for", err=True
            )
            raise typer.Exit(1)
        _require_reached("no fault of these classes had an effect", campaign.missing)
        _require_reached("no seed has reached these marks", campaign.unreached)


def _judge(
    campaign: "Campaign",
    shrink: Path | None = None,
    report: Path | None = None,
    *,
    advice: str = "",
) -> None:
    """Show what was found, and fail if anything was wrong."""
    _show(campaign)
    if not campaign.failures:
        return
    worst, wrong = next(iter(campaign.failures.items()))
    typer.echo(f"\nseed {worst} went wrong:", err=True)
    for sentence in wrong:
        typer.echo(f"  {sentence}", err=True)
    if advice:
        typer.echo(advice.format(worst), err=True)
    if shrink is not None or report is not None:
        _write_smallest(campaign, shrink, report)
    raise typer.Exit(1)


def _write_smallest(campaign: "Campaign", scenario: Path | None, report: Path | None) -> None:
    from veilring.testing.exploring import SystemSubject, to_scenario, to_toml

    smallest = campaign.smallest()
    if smallest is None or not isinstance(smallest.subject, SystemSubject):
        typer.echo("played again, nothing went wrong: it is not always the same world", err=True)
        return
    typer.echo(f"made smaller ({smallest.plays} worlds): {smallest}", err=True)
    if scenario is not None:
        scenario.write_text(to_toml(smallest.subject, smallest.world), encoding="utf-8")
        typer.echo(f"play it: veilring run {scenario}", err=True)
    if report is not None:
        page = _write_page(to_scenario(smallest.subject, smallest.world), report)
        typer.echo(f"step through it: {page}", err=True)


def _write_page(world: "Scenario", folder: Path) -> Path:
    """Play a world that goes wrong, write its folder, and return the path of its page."""
    from veilring.errors import WorldWentWrong
    from veilring.nodes.trace import Journal
    from veilring.scenarios.reporting import read_folder, write_failure
    from veilring.scenarios.reporting.page import render
    from veilring.testing.exploring import replay

    journal = Journal()
    try:
        replay(world, journal=journal)
    except WorldWentWrong as error:
        write_failure(error, world, journal, folder)
    page = folder / "report.html"
    page.write_text(render(read_folder(folder)), encoding="utf-8")
    return page


def _require_reached(said: str, missing: tuple[str, ...]) -> None:
    if missing:
        typer.echo(f"\n{said}: {', '.join(missing)}", err=True)
        raise typer.Exit(1)


def _show(campaign: "Campaign") -> None:
    runs = campaign.succeeded + campaign.failed
    typer.echo(
        f"{campaign.seeds:,} seeds, {runs:,} runs: {campaign.succeeded:,} with a result, "
        f"{campaign.failed:,} ended in named errors, {len(campaign.failures):,} seeds went wrong"
    )
    if campaign.failed:
        typer.echo("named errors are expected: a run whose faults stop it has to say so")
    typer.echo("faults that had an effect:")
    for kind in campaign.classes:
        typer.echo(f"  {kind:10} {campaign.struck[kind]:>9,}")
