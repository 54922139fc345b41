"""`veilring stats`: statistics among peers, from CSV files and a plan, or of running parties."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from veilring.cli.options import AsJson, ReadingFiles, readings_of
from veilring.errors import InputError
from veilring.nodes import RuntimeName

if TYPE_CHECKING:
    from veilring.protocols.promise import Promise
    from veilring.protocols.statistics.algorithm.tallies import Statistic
    from veilring.protocols.statistics.terms import PlanTerms


_WIDTH: Final = 12  # of a name and of a number in a result


def stats_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="TOML file with columns and statistics, or a client's configuration; then the CSV"
            " file of each party, or one to deal to them.",
            metavar="[PLAN] [ROWS...]",
        ),
    ],
    *,
    statistic: Annotated[
        str | None,
        typer.Option(help="One statistic instead of a plan, such as 'mean age'.", metavar="WORDS"),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of it: age=0:120, or smokes=no,yes; may be repeated.", metavar="COLUMN"
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε of --statistic.")] = None,
    small: Annotated[int, typer.Option(help="Counts below this are hidden.", min=0)] = 0,
    reading: ReadingFiles = None,
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

        veilring stats rows.csv --parties 3 --statistic 'cross-table smokes sex'
            --column smokes=no,yes --column sex=f,m

    `veilring stats client.toml` asks running parties for the results of the plan in their terms.
    The configuration names the client's own key and the party to ask:

        role     = "client"
        identity = "clerk.key"
        roster   = "roster.toml"
        terms    = "plan.toml"
        ask      = "ada"
    """
    from veilring.config import read_tables
    from veilring.protocols.statistics.terms import PlanTerms
    from veilring.scenarios.stats import run_plan

    if statistic is not None:
        terms = PlanTerms.quick(statistic, column or (), epsilon=epsilon, small=small)
    elif column or epsilon is not None or small:
        message = "--column, --epsilon and --small belong to --statistic; write them into the plan"
        raise InputError.because(message, field="--statistic")
    else:
        plan, *files = files
        if "role" in read_tables(plan, "plan"):
            _ask(plan, files, as_json=as_json)
            return
        terms = PlanTerms.load(plan)
    count = parties or len(files)
    if not (files or (forecast and count)):
        message = "give the CSV file of each party, or one file and --parties"
        raise InputError.because(message, field="ROWS")
    if parties is not None and len(files) > 1 and parties != len(files):
        raise InputError("--parties", parties, f"left out, or {len(files)}: there is a file each")
    bound = terms.bind(count)
    if forecast:
        typer.echo(f"{bound.promise}\n{'cost':<14}{bound.forecast}")
        return
    tables = _tables(terms, files, count, readings_of(reading, list(map(str, files))))
    answer = run_plan(terms.bind(count), tables, runtime=runtime, seed=seed)
    costs = {"cost": answer.cost, "forecast": answer.forecast, "transcript": answer.transcript}
    _show(terms, answer.value, {**_guarantee(answer.promise), **costs}, as_json=as_json)


def _tables(
    terms: "PlanTerms", files: Sequence[Path], parties: int, readings: Mapping[str, str]
) -> dict[str, Mapping[str, Any]]:
    """Return the columns of each party's file, or those of one file dealt to all parties."""
    from veilring.data.cells import read_particulars

    tables: dict[str, Mapping[str, Any]] = {}
    for path in files:
        given = readings.get(str(path))
        own = read_particulars(None if given is None else Path(given), "--reading")
        tables[path.name] = terms.read(path, own)
    if len(tables) < len(files):
        raise InputError.because("each file needs a different name", field="ROWS")
    if len(files) == 1:
        (table,) = tables.values()
        tables = {
            f"party-{number}": {name: cells[number::parties] for name, cells in table.items()}
            for number in range(parties)
        }
    return tables


def _ask(config: Path, files: Sequence[Path], *, as_json: bool) -> None:
    """Show the results of running parties."""
    import asyncio

    from veilring.deployment import perform

    if files:
        message = "running parties have their own rows; leave ROWS out, or give a plan"
        raise InputError.because(message, field="ROWS")
    asked = asyncio.run(perform(config, "statistics"))
    _show(asked.terms, asked.results, _guarantee(asked.promise), as_json=as_json)


def _guarantee(promise: "Promise") -> dict[str, Any]:
    """Return a guarantee, and its paragraph for a data-protection assessment."""
    from veilring.deployment.config import STATISTICS

    return {"promise": promise, "paragraph": promise.paragraph(STATISTICS)}


def _show(
    terms: "PlanTerms", results: Sequence[Any], facts: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print all results, with facts about them."""
    names = [
        " ".join([each.kind, *_columns(each.model_dump(exclude_unset=True))])
        for each in terms.statistics
    ]
    if as_json:
        named = zip(names, results, strict=True)
        found = [{"statistic": name, "result": _plain(value)} for name, value in named]
        plain = {key: asdict(each) if is_dataclass(each) else each for key, each in facts.items()}  # type: ignore[arg-type]  # an instance
        typer.echo(json.dumps({"results": found, **plain}, indent=2, ensure_ascii=False))
        return
    for name, statistic, value in zip(names, terms.bound, results, strict=True):
        typer.echo(name)
        for line in _lines(statistic, value):
            typer.echo(f"  {line}".rstrip())
    typer.echo(f"\n{facts['promise']}")
    if "cost" in facts:
        typer.echo(f"{'cost':<14}{facts['cost']}")
    typer.echo(f"\n{facts['paragraph']}")


def _lines(statistic: "Statistic[Any]", value: Any) -> Iterator[str]:  # noqa: ANN401  (any result)
    """Yield the lines of a result, with the names of the groups that its numbers are of."""
    groupings = (getattr(statistic, key, None) for key in ("first", "second", "by"))
    axes = [grouping.names for grouping in groupings if grouping is not None]
    parts = asdict(value) if is_dataclass(value) else {"": value}  # type: ignore[arg-type]  # an instance
    lengths = [len(names) for names in axes]
    if axes and lengths == list(next(iter(parts.values())).shape):
        widths = [max(_WIDTH, len(name)) for name in axes[-1]]
        yield " " * _WIDTH + _row(axes[-1], widths)
    for key, part in parts.items():
        if not axes or getattr(part, "shape", ()) != tuple(lengths):
            yield f"{key:<{_WIDTH}}{_text(part)}"
            continue
        rows = part if part.ndim > 1 else [part]
        heads = axes[0] if part.ndim > 1 else [key]
        for head, row in zip(heads, rows, strict=True):
            yield f"{head:<{_WIDTH}}" + _row([_text(each) for each in row], widths)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


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
