"""`veilring stats`: statistics among peers, from CSV files and the file of a plan."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from veilring.cli.options import AsJson
from veilring.errors import InputError
from veilring.nodes import RuntimeName


def stats_command(
    plan: Annotated[
        Path, typer.Argument(help="TOML file with columns and statistics.", metavar="PLAN")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(help="CSV file of each party, or one to deal to them.", metavar="ROWS..."),
    ],
    *,
    parties: Annotated[
        int | None,
        typer.Option(help="Number of parties to which the rows of one file are dealt in turn."),
    ] = None,
    runtime: Annotated[RuntimeName, typer.Option(help="Runtime of the parties.")] = "memory",
    seed: Annotated[int | None, typer.Option(help="Random seed, for experiments.", min=0)] = None,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Only show the promise and the cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute statistics of several parties' rows, which stay with the parties.

    A plan declares the columns with their public ranges, resolutions or categories, and the
    statistics. They are exact, or with `epsilon` in the plan protected by noise. With `small`,
    results hide small counts.

    For example:

        veilring stats plan.toml rows.csv --parties 5

        veilring stats plan.toml north.csv east.csv south.csv --runtime tls --json
    """
    from veilring.protocols.statistics.terms import PlanTerms
    from veilring.scenarios.stats import run_plan

    terms = PlanTerms.load(plan)
    count = parties or len(files)
    if parties is not None and len(files) > 1 and parties != len(files):
        raise InputError("--parties", parties, f"left out, or {len(files)}: there is a file each")
    bound = terms.bind(count)
    if forecast:
        typer.echo(f"{bound.promise}\n{'cost':<14}{bound.forecast}")
        return
    tables: dict[str, Mapping[str, Any]] = {path.name: terms.read(path) for path in files}
    if len(tables) < len(files):
        raise InputError.because("each file needs a different name", field="ROWS")
    if len(files) == 1:
        (table,) = tables.values()
        tables = {
            f"party-{number}": {name: cells[number::count] for name, cells in table.items()}
            for number in range(count)
        }
    answer = run_plan(bound, tables, runtime=runtime, seed=seed)
    named = [
        (f"{each.kind} {' '.join(_columns(each.model_dump(exclude_unset=True)))}".strip(), value)
        for each, value in zip(terms.statistics, answer.value, strict=True)
    ]
    if as_json:
        results = [{"statistic": name, "result": _plain(value)} for name, value in named]
        found = {
            "results": results,
            "promise": asdict(answer.promise),
            "cost": asdict(answer.cost),
            "forecast": asdict(answer.forecast),
            "transcript": answer.transcript,
        }
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name, value in named:
        typer.echo(name)
        shown = (
            asdict(value) if is_dataclass(value) and not isinstance(value, type) else {"": value}
        )
        for key, part in shown.items():
            typer.echo(f"  {key:<12}{_text(part)}" if key else f"  {_text(part)}")
    typer.echo(f"\n{answer.promise}\n{'cost':<14}{answer.cost}")


def _columns(terms: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns of a statistic, in the order of its keys."""
    given = [value for key, value in terms.items() if key not in {"kind", "at"}]
    return [name for value in given for name in ([value] if isinstance(value, str) else value)]


def _text(value: Any) -> str:  # noqa: ANN401  (a number or an array)
    import numpy as np

    if not isinstance(value, np.ndarray):
        return f"{value:,.10g}"
    with np.printoptions(precision=6, suppress=True, threshold=200, linewidth=84):
        return str(value).replace("\n", "\n" + " " * 14)


def _plain(value: Any) -> Any:  # noqa: ANN401  (a result, and its form in JSON)
    """Return a result as numbers, lists and objects; null where it is hidden or undefined."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(part) for name, part in asdict(value).items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isnan(value) else value
