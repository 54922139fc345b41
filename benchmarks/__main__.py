"""The command line: benchmarks beside a reference, and studies of growth."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table as Grid
from typer.core import TyperGroup
from typing_extensions import override

from benchmarks.history import HISTORY, Change, add_record, compare, make_record, read_history
from benchmarks.measurement import Measurement, Skipped, describe_machine
from benchmarks.studies import Study, format_study, study_files, write_study
from veilring.cli.console import show_progress
from veilring.errors import InputError, VeilringError
from veilring.scenarios.batches import Progress

# As wide as the longest row, also where the output goes to a file.
TABLE_WIDTH: Final = 150
_BENCHMARKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hop": "hops:measure_hop",
        "topk": "ring:measure_topk",
        "prediction": "prediction:measure_prediction",
        "ranksearch": "ranksearch:measure_batch",
        "arity": "ranksearch:measure_arity",
        "secure": "ranksearch_mpyc:measure",
        "simulated": "hops:measure_simulated",
        "worlds": "hiding:measure_worlds",
        "hiding": "hiding:measure_power",
        "batch": "ring:measure_batch",
        "sweep": "sweep:measure",
        "startup": "ring:measure_startup",
        "large": "ring:measure_large",
        "ldp": "ldp:measure",
        "ledger": "prediction:measure_ledger",
        "cliques": "owner:measure_cliques",
        "owner": "owner:measure_owner",
        "collector": "collector:measure",
        "treewalk": "treewalk:measure",
        "flood": "flood:measure",
        "leaking": "leaking:measure",
        "mistakes": "mistakes:measure",
        "shrinking": "shrinking:measure",
        "classify": "classify:measure",
    }
)


class _Group(TyperGroup):
    """Shows our own errors as one paragraph each; any other error keeps its trace."""

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except VeilringError as error:
            typer.echo(f"benchmarks: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from error


app = typer.Typer(cls=_Group, pretty_exceptions_enable=False, add_completion=False)
scale = typer.Typer(
    help="Measure how a system grows, fit a model, and say how far that is off.",
    no_args_is_help=True,
)
app.add_typer(scale, name="scale")


@app.callback(invoke_without_command=True)
def peers(
    context: typer.Context,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"May be given many times: {', '.join(_BENCHMARKS)}.", show_default=False
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repetitions and smaller sizes.")
    ] = False,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="Where all numbers go, as JSON.")
    ] = Path("benchmark-results.json"),
    compared: Annotated[
        bool,
        typer.Option("--compare", help="Compare each result with its last record in the history."),
    ] = False,
    recorded: Annotated[
        bool, typer.Option("--record", help="Add the results to the history.")
    ] = False,
    history: Annotated[
        Path,
        typer.Option(
            metavar="FILE.jsonl",
            help="A file with one record per run, oldest first.",
            show_default="the one beside the benchmarks",
        ),
    ] = HISTORY,
) -> None:
    """Measure what veilring costs, beside a reference in the same run; `scale` measures growth."""
    if context.invoked_subcommand is not None:
        return
    for name in only or ():
        if name not in _BENCHMARKS:
            raise InputError("--only", name, ", ".join(_BENCHMARKS))
    records = read_history(history) if compared else []  # refused before anything is measured
    results: dict[str, list[Measurement]] = {}
    skipped: dict[str, str] = {}
    for name in only or _BENCHMARKS:
        module, _, function = _BENCHMARKS[name].partition(":")
        try:
            results[name] = getattr(import_module(f"benchmarks.{module}"), function)(quick=quick)
        except Skipped as reason:
            skipped[name] = str(reason)
    _show(results, skipped)
    machine, found = describe_machine(), [each for some in results.values() for each in some]
    if compared:
        _show_changes(compare(found, records, machine=machine, quick=quick))
    if recorded:
        taken = datetime.now(UTC).date()
        names = {"version": version("veilring"), "machine": machine}
        add_record(history, make_record(found, taken=taken, quick=quick, **names))
    document = {
        "machine": machine,
        "quick": quick,
        "results": {name: [m.as_json() for m in found] for name, found in results.items()},
        "skipped": skipped,
    }
    output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _show(results: dict[str, list[Measurement]], skipped: dict[str, str]) -> None:
    table = Grid("what", "median", "min", "max", "bound", "", "medians behind it")
    for measurement in (m for found in results.values() for m in found):
        bound = measurement.bound
        table.add_row(
            measurement.name,
            _number(measurement.median, measurement.unit),
            _number(min(measurement.values), measurement.unit),
            _number(max(measurement.values), measurement.unit),
            f"{bound.side} {_number(bound.value, measurement.unit)}" if bound else "",
            measurement.verdict,
            measurement.detail,
        )
    console = Console(width=TABLE_WIDTH)
    console.print(table)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)


def _show_changes(changes: Iterable[Change]) -> None:
    table = Grid("compared with the history", "median", "last", "min", "max", "date", "change", "")
    for change in changes:
        name, unit, last = change.measurement.name, change.measurement.unit, change.last
        now = _number(change.measurement.median, unit)
        if last is None:
            table.add_row(name, now, "no record")
            continue
        known = (_number(value, unit) for value in (last.median, last.min, last.max))
        factor = "" if change.factor is None else f"{change.factor - 1:+.1%}"
        table.add_row(name, now, *known, str(change.taken), factor, change.verdict)
    Console(width=TABLE_WIDTH).print(table)


def _number(value: float, unit: str) -> str:
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


_Sizes = Annotated[
    list[int] | None,
    typer.Option("--size", help="Where to measure; may be given many times.", show_default=False),
]
_Full = Annotated[bool, typer.Option("--full", help="Measure larger sizes, for minutes.")]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where text, points, models and a picture go: scale-NAME.txt, .csv, .json, .svg.",
        show_default=False,
    ),
]
_Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]


@scale.command()
def ring(  # noqa: PLR0913  (each option is an argument)
    *,
    sizes: _Sizes = None,
    full: _Full = False,
    latency: Annotated[
        float | None,
        typer.Option(help="Of each message, in seconds: 0.05.", min=0, show_default=False),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(help="Of each link, in bytes a second: 12.5e6.", show_default=False),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="In place of both: a file with the table \\[network] of a scenario.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[int, typer.Option(help="In a batch.", min=1)] = 100,
    k: Annotated[int, typer.Option(help="How many neighbours vote.", min=1)] = 5,
    within: Annotated[
        float, typer.Option(help="In how many seconds a batch shall be labelled.")
    ] = 60.0,
    seed: _Seed = 0,
    out: _Out = None,
) -> None:
    """Simulate a batch of PP-kNN among growing numbers of parties.

    All is simulated: the same seed gives the same numbers on any machine. Sizes are numbers of
    parties, at least 3.

    For example:

        python -m benchmarks scale ring --within 60

        python -m benchmarks scale ring --size 9 --size 50 --size 200 --latency 0.02 --out growth

        python -m benchmarks scale ring --network wan.toml
    """
    from benchmarks.growth_ring import FULL, QUICK, Batch, make_network, study_ring

    links = make_network(network, latency=latency, bandwidth=bandwidth)
    batch = Batch(queries=queries, k=k, network=links, seed=seed)
    parties = sizes or (FULL if full else QUICK)
    _study("ring", lambda tell: study_ring(batch, parties, within=within, tell=tell), out)


@scale.command()
def serve(
    *,
    sizes: _Sizes = None,
    full: _Full = False,
    parties: Annotated[int, typer.Option(help="Of the ring.", min=3)] = 5,
    seed: _Seed = 0,
    out: _Out = None,
) -> None:
    """Measure the time per batch and the queries per second, by number of queries asked at once.

    A ring in memory, over TLS and as processes; a data owner; a prediction server. The numbers are
    this machine's. Sizes are numbers of queries.
    """
    from benchmarks.growth_serve import FULL, QUICK, Asked, study_serve

    asked, at_once = Asked(parties, seed), sizes or (FULL if full else QUICK)
    _study("serve", lambda tell: study_serve(asked, at_once, tell=tell), out)


@scale.command()
def collect(
    *,
    sizes: _Sizes = None,
    full: _Full = False,
    survey_clients: Annotated[int, typer.Option(help="How many processes send.", min=1)] = 2,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            help="With how many Dask workers files are added up; may be given many times. "
            "Else 1 and 2.",
            show_default=False,
        ),
    ] = None,
    out: _Out = None,
) -> None:
    """Measure a collector by number of reports, and workers that tally its files.

    The collector is `veilring serve` in a process of its own, to which others submit over TLS. That
    the sums of all pieces of the files are those of one pass is checked. The numbers are this
    machine's. Sizes are numbers of reports, each a multiple of the survey clients.
    """
    from benchmarks.collecting import Drive, Driven
    from benchmarks.growth_collect import FULL, QUICK, study_collect

    reports, clusters = sizes or (FULL if full else QUICK), workers or (1, 2)
    driven = Driven(Drive(survey_clients))
    _study("collect", lambda tell: study_collect(driven, reports, workers=clusters, tell=tell), out)


@scale.command()
def records(
    *,
    sizes: _Sizes = None,
    full: _Full = False,
    features: Annotated[int, typer.Option(help="Of a record.", min=1)] = 768,
    gib: Annotated[
        float, typer.Option(help="Of a machine's memory: how many records does it hold?")
    ] = 16.0,
    seed: _Seed = 0,
    out: _Out = None,
) -> None:
    """Measure the time per query and the memory of a prediction server, by number of records.

    Each size has a process of its own, whose linear algebra takes one core. The numbers are this
    machine's. Sizes are numbers of records.
    """
    from benchmarks.growth_records import FULL, QUICK, Table, study_records

    table, counts = Table(features=features, seed=seed), sizes or (FULL if full else QUICK)
    _study("records", lambda tell: study_records(table, counts, gib=gib, tell=tell), out)


@app.command()
def release(
    *,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="May be given many times.", show_default="all at hand"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the tables that scikit-learn does not bring are: car.csv, banknote.csv, …",
            show_default=False,
        ),
    ] = None,
    splits: Annotated[int, typer.Option(help="Of each table.", min=2)] = 20,
    epsilon: Annotated[float, typer.Option(help="Of a release.")] = 1.0,
    statistic: Annotated[str, typer.Option(help="In place of the rule's.")] = "auto",
    seed: _Seed = 0,
) -> None:
    """Measure the accuracy of a release: among peers and by an owner, with and without δ.

    Each party adds its rows and draws its share of the noise, as on a network. Each table's own
    ranges replace declared ones. The same seed prints the same numbers.

    For example:

        python -m benchmarks release --table wine --table iris

        python -m benchmarks release --data tables --splits 5
    """
    from benchmarks.releases import Trial, at_hand, format_line, header, measure_table

    trial = Trial(epsilon=epsilon, splits=splits, statistic=statistic, seed=seed)
    typer.echo(header(epsilon))
    for name in tables or at_hand(data):
        typer.echo(format_line(name, measure_table(name, data, trial), epsilon))


@app.command()
def defaults(
    *,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", help="May be given many times.", show_default="all"),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="May be given many times.", show_default="all at hand"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the tables that scikit-learn does not bring are: car.csv, banknote.csv, …",
            show_default=False,
        ),
    ] = None,
    splits: Annotated[int, typer.Option(help="Of each table.", min=2)] = 10,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Of a batch; may be given many times.", show_default="0.5, 1, 2, 4"),
    ] = None,
    seed: _Seed = 0,
) -> None:
    """Compare the rules behind `auto` with the rules that they replaced and with constants.

    Tables that a rule was made on are marked with a star, and the others checked it. The best
    constant is chosen in hindsight for each table and ε: no rule can know it. The same seed prints
    the same numbers.

    For example:

        python -m benchmarks defaults --rule radius --table wine

        python -m benchmarks defaults --data tables
    """
    from benchmarks.defaults import (
        EPSILONS,
        MADE_ON,
        RULES,
        format_head,
        format_line,
        judge,
        read,
        tables_at_hand,
    )

    for name in rules or ():
        if name not in RULES:
            raise InputError("--rule", name, ", ".join(RULES))
    budgets = epsilon or EPSILONS
    loaded = {name: read(name, data) for name in tables or tables_at_hand(data)}
    for name in rules or RULES:
        rule = RULES[name]
        typer.echo(format_head(rule, budgets))
        found = {}
        for table, rows in loaded.items():
            found[table] = judge(rule, rows, budgets, splits, seed)
            typer.echo(format_line(f"{table}{' *' * (table in MADE_ON)}", [found[table]]))
        for group, inside in (("mean of *", True), ("mean of others", False)):
            if of_group := [each for key, each in found.items() if (key in MADE_ON) == inside]:
                typer.echo(format_line(group, of_group))
        typer.echo("")


@app.command()
def advice(
    *,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="May be given many times.", show_default="all at hand"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the tables that scikit-learn does not bring are: car.csv, banknote.csv, …",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Comparisons of each table.", min=2)] = 9,
    kept: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Add each comparison to this file, and go on from what it holds.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="At a time; else one a core.")] = None,
) -> None:
    """Measure whether `veilring compare` gives the same advice for other seeds, and good advice.

    A line shows the number of seeds that agree or are undecided, the least gain over the
    majority class of the recommendation, on fresh splits and in points, and the seconds of a
    comparison, without the search in hindsight. Tables are cut to 2,000 rows.

    For example:

        python -m benchmarks advice --table wine --table iris

        python -m benchmarks advice --data tables --kept advice.jsonl
    """
    from benchmarks.advice import campaign
    from benchmarks.releases import at_hand

    for line in campaign(tables or at_hand(data), data, seeds, kept, workers):
        typer.echo(line)


def _study(name: str, measure: Callable[[Progress | None], Study], out: Path | None) -> None:
    """Measure, print, and write the results to a folder if one is given."""
    files = None if out is None else study_files(name, out)  # refused before anything is measured
    with show_progress(quiet=False) as progress:
        try:
            study = measure(progress)
        except InputError as error:
            if error.field != "sizes":
                raise
            raise InputError.of(error, "--size") from error
    machine = describe_machine()
    typer.echo(format_study(study, machine), nl=False)
    if files is not None:
        write_study(study, machine, files)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
