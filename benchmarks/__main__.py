"""The command line: benchmarks beside a reference, and studies of accuracy."""

import json
from collections.abc import Iterable, Mapping
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
from benchmarks.measurement import Bound, Measurement, Skipped, describe_machine
from veilring.errors import InputError, VeilringError

# As wide as the longest row, also where the output goes to a file.
TABLE_WIDTH: Final = 150
_BENCHMARKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hop": "hops:measure_hop",
        "prediction": "prediction:measure_prediction",
        "ranksearch": "ranksearch:measure_batch",
        "secure": "ranksearch_mpyc:measure",
        "simulated": "hops:measure_simulated",
        "worlds": "hiding:measure_worlds",
        "hiding": "hiding:measure_power",
        "batch": "ring:measure_batch",
        "startup": "ring:measure_startup",
        "large": "ring:measure_large",
        "ldp": "ldp:measure",
        "owner": "owner:measure_owner",
        "collector": "collector:measure",
        "growth": "collector:measure_growth",
        "treewalk": "treewalk:measure",
        "prio": "prio:measure",
        "flood": "flood:measure",
        "leaking": "leaking:measure",
        "mistakes": "mistakes:measure",
        "classify": "classify:measure",
        "tcp": "tcp:measure",
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
        bool, typer.Option("--compare", help="Fail if a result is worse than its last record.")
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
    """Measure what veilring costs, beside a reference in the same run."""
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
    changes = list(compare(found, records, machine=machine, quick=quick)) if compared else []
    if compared:
        _show_changes(changes)
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
    if worse := [each.measurement.name for each in changes if each.verdict == "worse"]:
        typer.echo(f"benchmarks: worse than the last record: {'; '.join(worse)}", err=True)
        raise typer.Exit(1)


def _show(results: dict[str, list[Measurement]], skipped: dict[str, str]) -> None:
    table = Grid("what", "median", "min", "max", "target", "", "medians behind it")
    for measurement in (m for found in results.values() for m in found):
        bound = measurement.bound
        table.add_row(
            measurement.name,
            _number(measurement.median, measurement.unit),
            _number(min(measurement.values), measurement.unit),
            _number(max(measurement.values), measurement.unit),
            _limit(bound, measurement.unit) if bound else "",
            measurement.verdict,
            measurement.detail,
        )
    console = Console(width=TABLE_WIDTH)
    console.print(table)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)


def _show_changes(changes: Iterable[Change]) -> None:
    table = Grid("compared with the history", "median", "last", "date", "change", "bound", "")
    for change in changes:
        name, unit, last = change.measurement.name, change.measurement.unit, change.last
        now = _number(change.measurement.median, unit)
        if last is None:
            table.add_row(name, now, "no record")
            continue
        factor = "" if change.factor is None else f"{change.factor - 1:+.1%}"
        bound = "" if change.bound is None else _limit(change.bound, unit)
        known = _number(last.median, unit), str(change.taken), factor, bound
        table.add_row(name, now, *known, change.verdict)
    Console(width=TABLE_WIDTH).print(table)


def _limit(bound: Bound, unit: str) -> str:
    return f"{bound.side} {_number(bound.value, unit)}"


def _number(value: float, unit: str) -> str:
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


_Tables = Annotated[
    list[str] | None,
    typer.Option("--table", help="May be given many times.", show_default="all at hand"),
]
_Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the tables that scikit-learn does not bring are: car.csv, banknote.csv, …",
        show_default=False,
    ),
]
_Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]


@app.command()
def defaults(
    *,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", help="May be given many times.", show_default="all"),
    ] = None,
    tables: _Tables = None,
    data: _Data = None,
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
    tables: _Tables = None,
    data: _Data = None,
    seeds: Annotated[int, typer.Option(help="Comparisons of each table.", min=2)] = 10,
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
    """Measure whether `veilring compare` decides alike for other seeds, and well.

    A line shows the number of seeds with the same pick, and the pairs of seeds that contradict each
    other: the pick of neither is the pick of the other, or open there. Then come, on fresh splits,
    the least gain over the majority class in points, and the picks within the tolerance of the best
    line of equal trust. The last numbers are the median splits and seconds of a comparison without
    the search in hindsight. Tables are cut to 2,000 rows.

    For example:

        python -m benchmarks advice --table wine --table iris

        python -m benchmarks advice --data tables --kept advice.jsonl
    """
    from benchmarks.advice import campaign
    from benchmarks.samples import at_hand

    for line in campaign(tables or at_hand(data), data, seeds, kept, workers):
        typer.echo(line)


@app.command("numbers")
def predicted(
    *,
    tables: _Tables = None,
    data: _Data = None,
    splits: Annotated[int, typer.Option(help="Of each table.", min=2)] = 20,
    epsilon: Annotated[float, typer.Option(help="Of a release.")] = 1.0,
) -> None:
    """Compare R² of released ridge regressions with AdaSSP and with regressions without noise.

    The columns are: a release by eight peers of which three may collude, a release by an owner,
    AdaSSP by an owner, and without noise a linear regression and kNN. A split has three quarters of
    the rows. Equal arguments print equal numbers.

    For example:

        python -m benchmarks numbers --data tables
    """
    from benchmarks.regression import LABELS, format_numbers, read_numbers, splits_of

    at_hand = [name for name, label in LABELS.items() if data is not None or not label]
    for name in tables or at_hand:
        table = read_numbers(name, data)
        typer.echo(format_numbers(name, table, list(splits_of(table, epsilon, splits))))


@app.command()
def explored(
    checkout: Annotated[
        Path, typer.Argument(help="The folder of a clone, at the commit to compare with.")
    ],
    *,
    worlds: Annotated[int, typer.Option(help="Of each subject.", min=1)] = 40,
    plays: Annotated[int, typer.Option(help="Of each world; the fastest one counts.", min=1)] = 3,
) -> None:
    """Compare how many worlds with faults a core explores in a second, here and at a commit.

    Both play the worlds of the same seeds in turns. The ratios are those of single worlds.

    For example:

        git worktree add ../before COMMIT && python -m benchmarks explored ../before
    """
    from benchmarks.exploring import compare as compare_worlds

    _show({"explored": compare_worlds(checkout, worlds=worlds, plays=plays)}, {})


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
