"""`veilring run`, `sweep`, `merge`, `report`, `trace`: run scenarios, and show finished runs."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from veilring.cli.options import (
    EXIT_INTERRUPTED,
    CellSeparator,
    DaskAddress,
    LabelColumn,
    MeasureNames,
    ProtocolName,
    ReadingFiles,
    RunFolder,
    ScenarioName,
    SchemaFile,
    Settings,
    Workers,
    protocol_settings,
    readings_of,
    runtime_settings,
    table_settings,
)
from veilring.errors import InputError, VeilringError
from veilring.nodes import RuntimeName

SweepFile = Annotated[
    Path,
    typer.Option(
        metavar="FILE.parquet",
        help="Parquet file to write. Wall-clock times go to FILE.timing.parquet.",
    ),
]


def sweep(
    scenario: ScenarioName,
    *,
    protocol: ProtocolName = None,
    grid: Annotated[
        list[str],
        typer.Option(
            metavar="TABLE.KEY=VALUES",
            help="Key and its values: 1..6, 1..100:10 or a,b,c. May be repeated.",
        ),
    ],
    out: SweepFile,
    trials: Annotated[
        int, typer.Option(help="Number of runs at each point, each with its own seed.")
    ] = 1,
    overrides: Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed of the sweep. Default: the scenario's, or 0.", show_default=False
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Runtime: memory or simulated. Default: memory, even if the scenario differs."
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Run only every Nth run, from run I on, counted from 0. The runs are saved in"
            " FILE.parquet.I-of-N.journal, for `veilring merge`.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="Where to run: local (processes) or dask.")] = "local",
    workers: Workers = None,
    dask_address: DaskAddress = None,
) -> None:
    r"""Run a scenario at all points of a grid, and write one row per run to a Parquet file.

    Parties run in memory, or in the simulation with --runtime simulated. Equal arguments give the
    same file, to the byte, on any engine and any number of workers.

    You can interrupt a sweep at any time: the same command continues it.

    For example:

        veilring sweep wine --grid protocol.rounds=1..6 --trials 10 --out rounds.parquet

        veilring sweep wine --grid parties.count=3,10,30 --grid protocol.sum=ring,shares \
            --set run.leakage_trials=0 --runtime simulated --out sums.parquet

        veilring sweep digits --grid protocol.k=1..15:2 --engine dask --out k.parquet

        veilring sweep digits --grid protocol.k=1..15:2 --shard 2/8 --out k.parquet

        veilring sweep my_module:CLAIMS --grid public.threshold=1..4 --out thresholds.parquet
    """
    from veilring.cli.console import show_progress
    from veilring.scenarios.sweep import Engine, Files, Plan, parse_grid, run_sweep

    try:
        with show_progress(quiet=False) as progress:
            settings = [
                *protocol_settings(protocol),
                *(overrides or ()),
                *runtime_settings(runtime),
            ]
            plan = Plan(scenario, parse_grid(grid), trials, settings, seed=seed)
            where = Engine(engine, workers, dask_address)
            done = run_sweep(plan, out, engine=where, progress=progress, shard=shard)
    except KeyboardInterrupt:
        journal = Files(out, shard).journal
        kept = f"finished runs are in {journal}" if journal.exists() else "no run is finished"
        typer.echo(f"veilring: stopped; {kept}. Repeat the command to continue.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    earlier = f", {done.kept:,} of them finished earlier" if done.kept else ""
    if shard is not None:
        typer.echo(f"{len(done.cells):,} runs{earlier}; shard written to {done.files.journal}")
        return
    typer.echo(f"{len(done.cells):,} runs{earlier}; results written to {done.files.results}")
    typer.echo(f"Wall-clock times written to {done.files.timing}")


def merge(
    shards: Annotated[
        list[Path],
        typer.Argument(
            help="Journal of each shard, written by `veilring sweep --shard`.", metavar="SHARDS"
        ),
    ],
    *,
    out: SweepFile,
) -> None:
    """Write the results of a sweep from all its shards: the same bytes as on one machine.

    The scenario and its data are not needed. A shard that is missing, unfinished or given twice, or
    that belongs to another sweep or another version of veilring, ends the command with an error.

    For example:

        veilring sweep wine --grid protocol.rounds=1..6 --shard 0/2 --out rounds.parquet
        veilring sweep wine --grid protocol.rounds=1..6 --shard 1/2 --out rounds.parquet
        veilring merge rounds.parquet.*-of-2.journal --out rounds.parquet
    """
    from veilring.scenarios.sweep import merge_shards

    typer.echo(f"{merge_shards(shards, out):,} runs; results written to {out}")


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.table import Table

    from veilring.nodes.journal import Journal
    from veilring.protocols.membership import PublicModel
    from veilring.scenarios import Report, RoleReport, RoleScenario, Scenario
    from veilring.scenarios.report import Amount
    from veilring.scenarios.runner import Progress


def run_command(
    scenario: Annotated[
        list[str],
        typer.Argument(
            help="Built-in scenario (see `veilring scenarios`) or table, such as iris, a path to a"
            " .toml, .csv or .npz, or module:NAME with a role and its inputs; or the .csv file of"
            " each party, with --schema.",
            metavar="SCENARIO...",
        ),
    ],
    *,
    protocol: ProtocolName = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help=f"Runtime of the parties: {', '.join(get_args(RuntimeName))}.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed, to repeat a run exactly. Default: cryptographic randomness."
        ),
    ] = None,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    schema: SchemaFile = None,
    reading: ReadingFiles = None,
    overrides: Settings = None,
    measure: MeasureNames = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the report as JSON, or the error if the run fails."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the report, the scenario, versions and a message trace to this folder,"
            " the labels with the identifiers of the rows, and the public model if the system"
            " releases one.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the log of the parties' processes.")
    ] = False,
) -> None:
    """Run a scenario: parties label held-out rows together without sharing their own rows.

    The report compares the accuracy with that of the same classifier on all rows in one place, and
    lists the cost of the run and the leakage of each message. The report of a role of your own
    has the results of the parties and the cost.

    For example:

        veilring run wine

        veilring run wine --runtime simulated --set network.latency.median_seconds=0.1

        veilring run wine --measure macro-f1 --measure confusion

        veilring run wine --protocol data-owner --set protocol.epsilon=2

        veilring run my.csv --set parties.count=5

        veilring run my.csv --schema schema.toml

        veilring run north.csv coast.csv south.csv --schema schema.toml

        veilring run digits --set protocol.rounds=2 --seed 7 --json

        veilring run mine.toml --out runs/first && veilring report runs/first

        veilring run my_module:CLAIMS --set public.threshold=2
    """
    from veilring.measures import require_names
    from veilring.scenarios.schema import RoleScenario, Scenario, load_experiment

    first, *others = scenario
    readings = readings_of(reading, scenario)
    settings = [*protocol_settings(protocol), *_own_files(others, readings)]
    settings += [*(overrides or ()), *runtime_settings(runtime)]
    if seed is not None:
        settings.append(f"run.seed={seed}")
    settings += table_settings(label, separator, schema, readings.get(first))
    require_names(measure or ())
    loaded = load_experiment(first, settings)
    if isinstance(loaded, RoleScenario):
        if measure:
            raise InputError.because(
                "a role has no labels to measure; leave --measure out", field="--measure"
            )
        from veilring.scenarios.roles import find_role

        loaded = find_role(loaded).scenario
    if loaded.world is not None:
        _replay(loaded, out)
        return
    if loaded.network.runtime == "processes":
        # The fork server preloads while we import and load.
        from veilring.nodes.runtimes.processes import warm_up

        warm_up()
    if verbose:
        _log_to_stderr()
    from veilring.cli import console

    table = loaded.data if isinstance(loaded, Scenario) else None
    for each in () if table is None else table.files:
        console.show_notes(each.source, **each.columns)
    with console.show_progress(quiet=as_json) as progress:
        report = _run_into(out, loaded, progress)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
        return
    if table is not None:
        console.show_columns(table.source, **table.columns)
    _show(report, measure or ())


def _own_files(others: "Sequence[str]", readings: "Mapping[str, str]") -> list[str]:
    """Return the scenario keys by which each party has a file of its own, as `Settings`."""
    if not others:
        return []
    given = {
        "data.others": others,
        "data.other_readings": [readings.get(file, "") for file in others] if readings else [],
        "parties.count": 1 + len(others),
    }
    return [f"{key}={json.dumps(value)}" for key, value in given.items()]


def _show(report: "Report | RoleReport", measures: "Sequence[str]") -> None:
    """Print a report on standard output."""
    from rich.table import Table

    from veilring.cli.console import make_console
    from veilring.scenarios.report import RoleReport, adversaries, assessment, sections, titled

    title = f"{titled(report.scenario)}: {report.parties} parties, {report.runtime}"
    if malicious := adversaries(report.scenario):
        title += f"\nadversaries: {malicious}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for section in sections(report, measures):
        for row in section:
            table.add_row(*row)
        table.add_section()
    again = f"--seed {report.seed}"
    drawn = (
        "faults that were drawn" if isinstance(report, RoleReport) else "the split and partition"
    )
    closing = (
        f"To repeat: {again}."
        if report.secrets == "seeded"
        else f"The parties used cryptographic randomness. To repeat {drawn}: {again}."
    )
    console = make_console()
    console.print(table)
    if not isinstance(report, RoleReport):
        console.print(assessment(report), highlight=False, markup=False)
    closing = f"Transcript {report.transcript}\n{closing}"
    console.print(closing, style="dim", highlight=False, markup=False, soft_wrap=True)


def _replay(world: "Scenario | RoleScenario", out: Path | None) -> None:
    """Replay an explored world; write a folder, if one is wanted, when it fails."""
    from veilring.errors import WorldWentWrong
    from veilring.nodes.journal import Journal
    from veilring.scenarios.reporting import open_folder, write_failure
    from veilring.testing.exploring.subjects import replay

    journal = Journal()
    folder = None if out is None else open_folder(out)
    try:
        explored = replay(world, journal=journal)
    except WorldWentWrong as error:
        if folder is not None:
            write_failure(error, world, journal, folder)
        raise
    runs = f"{explored.succeeded} had a result, {explored.failed} ended in named errors"
    typer.echo(f"nothing went wrong in this world: {len(explored.runs)} runs, {runs}")


def _run_into(
    out: Path | None, scenario: "Scenario | RoleScenario", progress: "Progress | None"
) -> "Report | RoleReport":
    """Run a scenario, and write its folder, if one is wanted, even if the run fails."""
    from veilring.nodes.journal import Journal
    from veilring.protocols.membership import PublicModel
    from veilring.scenarios.reporting import open_folder, write_failure, write_report

    if out is None:
        return _run_once(scenario, progress)
    folder, journal, models = open_folder(out), Journal(), list[PublicModel]()
    answers: dict[str, Sequence[str]] = {}
    try:
        report = _run_once(scenario, progress, journal, models.append, answers.update)
    except InputError:
        raise  # nothing was run
    except VeilringError as error:
        write_failure(error, scenario, journal, folder)
        raise
    write_report(report, journal, folder, next(iter(models), None), answers)
    return report


def _run_once(
    scenario: "Scenario | RoleScenario",
    progress: "Progress | None",
    journal: "Journal | None" = None,
    keep: "Callable[[PublicModel], object] | None" = None,
    answered: "Callable[[Mapping[str, Sequence[str]]], object] | None" = None,
) -> "Report | RoleReport":
    from veilring.scenarios.roles import run_role
    from veilring.scenarios.runner import run_scenario
    from veilring.scenarios.schema import RoleScenario

    if isinstance(scenario, RoleScenario):
        return run_role(scenario, progress=progress, journal=journal)
    return run_scenario(scenario, progress=progress, journal=journal, keep=keep, answered=answered)


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("veilring").setLevel(logging.INFO)


def report(
    folder: RunFolder,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="File to write the page to. Default: report.html in DIR."
        ),
    ] = None,
) -> None:
    """Write an HTML page about a run: cost, leakage, and every message over time.

    The page is one file that needs no network. It steps through the run, and is overwritten each
    time.

    For example:

        veilring run wine --out runs/wine

        veilring report runs/wine

        veilring report runs/wine --out wine.html
    """
    from veilring.errors import InputError
    from veilring.privacy.files import write_whole
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.page import render

    page = render(read_folder(folder))
    path = folder / "report.html" if out is None else out
    try:
        write_whole(path, page)
    except OSError as error:
        raise InputError("--out", path, f"a file that can be written ({error})") from error
    typer.echo(f"Written: {path}")


LIMIT_DEFAULT: Final = 40  # about as much as a terminal shows at once


def trace(
    folder: RunFolder,
    *,
    limit: Annotated[
        int, typer.Option(min=0, help="Number of messages to draw, starting with the first.")
    ] = LIMIT_DEFAULT,
) -> None:
    """Show the messages of a run over time, and the traffic per party and kind of message.

    In the diagram, time runs down and each party is a column, in the order of first messages in the
    protocol. Problems and the findings of a coalition are printed above it.

    For example:

        veilring run wine --out runs/wine

        veilring trace runs/wine --limit 200
    """
    from veilring.cli.console import make_console
    from veilring.scenarios.report import adversaries, by_kind, by_party, found, troubles
    from veilring.scenarios.reporting import read_folder
    from veilring.scenarios.reporting.charts import text_diagram

    run, console = read_folder(folder), make_console()
    parties = run.scenario.parties.all
    if run.failure is not None:
        console.print(f"The run failed. {run.failure.error}: {run.failure.message}", markup=False)
        for note in run.failure.notes:
            console.print(note, markup=False, highlight=False)
    if malicious := adversaries(run.scenario):
        console.print(f"adversaries: {malicious}", markup=False, highlight=False)
    told = () if run.report is None else (*troubles(run.report), *found(run.report))
    for label, value, meaning in told:
        console.print(f"{label}: {value}; {meaning}", markup=False, highlight=False)
    console.print(_table("party", by_party(run.messages, parties)))
    console.print(_table("kind", by_kind(run.messages)))
    diagram = text_diagram(run.messages, run.marks, parties, limit=limit, width=console.width)
    for line in diagram:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if limit < len(run.messages):
        typer.echo(f"The first {limit:,} of {len(run.messages):,} messages; see --limit.")


def _table(title: str, amounts: "Iterable[Amount]") -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column(title, style="bold")
    for column in ("messages", "bytes", "set-up messages", "set-up bytes"):
        table.add_column(column, justify="right")
    for amount in amounts:
        numbers = (f"{number:,}" for traffic in amount[1:] for number in traffic)
        table.add_row(amount.label, *numbers)
    return table


def reproduce() -> None:
    """Say where the reproductions of the papers' figures are: beside the package."""
    typer.echo(
        "The reproductions of the papers' figures are in the repository, beside the package."
        " In a clone of it, run `python -m papers --list`."
    )
