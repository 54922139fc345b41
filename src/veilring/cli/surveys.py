"""`veilring estimate`, `export`, `tally`, `oracles`: the reports of a survey; and `classify`."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from veilring.cli.answers import AnswerFile, as_csv, or_stdin, require_new, write_answer
from veilring.cli.options import AsJson, ConfigFile, DaskAddress, KeptColumns, ReadingFile, Workers
from veilring.errors import InputError


def classify_command(
    model: Annotated[
        Path, typer.Argument(help="JSON file with a released model.", metavar="MODEL")
    ],
    rows: Annotated[
        Path | None,
        typer.Argument(
            help="CSV file with the rows to label; - reads it from stdin.", metavar="[ROWS]"
        ),
    ] = None,
    *,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Add a column with the probability of each class."),
    ] = False,
    keep: KeptColumns = None,
    reading: ReadingFile = None,
    out: AnswerFile = None,
) -> None:
    """Label the rows of a CSV file with a released model, without contacting any party.

    The file needs the columns of the model; other columns, such as a label, are ignored. The answer
    is a CSV file with the identifiers of the model's schema, the columns of `--keep`, the column
    `label`, and with `--probabilities` a column `probability of NAME` for each class.

    Without ROWS the command prints the guarantee of the model for the rows it was made from, and
    how it was made.

    For example:

        veilring run wine --protocol release --out runs/release

        veilring classify runs/release/model.json rows.csv --out labels.csv
    """
    require_new(out)
    from veilring.data.cells import read_particulars
    from veilring.data.schema import kept_columns
    from veilring.protocols.release.model import load_model

    loaded = load_model(model)
    if rows is None:
        typer.echo(f"{loaded}\n\n{loaded.promise.paragraph('release')}")
        return
    cells = loaded.schema.read(or_stdin(rows), read_particulars(reading))
    scaled = loaded.schema.queries_of(cells)
    columns: dict[str, Sequence[object]] = {**kept_columns(loaded.schema, cells, keep or ())}
    columns["label"] = loaded.named(loaded.classifier.predict(scaled)).tolist()
    if probabilities:
        found = loaded.probabilities(scaled).T.tolist()
        names = (f"probability of {name}" for name in loaded.schema.classes)
        columns |= dict(zip(names, found, strict=True))
    write_answer(as_csv(columns), out, "free some space and classify again")


if TYPE_CHECKING:
    from veilring.deployment.surveys.aggregators import Totals
    from veilring.deployment.surveys.collector import CollectorConfig, EstimatedNumber, Estimates

_MEMBERS_LISTED_MAX: Final = 20  # more do not fit in a few lines; `--json` lists all

_Confidence = Annotated[float, typer.Option(help="Confidence of each interval, between 0 and 1.")]
_SaveTo = Annotated[
    Path | None, typer.Option(metavar="FILE", help="JSON file to write the naive Bayes model to.")
]
_Consistent = Annotated[
    str | None,
    typer.Option(
        help="How the model treats counts below 0: paper, clip or norm-sub. Default: that of"
        " ldp-bayes."
    ),
]
_Table = Annotated[
    Path | None, typer.Option(metavar="FILE.csv", help="CSV file to write the estimates to.")
]
_Chart = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", help="Chart of the estimates to write, as .svg or .png."),
]
_Without = Annotated[
    list[str] | None,
    typer.Option(metavar="MEMBER", help="Leave out the reports of this member; may be repeated."),
]


def _load_collector(config: Path, command: str) -> "CollectorConfig":
    from veilring.deployment import load_config_of
    from veilring.deployment.surveys.collector import CollectorConfig

    return load_config_of(config, CollectorConfig, f"veilring {command}")


def _conclude(
    found: "Estimates", save: Path | None, consistency: str | None, shown: "_Shown"
) -> None:
    """Write the model, if wanted, and show the estimates."""
    if save is not None:
        from veilring.deployment.surveys.collector import save_model

        save_model(found, save, consistency=consistency)
    show_estimates(found, **shown._asdict())
    if save is not None and not shown.json:
        typer.echo(f"model: {save}")


class _Shown(NamedTuple):
    """How estimates are shown.

    Attributes:
        json: Whether to print JSON in place of a table.
        out: The CSV file to write, if wanted.
        plot: The file of a chart, if wanted.
    """

    json: bool = False
    out: Path | None = None
    plot: Path | None = None

    def write(self, lines: "Sequence[EstimatedNumber]", title: str, said: "_Said") -> None:
        """Write the files that are wanted."""
        if self.plot is not None:
            from veilring.scenarios.charts import Bar, draw_estimates

            bars = [
                Bar(
                    said.panels.get(each.of, each.of),
                    " ".join(filter(None, (each.value, each.within))),
                    each.estimate,
                    each.low,
                    each.high,
                )
                for each in lines
            ]
            draw_estimates(self.plot, bars, title, said.interval, one_scale=said.are_shares)
        if self.out is not None:
            fields = dict(zip(said.names, ("of", "value", "within"), strict=False))
            fields |= {name: name for name in ("estimate", "low", "high")} | {"reports": "clients"}
            columns = {name: [getattr(each, key) for each in lines] for name, key in fields.items()}
            columns["interval"] = [said.interval] * len(lines)
            write_answer(as_csv(columns), self.out, "free some space and estimate again")
        if not self.json:
            for what, path in (("table", self.out), ("chart", self.plot)):
                if path is not None:
                    typer.echo(f"{what}: {path}")


class _Said(NamedTuple):
    """The words of estimates.

    Attributes:
        names: The headers of the columns that say what is estimated.
        interval: The name of the intervals.
        are_shares: Whether all estimates are shares.
        panels: The titles of panels in a chart, if they are not the names of columns.
    """

    names: tuple[str, ...]
    interval: str
    are_shares: bool = True
    panels: Mapping[str, str] = {}


def show_estimates(found: "Estimates", *, json: bool, **files: Path | None) -> None:
    """Print estimates as a table, or as JSON, and write the files that are wanted.

    Args:
        files: `out`, a CSV file, and `plot`, a chart.
    """
    shown = _Shown(json, **files)
    epsilon = found.terms.task.survey.exact_epsilon
    title = f"{found.terms.protocol.kind}: {found.tally.clients:,} reports, epsilon {epsilon:g}"
    said = _Said(
        ("column", "value", "class")[: 3 if found.terms.classes else 2],
        f"{found.confidence:.0%} interval",
        are_shares=found.terms.protocol.kind in {"frequency", "words"},
    )
    if shown.json:
        _print_json(found)
    else:
        _print_lines(found.lines, title, said)
        _print_remarks(found)
    shown.write(found.lines, title, said)


def _print_json(found: "Estimates") -> None:
    from json import dumps

    document = {
        "task": found.terms.task.digest.hex(),
        "epsilon": found.terms.task.survey.exact_epsilon,
        "reports": found.tally.clients,
        "members": dict(found.members),
        "without": list(found.without),
        "repeated": found.repeated,
        "reused": found.reused,
        "below_minimum": found.is_below_minimum,
        "confidence": found.confidence,
        "estimates": _as_objects(found.lines),
    }
    typer.echo(dumps(document, indent=2, allow_nan=False))


def _as_objects(lines: "Sequence[EstimatedNumber]") -> list[dict[str, object]]:
    import dataclasses

    return [
        {name: _finite(value) for name, value in dataclasses.asdict(line).items()} for line in lines
    ]


def _finite(value: object) -> object:
    """Return a value, or none for an infinity, which JSON cannot express."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_lines(lines: "Sequence[EstimatedNumber]", title: str, said: _Said) -> None:
    """Print a table of estimates."""
    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=title, title_justify="left")
    for name in said.names:
        table.add_column(name, overflow="fold")
    for name in ("estimate", said.interval, "reports"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        interval = f"{line.low:.4f} to {line.high:.4f}"
        numbers = (f"{line.estimate:.4f}", interval, f"{line.clients:,}")
        table.add_row(*(line.of, line.value, line.within)[: len(said.names)], *numbers)
    make_console().print(table, markup=False)


def _print_remarks(found: "Estimates") -> None:
    if found.members:
        typer.echo(f"stored by member: {_describe_members(found.members)}")
    if found.without:
        typer.echo(f"left out: {', '.join(found.without)}")
    if found.repeated:
        typer.echo(f"in several stores, and counted once: {found.repeated:,} reports")
    if found.reused:
        typer.echo(
            f"not counted, because another report in an earlier store has the same id:"
            f" {found.reused:,}"
        )
    if found.is_below_minimum:
        typer.echo(
            f"{found.tally.clients:,} reports are left, fewer than the minimum of"
            f" {found.terms.protocol.minimum:,}: use these estimates only to compare"
        )


def _show_totals(config: Path, confidence: float, shown: _Shown) -> None:
    """Get the totals of a verified sum; show them, or the shares of the answers to questions."""
    import asyncio
    from json import dumps

    from veilring.cli.operate import log_to_stderr
    from veilring.deployment.duties import load_config, perform

    log_to_stderr()
    found: Totals = asyncio.run(perform(load_config(config), "estimate", confidence))
    task, lines = found.task, found.estimates
    spent = "exact" if task.epsilon is None else f"epsilon {task.epsilon:g}"
    name = str(task.terms.get("title", task.vdaf.kind))
    if not found.batches and (shown.out or shown.plot):
        field = "out" if shown.out else "plot"
        raise InputError.because(f"{name}: {_none_yet(found)}", field=field)
    said = _Said(
        ("question", "answer"), f"{confidence:.0%} interval of the noise", panels=found.texts
    )
    title = f"{name}, {spent} for each batch"
    if lines:
        title = f"{name}: {lines[0].clients:,} people, {spent}"
    if shown.json:
        document = {
            "task": task.name,
            "epsilon": task.epsilon,
            "confidence": found.confidence,
            "batches": [each._asdict() for each in found.batches],
            "estimates": _as_objects(lines),
        }
        typer.echo(dumps(document, indent=2))
    else:
        if lines:
            _print_lines(lines, title, said)
        elif found.batches:
            _print_batches(found, title)
        else:
            typer.echo(f"{name}: {_none_yet(found)}")
        typer.echo(_rest(found))
    shown.write(lines, title, said)


def _none_yet(found: "Totals") -> str:
    return f"fewer than {found.task.minimum:,} reports are verified, so that there is no total yet"


def _rest(found: "Totals") -> str:
    """Return whether the reports that are in no total will count."""
    waiting = "`veilring status` of the leader shows the number of reports that wait"
    if found.task.closes is None or found.task.epsilon is None:
        why = "the terms have no `closes`" if found.task.closes is None else "totals are exact"
        return f"{waiting}; the last ones, below {found.task.minimum:,}, never count: {why}"
    end = dt.datetime.fromtimestamp(found.task.closes, dt.UTC)
    return f"{waiting}; the last ones count after {end:%Y-%m-%d %H:%M} UTC"


def _print_batches(found: "Totals", title: str) -> None:
    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=title, title_justify="left")
    for name in ("entry", "batch", "reports", "total", f"{found.confidence:.0%} interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.batches:
        for number, total in enumerate(each.totals):
            interval = f"{total - each.margin:,} to {total + each.margin:,}"
            row = (f"{number}", f"{each.number}", f"{each.reports:,}", f"{total:,}", interval)
            table.add_row(*row)
    make_console().print(table, markup=False)


def _describe_members(members: Mapping[str, int]) -> str:
    if len(members) > _MEMBERS_LISTED_MAX:
        name = max(members, key=lambda member: members[member])
        return (
            f"{len(members):,} members, {sum(members.values()):,} in total, at most"
            f" {members[name]:,} by one ({name})"
        )
    return ", ".join(f"{name} {count:,}" for name, count in members.items())


def estimate_command(
    config: ConfigFile,
    stores: Annotated[
        list[str] | None,
        typer.Argument(
            help="Stores of further collectors of the same task, which are added: state files, or"
            " postgresql://USER@HOST/DATABASE.",
            metavar="[STORES]...",
            show_default=False,
        ),
    ] = None,
    *,
    confidence: _Confidence = 0.95,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount", help="Recount all reports, and compare them with the running sums."
        ),
    ] = False,
    without: _Without = None,
    save: _SaveTo = None,
    consistency: _Consistent = None,
    out: _Table = None,
    plot: _Chart = None,
    json: AsJson = False,
) -> None:
    """Estimate the answers from the stored reports of collectors, even while they collect.

    Run it where the collector's store can be reached; the collector itself does not have to be
    running. With fewer reports than the `minimum` in the terms, the command estimates nothing;
    you may change `minimum` at any time.

    Further STORES are added, as if one collector had all reports. All reports are then read. A
    report that is in several stores counts once, and the output says how many there are.

    Estimates are unbiased, so some may be slightly negative; each interval has the given confidence
    on its own, but the intervals do not hold jointly. For `discrete-bayes`, a line shows the share
    of clients that have both the value and the class. For `gaussian-bayes`, it shows the mean of
    the column (scaled to [-1, 1]) or of its square within the class, multiplied by the share of the
    class. The model that `--save` writes contains the means themselves. In JSON, unknown ends of an
    interval are null.

    For the collector of a verified sum, the command asks both aggregators for the noisy totals of
    all batches that are closed. Each batch costs its ε once; afterwards its total is the same. If
    the task has questions, the lines show the share of people with each answer, over all batches.
    """
    from veilring.deployment import load_config
    from veilring.deployment.duties import duty_of
    from veilring.deployment.surveys.collector import estimate_stored

    shown = _Shown(json, out, plot)
    require_new(out)
    if duty_of(load_config(config)).estimate is not None:
        if stores or recount or without or save or consistency:
            raise InputError.because(
                "the collector of a verified sum has no reports; give only --confidence, --out,"
                " --plot and --json",
                field="config",
            )
        _show_totals(config, confidence, shown)
        return
    loaded = _load_collector(config, "estimate")
    found = estimate_stored(
        loaded, stores=stores or (), confidence=confidence, recount=recount, without=without or ()
    )
    _conclude(found, save, consistency, shown)
    if recount and not json:
        typer.echo(
            f"recounted {sum(found.members.values()):,} reports: the running sums are correct"
        )


def export_command(
    config: ConfigFile,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder to write the Parquet files to.")
    ],
    without: _Without = None,
) -> None:
    """Write all stored reports of a collector to Parquet files, even while it collects.

    The files contain noisy reports by question, without ids or names. `veilring tally` adds them up
    elsewhere, on one machine or on a Dask cluster.
    """
    from veilring.deployment.surveys.collector import export_reports

    loaded = _load_collector(config, "export")
    files = export_reports(loaded, out, without=without or ())
    typer.echo(f"{len(files):,} {'file' if len(files) == 1 else 'files'}: {out}")


def tally_command(
    terms: Annotated[Path, typer.Argument(help="Terms of the collection.", metavar="TERMS")],
    reports: Annotated[
        list[Path], typer.Argument(help="Files written by `veilring export`.", metavar="REPORTS")
    ],
    *,
    confidence: _Confidence = 0.95,
    save: _SaveTo = None,
    consistency: _Consistent = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Where to sum the reports: local (processes) or dask. Default: this process."
        ),
    ] = None,
    workers: Workers = None,
    dask_address: DaskAddress = None,
    out: _Table = None,
    plot: _Chart = None,
    json: AsJson = False,
) -> None:
    """Compute estimates from any number of Parquet files of reports, on one machine or a cluster.

    The result is exactly the same on every engine. A report for another task, or one that no client
    could have made, ends the command with an error. Memory use does not grow with the size of the
    files. A cluster's workers must find the files under the same absolute paths.

    For example:

        veilring export census.toml --out reports
        veilring tally terms.toml reports/*.parquet --save model.json
        veilring tally terms.toml reports/*.parquet --engine dask --dask-address tcp://10.0.0.5:8786
    """
    from functools import partial

    from veilring.deployment.surveys.collector import estimate_from
    from veilring.deployment.surveys.terms import SurveyTerms
    from veilring.protocols.ldp.parquet import tally_parquet

    require_new(out)
    if engine is None and (workers, dask_address) != (None, None):
        raise InputError.because(
            "workers need an engine; give --engine local or dask", field="engine"
        )
    tally = tally_parquet
    if engine is not None:
        from veilring.scenarios.sweep.engine import Engine, each_done

        spread = partial(each_done, engine=Engine(engine, workers, dask_address))
        tally = partial(tally_parquet, spread=spread)
    loaded = SurveyTerms.load(terms)
    found = estimate_from(loaded, tally(loaded.task, reports), confidence=confidence)
    _conclude(found, save, consistency, _Shown(json, out, plot))


def oracles_command(
    *,
    domain: Annotated[
        list[int] | None,
        typer.Option(help="Number of values; may be repeated. Default: 4, 32 and 1024."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Epsilon of a report, up to 20.")] = 1.0,
    max_bytes: Annotated[int | None, typer.Option(help="Maximum size of a report.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg", help="Chart all oracles by domain and by epsilon, as .svg or .png."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the accuracy and cost of each frequency oracle, from its exact probabilities.

    The variance is that of an estimated share, averaged over the values, times the number of
    clients: with 10,000 clients and a variance of 4, the standard deviation of a share is 0.02.
    The influence is the number of clients by which one false report can move a count, 1 / (p - q).
    The exact epsilon is the privacy loss of a report. A star marks the choice of `oracle = "auto"`:
    the shortest report among those whose variance is at most 1 % above the smallest.

    For example:

        veilring oracles --domain 32 --epsilon 1
        veilring oracles --epsilon 0.5 --plot oracles.svg
    """
    from veilring.protocols.ldp.algorithm.oracles import oracle_options, recommend_oracle

    domains = domain or [4, 32, 1024]
    tables = [
        (
            values,
            oracle_options(values, epsilon),
            recommend_oracle(values, epsilon, max_bytes=max_bytes).name,
        )
        for values in domains
    ]
    if plot is not None:
        from veilring.scenarios.charts import draw_oracles

        draw_oracles(plot, domain=domains[-1], epsilon=epsilon)
    rows = [
        {
            "domain": values,
            "oracle": each.name,
            "variance": each.mean_variance,
            "influence": each.influence,
            "report_bytes": each.report_bytes,
            "exact_epsilon": each.exact_epsilon,
            "recommended": each.name == best,
        }
        for values, found, best in tables
        for each in found
    ]
    if json:
        from json import dumps

        typer.echo(dumps(rows, indent=2))
    else:
        _show_oracles(rows, epsilon)


def _show_oracles(rows: list[dict[str, object]], epsilon: float) -> None:
    from itertools import groupby

    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=f"Frequency oracles at epsilon {epsilon:g}", title_justify="left")
    for name in ("values", "oracle", "variance", "influence", "bytes", "exact epsilon"):
        table.add_column(name, justify="left" if name == "oracle" else "right", no_wrap=True)
    for _, group in groupby(rows, key=lambda row: row["domain"]):
        for row in group:
            star = " *" if row["recommended"] else ""
            table.add_row(
                str(row["domain"]),
                f"{row['oracle']}{star}",
                f"{row['variance']:.4g}",
                f"{row['influence']:,.1f}",
                f"{row['report_bytes']:,}",
                f"{row['exact_epsilon']:.6f}",
            )
        table.add_section()
    make_console().print(table)
